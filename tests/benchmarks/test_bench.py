"""The benchmark's own logic: fits, ratios, results that survive, the JSON that it promises, a peer that is missing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as program
from benchmarks import beside_peers, results
from benchmarks.measuring import Cell, Section, curve, in_turns, median, ratio, short, up_to

MACHINE = {"machine": "x86_64 Chip 2", "memory_gib": 8, "gpu": None, "python": "3.11", "torch": "2", "numpy": "2"}


def part(section: Section, **changes: Any) -> dict[str, Any]:
    stamp = {"date": "2026-01-01 00:00", "commit": "abc", "load": 0.5, "machine": MACHINE, "seconds": 1.0}
    return {**stamp, **section.json(), **changes}


def test_a_power_law_has_its_exponent_and_a_narrow_interval() -> None:
    fitted = curve("a", "users", "s", {n: 3.0 * n**1.7 for n in (10, 30, 100, 300)})
    assert fitted.exponent == pytest.approx(1.7) and fitted.lo == pytest.approx(1.7) == fitted.hi


def test_noise_widens_the_interval_and_two_sizes_have_none() -> None:
    noisy = curve("a", "users", "s", {10: 10, 100: 140, 1000: 700})
    assert noisy.lo is not None and noisy.hi is not None and noisy.hi - noisy.lo > 0.1
    assert noisy.lo < 1 < noisy.hi
    assert curve("a", "users", "s", {10: 1, 100: 100}).lo is None
    assert curve("a", "users", "s", {10: 1}).exponent is None


def test_a_ratio_compares_the_times_of_one_turn() -> None:
    same = ratio("row", "column", [2, 20, 200, 2000], [1, 10, 100, 1000])
    assert (same.value, same.lo, same.hi) == (2, 2, 2)
    assert median("row", "column", [4.0]).lo is None


def test_every_engine_runs_once_a_turn() -> None:
    seen: list[tuple[str, int]] = []
    spent = in_turns({name: lambda turn, n=name: seen.append((n, turn)) for name in "ab"}, 5)
    assert sorted(seen) == [(name, turn) for name in "ab" for turn in range(5)]
    assert {len(times) for times in spent.values()} == {5}
    assert [name for name, _ in seen] != ["a", "b"] * 5, "the order never changes"


def test_a_size_that_would_take_too_long_is_left_out() -> None:
    costs = up_to((1, 2, 10**9), budget_s=60, measure=lambda size: 1.0 if size < 10 else pytest.fail("was measured"))
    assert list(costs) == [1, 2]


def test_numbers_have_three_digits() -> None:
    assert [short(n) for n in (0.01234, 1.5, 123.4, 12345.6)] == ["0.0123", "1.5", "123", "12,346"]


def test_a_section_survives_json() -> None:
    cells = (Cell(row="W1", column="auto", value=1.5, lo=1.4, hi=1.6),)
    section = Section(cells=cells, curves=(curve("a", "users", "s", {1: 1.0, 2: 2.0, 4: 5.0}),), notes=("note",))
    assert Section.of(json.loads(json.dumps(section.json()))) == section


def test_results_of_other_parts_and_machines_stay(tmp_path: Path) -> None:
    folder, page = tmp_path / "results", tmp_path / "RESULTS.md"
    old = Section(cells=(Cell(row="W1", column="auto", value=1.0),))
    results.keep({"engine": part(old, machine={**MACHINE, "gpu": "Card"})}, folder)
    results.keep({"engine": part(old), "store": part(old)}, folder)
    new = Section(cells=(Cell(row="W1", column="auto", value=2.5, lo=2.4, hi=2.6),))
    results.keep({"engine": part(new), "store": {"error": "stopped"}}, folder)
    results.write_page(folder, page)
    text = page.read_text()
    assert "## x86_64 Chip 2 cores, Card" in text and "| W1 | 2.5 [2.4, 2.6] |" in text and "### store" in text
    results.write_page(folder, page)
    assert page.read_text() == text


def test_curves_are_drawn_the_same_twice(tmp_path: Path) -> None:
    folder, page = tmp_path / "results", tmp_path / "RESULTS.md"
    growth = Section(curves=(curve("round", "clients", "s", {10: 1.0, 100: 9.0, 1000: 110.0}),))
    results.keep({"scaling": part(growth)}, folder)
    results.write_page(folder, page)
    (plot,) = folder.glob("*.svg")
    drawn = plot.read_bytes()
    results.write_page(folder, page)
    assert plot.read_bytes() == drawn and f"results/{plot.name}" in page.read_text()


def test_the_summary_has_the_ratios_by_workload() -> None:
    row = {"auto": 1.5, "sequential": 1.2}
    engine = [Cell(row=work, column=name, value=value) for work in ("W1", "W2", "W3") for name, value in row.items()]
    peers = [Cell(row="W1", column="pfl", value=0.9)]
    parts = {"engine": part(Section(cells=tuple(engine))), "pfl": part(Section(cells=tuple(peers))),
             "store": {"error": "stopped"}}  # fmt: skip
    said = program.summary(True, parts)
    assert said["ratio_to_plain_loop"] == {"W1": 1.5, "W2": 1.5, "W3": 1.5}
    assert said["peers"] == {"pfl": {"W1": 0.9}}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep finished parts and results in a temporary folder, of a clean commit."""
    monkeypatch.setattr(program, "FINISHED", tmp_path / "finished")
    monkeypatch.setattr(program, "commit", lambda: "abc")
    return tmp_path


