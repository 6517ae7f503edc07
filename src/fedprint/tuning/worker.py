"""One worker of a study: it claims a trial, measures it and stores the result; many may work on one study.

A trial holds the name of its worker. A worker is alive as long as it holds the lock file of its name, which the
operating system releases however the process ends. The next worker that claims a trial marks the trials of dead workers
as failed and queues their parameters again.
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
from fedprint.tuning.sampling import STARTUP, FeasiblePruner, SamplerName, Unmeasured, make_sampler
from fedprint.tuning.score import CONSTRAINT, Finished, Objective, Score
from fedprint.tuning.space import Strategy
from fedprint.tuning.storage import open_study
from fedprint.types import FedprintError

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

POLL_S = 0.5
NAMELESS_S = 60.0
"""A running trial that has no worker's name after this time belongs to a worker that died during its claim."""

WORKER, RETRY, ERROR, STATE, VALUES = "worker", "retry_of", "error", "state", "values"
"""User attributes of a trial; ``state`` is how it ended (``complete``, ``pruned``, ``fail``), ``values`` were measured.

For Optuna all of them are complete, because its Gaussian process uses complete trials only: it would otherwise suggest
the points where training diverges, or which are not worth finishing, again and again. Only trials of dead workers are
failed for Optuna.
"""

DIVERGED, BROKEN = 0.0, 0.01
"""Utility and excess of a trial that could not be measured: no utility, and slightly above the ceiling. Feasible points
often lie next to those that diverge, and from a large excess the process would infer that these exceed the ceiling too.
"""

_NUMBERS = ("utility", "attack_ap", "ceiling")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When to stop: after ``trials`` finished ones, or at ``deadline`` (seconds since the epoch)."""

    trials: int
    deadline: float = math.inf


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """One study of one strategy: where it is kept (``url``, ``locks``) and how it searches.

    ``steps`` is the number of scores of a whole trial; a trial is never stopped after its last one.
    """

    name: str
    url: str
    locks: Path
    strategy: Strategy
    budget: Budget
    seed: int
    sampler: SamplerName = "auto"
    steps: int = 1


@dataclass(frozen=True, kw_only=True)
class Task:
    """A study and what its trials measure."""

    plan: StudyPlan
    objective: Objective


OnTrial = Callable[[StudyPlan, Finished], None]


def work(tasks: Sequence[Task], on_trial: OnTrial = lambda plan, trial: None) -> None:
    """Measure trials until every budget is spent; each time one of the study with the fewest trials.

    Waits for other workers' running trials, to take over those whose worker dies. ``on_trial`` is called with every
    trial that this worker measured, before it is stored: twice for a trial whose worker was killed in between.
    """
    studies = {task.plan.name: open_study(task.plan.url, task.plan.name) for task in tasks}
    with _alive(tasks[0].plan.locks) as name:
        while open_tasks := [task for task in tasks if _is_open(studies[task.plan.name], task.plan.budget)]:
            for task in sorted(open_tasks, key=lambda task: _begun(studies[task.plan.name])):
                study = studies[task.plan.name]
                if trial := _claim(study, task.plan, name):
                    _measure(study, task, trial, on_trial)
                    break
            else:
                time.sleep(POLL_S)


def _is_open(study: Study, budget: Budget) -> bool:
    return time.time() < budget.deadline and len(finished(study)) < budget.trials


def _begun(study: Study) -> int:
    """Return the number of trials that are measured or being measured.

    One query reads both states. With two queries a trial that another worker ends in between would be in neither
    result: its position would be used again with the same draws, and there would be one trial too many.
    """
    from optuna.trial import TrialState

    return len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.RUNNING)))


def recover(plan: StudyPlan) -> None:
    """Queue the trials of dead workers again. Call it before reading a study whose process may have been killed."""
    with _study_lock(plan):
        _requeue_lost(open_study(plan.url, plan.name), plan.locks)


def finished(study: Study) -> list[FrozenTrial]:
    """Return the trials that count: measured, stopped early or failed for a reason; not those of dead workers."""
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
        first = plan.strategy.first()
        startup = len(first) if len(plan.strategy.space) == 1 else STARTUP
        sampler = make_sampler(plan.sampler, plan.budget.trials, plan.seed, taken, startup)
        study.sampler = Unmeasured(sampler, plan.strategy.rounded, seed_for(plan.seed, "elsewhere", taken) % 2**31)
        study.pruner = FeasiblePruner()
        if taken < len(first) and not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            study.enqueue_trial(first[taken])
        trial = study.ask(plan.strategy.distributions())
        trial.set_user_attr(WORKER, worker)
        return trial


def _measure(study: Study, task: Task, trial: Trial, on_trial: OnTrial) -> None:
    """Run the objective until it ends, is pruned or fails; the constraint is set in each case."""
    score: Score | None = None
    state = "complete"
    values = task.plan.strategy.rounded(trial.params)
    trial.set_user_attr(VALUES, values)
    try:
        for step, score in enumerate(task.objective(values)):
            trial.report(score.utility, step)
            if step + 1 < task.plan.steps and trial.should_prune():
                state = "pruned"
                break
    except FedprintError as error:
        state = "fail"
        trial.set_user_attr(ERROR, str(error))
    trial.set_user_attr(STATE, state)
    trial.set_constraint(CONSTRAINT, score.excess if score and state != "fail" else BROKEN)
    for name in _NUMBERS if score else ():
        trial.set_user_attr(name, getattr(score, name))
    if score is not None:
        trial.set_user_attr("details", dict(score.details))
    on_trial(task.plan, record(_frozen(study, trial)))
    study.tell(trial, score.utility if score and state != "fail" else DIVERGED)


def _frozen(study: Study, trial: Trial | FrozenTrial) -> FrozenTrial:
    return next(each for each in study.get_trials(deepcopy=False) if each.number == trial.number)


def _requeue_lost(study: Study, locks: Path) -> None:
    """Mark trials of dead workers failed and queue their parameters again; a second call changes nothing."""
    from optuna.trial import TrialState

    everything = study.get_trials(deepcopy=False)
    again = {trial.user_attrs.get(RETRY) for trial in everything}
    for trial in everything:
        if trial.state != TrialState.RUNNING or not _is_lost(trial, locks):
            continue
        if _frozen(study, trial).state != TrialState.RUNNING:
            continue  # its worker told it and ended since the trials were read
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
