"""Tuning: the highest utility under a ceiling on the attack, one Optuna study per strategy, measured again afresh."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from fedprint.data.locate import data_root
from fedprint.evaluation.tradeoff import AttackNumber, Point, normalised_utility
from fedprint.kinds.plane.point_keys import canonical, stage_keys
from fedprint.kinds.plane.point_pool import PointRequest, one_thread, run_points, start_worker
from fedprint.kinds.plane.points import run_point
from fedprint.kinds.study.config import Study
from fedprint.lab.progress import meter
from fedprint.tuning.result import OperatingPoint, SearchResult, nothing_found, operating_point
from fedprint.tuning.score import ROUNDS, Finished, Score, margin_of, ranked
from fedprint.tuning.space import Strategy, Values
from fedprint.tuning.storage import open_storage, open_study
from fedprint.tuning.worker import Budget, StudyPlan, Task, finished, records, recover, work
from fedprint.types import FedprintError

POLL_S = 1.0


@dataclass(frozen=True, kw_only=True)
class PointObjective:
    """Measures a strategy on the study's seeds, one federation each; cached points cost nothing."""

    study: Study
    strategy: Strategy
    undefended: Mapping[int, Point]

    def __call__(self, values: Values) -> Iterator[Score]:
        """Yield the score over the seeds so far."""
        points: list[Point] = []
        for seed in self.study.settings.seeds:
            config = self.study.defended(self.strategy, values, seed)
            points.append(run_point(config, self.study.settings.prior, seed))
            yield score_of(self.study, points, self.undefended)


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """All that a study's report shows; ``undefended`` are the points without a defence, by seed."""

    study: Study
    searches: tuple[SearchResult, ...]
    operating_points: tuple[OperatingPoint, ...]
    undefended: Mapping[int, Point]


def score_of(study: Study, points: Sequence[Point], undefended: Mapping[int, Point]) -> Score:
    """Return the means over the points: normalised utility, the AP that the ceiling is about, the ceiling on it."""
    adversaries = sorted({number.adversary for point in points for number in point.attacks})
    details = {f"ap_{name}": fmean(point.attack(name).value for point in points) for name in adversaries}
    if rounds := [found for point in points if (found := _rounds_of(point))]:
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
    """Return what the ceiling is about: the strongest adversary's AP, from single updates or from linked ones.

    Raises FedprintError where it was not measured.
    """
    linkage = study.settings.ceiling.linkage
    found = point.strongest_by(linkage)
    if found is None:
        raise FedprintError(f"point {point.key}: no AP of linkage '{linkage}' was measured; choose another for ceiling")
    return found


def ceiling_of(study: Study, points: Sequence[Point]) -> float:
    """Return the ceiling as an AP: a multiple of chance is one of the chance for these very questions."""
    return fmean(study.settings.ceiling.of(judged(study, point).chance) for point in points)


def tune(root: Path, study: Study, *, workers: int | None = None, timeout_s: float | None = None) -> Tuned:
    """Run or resume a study to its end and measure its best points on fresh seeds.

    ``timeout_s`` limits the search, not what comes before and after. Raises FedprintError when the workers end before
    the budget does.
    """
    jobs = workers or study.settings.workers or os.cpu_count() or 1
    open_storage(_storage_url(root, study))  # raises now rather than after minutes of work
    undefended, margins = measure_spread(study, jobs)
    limit = timeout_s or (study.settings.timeout_minutes or 0) * 60
    deadline = time.time() + limit if limit else float("inf")
    plans = make_plans(root, study, margins, deadline)
    tasks = [
        Task(plan=plan, objective=PointObjective(study=study, strategy=plan.strategy, undefended=undefended))
        for plan in plans
    ]
    search(root, study, tasks, jobs)
    searches = tuple(searched(plan) for plan in plans)
    return Tuned(
        study=study,
        searches=searches,
        operating_points=tuple(measure_afresh(study, searches, undefended, jobs)),
        undefended=undefended,
    )


