"""The points of a study: their jobs, and how a search gets them from a lab."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedprint.evaluation.tradeoffs.tradeoff import Point
from fedprint.kinds.federation.jobs import point_job
from fedprint.kinds.federation.points import points_of, read_point
from fedprint.kinds.study.config import Study
from fedprint.lab.graph import Job
from fedprint.lab.progress import Board
from fedprint.lab.runner import Done, JobFailed, Lab
from fedprint.tuning.space import Strategy, Values
from fedprint.types import FedprintError

UNDEFENDED = "no defence"
CONFIRMATION = "confirmation"
"""Ends the label of a job with confirmation users."""


class CutShort(RuntimeError):
    """A point was not measured, for a reason outside of its trial: another worker takes the trial again."""


@dataclass
class Points:
    """Points of a study in a lab; remembers the finished jobs."""

    lab: Lab
    done: dict[str, Done] = field(default_factory=dict)

    def run(self, jobs: Sequence[Job], title: str) -> list[Point | FedprintError]:
        """Return the points of several jobs, or why there are none; raises the error of one that crashed.

        A choice from the remaining points would change with the next run.
        """
        ended = self.lab.run(jobs, title=title) if jobs else []
        if crashed := next((one for one in ended if isinstance(one, JobFailed) and one.exit_code == 1), None):
            raise crashed
        self.done |= {one.job.label: one for one in ended if isinstance(one, Done)}
        return points_of(ended)

    def one(self, job: Job, title: str, board: Board | None = None) -> Point:
        """Return the point of a trial's job, whose stages the ``board`` shows; several threads may call it."""
        try:
            return read_point(self.lab.one(job, title=title, board=board).outputs["point"])
        except JobFailed as error:
            if error.exit_code == 1:
                raise CutShort(str(error)) from error
            raise FedprintError(error.reason) from None


def job_of(study: Study, strategy: Strategy | None, values: Values, seed: int, *, confirm: bool = False) -> Job:
    """Return the job of a point of a study, where asked of confirmation users; equal ones have equal labels."""
    if strategy is None:
        varies: dict[str, float | str] = {"strategy": UNDEFENDED}
        config, label = study.undefended(seed, confirm=confirm), UNDEFENDED
    else:
        rounded = strategy.rounded(values)
        varies = {"strategy": strategy.name, **rounded}
        config = study.defended(strategy, values, seed, confirm=confirm)
        label = " ".join([strategy.name, *(f"{name}={value:g}" for name, value in rounded.items())])
    whom = f" {CONFIRMATION}" if confirm else ""
    return point_job(config, study.settings.prior, seed, label=f"{label} seed {seed}{whom}", varies=varies)


def undefended_jobs(study: Study) -> list[Job]:
    """Return the jobs without a defence, seed by seed: those that are known before the search."""
    settings = study.settings
    return [job_of(study, None, {}, seed) for seed in dict.fromkeys([*settings.seeds, *settings.fresh_seeds])]
