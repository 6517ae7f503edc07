"""Studies: scores of points, fresh seeds and what becomes of candidates there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_lab import FakeLab
from fake_points import CHANCE, fake_point
from tiny_project import Project
from tiny_study import STUDY, study_of, write_study

from fedprint.evaluation.rows import read_measurements
from fedprint.evaluation.tradeoffs.tradeoff import Point
from fedprint.kinds import driver
from fedprint.kinds.requests import request_for
from fedprint.kinds.study import config as study_config
from fedprint.kinds.study import search as tuning
from fedprint.kinds.study.config import Study
from fedprint.kinds.study.kind import TRIALS, log_trial
from fedprint.kinds.study.points import CutShort, Points, job_of
from fedprint.kinds.study.report import head_of, publish
from fedprint.kinds.study.search import (
    PointObjective,
    Tuned,
    make_plans,
    measure_afresh,
    measure_undefended,
    tune,
)
from fedprint.lab.graph import Job
from fedprint.lab.runner import JobFailed
from fedprint.tuning.result import SearchResult
from fedprint.tuning.score import Finished, next_candidate, ranked
from fedprint.types import FedprintError


def answer(job: Job) -> Point | FedprintError:
    """AP .2 where defended, .8 without; utility .6 of .8."""
    defended = bool(job.config.defences)  # type: ignore[attr-defined]
    return fake_point(0.2 if defended else 0.8, 0.6 if defended else 0.8, job.seed, linked=True)


@pytest.fixture
def quick(home: Project) -> FakeLab:
    """Answers every point at once."""
    return FakeLab(home.root, answer)


def objective(study: Study, lab: FakeLab, undefended: Mapping[int, Point]) -> PointObjective:
    points = Points(lab)
    return PointObjective(
        study=study, strategy=study.settings.strategies[0], undefended=undefended,
        measure=lambda job: points.one(job, "trials"),
    )  # fmt: skip


# Plans and scores ----------------------------------------------------------------------------------------------------


def test_a_storage_that_cannot_be_opened_is_told_before_any_point(home: Project, quick: FakeLab) -> None:
    study = study_of(home.root, assignments=["storage=sqlite:////no/such/folder/x.db"])
    with pytest.raises(FedprintError, match="cannot be opened"):
        tune(study, quick)
    assert quick.asked == []


def test_trials_under_other_settings_or_code_never_mix(
    home: Project, quick: FakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names(*words: str) -> list[str]:
        return [plan.name for plan in make_plans(quick, study_of(home.root, assignments=words))]

    base = names()
    assert base[0].startswith("demo noise ") and base == names("trials=50", "timeout_minutes=3")
    for change in ("federation.rounds=5", "ceiling.times_chance=4", "seeds=[0]", "sampler=tpe"):
        assert not set(names(change)) & set(base), change
    moved = names("strategies.0.space.sigma.high=2")
    assert moved[0] != base[0] and moved[1] == base[1]
    code = study_config.source_digest
    touched = lambda sources: code(sources) + ("x" if "tuning" in sources else "")  # noqa: E731
    monkeypatch.setattr(study_config, "source_digest", touched)
    assert not set(names()) & set(base), "another rule for what is feasible, say"


def test_a_point_that_crashed_is_no_measurement(home: Project, study: Study) -> None:
    crashed = JobFailed("out of memory", stage="federate", exit_code=1, reason="out of memory")
    points = Points(FakeLab(home.root, lambda job: crashed))
    with pytest.raises(JobFailed, match="out of memory"):
        measure_undefended(study, points)
    with pytest.raises(CutShort, match="out of memory"):
        points.one(job_of(study, None, {}, 0), "trials")


def test_an_objective_yields_a_score_after_each_seed(study: Study, quick: FakeLab) -> None:
    undefended = {seed: fake_point(0.8, 0.8, seed) for seed in (0, 1)}
    scores = list(objective(study, quick, undefended)({"sigma": 0.1}))
    assert len(scores) == 2
    assert scores[1].utility == pytest.approx(0.75) and scores[1].attack_ap == pytest.approx(0.2)
    assert scores[1].ceiling == pytest.approx(5 * CHANCE)
    assert [score.upper for score in scores] == [pytest.approx(0.23)] * 2, "over seeds there is no spread here"
    assert scores[1].excess == pytest.approx(0.23 - 5 * CHANCE)
    numbers = {"ap_naive": 0.2, "utility_value": 0.6}
    assert scores[1].details == {name: pytest.approx(value) for name, value in numbers.items()}


def test_under_a_budget_a_score_tells_how_many_rounds_it_allowed(study: Study) -> None:
    undefended = {seed: fake_point(0.8, 0.8, seed) for seed in (0, 1)}
    plain = {rounds: fake_point(0.2, 0.6, seed) for seed, rounds in ((0, 20), (1, 30))}
    points = [
        replace(point, rows=({**point.rows[0], "epsilon": 8.0, "rounds": rounds}, *point.rows[1:]))
        for rounds, point in plain.items()
    ]
    assert tuning.score_of(study, points, undefended).details["rounds"] == 25


def test_of_equal_trials_that_of_fewer_rounds_comes_first() -> None:
    def of(number: int, utility: float, rounds: float | None, excess: float = -0.1) -> Finished:
        return replace(trial(number, utility, excess), details={} if rounds is None else {"rounds": rounds})

    private = [of(0, 0.9, 40.0), of(1, 0.9, 30.0), of(2, 0.8, 5.0), of(3, 0.9, 30.0)]
    assert [found.number for found in ranked(private)] == [1, 3, 0, 2]
    assert [found.number for found in ranked([of(1, 0.9, None), of(0, 0.9, None)])] == [0, 1]
    broken = [of(0, 0.9, 40.0, 0.2), of(1, 0.1, 30.0, 0.2), of(2, 0.5, 50.0, 0.1)]
    assert [found.number for found in ranked(broken)] == [2, 1, 0]


def test_the_search_may_be_scored_on_other_data_than_its_result(home: Project, quick: FakeLab) -> None:
    """What is chosen by a test set must not be measured on it."""
    write_study(home, "demo", {**STUDY, "search": {"data": {"images": 20}}})
    study = study_of(home.root)
    undefended = measure_undefended(study, Points(quick))
    list(objective(study, quick, undefended)({"sigma": 0.1}))
    measure_afresh(study, searches(trial(0, 0.9, -0.1)), undefended, Points(quick))
    images: dict[bool, set[int]] = {True: set(), False: set()}
    for job in quick.asked:
        images[study.is_fresh(job.seed)].add(job.config.data.images)  # type: ignore[attr-defined]
    assert images == {True: {30}, False: {20}}
    names = [
        {plan.name for plan in make_plans(quick, study_of(home.root, assignments=words))}
        for words in ([], ["search.data.images=25"])
    ]
    assert not names[0] & names[1], "trials scored on other data never mix"
    write_study(home, "demo", {**STUDY, "search": {"defences": []}})
    with pytest.raises(FedprintError, match="demo: defences: strategies defend"):
        study_of(home.root)


# Fresh seeds ----------------------------------------------------------------------------------------------------------


def trial(number: int, utility: float, excess: float) -> Finished:
    return Finished(number=number, values={"sigma": round(0.01 + number / 100, 2)}, state="complete", utility=utility,
                    attack_ap=0.25 + excess, ceiling=0.25, excess=excess)  # fmt: skip


def searches(*trials: Finished) -> list[SearchResult]:
    return [SearchResult(strategy="noise", trials=trials)]


def afresh(study: Study, root: Path, aps: Mapping[float, float], *trials: Finished) -> Any:
    """Measure candidates whose AP on fresh seeds is given by their sigma."""

    def some(job: Job) -> Point | FedprintError:
        sigma = job.varies.get("sigma")
        return fake_point(0.8 if sigma is None else aps[sigma], 0.8 if sigma is None else 0.6, job.seed, linked=True)

    lab = FakeLab(root, some)
    undefended = {seed: fake_point(0.8, 0.8, seed, linked=True) for seed in study.settings.fresh_seeds}
    (found,) = measure_afresh(study, searches(*trials), undefended, Points(lab))
    return found


def test_a_trial_in_mlflow_has_all_parameters_and_the_numbers_that_charts_compare(
    home: Project, study: Study, quick: FakeLab
) -> None:
    from mlflow import MlflowClient

    plan = make_plans(quick, study)[0]
    failed = replace(trial(1, 0.5, 0.0), state="fail", error="diverged")
    measured = replace(trial(0, 0.5, 0.05), details={"ap_naive": 0.2, "utility_value": 0.4})
    for one in (measured, failed):
        log_trial(home.root, study, plan, one)
    client = MlflowClient(f"sqlite:///{home.root / 'mlflow.db'}")
    found = client.get_experiment_by_name(TRIALS)
    assert found is not None
    runs = {run.data.tags["trial"]: run.data for run in client.search_runs([found.experiment_id])}
    said = {"strategy": "noise", "threat.defended": "everyone", "view": "local", "sigma": "0.01"}
    assert said.items() <= runs["0"].params.items() and runs["0"].params["federation.rounds"] == "4"
    assert (runs["0"].metrics["ap_update"], runs["0"].metrics["ap_linked"]) == (0.2, 0.3)
    assert runs["0"].metrics["utility"] == 0.5
    assert "view" not in runs["1"].params, "of nothing measured there is nothing to say"


def test_the_best_feasible_trial_that_keeps_below_afresh_is_the_result(study: Study, home: Project) -> None:
    trials = (trial(0, 0.9, -0.1), trial(1, 0.95, -0.01), trial(2, 0.99, 0.1))
    found = afresh(study, home.root, {0.01: 0.2, 0.02: 0.3}, *trials)
    assert (found.trial, found.feasible, found.measured) == (0, True, 2), "the best broke the ceiling afresh"
    assert found.attack_ap == pytest.approx(0.2) and found.ceiling == pytest.approx(0.25)
    assert found.utility == pytest.approx(0.75) and found.seeds == (12, 13), "on seeds of its own"
    assert found.intervals["attack_ap"][0] < 0.2 < found.intervals["attack_ap"][1]
    assert found.confirmation is None and found.note == "Keeps below the ceiling with its whole interval."


def test_the_upper_end_of_the_interval_decides(study: Study, home: Project) -> None:
    """It lies .03 above the AP of the fake points; the ceiling is at .25."""
    assert afresh(study, home.root, {0.01: 0.215}, trial(0, 0.9, -0.1)).feasible
    assert not afresh(study, home.root, {0.01: 0.225}, trial(0, 0.9, -0.1)).feasible


def test_where_all_candidates_break_it_the_least_breach_is_told(study: Study, home: Project) -> None:
    found = afresh(study, home.root, {0.01: 0.3, 0.02: 0.4}, trial(0, 0.9, -0.1), trial(1, 0.95, -0.01))
    assert (found.trial, found.feasible, found.measured) == (0, False, 2)
    assert found.note.startswith("On fresh seeds the interval of every candidate reaches above the ceiling")


def test_where_nothing_was_feasible_the_nearest_is_measured(study: Study, home: Project) -> None:
    found = afresh(study, home.root, {0.02: 0.5}, trial(0, 0.9, 0.3), trial(1, 0.8, 0.1))
    assert (found.trial, found.feasible, found.measured) == (1, False, 1)
    assert found.note.startswith("No trial was feasible")


def test_the_next_candidate_is_stronger_by_what_the_last_one_broke_the_ceiling_by() -> None:
    first, second, third, last = (trial(n, 0.9 - n / 10, excess) for n, excess in enumerate((-0.01, -0.02, -0.1, -0.2)))
    every = (last, third, second, first)
    assert next_candidate(every, []) is first
    assert next_candidate(every, [(first, 0.05)]) is third, "the second was too little stronger"
    assert next_candidate(every, [(first, 0.05), (third, 0.2)]) is last, "none is strong enough: the strongest"
    assert next_candidate(every, [(first, 0.05), (third, 0.2), (last, 0.1)]) is None, "a weaker one cannot hold"
    assert next_candidate(every, [(first, 0.0)]) is None, "it holds"
    assert next_candidate(every, [(first, None)]) is second, "training diverged, which says nothing about AP"
    assert next_candidate((), []) is None


@pytest.mark.parametrize(("theirs", "holds"), [(0.2, True), (0.24, False)])
def test_confirmation_users_are_looked_at_once_and_have_the_last_word(
    home: Project, theirs: float, holds: bool
) -> None:
    (home.root / "configs" / "users.yaml").write_text("albums: 50\n")
    study = study_of(home.root)

    def some(job: Job) -> Point | FedprintError:
        if not job.config.defences:  # type: ignore[attr-defined]
            return fake_point(0.8, 0.8, job.seed)
        confirmed = job.config.data.skip == 50  # type: ignore[attr-defined]
        return fake_point(theirs if confirmed else {0.01: 0.2, 0.02: 0.3}[job.varies["sigma"]], 0.6, job.seed)

    lab = FakeLab(home.root, some)
    undefended = {seed: fake_point(0.8, 0.8, seed) for seed in study.settings.fresh_seeds}
    (found,) = measure_afresh(study, searches(trial(0, 0.9, -0.1), trial(1, 0.95, -0.01)), undefended, Points(lab))
    asked = [job.varies["strategy"] for job in lab.asked if job.config.data.skip]  # type: ignore[attr-defined]
    assert sorted(asked) == ["no defence"] * 2 + ["noise"] * 2, "only the candidate that holds, on two seeds"
    assert found.confirmation is not None and (found.trial, found.feasible) == (0, holds)
    assert (found.linked_ap, found.confirmation.linked_ap) == (pytest.approx(0.2), pytest.approx(theirs))
    assert ("breaks it with confirmation users" in found.note) is not holds


def test_an_entry_exists_even_where_nothing_could_be_measured(study: Study, quick: FakeLab) -> None:
    failed = Finished(
        number=0, values={"sigma": 1.0}, state="fail", utility=None, attack_ap=None, ceiling=None, excess=1.0,
        error="training diverged",
    )  # fmt: skip
    undefended = {seed: fake_point(0.8, 0.8, seed) for seed in study.settings.fresh_seeds}
    (found,) = measure_afresh(study, searches(failed), undefended, Points(quick))
    assert (found.strategy, found.feasible, found.utility) == ("noise", False, None)
    assert found.ceiling == pytest.approx(5 * CHANCE)
    assert found.note == "Nothing could be measured: training diverged"
    (unsearched,) = measure_afresh(study, searches(), undefended, Points(quick))
    assert "diverged" not in unsearched.note and "no trial was finished" in unsearched.note


def test_a_ceiling_may_be_on_linked_updates(home: Project, quick: FakeLab) -> None:
    """Linked AP of the fake points is 1.2 times that of an update, and its chance twice as high."""
    study = study_of(home.root, assignments=["ceiling={times_chance: 3, updates: 3}"])
    undefended = {seed: fake_point(0.8, 0.8, seed) for seed in (0, 1, 10, 11)}
    score = tuning.score_of(study, [fake_point(0.2, 0.6, 0, linked=True)], undefended)
    with pytest.raises(FedprintError, match="most devices sent fewer than the 3 updates"):
        tuning.score_of(study, [fake_point(0.2, 0.6, 0)], undefended)
    assert (score.attack_ap, score.ceiling) == (pytest.approx(0.24), pytest.approx(6 * CHANCE))
    found = afresh(study, home.root, {0.01: 0.27}, trial(0, 0.9, -0.1))
    assert not found.feasible and found.linked_ap == pytest.approx(1.2 * 0.27)
    assert (found.attack_ap, found.ceiling) == (pytest.approx(0.27), pytest.approx(0.3)), "of an update it is below"


@pytest.mark.parametrize("threads", [1, 3])
def test_a_study_from_end_to_end(home: Project, study: Study, threads: int) -> None:
    tuned = tune(study, FakeLab(home.root, answer, jobs=threads))
    assert {search.strategy: len(search.trials) for search in tuned.searches} == {"noise": 3, "both": 3}
    assert sum(tuned.searches[1].importances.values()) in (pytest.approx(1), 0)
    folder = home.root / "reports" / "demo"
    publish(tuned, folder)
    rows = read_measurements(folder / "measurements.jsonl")
    assert {(row["strategy"], row["seed"]) for row in rows} >= {("no defence", 10), ("noise", 11), ("both", 10)}
    points = json.loads((folder / "operating_points.json").read_text())
    needed = {"strategy", "parameters", "feasible", "utility", "attack_ap", "ceiling", "intervals", "seeds"}
    assert [point["strategy"] for point in points] == ["noise", "both"]
    for point in points:
        assert needed <= point.keys() and point["feasible"] and point["seeds"] == [10, 11]
        assert point["utility"] == pytest.approx(0.75)
        assert (point["attack_ap"], point["linked_ap"]) == (pytest.approx(0.2), pytest.approx(0.2))
        assert (point["chance"], point["linked_chance"]) == (pytest.approx(CHANCE), pytest.approx(CHANCE))
        lo, hi = point["intervals"]["linked_ap"]
        assert lo < 0.2 < hi and point["updates"] == 1
    page = (folder / "index.html").read_text()
    for text in ("5 times chance", "view: local", "defended: everyone", "Operating points", "Parameter importances",
                 "History of the search", "Trials and operating points", "Learning from: offline",
                 "at AP of an update 20.0 % [17.0, 23.0]", "20 users, 2 fresh seeds"):  # fmt: skip
        assert text in page, text
    assert "http" not in page.replace("http-equiv", "")
    _equal_bytes(tuned, folder)


def _equal_bytes(tuned: Tuned, folder: Path) -> None:
    from fedprint.reports.pages.study import write_study as write

    again = folder.with_name("again")
    write(
        head=head_of(tuned), searches=tuned.searches, points=tuned.operating_points,
        config_text=tuned.study.text(), out=again,
    )  # fmt: skip
    files = [path.relative_to(again) for path in again.rglob("*") if path.is_file()]
    assert [str(name) for name in files if (folder / name).read_bytes() != (again / name).read_bytes()] == []


def test_a_study_that_is_cut_short_says_so_and_goes_on_where_it_was(home: Project, study: Study) -> None:
    crashed = JobFailed("out of memory", stage="federate", exit_code=1, reason="out of memory")

    def some(job: Job) -> Point | FedprintError:
        return crashed if "trial" in told and len(lab.asked) > 15 else answer(job)

    told = ["trial"]
    lab = FakeLab(home.root, some, jobs=2)
    with pytest.raises(FedprintError, match="out of memory"):
        tune(study, lab)
    told.clear()
    tuned = tune(study, lab)
    assert [len(search.trials) for search in tuned.searches] == [3, 3]
    assert not [trial for search in tuned.searches for trial in search.trials if trial.error]


@pytest.mark.slow
def test_a_study_on_tiny_albums_two_points_at_a_time(home: Project) -> None:
    asked = request_for(home.root, "demo", fast=True, assignments=["seeds=[0]", "trials=2"], name="x")
    folder = driver.run(asked, jobs=2)
    trials = json.loads((folder / "trials.json").read_text())
    assert {name: len(found["trials"]) for name, found in trials.items()} == {"noise": 2, "both": 2}
    assert len(json.loads((folder / "operating_points.json").read_text())) == 2
