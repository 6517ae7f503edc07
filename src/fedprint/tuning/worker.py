"""One worker of a study: claims a trial, measures it, tells the storage; any number may work on one study.

A trial belongs to the worker whose name it carries, and a worker lives as long as it holds the lock file of that name,
which the operating system frees however it ends. Trials of dead workers are marked failed and queued once more with the
same parameters, by whoever claims next.
"""

from __future__ import annotations

import math
import platform
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from fedprint.rng import seed_for
from fedprint.tuning.sampling import FeasiblePruner, SamplerName, Unmeasured, make_sampler
from fedprint.tuning.score import CONSTRAINT, Finished, Objective, Score
from fedprint.tuning.space import Strategy
from fedprint.tuning.storage import open_study
from fedprint.types import FedprintError

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

POLL_S = 0.5
NAMELESS_S = 60.0
"""A running trial without a worker's name this long after its start was left between the two writes of a claim."""

WORKER, RETRY, ERROR, STATE, VALUES = "worker", "retry_of", "error", "state", "values"
"""User attributes of a trial; ``state`` is how it ended (``complete``, ``pruned``, ``fail``), ``values`` were measured.

Optuna is told that all of them are complete, because its Gaussian process looks at nothing else: it would ask for a
place where training diverges, or which is not worth finishing, again and again. Failed for Optuna are the trials of
dead workers.
"""

DIVERGED, BROKEN = 0.0, 0.01
"""Utility and excess of a trial that could not be measured: useless, and above the ceiling, but by little. The feasible
often borders on what diverges, and a large excess would teach the process that its neighbours break the ceiling too.
"""

_NUMBERS = ("utility", "attack_ap", "ceiling")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When to stop: after ``trials`` finished ones, or at ``deadline`` (seconds since the epoch)."""

    trials: int
    deadline: float = math.inf


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """One study of one strategy: where it is kept (``url``, ``locks``), how it searches, and its ``margin``.

    ``steps`` is the number of scores of a whole trial; a trial is never left after its last one.
    """

    name: str
    url: str
    locks: Path
    strategy: Strategy
    budget: Budget
    margin: float
    seed: int
    sampler: SamplerName = "auto"
    steps: int = 1


@dataclass(frozen=True, kw_only=True)
class Task:
    """A study and what its trials measure."""

    plan: StudyPlan
    objective: Objective


Told = Callable[[StudyPlan, Finished], None]


def work(tasks: Sequence[Task], told: Told = lambda plan, trial: None) -> None:
    """Measure trials until every budget is spent; each time one of the study that is furthest behind.

    Waits for other workers' running trials, to take over those that get lost. ``told`` hears of every trial that this
    worker measured, before the storage does: it may hear twice of a trial whose worker was killed in between.
    """
    studies = {task.plan.name: open_study(task.plan.url, task.plan.name) for task in tasks}
    with _alive(tasks[0].plan.locks) as name:
        while open_tasks := [task for task in tasks if _is_open(studies[task.plan.name], task.plan.budget)]:
            for task in sorted(open_tasks, key=lambda task: _begun(studies[task.plan.name])):
                study = studies[task.plan.name]
                if trial := _claim(study, task.plan, name):
                    _measure(study, task, trial, told)
                    break
            else:
                time.sleep(POLL_S)


def _is_open(study: Study, budget: Budget) -> bool:
    return time.time() < budget.deadline and len(finished(study)) < budget.trials


def _begun(study: Study) -> int:
    """Return the number of trials that are measured or being measured.

    It is one look at the storage: a trial that another worker ends between two looks would be in neither, its position
    be given out again with the same draws, and one trial too many be asked for.
    """
    from optuna.trial import TrialState

    return len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.RUNNING)))


def recover(plan: StudyPlan) -> None:
    """Queue what dead workers left. Call it before reading a study that somebody may have killed."""
    with _study_lock(plan):
        _requeue_lost(open_study(plan.url, plan.name), plan.locks)


def finished(study: Study) -> list[FrozenTrial]:
    """Return the trials that count: measured, left early, or failed for a stated reason, not those of dead workers."""
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def records(study: Study) -> list[Finished]:
    """Return :func:`finished` as plain records, in order."""
    return [record(trial) for trial in finished(study)]


def record(trial: FrozenTrial) -> Finished:
    """Return a trial as a plain record."""
    attrs = trial.user_attrs
    return Finished(
        number=trial.number,
        values=attrs[VALUES],
        state=attrs[STATE],
        **{name: attrs.get(name) for name in _NUMBERS},
        excess=trial.constraints.get(CONSTRAINT),
        error=attrs.get(ERROR),
        retry_of=attrs.get(RETRY),
        details=attrs.get("details", {}),
    )


def _claim(study: Study, plan: StudyPlan, worker: str) -> Trial | None:
    """Return a trial to measure, or None while others measure the last ones. One claim at a time."""
    from optuna.trial import TrialState

    with _study_lock(plan):
        _requeue_lost(study, plan.locks)
        taken = _begun(study)
        if taken >= plan.budget.trials:
            return None
        sampler = make_sampler(plan.sampler, plan.budget.trials, plan.seed, taken)
        study.sampler = Unmeasured(sampler, plan.strategy.rounded, seed_for(plan.seed, "elsewhere", taken) % 2**31)
        study.pruner = FeasiblePruner()
        if taken == 0 and not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            study.enqueue_trial(plan.strategy.centre())
        trial = study.ask(plan.strategy.distributions())
        trial.set_user_attr(WORKER, worker)
        return trial


def _measure(study: Study, task: Task, trial: Trial, told: Told) -> None:
    """Run the objective to its end, to the pruner's verdict or to its failure; the constraint is set on every path."""
    score: Score | None = None
    state = "complete"
    values = task.plan.strategy.rounded(trial.params)
    trial.set_user_attr(VALUES, values)
    try:
        for step, found in enumerate(task.objective(values)):
            score = found
            trial.report(score.utility, step)
            if step + 1 < task.plan.steps and trial.should_prune():
                state = "pruned"
                break
    except FedprintError as error:
        state = "fail"
        trial.set_user_attr(ERROR, str(error))
    trial.set_user_attr(STATE, state)
    trial.set_constraint(CONSTRAINT, score.excess(task.plan.margin) if score and state != "fail" else BROKEN)
    for name in _NUMBERS if score else ():
        trial.set_user_attr(name, getattr(score, name))
    if score is not None:
        trial.set_user_attr("details", dict(score.details))
    told(task.plan, record(_frozen(study, trial)))
    study.tell(trial, score.utility if score and state != "fail" else DIVERGED)


