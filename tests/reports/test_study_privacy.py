"""Studies under a privacy budget: what an operating point spent, and what no epsilon covers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fake_points import fake_point

from fedprint.evaluation.rows import GUARANTEE
from fedprint.evaluation.tradeoffs.tradeoff import Point
from fedprint.reports.pages.study import StudyHead, write_study
from fedprint.reports.pages.study_privacy import guarantees_table, search_note
from fedprint.tuning.result import OperatingPoint, SearchResult, guarantee_of, operating_point
from fedprint.tuning.score import Finished

SPENT = {
    "epsilon": 7.9, "epsilon_user": 18.9, "delta": 1e-3, "accountant": "prv", "sampling": "poisson",
    "adjacency": "add-remove", "rounds": 30, "communication": 1500,
    "not_covered": "the logged training loss; the choice of the settings",
}  # fmt: skip
HEAD = StudyHead(
    name="demo", title="Demo", dataset="albums", prior="random", views=("local",), defended="everyone",
    learn_from="offline", adversaries=("naive",), ceiling="AP 100 %", ceiling_ap=1.0, utility_metric="accuracy",
    undefended_utility=0.8, undefended_linked_ap=0.8, updates=1, confirmed=False,
    undefended_ap=0.8, seeds=(0, 1), fresh_seeds=(10, 11), search="", fast=False,
    config_hash="abc",
)  # fmt: skip
TRIALS = tuple(
    Finished(number=n, values={"z": 1.0}, state="complete", utility=0.7, attack_ap=0.2, ceiling=1.0, excess=-0.8)
    for n in range(4)
)
SEARCH = SearchResult(strategy="dp-fedavg", trials=TRIALS)


def private(*epsilons: float) -> list[Point]:
    """Points on seeds 10, 11, ... whose utility row says what was spent."""
    plain = [fake_point(0.2, 0.6, 10 + i) for i in range(len(epsilons))]
    return [
        replace(point, rows=({**point.rows[0], **SPENT, "epsilon": epsilon}, *point.rows[1:]))
        for point, epsilon in zip(plain, epsilons, strict=True)
    ]


def made(points: Sequence[Point]) -> OperatingPoint:
    return operating_point(SEARCH, TRIALS[0], points, {p.seed: fake_point(0.8, 0.8, p.seed) for p in points}, 1.0, 1)


def test_an_operating_point_carries_the_guarantee_of_its_federations() -> None:
    point = made(private(7.9, 7.9))
    assert point.as_json()["guarantee"] == SPENT and set(SPENT) == set(GUARANTEE)
    largest = guarantee_of(private(7.0, 7.9))
    assert largest is not None and largest.epsilon == 7.9
    assert made([fake_point(0.2, 0.6, 10)]).guarantee is None
    assert guarantee_of([*private(7.9), fake_point(0.2, 0.6, 11)]) is None, "one federation has no epsilon"


def test_the_search_is_priced_and_no_epsilon_covers_it() -> None:
    note = search_note(made(private(7.9, 7.9)), seeds=2)
    assert note is not None
    for words in ("up to 10 private federations", "4 trials of 2, 2 afresh",
                  "epsilon 79 at delta 0.01",
                  "does not cover the search", "the federations without a defence", "Liu and Talwar 2019",
                  "Papernot and Steinke 2022"):  # fmt: skip
        assert words in note, words
    assert search_note(made([fake_point(0.2, 0.6, 10)]), seeds=2) is None


def test_page_and_json_show_the_guarantee_with_all_it_is_about(tmp_path: Path) -> None:
    def written(name: str, point: OperatingPoint) -> tuple[str, dict[str, object]]:
        head = replace(HEAD, search="data.held_out: 0.1" if point.guarantee else "")
        write_study(head=head, searches=[SEARCH], points=[point], config_text="", out=tmp_path / name)
        (entry,) = json.loads((tmp_path / name / "operating_points.json").read_text())
        return (tmp_path / name / "index.html").read_text(), entry

    page, entry = written("private", made(private(7.9, 7.9)))
    assert "of the utility; no ceiling on the attack (" in page and "below the ceiling with" not in page
    assert "AP" not in page.replace("AP 100 %", ""), "random scores beside a ceiling that binds nothing"
    assert not (tmp_path / "private" / "figures" / "pareto.svg").exists()
    assert entry["guarantee"] == SPENT and "Papernot and Steinke" in str(entry["search_privacy"])
    for words in ("epsilon 7.90 at delta 0.001 (prv, poisson sampling, add-remove, 30 rounds)",
                  "Privacy budget of the operating points", "7.900", "1,500", "the logged training loss",
                  "up to 10 private federations",
                  "The search had settings of its own (data.held_out: 0.1)"):  # fmt: skip
        assert words in page, words
    plain, entry = written("plain", made([fake_point(0.2, 0.6, 10)]))
    assert entry["guarantee"] is None and entry["search_privacy"] is None
    assert (
        "epsilon" not in plain
        and "settings of its own" not in plain
        and guarantees_table([made([fake_point(0.2, 0.6, 10)])]) is None
    )


def test_the_page_begins_with_the_best_feasible_strategy(tmp_path: Path) -> None:
    point = made([fake_point(0.2, 0.6, 10)])
    points = [
        replace(point, strategy="first", feasible=False, utility=1.2, note="No trial was feasible."),
        replace(point, strategy="second", feasible=True, utility=0.8),
        replace(point, strategy="third", feasible=True, utility=0.9),
    ]
    write_study(head=HEAD, searches=[SEARCH], points=points, config_text="", out=tmp_path / "study")
    page = (tmp_path / "study" / "index.html").read_text()
    told = [page.index(f"{name} (z = 1) keeps") for name in ("third", "second", "first")]
    assert told == sorted(told)
    none = "No operating point: nothing that was measured keeps below the ceiling"
    write_study(head=HEAD, searches=[SEARCH], points=points[:1], config_text="", out=tmp_path / "none")
    found_nothing = (tmp_path / "none" / "index.html").read_text()
    assert none not in page and found_nothing.index(none) < found_nothing.index("first (z = 1) keeps")