def measure_spread(study: Study, jobs: int) -> tuple[dict[int, Point], dict[str, float]]:
    """Return the undefended points by seed, and each strategy's margin from the AP at its centre over repeat seeds.

    Where the centre diverges on all but one seed, the undefended AP takes its place.
    """
    settings = study.settings
    seeds = [*dict.fromkeys([*settings.seeds, *settings.fresh_seeds])]
    plain = [_request(study, None, {}, seed) for seed in seeds]
    centres = [
        (strategy.name, _request(study, strategy, strategy.centre(), seed))
        for strategy in settings.strategies
        for seed in settings.margin_seeds
    ]
    found = run_points([*plain, *(request for _, request in centres)], jobs=jobs, title=f"{study.name}: spread")
    undefended = {seed: _known(point) for seed, point in zip(seeds, found[: len(seeds)], strict=True)}
    repeats: dict[str, list[float]] = {strategy.name: [] for strategy in settings.strategies}
    for (name, _), point in zip(centres, found[len(seeds) :], strict=True):
        if isinstance(point, Point):
            repeats[name].append(judged(study, point).value)
    instead = [judged(study, point).value for point in undefended.values()]
    ceiling = ceiling_of(study, [*undefended.values()])
    sizes = len(settings.seeds), len(settings.fresh_seeds)
    return undefended, {
        name: margin_of(values if len(values) > 1 else instead, ceiling, *sizes) for name, values in repeats.items()
    }


def make_plans(
    root: Path, study: Study, margins: Mapping[str, float], deadline: float = float("inf")
) -> list[StudyPlan]:
    """Return one plan per strategy; its name holds a hash, so that trials under other settings or code never mix."""
    settings = study.settings
    base = canonical(study.searched, settings.prior, settings.seeds[0])
    code = stage_keys(root, base, base.data.fingerprint(data_root(None)))["evaluate"]
    url = _storage_url(root, study)
    return [
        StudyPlan(
            name=f"{study.name} {strategy.name} {study.digest(strategy, code)}",
            url=url,
            locks=root / "work" / "studies" / ".locks",
            strategy=strategy,
            budget=Budget(trials=settings.trials, deadline=deadline),
            margin=margins[strategy.name],
            seed=settings.seed,
            sampler=settings.sampler,
            steps=len(settings.seeds),
        )
        for strategy in settings.strategies
    ]


def _storage_url(root: Path, study: Study) -> str:
    return study.settings.storage or str(root / "work" / "studies" / f"{study.name}.log")


def search(root: Path, study: Study, tasks: Sequence[Task], jobs: int) -> None:
    """Let ``jobs`` worker processes spend the budgets; their output goes to work/logs."""
    log = root / "work" / "logs" / f"study-{study.name}"
    for plan in (task.plan for task in tasks):
        recover(plan)
    if not _left(tasks):
        return
    context = multiprocessing.get_context("spawn")
    with one_thread():
        processes = [
            context.Process(target=_worker, args=(tasks, study, str(root), str(log)), daemon=True)
            for _ in range(min(jobs, _left(tasks)))
        ]
        for process in processes:
            process.start()
    total = sum(task.plan.budget.trials for task in tasks)
    with meter(f"{study.name}: trials", total) as bar:
        while any(process.is_alive() for process in processes):
            time.sleep(POLL_S)
            if left := _left(tasks):
                bar.update(total - left, _standing(tasks))
        bar.update(total - _left(tasks), _standing(tasks))
    if _left(tasks) and time.time() < tasks[0].plan.budget.deadline:
        raise FedprintError(
            f"study {study.name}: all workers ended with {_left(tasks)} trials to go; see {log}.*.log, "
            "mend the cause and repeat the command (finished trials are kept)"
        )


def searched(plan: StudyPlan) -> SearchResult:
    """Return a strategy's trials and how much each parameter mattered for utility."""
    recover(plan)
    study = open_study(plan.url, plan.name)
    return SearchResult(
        strategy=plan.strategy.name, margin=plan.margin, trials=tuple(records(study)), importances=_importances(plan)
    )


