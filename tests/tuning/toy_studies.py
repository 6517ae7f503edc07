"""Toy objectives with a known optimum, importable by spawned workers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedprint.tuning.score import Score
from fedprint.tuning.space import Parameter, Strategy, Values
from fedprint.tuning.worker import Budget, StudyPlan, Task, work
from fedprint.types import FedprintError

STRATEGY = Strategy(
    name="toy", defences=({"name": "noise", "sigma": "$sigma"},), space={"sigma": Parameter(low=0, high=1)}
)


@dataclass(frozen=True)
class Toy:
    """Utility 1 - sigma^2, AP 1 - sigma: under a ceiling c the optimum is sigma = 1 - c.

    Processes that ``meet`` in a folder go on once two of them measure at the same time.
    """

    ceiling: float = 0.4
    reach: float = 0.0
    seconds: float = 0.0
    log: str | None = None
    seeds: int = 1
    fails_above: float = 2.0
    meet: str | None = None

    def __call__(self, values: Values) -> Iterator[Score]:
        sigma = values["sigma"]
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{sigma!r}\n")
        if self.meet:
            self._wait_for_another(Path(self.meet))
        if sigma > self.fails_above:
            raise FedprintError("training diverged")
        for _ in range(self.seeds):
            time.sleep(self.seconds)
            yield Score(
                utility=1 - sigma**2,
                attack_ap=1 - sigma,
                upper=1 - sigma + self.reach,
                ceiling=self.ceiling,
                details={"one": 1.0},
            )

    def _wait_for_another(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / str(os.getpid())).touch()
        until = time.monotonic() + 100
        while len(list(folder.iterdir())) < 2:
            assert time.monotonic() < until, "no other worker came"
            time.sleep(0.05)


def plan(folder: Path, trials: int, *, url: str | None = None, **settings: object) -> StudyPlan:
    return StudyPlan(
        name="toy.toy",
        url=url or str(folder / "toy.log"),
        locks=folder / "locks",
        strategy=STRATEGY,
        budget=Budget(trials=trials),
        **{"seed": 0, **settings},  # type: ignore[arg-type]
    )


def run_worker(made: StudyPlan, objective: Toy) -> None:
    work([Task(plan=made, objective=objective)])
