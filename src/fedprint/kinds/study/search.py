"""Tuning: the highest utility under a ceiling on the attack, one Optuna study per strategy, measured again afresh."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import fmean

import torch

from fedprint.evaluation.tradeoffs.planes import strongest_row
from fedprint.evaluation.tradeoffs.tradeoff import AttackNumber, Point, normalised_utility
from fedprint.kinds.federation.points import code_of_points
from fedprint.kinds.study.config import Study
from fedprint.kinds.study.points import CutShort, Points, job_of, undefended_jobs
from fedprint.lab.graph import Job
from fedprint.lab.keys import digest_of
from fedprint.lab.progress import Board
from fedprint.lab.runner import Done, Lab
from fedprint.tuning.result import OperatingPoint, SearchResult, operating_point, unmeasured_point
from fedprint.tuning.score import ROUNDS, Finished, Score, next_candidate, ranked
from fedprint.tuning.space import Strategy, Values
from fedprint.tuning.storage import open_storage, open_study
from fedprint.tuning.worker import Budget, OnTrial, StudyPlan, Task, finished, records, recover, work
from fedprint.types import FedprintError

Measure = Callable[[Job], Point]
"""Returns the point of a job. Raises FedprintError where training diverges, anything else where it was cut short."""


@dataclass(frozen=True, kw_only=True)
class PointObjective:
    """Measures a strategy on the study's seeds, one federation each; known points cost nothing."""

    study: Study
    strategy: Strategy
    undefended: Mapping[int, Point]
    measure: Measure

    def __call__(self, values: Values) -> Iterator[Score]:
        """Yield the score over the seeds so far."""
        points: list[Point] = []
        for seed in self.study.settings.seeds:
            points.append(self.measure(job_of(self.study, self.strategy, values, seed)))
            yield score_of(self.study, points, self.undefended)


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """All that a study's report shows; ``undefended`` are the points without a defence, by seed.

    ``done`` are the jobs that every run of the study has: without a defence, at the centres, and on fresh seeds.
    """

    study: Study
    searches: tuple[SearchResult, ...]
    operating_points: tuple[OperatingPoint, ...]
    undefended: Mapping[int, Point]
    done: tuple[Done, ...] = ()


def score_of(study: Study, points: Sequence[Point], undefended: Mapping[int, Point]) -> Score:
    """Return the means over the points: normalised utility, the AP that the ceiling is about, the ceiling on it."""
    adversaries = sorted({number.adversary for point in points for number in point.attacks})
    details = {f"ap_{name}": fmean(point.attack(name).value for point in points) for name in adversaries}
    if rounds := [count for point in points if (count := _rounds_of(point))]:
        details[ROUNDS] = fmean(rounds)
    ceiling, attack = ceiling_of(study, points), strongest_row(points, study.settings.ceiling.updates)
    assert attack is not None  # or there would be no ceiling
    return Score(
        utility=fmean(normalised_utility(point, undefended[point.seed]) for point in points),
        attack_ap=attack["value"],
        upper=attack["hi"],
        ceiling=ceiling,
        details={**details, "utility_value": fmean(p.utility.value for p in points)},
    )


def _rounds_of(point: Point) -> int:
    """Return the rounds that a privacy budget allowed, 0 without one."""
    return next((row["rounds"] for row in point.rows if row.get("epsilon") is not None), 0)


def judged(study: Study, point: Point) -> AttackNumber:
    """Return the AP that the ceiling limits: the strongest adversary's over so many linked updates.

    Raises FedprintError where it was not measured.
    """
    updates = study.settings.ceiling.updates
    strongest = point.strongest_over(updates)
    if strongest is None:
        raise FedprintError(
            f"point {point.key}: most devices sent fewer than the {updates} updates of ceiling.updates; raise "
            "federation.rounds or federation.fraction, or lower ceiling.updates"
        )
    return strongest


def ceiling_of(study: Study, points: Sequence[Point]) -> float:
    """Return the ceiling as an AP: a multiple of chance is one of the chance for these very questions."""
    return fmean(study.settings.ceiling.of(judged(study, point).chance) for point in points)


def tune(study: Study, lab: Lab, on_trial: OnTrial = lambda plan, trial: None) -> Tuned:
    """Run or resume a study to its end and measure its best points on fresh seeds.

    The study's ``timeout_minutes`` limit the search, not what comes before and after. Raises FedprintError when the
    search is cut short before its budget is spent.
    """
    open_storage(storage_url(lab.root, study))  # raises now rather than after minutes of work
    points = Points(lab)
    undefended = measure_undefended(study, points)
    limit = (study.settings.timeout_minutes or 0) * 60
    plans = make_plans(lab, study, time.time() + limit if limit else float("inf"))
    search(study, lab, plans, undefended, on_trial)
    searches = tuple(searched(plan) for plan in plans)
    operating_points = tuple(measure_afresh(study, searches, undefended, points))
    return Tuned(
        study=study,
        searches=searches,
        operating_points=operating_points,
        undefended=undefended,
        done=tuple(points.done.values()),
    )