def _frozen(study: Study, trial: Trial) -> FrozenTrial:
    return next(each for each in study.get_trials(deepcopy=False) if each.number == trial.number)


def _requeue_lost(study: Study, locks: Path) -> None:
    """Mark trials of dead workers failed and queue their parameters again: twice in a row is as good as once."""
    from optuna.trial import TrialState

    everything = study.get_trials(deepcopy=False)
    again = {trial.user_attrs.get(RETRY) for trial in everything}
    for trial in everything:
        if trial.state != TrialState.RUNNING or not _is_lost(trial, locks):
            continue
        values = trial.params or trial.system_attrs.get("fixed_params")
        if values and trial.number not in again:
            study.enqueue_trial(values, user_attrs={RETRY: trial.number})
        study.tell(trial.number, state=TrialState.FAIL)


def _is_lost(trial: FrozenTrial, locks: Path) -> bool:
    owner = trial.user_attrs.get(WORKER)
    if owner is None:
        return trial.datetime_start is None or datetime.now() - trial.datetime_start > timedelta(seconds=NAMELESS_S)
    host, _, name = str(owner).partition("/")
    if host != platform.node():
        return False  # another machine's locks cannot be seen from here
    try:
        with FileLock(_lock_file(locks, name), timeout=0):
            return True
    except Timeout:
        return False


@contextmanager
def _alive(locks: Path) -> Iterator[str]:
    """Hold the lock of a new worker's name while the worker lives."""
    locks.mkdir(parents=True, exist_ok=True)
    name = uuid.uuid4().hex
    path = _lock_file(locks, name)
    with FileLock(path):
        yield f"{platform.node()}/{name}"
    path.unlink(missing_ok=True)


def _lock_file(locks: Path, name: str) -> Path:
    return locks / f"worker-{name}.lock"


def _study_lock(plan: StudyPlan) -> FileLock:
    plan.locks.mkdir(parents=True, exist_ok=True)
    return FileLock(plan.locks / f"{plan.name}.lock")
