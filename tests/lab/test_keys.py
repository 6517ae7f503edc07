"""What a result's name depends on, and what not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from toy_work import GRAPH, Toy, job

from fedprint.errors import FedprintError
from fedprint.lab import keys
from fedprint.lab.graph import Graph, Job, Stage
from fedprint.lab.keys import content_digest, source_digest, stage_key

NUMBER, PICK = GRAPH.stage("number"), GRAPH.stage("pick")


def key(of: Job, stage: Stage = NUMBER, before: dict[str, str] | None = None, device: str = "cpu") -> str:
    return stage_key(of, stage, before or {}, device)


def test_equal_jobs_have_equal_keys_in_every_process() -> None:
    assert key(job("a")) == key(job("b")), "a label is for the eye"
    assert len(key(job())) == 16 and int(key(job()), 16) >= 0


@pytest.mark.parametrize(
    "changed",
    [{"seed": 1}, {"prior": "iid"}, {"data": "other"}, {"config": Toy({"n": 3})}],
    ids=lambda changed: next(iter(changed)),
)
def test_seed_prior_data_and_settings_count(changed: dict[str, object]) -> None:
    assert key(replace(job(), **changed)) != key(job())


def test_settings_of_other_sections_do_not_count() -> None:
    assert key(job(plus=5)) == key(job())
    whole = replace(NUMBER, settings=None)
    assert key(job(plus=5), whole) != key(job(), whole)


def test_the_stage_what_was_before_and_the_kind_of_device_count() -> None:
    found = [key(job()), key(job(), replace(NUMBER, name="other")), key(job(), before={"numbers": "1"})]
    found += [key(job(), before={"numbers": "2"}), key(job(), device="cuda")]
    assert len(set(found)) == len(found)


def test_files_count_where_a_stage_may_open_them() -> None:
    one, other = replace(job(), files="1"), replace(job(), files="2")
    assert key(one) == key(other)
    reading = replace(NUMBER, files=True)
    assert key(one, reading) != key(other, reading)


def test_what_is_settled_belongs_to_the_machine_and_to_no_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert key(job(seed=1), PICK) == key(job(seed=2), PICK)
    here = key(job(), PICK)
    monkeypatch.setattr("platform.node", lambda: "started-again")
    assert key(job(), PICK) == here, "a container has a new name whenever it starts"
    monkeypatch.setattr("fedprint.lab.machine.cores", lambda: 999)
    assert key(job(), PICK) != here
    assert key(job(), PICK, device="cuda") != key(job(), PICK)


def test_code_counts_by_name_and_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "PACKAGE", tmp_path)
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "a.py").write_text("1")
    found = []
    for change in (
        lambda: None,
        lambda: (tmp_path / "room" / "a.py").write_text("2"),
        lambda: (tmp_path / "room" / "b.py").write_text("2"),
        lambda: (tmp_path / "room" / "b.py").rename(tmp_path / "room" / "c.py"),
        lambda: (tmp_path / "room" / "notes.md").write_text("no code"),
    ):
        change()
        source_digest.cache_clear()
        found.append(source_digest(("room",)))
    source_digest.cache_clear()
    assert len(set(found)) == 4 and found[3] == found[4]
    with pytest.raises(FileNotFoundError):
        source_digest(("nowhere.py",))
    source_digest.cache_clear()


def test_contents_count_by_name_below_their_folder(tmp_path: Path) -> None:
    for place in ("a/out", "b/out"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "x").write_text("1")
    one, other = tmp_path / "a" / "out", tmp_path / "b" / "out"
    assert content_digest([one]) == content_digest([other])
    (other / "x").write_text("2")
    assert content_digest([one]) != content_digest([other])


# The graph ------------------------------------------------------------------------------------------------------------


def test_a_graph_refuses_what_cannot_be_run() -> None:
    with pytest.raises(FedprintError, match=r"stage 'late' opens \['missing'\], which no stage before it writes"):
        Graph((Stage(name="late", run="m:f", inputs=("missing",), outputs=("x",)),))
    with pytest.raises(FedprintError, match=r"stage 'b' writes \['x'\], as a stage before it does"):
        Graph((Stage(name="a", run="m:f", outputs=("x",)), Stage(name="b", run="m:f", outputs=("x",))))
    with pytest.raises(FedprintError, match="unknown stage 'x'; choose of number, pick, add, grow, end"):
        GRAPH.stage("x")


def test_a_graph_knows_what_a_stage_needs() -> None:
    assert [stage.name for stage in GRAPH.before("end")] == ["number", "pick", "add"]
    assert GRAPH.before("number") == () and GRAPH.maker("total").name == "add"