def measure_undefended(study: Study, points: Points) -> dict[int, Point]:
    """Return the points without a defence, by seed."""
    jobs = undefended_jobs(study)
    measured = points.run(jobs, title=f"{study.name}: no defence")
    return {job.seed: _known(point) for job, point in zip(jobs, measured, strict=True)}


def make_plans(lab: Lab, study: Study, deadline: float = float("inf")) -> list[StudyPlan]:
    """Return one plan per strategy; its name holds a hash, so that trials under other settings or code never mix."""
    settings = study.settings
    base = job_of(study, None, {}, settings.seeds[0])
    code = digest_of([code_of_points(), base.data, base.files, lab.device])
    return [
        StudyPlan(
            name=f"{study.file} {strategy.name} {study.trials_digest(strategy, code)}",
            url=storage_url(lab.root, study),
            locks=lab.root / "work" / "studies" / ".locks",
            strategy=strategy,
            budget=Budget(trials=settings.trials, deadline=deadline),
            seed=settings.seed,
            sampler=settings.sampler,
            steps=len(settings.seeds),
        )
        for strategy in settings.strategies
    ]


def storage_url(root: Path, study: Study) -> str:
    """Return where the study's trials are kept."""
    return study.settings.storage or str(root / "work" / "studies" / f"{study.file}.log")


def search(
    study: Study, lab: Lab, plans: Sequence[StudyPlan], undefended: Mapping[int, Point], on_trial: OnTrial
) -> None:
    """Let ``lab.jobs`` threads spend the budgets: each asks for a trial, has its points computed, and reports them."""
    for plan in plans:
        recover(plan)
    if not _left(plans):
        return
    title, points = f"{study.name}: trials", Points(lab)
    torch.set_num_threads(1)  # of the Gaussian process: processes are what is parallel
    total = sum(plan.budget.trials for plan in plans)
    with Board(title, total) as board:
        for _ in range(total - _left(plans)):
            board.ended("", failed=False, known=True)

        def measure(job: Job) -> Point:
            try:
                return points.one(job, title, board)
            finally:
                board.left(job.label)

        def heard(plan: StudyPlan, trial: Finished) -> None:
            _show(board, plan, trial)
            on_trial(plan, trial)

        tasks = [
            Task(
                plan=plan,
                objective=PointObjective(study=study, strategy=plan.strategy, undefended=undefended, measure=measure),
            )
            for plan in plans
        ]
        _work(lab, tasks, heard)
    if _left(plans) and time.time() < plans[0].budget.deadline:
        raise FedprintError(
            f"study {study.name}: the search ended with {_left(plans)} trials to go; "
            "mend the cause and repeat the command (finished trials are kept)"
        )


def _work(lab: Lab, tasks: Sequence[Task], on_trial: OnTrial) -> None:
    """Run a worker in each of several threads; raise what cut one short, where trials are left."""
    workers = min(lab.jobs, _left([task.plan for task in tasks]))
    threads = ThreadPoolExecutor(workers)
    pending = [threads.submit(work, tasks, on_trial) for _ in range(workers)]
    try:
        wait(pending)
    except BaseException:
        lab.pool.stop()
        raise
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
    errors = [error for future in pending if (error := future.exception()) is not None]
    if errors and _left([task.plan for task in tasks]):
        raise FedprintError(str(errors[0])) if isinstance(errors[0], CutShort) else errors[0]


def _show(board: Board, plan: StudyPlan, trial: Finished) -> None:
    """Count a trial, and show the best of its strategy."""
    trials = [*records(open_study(plan.url, plan.name)), trial]
    best = next((each for each in ranked(trials) if each.feasible), None)
    shown = f"best {best.utility:.3f}" if best and best.utility is not None else "none feasible"
    board.ended(f"{plan.strategy.name} trial {trial.number}", failed=trial.error is not None, known=False)
    board.running(plan.strategy.name, f"{len(trials)} trials, {shown}")


def searched(plan: StudyPlan) -> SearchResult:
    """Return a strategy's trials and how much each parameter mattered for utility."""
    recover(plan)
    study = open_study(plan.url, plan.name)
    return SearchResult(strategy=plan.strategy.name, trials=tuple(records(study)), importances=_importances(plan))


