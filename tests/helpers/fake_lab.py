"""A lab in which nobody trains: every job is answered at once with a point that the test chose."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedprint.data.formats.files import write_json
from fedprint.evaluation.tradeoffs.tradeoff import Point, point_json
from fedprint.lab.graph import Job
from fedprint.lab.progress import Board
from fedprint.lab.runner import Done, Lab
from fedprint.types import FedprintError

Answer = Callable[[Job], Point | FedprintError]

DATA = {
    "name": "albums", "title": "t", "users": 8, "examples": 240, "per_user_min": 30, "per_user_median": 30.0,
    "per_user_max": 30, "licence": "none", "shareable": True, "sha256": "0" * 64,
}  # fmt: skip


class FakeLab(Lab):
    """Answers jobs with points; ``asked`` are those jobs, in their order."""

    def __init__(self, root: Path, answer: Answer, jobs: int = 1) -> None:
        super().__init__(root=root, pool=None, jobs=jobs)  # type: ignore[arg-type]
        self.answer = answer
        self.asked: list[Job] = []
        self._order = threading.Lock()

    def run(self, jobs: Sequence[Job], *, title: str) -> list[Done | FedprintError]:
        """Return the answers."""
        return [self._answered(job) for job in jobs]

    def one(self, job: Job, *, title: str, want: Sequence[str] | None = None, board: Board | None = None) -> Done:
        """Return the answer, or raise it."""
        found = self._answered(job)
        if isinstance(found, FedprintError):
            raise found
        return found

    def _answered(self, job: Job) -> Done | FedprintError:
        with self._order:
            self.asked.append(job)
            found = self.answer(job)
            if isinstance(found, FedprintError):
                return found
            folder = self.root / "fake" / uuid.uuid4().hex / "point"
            write_point(folder, found)
        return Done(job=job, outputs={"point": folder}, keys={"point": found.key}, known=False)


def write_point(folder: Path, point: Point) -> None:
    """Write what the stage of a point writes."""
    folder.mkdir(parents=True)
    for name, rows in (("rows.jsonl", point.rows), ("analysis_rows.jsonl", point.analyses)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    details: dict[str, Any] = {"data": DATA}
    write_json(folder / "details.json", details)
    write_json(folder / "point.json", point_json(point))


def refuse(job: Job) -> Point | FedprintError:
    """Fail the test that asks for a point."""
    raise AssertionError(f"{job.label} was asked for")