def measure_afresh(
    study: Study, searches: Sequence[SearchResult], undefended: Mapping[int, Point], jobs: int
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
    found: dict[str, list[OperatingPoint]] = {name: [] for name in chosen}
    linkage = study.settings.ceiling.linkage
    for place in range(study.settings.candidates):
        pending = [s for s in searches if len(chosen[s.strategy]) > place and not _settled(found[s.strategy])]
        batches = _measure_candidates(study, [(s, chosen[s.strategy][place]) for s in pending], jobs)
        for one, points in zip(pending, batches, strict=True):
            if points:
                ceiling = ceiling_of(study, points)
                made = operating_point(one, chosen[one.strategy][place], points, undefended, ceiling, linkage)
                found[one.strategy].append(replace(made, measured=place + 1))
    seeds = study.settings.fresh_seeds
    ceiling = ceiling_of(study, [undefended[seed] for seed in seeds])
    return [_best(found[s.strategy]) or nothing_found(s, seeds, chosen[s.strategy], ceiling, linkage) for s in searches]


def _measure_candidates(
    study: Study, candidates: Sequence[tuple[SearchResult, Finished]], jobs: int
) -> list[list[Point]]:
    """Return each candidate's points on the fresh seeds, none where one of them could not be measured."""
    if not candidates:
        return []
    strategies = {strategy.name: strategy for strategy in study.settings.strategies}
    seeds = study.settings.fresh_seeds
    requests = [_request(study, strategies[s.strategy], t.values, seed) for s, t in candidates for seed in seeds]
    found = run_points(requests, jobs=jobs, title=f"{study.name}: fresh seeds")
    batches = [found[start : start + len(seeds)] for start in range(0, len(found), len(seeds))]
    points = [[point for point in batch if isinstance(point, Point)] for batch in batches]
    return [batch if len(batch) == len(seeds) else [] for batch in points]


def _settled(found: Sequence[OperatingPoint]) -> bool:
    return any(point.feasible for point in found)


def _best(found: Sequence[OperatingPoint]) -> OperatingPoint | None:
    """Return the feasible one, else the one nearest to the ceiling; ``measured`` counts all."""
    if not found:
        return None
    best = min(found, key=lambda p: (not p.feasible, (p.judged_ap or 0.0) - (p.ceiling or 0.0)))
    return replace(best, measured=max(point.measured for point in found))


def _request(study: Study, strategy: Strategy | None, values: Values, seed: int) -> PointRequest:
    config = study.defended(strategy, values, seed) if strategy else study.undefended(seed)
    label = f"{strategy.name if strategy else 'no defence'} seed {seed}"
    return PointRequest(config=config, prior=study.settings.prior, seed=seed, label=label)


def _known(point: Point | FedprintError) -> Point:
    if isinstance(point, FedprintError):
        raise point
    return point


def _left(tasks: Sequence[Task]) -> int:
    """Return how many trials are still to be finished."""
    plans = [task.plan for task in tasks]
    return sum(max(plan.budget.trials - len(finished(open_study(plan.url, plan.name))), 0) for plan in plans)


def _standing(tasks: Sequence[Task]) -> str:
    """Return each strategy's number of trials and its best feasible utility so far."""
    notes = []
    for plan in (task.plan for task in tasks):
        trials = records(open_study(plan.url, plan.name))
        best = next((t for t in ranked(trials) if t.feasible), None)
        shown = f"{best.utility:.3f}" if best and best.utility is not None else "none feasible"
        notes.append(f"{plan.strategy.name} {len(trials)} ({shown})")
    return ", ".join(notes)


def _worker(tasks: Sequence[Task], study: Study, root: str, log: str) -> None:
    """Be one worker process; its last trial is taken over at the next start."""
    from fedprint.kinds.study.tracking import log_trial

    start_worker(root, log)
    work(tasks, lambda plan, trial: log_trial(Path(root), study, plan, trial))


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
