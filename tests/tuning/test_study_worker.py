"""Workers of a study: the constraint on every path, budgets, kills, resumption, determinism."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import optuna
import pytest
from optuna.trial import TrialState
from toy_studies import STRATEGY, Toy, plan, run_worker

from fedprint.tuning import worker
from fedprint.tuning.sampling import FeasiblePruner, make_sampler
from fedprint.tuning.score import CONSTRAINT, ranked
from fedprint.tuning.space import Parameter, Strategy
from fedprint.tuning.storage import open_storage, open_study, without_password
from fedprint.tuning.worker import Budget, StudyPlan, Task, records, work
from fedprint.types import FedprintError

SPAWN = multiprocessing.get_context("spawn")


def study_of(made: StudyPlan) -> optuna.Study:
    return open_study(made.url, made.name)


def test_the_search_ends_at_the_constrained_optimum(tmp_path: Path) -> None:
    made = plan(tmp_path, 16)
    run_worker(made, Toy(ceiling=0.4, reach=0.05))
    trials = records(study_of(made))
    assert len(trials) == 16 and trials[0].values == {"sigma": 0.5}, "the first trial is the centre"
    best = ranked(trials)[0]
    assert best.feasible and best.excess is not None and best.excess <= 0
    assert best.attack_ap is not None and best.attack_ap + 0.05 == pytest.approx(0.4, abs=0.02)
    assert best.utility == pytest.approx(1 - 0.65**2, rel=0.02)
    assert best.utility == max(t.utility for t in trials if t.feasible and t.utility is not None)


def test_a_search_of_few_trials_looks_at_the_upper_end_first(tmp_path: Path) -> None:
    """Where only strong settings keep below the ceiling, random ones would rarely find them."""
    made = plan(tmp_path, 4)
    run_worker(made, Toy(ceiling=0.15, reach=0.05))
    trials = records(study_of(made))
    assert [trial.values["sigma"] for trial in trials[:2]] == [0.5, 1.0]
    best = ranked(trials)[0]
    assert best.feasible and 0.9 <= best.values["sigma"] < 1.0, "between both, chosen by the process"


def test_no_values_are_measured_twice_where_a_bound_is_best(tmp_path: Path) -> None:
    made = plan(tmp_path, 20)
    run_worker(made, Toy(ceiling=1.5))
    trials = records(study_of(made))
    assert ranked(trials)[0].values == {"sigma": 0.0}, "the best value is the bound"
    assert len({trial.values["sigma"] for trial in trials}) == 20


def test_a_trial_that_ends_while_others_look_for_lost_ones_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker tells it and ends, and with that its lock is free, after the trials were read."""
    made = plan(tmp_path, 2)
    study = study_of(made)
    trial = study.ask(STRATEGY.distributions())
    trial.set_user_attr(worker.WORKER, "worker")

    def ends_now(read: optuna.trial.FrozenTrial, locks: Path) -> bool:
        study_of(made).tell(read.number, 1.0)
        return True

    monkeypatch.setattr(worker, "_is_lost", ends_now)
    worker._requeue_lost(study, made.locks)
    assert [each.state for each in study.get_trials()] == [TrialState.COMPLETE], "neither failed nor queued again"


def test_a_space_with_fewer_values_than_trials_is_no_trap(tmp_path: Path) -> None:
    few = STRATEGY.model_copy(update={"space": {"sigma": Parameter(low=0, high=3, integer=True)}})
    made = replace(plan(tmp_path, 12), strategy=few)
    run_worker(made, Toy(ceiling=1.5, fails_above=9))
    assert len(records(study_of(made))) == 12


def test_what_is_measured_and_told_has_three_digits(tmp_path: Path) -> None:
    made, log = plan(tmp_path, 6, sampler="random"), tmp_path / "asked.txt"
    run_worker(made, Toy(log=str(log)))
    asked = [float(line) for line in log.read_text().splitlines()]
    assert asked == [trial.values["sigma"] for trial in records(study_of(made))]
    assert asked == [float(f"{trial.params['sigma']:.3g}") for trial in study_of(made).get_trials()]
    narrow = Parameter(low=0.12345, high=0.12349)
    assert (narrow.rounded(0.12346), Parameter(low=1, high=9999, integer=True).rounded(1234)) == (0.12345, 1234)


