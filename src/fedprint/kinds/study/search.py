"""Tuning: the highest utility under a ceiling on the attack, one Optuna study per strategy, measured again afresh."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import torch

from fedprint.evaluation.tradeoff import AttackNumber, Point, normalised_utility
from fedprint.kinds.federation.points import code_of_points
from fedprint.kinds.study.config import Study
from fedprint.kinds.study.points import CutShort, Points, job_of, spread_jobs
from fedprint.lab.graph import Job
from fedprint.lab.keys import digest_of
from fedprint.lab.progress import Board
from fedprint.lab.runner import Done, Lab
from fedprint.tuning.result import OperatingPoint, SearchResult, operating_point, unmeasured_point
from fedprint.tuning.score import ROUNDS, Finished, Score, margin_of, ranked
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
    linked = [number.value for point in points if (number := point.strongest_by("device")) is not None]
    if len(linked) == len(points):
        details["ap_linked"] = fmean(linked)
    return Score(
        utility=fmean(normalised_utility(point, undefended[point.seed]) for point in points),
        attack_ap=fmean(judged(study, point).value for point in points),
        ceiling=ceiling_of(study, points),
        details={**details, "utility_value": fmean(p.utility.value for p in points)},
    )


def _rounds_of(point: Point) -> int:
    """Return the rounds that a privacy budget allowed, 0 without one."""
    return next((row["rounds"] for row in point.rows if row.get("epsilon") is not None), 0)


def judged(study: Study, point: Point) -> AttackNumber:
    """Return the AP that the ceiling limits: the strongest adversary's, from single updates or from linked ones.

    Raises FedprintError where it was not measured.
    """
    linkage = study.settings.ceiling.linkage
    strongest = point.strongest_by(linkage)
    if strongest is None:
        raise FedprintError(f"point {point.key}: no AP of linkage '{linkage}' was measured; choose another for ceiling")
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
    undefended, margins = measure_spread(study, points)
    limit = (study.settings.timeout_minutes or 0) * 60
    plans = make_plans(lab, study, margins, time.time() + limit if limit else float("inf"))
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


def measure_spread(study: Study, points: Points) -> tuple[dict[int, Point], dict[str, float]]:
    """Return the undefended points by seed, and each strategy's margin from the AP at its centre over repeat seeds.

    Where the centre diverges on all but one seed, the undefended AP takes its place.
    """
    plain, centres = spread_jobs(study)
    measured = points.run([*plain, *(job for _, job in centres)], title=f"{study.name}: spread")
    undefended = {job.seed: _known(point) for job, point in zip(plain, measured[: len(plain)], strict=True)}
    repeats: dict[str, list[float]] = {strategy.name: [] for strategy in study.settings.strategies}
    for (name, _), point in zip(centres, measured[len(plain) :], strict=True):
        if isinstance(point, Point):
            repeats[name].append(judged(study, point).value)
    instead = [judged(study, point).value for point in undefended.values()]
    ceiling = ceiling_of(study, [*undefended.values()])
    sizes = len(study.settings.seeds), len(study.settings.fresh_seeds)
    return undefended, {
        name: margin_of(values if len(values) > 1 else instead, ceiling, *sizes) for name, values in repeats.items()
    }


def make_plans(lab: Lab, study: Study, margins: Mapping[str, float], deadline: float = float("inf")) -> list[StudyPlan]:
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
            margin=margins[strategy.name],
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
    return SearchResult(
        strategy=plan.strategy.name, margin=plan.margin, trials=tuple(records(study)), importances=_importances(plan)
    )


def measure_afresh(
    study: Study, searches: Sequence[SearchResult], undefended: Mapping[int, Point], points: Points
) -> list[OperatingPoint]:
    """Measure each strategy's candidates on fresh seeds until one keeps below the ceiling.

    Candidates are the feasible trials by utility; if there are none, the nearest alone. When none keeps below, the
    one that breaks the ceiling least is the result.
    """
    chosen = {s.strategy: ranked(s.trials) for s in searches}
    chosen = {
        name: trials[: study.settings.candidates if trials and trials[0].feasible else 1]
        for name, trials in chosen.items()
    }
    measured: dict[str, list[OperatingPoint]] = {name: [] for name in chosen}
    linkage = study.settings.ceiling.linkage
    for rank in range(study.settings.candidates):
        pending = [s for s in searches if len(chosen[s.strategy]) > rank and not _settled(measured[s.strategy])]
        batches = _measure_candidates(study, [(s, chosen[s.strategy][rank]) for s in pending], points)
        for one, batch in zip(pending, batches, strict=True):
            if batch:
                ceiling = ceiling_of(study, batch)
                made = operating_point(one, chosen[one.strategy][rank], batch, undefended, ceiling, linkage)
                measured[one.strategy].append(replace(made, measured=rank + 1))
    seeds = study.settings.fresh_seeds
    ceiling = ceiling_of(study, [undefended[seed] for seed in seeds])
    return [
        _best(measured[s.strategy]) or unmeasured_point(s, seeds, chosen[s.strategy], ceiling, linkage)
        for s in searches
    ]


def _measure_candidates(
    study: Study, candidates: Sequence[tuple[SearchResult, Finished]], points: Points
) -> list[list[Point]]:
    """Return each candidate's points on the fresh seeds, none where one of them could not be measured."""
    strategies = {strategy.name: strategy for strategy in study.settings.strategies}
    seeds = study.settings.fresh_seeds
    jobs = [job_of(study, strategies[s.strategy], t.values, seed) for s, t in candidates for seed in seeds]
    measured = points.run(jobs, title=f"{study.name}: fresh seeds")
    batches = [measured[start : start + len(seeds)] for start in range(0, len(measured), len(seeds))]
    whole = [[point for point in batch if isinstance(point, Point)] for batch in batches]
    return [batch if len(batch) == len(seeds) else [] for batch in whole]


def _settled(points: Sequence[OperatingPoint]) -> bool:
    return any(point.feasible for point in points)


def _best(points: Sequence[OperatingPoint]) -> OperatingPoint | None:
    """Return the feasible one, else the one nearest to the ceiling; ``measured`` counts all."""
    if not points:
        return None
    best = min(points, key=lambda p: (not p.feasible, (p.judged_ap or 0.0) - (p.ceiling or 0.0)))
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
