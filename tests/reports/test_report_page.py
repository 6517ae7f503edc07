"""The written report: complete, self-contained, honest and the same every time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_cases import write_evaluations

from fedprint.evaluation.rows import read_measurements
from fedprint.reports import wording
from fedprint.reports.pages.federation import ReportSummary, write_report
from fedprint.types import FedprintError

Write = Callable[..., list[Path]]
ALL = ("random", "chrono", "iid")
FIGURES = ("ap-by-attacker", "utility-by-round", "ap-by-user", "ap-by-round", "update-tsne")


def _report(folders: list[Path], out: Path, **more: Any) -> ReportSummary:
    settings = {"experiment": "demo", "title": "Demo", "config_text": "a: 1\n", **more}
    return write_report(evaluations=folders, out=out, **settings)


class _Rows(HTMLParser):
    """Collects the text of each table row and every fetched or followed address."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[str] = []
        self.addresses: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href", "srcset", "xlink:href"}]
        if tag == "tr":
            self.rows.append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "tr"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.rows[-1] += data.strip() + " "


def _parsed(page: Path) -> _Rows:
    parser = _Rows()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ReportSummary:
    base = tmp_path_factory.mktemp("report")
    return _report(write_evaluations(base, ALL), base / "report")


def test_folder_has_page_tables_config_and_every_figure_twice(report: ReportSummary):
    out = report.page.parent
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert names == {
        "index.html", "measurements.jsonl", "measurements.csv", "config.yaml", "summary.json",
        "claims.json", "claims.csv",
        *(f"figures/{name}.{ending}" for name in FIGURES for ending in ("png", "svg")), "figures/plotly.min.js",
    }  # fmt: skip
    page = report.page.read_text(encoding="utf-8")
    assert page.count("<svg") == len(FIGURES)
    assert [page.index(f'id="{name}"') for name in FIGURES] == sorted(page.index(f'id="{name}"') for name in FIGURES)
    assert page.count("<figcaption><b>Look ") == len(FIGURES), "every caption says what to look at"


def test_the_main_figure_follows_the_verdict_and_the_chosen_attacker_leads_the_table(report: ReportSummary):
    page = report.page.read_text(encoding="utf-8")
    order = ['aria-label="Verdict"', 'id="ap-by-attacker"', 'id="recognition"', 'id="claims"', 'id="ap-by-user"',
             'id="method"', 'id="files"']  # fmt: skip
    assert [page.index(part) for part in order] == sorted(page.index(part) for part in order)
    attackers = re.findall(r'scope="rowgroup"[^>]*>([a-z-]+)<', page)
    assert attackers[:9] == ["ridge", "mlp-tuned", "mlp", "chance", "knn", "svm", "mlp", "mlp-tuned", "ridge"]


def test_page_fetches_nothing_and_links_only_to_files_of_its_folder(report: ReportSummary):
    text = report.page.read_text(encoding="utf-8")
    for address in _parsed(report.page).addresses:
        if address.startswith("#"):
            assert f'id="{address[1:]}"' in text
        elif not address.startswith("data:"):
            assert (report.page.parent / address).is_file(), address
    assert not re.search(r"https?://|@import|url\((?!#)", text)
    assert re.findall(r"<script[^>]*>", text)[:-1] == ['<script type="application/json" class="chart">'] * len(FIGURES)


def test_equal_input_gives_equal_bytes_and_replaces_the_old_folder(evaluations: Write, tmp_path: Path):
    folders = evaluations(("random", "iid"))
    one = _report(folders, tmp_path / "one").page.parent
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "stale.txt").write_text("old")
    two = _report(list(reversed(folders)), tmp_path / "two").page.parent
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(two) for path in two.rglob("*") if path.is_file())
    assert [str(name) for name in files if (one / name).read_bytes() != (two / name).read_bytes()] == []
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