def test_where_nothing_is_feasible_the_nearest_comes_first(tmp_path: Path) -> None:
    made = plan(tmp_path, 6)
    run_worker(made, Toy(ceiling=-0.5))
    trials = records(study_of(made))
    assert not any(trial.feasible for trial in trials)
    first = ranked(trials)[0]
    assert first.excess == min(trial.excess for trial in trials if trial.excess is not None)


def test_the_constraint_is_set_on_every_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "FeasiblePruner", lambda: FeasiblePruner(least=1))
    made = plan(tmp_path, 14, sampler="random", steps=2)
    run_worker(made, Toy(seeds=2, reach=0.01, fails_above=0.9))
    trials = study_of(made).get_trials()
    recorded = {trial.number: trial for trial in records(study_of(made))}
    assert {trial.state for trial in recorded.values()} == {"complete", "pruned", "fail"}
    for trial in trials:
        failed = recorded[trial.number].state == "fail"
        expected = worker.BROKEN if failed else 1 - recorded[trial.number].values["sigma"] + 0.01 - 0.4
        assert trial.constraints == {CONSTRAINT: pytest.approx(expected)}
        assert recorded[trial.number].error == ("training diverged" if failed else None)


def test_a_place_where_training_diverges_is_not_asked_for_again_and_again(tmp_path: Path) -> None:
    """What is feasible borders on what diverges, as noise does."""
    made = plan(tmp_path, 20)
    run_worker(made, Toy(ceiling=0.4, fails_above=0.65))
    failed = [trial.values["sigma"] for trial in records(study_of(made))[8:] if trial.state == "fail"]
    assert all(abs(a - b) > 1e-3 for a, b in itertools.combinations(failed, 2))
    best = ranked(records(study_of(made)))[0]
    assert best.feasible and 0.6 <= best.values["sigma"] <= 0.65


def test_only_utility_prunes_and_only_against_feasible_trials() -> None:
    study = optuna.create_study(direction="maximize")
    for utility, excess in ((0.9, 0.2), (0.95, 0.3), (0.5, -0.1), (0.3, -0.2), (0.4, -0.2)):
        trial = study.ask()
        trial.report(utility, 0)
        trial.set_constraint(CONSTRAINT, excess)
        study.tell(trial, utility)
    pruner = FeasiblePruner(least=3)
    verdicts = {}
    for utility in (0.35, 0.45):
        trial = study.ask()
        trial.report(utility, 0)
        verdicts[utility] = pruner.prune(study, study.get_trials()[-1])
    assert verdicts == {0.35: True, 0.45: False}, "the median of the feasible is .4, of all .5"
    assert not FeasiblePruner(least=4).prune(study, study.get_trials()[-2])


def test_a_trial_is_never_left_after_its_last_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "FeasiblePruner", lambda: FeasiblePruner(least=1))
    made = plan(tmp_path, 10, sampler="random")
    run_worker(made, Toy())
    assert {trial.state for trial in records(study_of(made))} == {"complete"}


def test_one_worker_is_deterministic_and_an_interruption_changes_nothing(tmp_path: Path) -> None:
    whole, parts = plan(tmp_path / "a", 12), plan(tmp_path / "b", 12)
    run_worker(whole, Toy())
    for trials in (5, 12):
        run_worker(plan(tmp_path / "b", trials), Toy())
    values = [[trial.values for trial in records(study_of(made))] for made in (whole, parts)]
    assert values[0] == values[1]
    drawn = [plan(tmp_path / str(seed), 4, seed=seed, sampler="random") for seed in (0, 1)]
    for made in drawn:
        run_worker(made, Toy())
    one, other = ([trial.values for trial in records(study_of(made))] for made in drawn)
    assert one[:2] == other[:2] and one[2:] != other[2:], "a seed of its own draws other values after the first two"