def measure_afresh(
    study: Study, searches: Sequence[SearchResult], undefended: Mapping[int, Point], points: Points
) -> list[OperatingPoint]:
    """Measure each strategy's candidates on fresh seeds, each on new ones, until one keeps below the ceiling.

    The order is that of :func:`~fedprint.tuning.score.next_candidate`. The one that keeps below is measured once with
    confirmation users. Where none does, the one that breaks the ceiling least is the result.
    """
    tried: dict[str, list[Tried]] = {search.strategy: [] for search in searches}
    for turn in count():
        asked = [(search, _next(search, tried[search.strategy])) for search in searches]
        pending = [(search, trial) for search, trial in asked if trial is not None]
        if not pending:
            break
        for (search, trial), point in zip(pending, _measured(study, pending, turn, undefended, points), strict=True):
            tried[search.strategy].append((trial, point))
    ceiling = ceiling_of(study, [undefended[seed] for seed in study.settings.fresh_seeds])
    found = [
        _best([point for _, point in tried[search.strategy] if point is not None])
        or unmeasured_point(search, study.fresh(0), [trial for trial, _ in tried[search.strategy]], ceiling,
                            study.settings.ceiling.updates)
        for search in searches
    ]  # fmt: skip
    return _confirmed(study, searches, found, points)


Tried = tuple[Finished, OperatingPoint | None]
"""A candidate and what fresh seeds showed, None where training diverged on one of them."""


def _next(search: SearchResult, tried: Sequence[Tried]) -> Finished | None:
    excesses = [(trial, None if point is None else point.excess) for trial, point in tried]
    return next_candidate(search.trials, excesses)


def _measured(
    study: Study,
    candidates: Sequence[tuple[SearchResult, Finished]],
    turn: int,
    undefended: Mapping[int, Point],
    points: Points,
    *,
    confirm: bool = False,
) -> list[OperatingPoint | None]:
    """Return each candidate's result on the fresh seeds of a turn, None where one of them could not be measured."""
    strategies = {strategy.name: strategy for strategy in study.settings.strategies}
    seeds = study.fresh(turn)
    plain = [job_of(study, None, {}, seed, confirm=confirm) for seed in seeds if confirm or seed not in undefended]
    jobs = [
        job_of(study, strategies[search.strategy], trial.values, seed, confirm=confirm)
        for search, trial in candidates
        for seed in seeds
    ]
    title = f"{study.name}: {'confirmation users' if confirm else 'fresh seeds'}"
    measured = points.run([*plain, *jobs], title=title)
    beside = ({} if confirm else dict(undefended)) | {
        job.seed: _known(point) for job, point in zip(plain, measured, strict=False)
    }
    batches = [measured[start : start + len(seeds)] for start in range(len(plain), len(measured), len(seeds))]
    return [
        _operating_point(study, search, trial, batch, beside, turn)
        for (search, trial), batch in zip(candidates, batches, strict=True)
    ]


def _operating_point(
    study: Study,
    search: SearchResult,
    trial: Finished,
    batch: Sequence[Point | FedprintError],
    undefended: Mapping[int, Point],
    turn: int,
) -> OperatingPoint | None:
    whole = [point for point in batch if isinstance(point, Point)]
    if len(whole) < len(batch):
        return None
    updates = study.settings.ceiling.updates
    made = operating_point(search, trial, whole, undefended, ceiling_of(study, whole), updates)
    return replace(made, measured=turn + 1)


def _confirmed(
    study: Study, searches: Sequence[SearchResult], found: Sequence[OperatingPoint], points: Points
) -> list[OperatingPoint]:
    """Return the operating points; those that hold with what confirmation users show, where any are declared."""
    if study.confirmation is None:
        return list(found)
    held = {point.strategy: point.trial for point in found if point.feasible}
    asked = [(s, next(t for t in s.trials if t.number == held[s.strategy])) for s in searches if s.strategy in held]
    results = _measured(study, asked, 0, {}, points, confirm=True) if asked else []
    confirmed = {search.strategy: result for (search, _), result in zip(asked, results, strict=True)}
    return [p.confirmed_by(confirmed[p.strategy]) if p.strategy in confirmed else p for p in found]


def _best(points: Sequence[OperatingPoint]) -> OperatingPoint | None:
    """Return the feasible one, else the one nearest to the ceiling; ``measured`` counts all."""
    if not points:
        return None
    best = min(points, key=lambda p: (not p.feasible, p.excess or 0.0))
    return replace(best, measured=max(point.measured for point in points))


def _known(point: Point | FedprintError) -> Point:
    if isinstance(point, FedprintError):
        raise point
    return point


def _left(plans: Sequence[StudyPlan]) -> int:
    """Return how many trials are still to be finished."""
    return sum(max(plan.budget.trials - len(finished(open_study(plan.url, plan.name))), 0) for plan in plans)


def _importances(plan: StudyPlan) -> dict[str, float]:
    """Return fANOVA importances of the parameters for utility; a single parameter has all of it."""
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    names = list(plan.strategy.space)
    if len(names) == 1:
        return {names[0]: 1.0}
    study = open_study(plan.url, plan.name)
    values = {trial.value for trial in study.get_trials(deepcopy=False) if trial.value is not None}
    if len(values) < 2:
        return {}
    return dict(get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=plan.seed)))