def test_every_attack_number_stands_beside_interval_chance_and_counts(report: ReportSummary):
    lines = _parsed(report.page).rows
    rows = [row for row in read_measurements(report.page.parent / "measurements.jsonl") if row["metric"] == "ap"]
    assert len(rows) == 3 * 6 * 2
    for row in rows:
        found = wording.estimate(row)
        wanted = [wording.number(found.value, "fraction"), wording.interval(found), f"{found.n_users} users"]
        wanted += [wording.number(found.chance, "fraction"), str(found.n_questions)]
        assert any(all(part in line for part in wanted) for line in lines), (row["attack"], wanted)


def test_every_utility_number_stands_beside_interval_chance_and_counts(report: ReportSummary):
    lines = _parsed(report.page).rows
    for row in read_measurements(report.page.parent / "measurements.jsonl"):
        if not row["attack"]:
            found = wording.estimate(row)
            wanted = [wording.with_unit(found.value, found.unit), wording.interval(found), "10.0\u00a0%", "5000", "100"]
            assert any(all(part in line for part in [row["prior"], *wanted]) for line in lines)


def test_rows_carry_the_config_hash_and_pool_the_seeds(evaluations: Write, tmp_path: Path):
    report = _report(evaluations(priors=("random",), seeds=(0, 1, 2)), tmp_path / "report")
    rows = read_measurements(report.page.parent / "measurements.jsonl")
    assert {row["config_hash"] for row in rows} == {"1f0c9a2b77de"}
    pooled = [row for row in rows if row["seed"] == "all"]
    assert len(pooled) * 3 == len(rows) - len(pooled)
    assert {row["attack"] for row in pooled if row["selected"]} == {"ridge"}
    assert {row["selected"] for row in pooled if not row["attack"]} == {None}
    assert report.update["ap"].n_questions == 3000
    assert "means over 3 seeds" in report.page.read_text(encoding="utf-8")


def test_seeds_that_chose_different_attackers_are_pooled_as_the_selected_one(evaluations: Write, tmp_path: Path):
    folders = evaluations(priors=("random",), seeds=(0,), selected="ridge")
    folders += evaluations(priors=("random",), seeds=(1,), selected="mlp-tuned")
    report = _report(folders, tmp_path / "report")
    assert report.attack == "selected"
    rows = read_measurements(report.page.parent / "measurements.jsonl")
    values = [row["value"] for row in rows if row["selected"] and row["metric"] == "ap" and row["linkage"] == "update"]
    assert values[2] == pytest.approx((values[0] + values[1]) / 2)
    assert report.update["ap"].value == pytest.approx(values[2])
    assert report.page.read_text(encoding="utf-8").count("chosen in 1 of 2 seeds") == 4, (
        "in the short table and in the full one"
    )


def test_random_scores_are_no_attacker_to_judge_recognition_by(evaluations: Write, tmp_path: Path):
    report = _report(evaluations(priors=("random",), selected="chance"), tmp_path / "report")
    assert report.verdict == ("No attacker was chosen, so nothing is known about how recognisable users are.",)
    page = report.page.read_text(encoding="utf-8")
    assert "not shown to identify" not in page
    assert 'class="pick"' not in page, "neither in the tables of AP nor in that of what each attack settled on"
    assert '<th class="text" scope="rowgroup"' in page, "the attackers' lines are there all the same"


def test_a_folder_of_users_is_called_by_its_name(evaluations: Write, tmp_path: Path):
    folders = evaluations(priors=("random",), dataset="folder", data={"name": "my_users", "title": "Folder my_users"})
    report = _report(folders, tmp_path / "report")
    assert report.dataset == "my_users"
    assert report.verdict[0].startswith("An anonymous update of my_users ")


def test_names_are_escaped_everywhere(evaluations: Write, tmp_path: Path):
    evil = "<script>alert('x')</script>&"
    folders = evaluations(
        priors=("random",), dataset=evil, arguments=evil, store_checksum=evil, config_hash=evil, fast=True,
        data={"shareable": True, "title": evil, "licence": evil}, samples={"kind": "texts", "texts": [evil]},
        attacks={evil: {"settings": {evil: evil}, "log_loss": 1.0}},
    )  # fmt: skip
    report = _report(folders, tmp_path / "report", experiment=evil, title=evil, config_text=evil)
    page = report.page.read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;") >= 10