def _alive_workers(made: StudyPlan, objective: Toy, count: int) -> list[multiprocessing.process.BaseProcess]:
    processes = [SPAWN.Process(target=run_worker, args=(made, objective)) for _ in range(count)]
    for process in processes:
        process.start()
    return processes


def _wait_for_owners(made: StudyPlan, count: int) -> list[optuna.trial.FrozenTrial]:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        running = study_of(made).get_trials(states=(TrialState.RUNNING,))
        if len(running) >= count and all(worker.WORKER in trial.user_attrs for trial in running):
            return running
        time.sleep(0.05)
    raise AssertionError("workers did not start")


@pytest.mark.slow
def test_of_four_workers_two_are_killed_and_no_trial_is_lost_or_doubled(tmp_path: Path) -> None:
    made, log = plan(tmp_path, 14, sampler="random"), tmp_path / "asked.txt"
    processes = _alive_workers(made, Toy(seconds=0.4, log=str(log)), 4)
    before = _wait_for_owners(made, 4)
    for process in processes[:2]:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [-9, -9, 0, 0]
    trials = study_of(made).get_trials()
    states = Counter(trial.state for trial in trials)
    assert states == {TrialState.COMPLETE: 14, TrialState.FAIL: 2}
    complete = [trial.params["sigma"] for trial in trials if trial.state == TrialState.COMPLETE]
    assert len(set(complete)) == 14, "no point was measured twice"
    lost = [trial for trial in trials if trial.state == TrialState.FAIL]
    again = {trial.user_attrs["retry_of"]: trial.params for trial in trials if "retry_of" in trial.user_attrs}
    assert again == {trial.number: trial.params for trial in lost}
    assert {trial.number for trial in lost} <= {trial.number for trial in before}
    assert len(records(study_of(made))) == 14


@pytest.mark.slow
def test_a_killed_study_goes_on_with_the_trial_that_was_lost(tmp_path: Path) -> None:
    made = plan(tmp_path, 3)
    (process,) = _alive_workers(made, Toy(seconds=30), 1)
    (lost,) = _wait_for_owners(made, 1)
    process.kill()
    process.join()
    run_worker(made, Toy())
    trials = study_of(made).get_trials()
    assert [trial.state for trial in trials[:2]] == [TrialState.FAIL, TrialState.COMPLETE]
    assert trials[1].params == lost.params == STRATEGY.centre()
    assert len(records(study_of(made))) == 3


def test_a_trial_of_another_machine_is_left_alone(tmp_path: Path) -> None:
    made = plan(tmp_path, 1)
    study = study_of(made)
    trial = study.ask(made.strategy.distributions())
    trial.set_user_attr(worker.WORKER, "elsewhere/1")
    worker.recover(made)
    assert study.get_trials()[0].state == TrialState.RUNNING


def test_recovering_twice_queues_once(tmp_path: Path) -> None:
    made = plan(tmp_path, 5)
    study = study_of(made)
    trial = study.ask(made.strategy.distributions())
    trial.set_user_attr(worker.WORKER, f"{worker.platform.node()}/gone")
    study.enqueue_trial(trial.params, user_attrs={worker.RETRY: 0})  # killed before it could tell
    for _ in range(2):
        worker.recover(made)
    assert [t.state for t in study.get_trials()] == [TrialState.FAIL, TrialState.WAITING]