def test_a_part_that_fails_loses_no_other_and_a_second_call_goes_on(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def child(name: str, quick: bool, file: Path, limit: float) -> dict[str, Any]:
        measured.append(name)
        if name == "pfl" and measured.count(name) == 1:
            raise KeyboardInterrupt
        if name == "store":
            return {"error": "exit status 1"}
        file.write_text(json.dumps(part(Section())))
        return part(Section())

    monkeypatch.setattr(program, "in_process_of_its_own", child)
    path = elsewhere / "out.json"
    with pytest.raises(KeyboardInterrupt):
        program.main(["--quick", "--only", "engine,pfl,store", "--json", str(path)])
    assert program.main(["--quick", "--only", "engine,pfl,store", "--json", str(path)]) == 1
    assert measured == ["engine", "pfl", "pfl", "store"]
    assert set(json.loads(path.read_text())["parts"]) == {"engine", "pfl", "store"}


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["--only", "nonsense"])
    assert "unknown part 'nonsense'; choose of engine" in capsys.readouterr().err


def test_a_peer_that_cannot_be_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def environment(peer: str) -> Path:
        if peer == "pfl":
            raise subprocess.CalledProcessError(1, "pip", stderr="looking\nno matching distribution")
        return Path("python")

    seconds = {"loop": [1.0, 1.0], "peer": [2.0, 2.0], "peer_clock": [3.0, 3.0]}
    said = {"first": {"loop": 1.0, "peer": 9.0, "peer_clock": 9.0}, "steady": seconds, "mib": 100.0}
    monkeypatch.setattr(beside_peers, "environment", environment)
    monkeypatch.setattr(beside_peers, "rounds", lambda *_: said)
    assert beside_peers.measure_pfl(True).notes == ("pfl is missing: no matching distribution",)
    found = beside_peers.measure_flwr(True)
    assert {(c.row, c.value) for c in found.cells if c.column == "flwr"} == {("W1", 0.5), ("W2", 0.5), ("W3", 0.5)}


@pytest.mark.slow
def test_a_quick_part_runs_in_a_process_of_its_own(elsewhere: Path) -> None:
    path = elsewhere / "out.json"
    assert program.main(["--quick", "--only", "accounting", "--json", str(path)]) == 0
    measured = json.loads(path.read_text())["parts"]["accounting"]
    epsilon = {c["row"]: c["value"] for c in measured["cells"] if c["column"] == "epsilon"}
    assert epsilon["rdp"] >= epsilon["prv"] > 0 and measured["machine"]["python"]