def test_fast_runs_and_arguments_are_marked(report: ReportSummary, evaluations: Write, tmp_path: Path):
    assert "fast run" not in report.page.read_text(encoding="utf-8")
    report = _report(evaluations(priors=("random",), fast=True, arguments="--fast --set a=1"), tmp_path / "report")
    page = report.page.read_text(encoding="utf-8")
    assert report.fast
    assert "fast run" in page
    assert "--fast --set a=1" in page


def test_samples_appear_only_when_the_data_are_shareable(evaluations: Write, tmp_path: Path):
    secret = {"kind": "texts", "texts": ["a private sentence"]}
    hidden = _report(evaluations(samples=secret), tmp_path / "hidden").page.read_text(encoding="utf-8")
    assert "a private sentence" not in hidden
    assert "No samples are shown." in hidden
    shown = evaluations(samples=secret, data={"shareable": True})
    assert "a private sentence" in _report(shown, tmp_path / "shown").page.read_text(encoding="utf-8")


def test_pictures_are_inlined_only_when_the_data_are_shareable(evaluations: Write, tmp_path: Path):
    sheet = {"kind": "images", "file": "sheet.png", "caption": "Twelve albums"}
    hidden = _report(evaluations(samples=sheet), tmp_path / "hidden").page.read_text(encoding="utf-8")
    assert "data:image/png" not in hidden
    shown = _report(evaluations(samples=sheet, data={"shareable": True}), tmp_path / "shown")
    text = shown.page.read_text(encoding="utf-8")
    assert "data:image/png;base64," in text
    assert "Twelve albums" in text


def test_summary_holds_the_headline_without_machine_paths(report: ReportSummary):
    summary = json.loads((report.page.parent / "summary.json").read_text(encoding="utf-8"))
    assert summary["prior"] == "random"
    assert summary["attack"] == "ridge"
    assert summary["update"]["ap"]["value"] == pytest.approx(0.857)
    assert summary["device"]["ap"]["chance"] == pytest.approx(0.052)
    assert summary["utility"]["metric"] == "accuracy"
    assert "page" not in summary
    assert str(report.page.parent.parent) not in (report.page.parent / "summary.json").read_text(encoding="utf-8")


def test_six_hundred_users_and_long_names_stay_small(evaluations: Write, tmp_path: Path):
    folders = evaluations(users=600, dataset="d" * 300)
    report = _report(folders, tmp_path / "report", title="t" * 500)
    assert report.page.stat().st_size < 1_500_000
    assert "600 users" in report.page.read_text(encoding="utf-8")


def test_optional_parts_may_be_missing(evaluations: Write, tmp_path: Path):
    folders = evaluations(
        priors=("random",), history=[], by_user={}, by_round=[], attacks={}, checks={}, null={}, data={}
    )
    (folders[0] / "tsne.npz").unlink()
    report = _report(folders, tmp_path / "report")
    assert [path.name for path in (report.page.parent / "figures").iterdir() if path.suffix == ".svg"] == [
        "ap-by-attacker.svg"
    ]
    assert not report.sanity_passed
    assert "No sanity check was run" in report.page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["details.json", "rows.jsonl"])
def test_missing_files_are_named_and_nothing_is_written(evaluations: Write, tmp_path: Path, name: str):
    folders = evaluations(ALL)
    (folders[1] / name).unlink()
    with pytest.raises(FedprintError, match=re.escape(name)):
        _report(folders, tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_damaged_files_and_no_evaluations_are_refused(evaluations: Write, tmp_path: Path):
    with pytest.raises(FedprintError, match="no evaluation"):
        _report([], tmp_path / "report")
    folders = evaluations()
    (folders[0] / "tsne.npz").write_bytes(b"not an archive")
    with pytest.raises(FedprintError, match=r"tsne.npz is damaged"):
        _report(folders, tmp_path / "report")
    (folders[0] / "details.json").write_text('{"prior": "random"}')
    with pytest.raises(FedprintError, match="lacks seed, config_hash"):
        _report(folders, tmp_path / "report")