def test_a_trial_that_ends_while_trials_are_counted_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its position, and with it its draws, would be given out again."""
    made = plan(tmp_path, 5)
    study = study_of(made)
    trial = study.ask(made.strategy.distributions())
    look = study.get_trials

    def look_and_end(*arguments: object, **settings: object) -> list[optuna.trial.FrozenTrial]:
        looked = look(*arguments, **settings)  # type: ignore[arg-type]
        study.tell(trial, 0.5, skip_if_finished=True)
        return looked

    monkeypatch.setattr(study, "get_trials", look_and_end)
    assert worker._begun(study) == 1


def test_studies_advance_side_by_side_and_a_deadline_ends_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "asked.txt"

    def trials_asked_for() -> float:
        return len(log.read_text().splitlines()) if log.exists() else 0

    # A clock of trials: on a busy machine, seconds would say nothing about how many come before the deadline.
    monkeypatch.setattr(worker, "time", SimpleNamespace(time=trials_asked_for, sleep=time.sleep))
    tasks = [
        Task(
            plan=replace(
                plan(tmp_path, 100, url=str(tmp_path / "both.log"), sampler="random"),
                name=name,
                budget=Budget(trials=100, deadline=7),
            ),
            objective=Toy(log=str(log)),
        )
        for name in ("a", "b")
    ]
    work(tasks)
    assert sorted(len(records(study_of(task.plan))) for task in tasks) == [3, 4]


def test_sqlite_works_and_bad_urls_are_one_line(tmp_path: Path) -> None:
    made = plan(tmp_path, 3, url=f"sqlite:///{tmp_path / 'study.db'}", sampler="random")
    run_worker(made, Toy())
    assert len(records(study_of(made))) == 3
    without_driver = r": (MySQLdb is not installed; pip install 'mysqlclient'|.*cannot be opened)"
    for url, words in (
        ("postgresql+psycopg://u:secret@nowhere.invalid/x", r"\*\*\*@nowhere.invalid/x cannot be opened"),
        (
            "mysql+mysqldb://u:secret@nowhere.invalid/x",
            rf"storage mysql\+mysqldb://u:\*\*\*@nowhere.invalid/x{without_driver}",
        ),
        ("sqlite:////no/such/folder/x.db", r"storage sqlite:////no/such/folder/x.db cannot be opened"),
        ("nosuch://x", "cannot be opened"),
    ):
        with pytest.raises(FedprintError, match=words) as caught:
            open_storage(url)
        assert "\n" not in str(caught.value) and "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:secret@host:5432/x", "postgresql://u:***@host:5432/x"),
        ("postgresql+psycopg2://u:se/cr@et@host/x?a=1", "postgresql+psycopg2://u:***@host/x?a=1"),
        ("postgresql://host/x?user=u&password=secret&a=1", "postgresql://host/x?user=u&password=***&a=1"),
        ("mysql://host/x?passwd=secret", "mysql://host/x?passwd=***"),
        ("postgresql://u@host:5432/x", "postgresql://u@host:5432/x"),
        ("sqlite:////a/b@c:d.db", "sqlite:////a/b@c:d.db"),
        ("work/studies/x.log", "work/studies/x.log"),
    ],
)
def test_a_password_of_a_storage_is_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_samplers_follow_the_length_of_the_study() -> None:
    from optuna.samplers import GPSampler, RandomSampler, TPESampler

    assert isinstance(make_sampler("auto", 200, 0, 0), GPSampler)
    assert isinstance(make_sampler("auto", 201, 0, 0), TPESampler)
    assert isinstance(make_sampler("random", 10, 0, 0), RandomSampler)


def test_integers_and_logarithms_are_searched_as_such(tmp_path: Path) -> None:
    space = {"k": Parameter(low=1, high=8, integer=True), "sigma": Parameter(low=1e-4, high=1, log=True)}
    strategy = Strategy(name="two", defences=({"k": "$k", "sigma": "$sigma"},), space=space)
    assert strategy.first() == [{"k": 4, "sigma": pytest.approx(1e-2)}], "the end of several parameters is a corner"
    one = strategy.model_copy(update={"space": {"k": space["k"]}})
    assert one.first() == [{"k": 4}, {"k": 8}]
    study = study_of(plan(tmp_path, 1))
    trial = study.ask(strategy.distributions())
    assert isinstance(trial.params["k"], int) and 1e-4 <= trial.params["sigma"] <= 1
    assert strategy.filled(trial.params) == [trial.params]
