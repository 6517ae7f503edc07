"""The report of a suite: members side by side, the papers' tables beside ours, one verdict per claim and member."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from analysis_report_cases import add_analyses, all_analyses
from matplotlib.figure import Figure
from report_cases import write_evaluations

from fedprint.evaluation.rows import read_measurements
from fedprint.reports.claims.federation import CLAIMS
from fedprint.reports.figures.drawing import style
from fedprint.reports.figures.suite import accuracy_by_epsilon, draw_suite
from fedprint.reports.numbers.reference import published_row, published_utility
from fedprint.reports.pages.federation import UNATTACKED, write_report
from fedprint.reports.pages.suite import MemberReport, suite_rows, write_suite
from fedprint.reports.pages.terminal import summary_table
from fedprint.reports.tables.analyses import Cell, ResultTable, TableLine
from fedprint.reports.tables.papers import background, datasets, matching, reidentification, stands_for, utility
from fedprint.reports.wording import Estimate

MEMBERS = {"writers": ("mnist_writers", "accuracy"), "blog": ("blog", "top5_accuracy"), "own": ("my_users", "mean_ap")}


def _member(base: Path, name: str, seeds: tuple[int, ...] = (0,)) -> MemberReport:
    dataset, metric = MEMBERS[name]
    folders = write_evaluations(
        base / "eval" / name, ("random", "chrono", "iid"), seeds, dataset=dataset, metric=metric
    )
    for folder in folders:
        prior, seed = folder.name.split("-")
        if prior != "iid":
            add_analyses(folder, [{**row, "dataset": dataset} for row in all_analyses(prior, int(seed))])
    out = base / "suite" / name
    text = "model: {name: cnn}\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda _, file, **__: file.write(b"<svg></svg>"))  # nobody looks at these
        write_report(experiment=f"both.{name}", title=name, evaluations=folders, config_text=text, out=out)
    return MemberReport(name=name, experiment=name, folder=out)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> list[MemberReport]:
    base = tmp_path_factory.mktemp("suite")
    return [_member(base, "writers"), _member(base, "blog", (0, 1))]


@pytest.fixture(scope="module")
def made(members: list[MemberReport], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "both"
    write_suite(suite="both", title="Both", fast=False, members=members, failures={"third": "no <data>"}, out=out)
    return out


def test_measurements_of_all_members_stand_under_the_suites_name(made: Path, members: list[MemberReport]) -> None:
    rows = read_measurements(made / "measurements.jsonl")
    assert {(row["experiment"], row["member"]) for row in rows} == {("both", "writers"), ("both", "blog")}
    assert len(rows) == sum(len(member.rows) for member in members)
    wanted = {"matching_ap", "cross_modal_ap", "ap"}
    assert wanted <= {row["metric"] for row in rows}
    assert {row["seen_share"] for row in rows if row["world"] == "open"} == {0.0, 0.25, 0.5, 0.75, 1.0}


def test_the_page_links_to_members_and_holds_every_table_and_figure(made: Path) -> None:
    page = (made / "index.html").read_text()
    assert all(f'href="{name}/index.html"' in page for name in ("writers", "blog"))
    assert "third failed" in page
    assert "no &lt;data&gt;" in page
    tables = {path.stem for path in (made / "tables").glob("*.csv")}
    assert {"data-sets", "utility", "re-identification", "attributes", "layers", "matching", "cross-modal"} <= tables
    assert all(f'id="table-{name}"' in page for name in tables)
    figures = {path.stem for path in (made / "figures").glob("*.svg")}
    assert {"recognition", "prior-examples", "training-updates", "users", "open-world", "layers"} == figures
    assert all(f'id="{name}"' in page for name in figures)
    assert "http" not in page.replace("http-equiv", "")


def test_the_published_numbers_stand_beside_ours(members: list[MemberReport]) -> None:
    (line,) = [line for line in reidentification(members).lines if line.labels == ("writers", "random", "mlp")]
    assert line.cells[-1] == "PIPA 91.0 (48× 1/U), 84.7, 96.3; OpenImages 53.7 (175× 1/U), 51.9, 77.9"
    (line,) = [line for line in reidentification(members).lines if line.labels == ("blog", "chrono", "svm")]
    assert line.cells[-1] == "Blog 27.0 (15× 1/U), 42.1, 46.0"
    found = matching(members)
    assert found is not None
    (line,) = [line for line in found.lines if line.labels[:3] == ("blog", "chrono", "mlp-product")]
    assert line.cells[-1] == "Blog 91.9"
    published = {(line.labels[0], line.labels[3]): line.cells[-1] for line in utility(members).lines}
    assert published["blog", "federated"] == "Blog 27.83"
    assert published["writers", "federated"] is None, "accuracy is not the paper's metric"


def test_rows_by_album_stand_beside_pipas_that_are_called_chrono() -> None:
    by_album, by_time = (published_row("pipa", prior, "mlp") for prior in ("photoset", "chrono"))
    assert by_album is not None and by_time is not None
    assert (by_album.ap, by_album.top1) == (by_time.ap, by_time.top1)
    assert published_utility("pipa", "photoset", "federated") == published_utility("pipa", "chrono", "federated")
    assert published_row("openimages", "photoset", "mlp") is None


@dataclass(frozen=True)
class Bare:
    """A member with nothing but a summary."""

    summary: Mapping[str, Any]
    name: str = "writers"
    model: str = "cnn"
    rows: Sequence[Mapping[str, Any]] = ()


def test_background_stands_beside_the_published_one() -> None:
    found = {"users": 7, "examples": 900, "identical": 0}
    with_pool = Bare({"dataset": "blog", "data": {"background": found}})
    without = Bare({"dataset": "blog", "data": {"background": {"users": 0, "examples": 0, "identical": 0}}})
    (line,) = background([with_pool, without]).lines
    assert line.cells == ("7", "900", "Blog 3000000 (WikiReading)", "Blog 300")


def test_stand_ins_are_named_and_the_chosen_attacker_marked(members: list[MemberReport]) -> None:
    assert stands_for("mnist_writers") == "PIPA, OpenImages"
    assert stands_for("my_users") == "none"
    cells = datasets(members).lines[0].cells
    assert cells[:2] == ("100", "PIPA 53; OpenImages 327")
    assert cells[4] == "cnn"
    chosen = [line.labels for line in reidentification(members).lines if line.labels[2].endswith("(chosen)")]
    priors = ("random", "chrono", "iid")
    assert chosen == [(name, prior, "ridge (chosen)") for name in ("writers", "blog") for prior in priors]


def test_seeds_of_one_member_are_pooled_whatever_the_others_have(members: list[MemberReport]) -> None:
    lines = reidentification(members).lines
    assert len(lines) == 2 * 3 * 6
    counts = {line.labels[0]: line.cells[0].n_questions for line in lines}  # type: ignore[union-attr]
    assert counts == {"writers": 1000, "blog": 2000}
    (drawing,) = [drawing for drawing in draw_suite(suite_rows("both", members)) if drawing.name == "recognition"]
    assert [drawing.svg.decode().count(f">{name}<") for name in ("writers", "blog")] == [1, 1]


def test_accuracy_is_drawn_over_epsilon_a_line_per_number_of_devices() -> None:
    def row(users: int, epsilon: float) -> dict[str, Any]:
        measured = {"value": 0.8, "lo": 0.7, "hi": 0.9, "chance": 0.1, "unit": "fraction", "confidence": 0.95}
        what = {"metric": "accuracy", "training": "federated", "n_users": users, "n_questions": 50}
        return {**what, **measured, "epsilon": epsilon, "delta": 1e-3}

    rows = [row(50, 0.0999992), row(50, 1.0), row(50, 8.0), row(500, 1.0)]
    with style():
        drawing = accuracy_by_epsilon([*rows, {**row(700, 2.0), "training": "central"}])
    assert drawing is not None and drawing.name == "accuracy-by-epsilon"
    svg = drawing.svg.decode()
    assert [svg.count(f">{users} devices<") for users in ("100", "1,000", "1,400")] == [1, 1, 0]
    assert "delta 0.001" in drawing.caption
    assert ">0.1<" in svg and "0.0999992" not in svg
    assert accuracy_by_epsilon(rows[1:]) is None  # two budgets make no curve
    assert accuracy_by_epsilon([*rows[1:], row(5, 7.9999)]) is None  # nor does one of another size at the same budget
    assert accuracy_by_epsilon([*rows, row(50, 7.999)]) is None  # two members at one budget differ in something else


def test_every_claim_has_a_verdict_per_member(made: Path) -> None:
    verdicts = json.loads((made / "claims.json").read_text())
    assert {(row["claim"], row["member"]) for row in verdicts} == {
        (claim.name, name) for claim in CLAIMS for name in ("writers", "blog")
    }
    with (made / "claims.csv").open() as file:
        found = [dict(row) for row in csv.DictReader(file)]
    assert found == [{key: "" if value is None else str(value) for key, value in row.items()} for row in verdicts]
    by_member = {(row["claim"], row["member"]): row for row in verdicts}
    assert by_member["matching", "writers"]["result"] == "undecided (1 seed; a verdict needs 3)"
    assert (by_member["matching", "blog"]["n_users"], by_member["matching", "blog"]["n_seeds"]) == (100, 2)
    page = (made / "index.html").read_text()
    assert "n 100, 1 seed" in page and "n 100, 2 seeds" in page
    assert all(claim.text.replace(">", "&gt;").replace("'", "&#39;") in page for claim in CLAIMS)


def test_every_number_of_a_table_says_how_many_seeds_it_pools(made: Path) -> None:
    with (made / "tables" / "matching.csv").open() as file:
        rows = list(csv.DictReader(file))
    seeds = {row["member"]: row["AP over pairs: n_seeds"] for row in rows if row["AP over pairs: value"]}
    assert seeds == {"writers": "1", "blog": "2"}
    assert "users, 2 seeds" in (made / "index.html").read_text()


def test_where_no_claim_was_tested_one_sentence_says_so(
    made: Path, members: list[MemberReport], tmp_path: Path
) -> None:
    silent = [replace(member) for member in members]
    for member in silent:
        vars(member)["rows"] = tuple(row for row in member.rows if row["metric"] == "accuracy")
    write_suite(suite="s", title="S", fast=True, members=silent, failures={}, out=tmp_path / "made")
    pages = [(folder / "index.html").read_text() for folder in (made, tmp_path / "made")]
    assert ["None was tested here" in page for page in pages] == [False, True]
    assert ['class="plain claims"' in page for page in pages] == [True, False]


def test_members_without_attackers_share_a_verdict_and_show_what_they_learn(
    members: list[MemberReport], tmp_path: Path
) -> None:
    silent = [replace(member) for member in members]
    for member in silent:
        vars(member)["rows"] = tuple(row for row in member.rows if row.get("attack") in (None, "chance"))
        vars(member)["summary"] = {**member.summary, "attack": None, "verdict": [UNATTACKED]}
    write_suite(suite="s", title="S", fast=True, members=silent, failures={}, out=tmp_path / "made")
    assert (tmp_path / "made" / "index.html").read_text().count(f"<p>{UNATTACKED}</p>") == 1
    assert not (tmp_path / "made" / "figures").exists(), "random scores are no picture of recognition"
    assert not (tmp_path / "made" / "tables" / "re-identification.csv").exists()
    table = summary_table(tmp_path / "made")
    assert table.row_count == 0 and not table.show_header
    for member in silent:
        assert f"{member.name}: utility (" in str(table.caption)


def test_a_data_set_without_a_published_one_has_no_published_numbers(tmp_path: Path) -> None:
    member = _member(tmp_path, "own")
    for table in (reidentification([member]), utility([member])):
        assert table.lines
        assert {line.cells[-1] for line in table.lines} == {None}
    write_suite(suite="s", title="S", fast=True, members=[member], failures={}, out=tmp_path / "made")
    assert "stands in for: none" in (tmp_path / "made" / "index.html").read_text().lower()


def test_equal_members_give_equal_bytes(members: list[MemberReport], made: Path, tmp_path: Path) -> None:
    out = tmp_path / "again"
    write_suite(suite="both", title="Both", fast=False, members=members, failures={"third": "no <data>"}, out=out)
    files = [path.relative_to(made) for path in made.rglob("*") if path.is_file()]
    assert [str(name) for name in files if (made / name).read_bytes() != (out / name).read_bytes()] == []


def test_what_all_numbers_of_a_column_share_is_said_once() -> None:
    def number(value: float, chance: float, n: int) -> Estimate:
        same: dict[str, Any] = dict.fromkeys(("value", "lo", "hi"), value)
        return Estimate(metric="ap", unit="fraction", **same, chance=chance, n_questions=n, n_users=60, n_seeds=3)

    cells: list[tuple[Cell, ...]] = [
        (number(0.8, 0.021, 90), number(0.9, 0.02, 90), "text"),
        (number(0.7, 0.0211, 90), number(0.6, 0.03, 90), None),
    ]
    lines = tuple(TableLine(labels=(), cells=each) for each in cells)
    table = ResultTable(name="a", title="A", note="", labels=(), heads=("one", "two", "words"), lines=lines)
    one, two, words = table.agreed
    assert one == {"chance": cells[0][0], "counts": cells[0][0]}, "chances that are printed alike are one"
    assert two == {"chance": None, "counts": cells[0][1]}
    assert words == {"chance": None, "counts": None}
    assert all(each == {"chance": None, "counts": None} for each in replace(table, lines=lines[:1]).agreed)
