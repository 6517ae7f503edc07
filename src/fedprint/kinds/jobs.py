"""Shared by several kinds: settings with digests, files that stand alone, points of charts, failures of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError

from fedprint.component import Component
from fedprint.errors import FedprintError
from fedprint.kinds.base import Request
from fedprint.kinds.config_files import apply_assignments, as_yaml, merge, one_line
from fedprint.lab.keys import digest_of
from fedprint.lab.runner import Done, JobFailed
from fedprint.lab.tracking.runs import Point
from fedprint.types import Measurement

Checked = TypeVar("Checked", bound=BaseModel)


class JobSettings(Component):
    """Settings of one job, whose stages read some of them (:class:`fedprint.lab.graph.Settings`)."""

    def digest(self) -> str:
        """Return 16 hex digits of all settings."""
        return digest_of(self.model_dump(mode="json"))

    def section_digest(self, *sections: str) -> str:
        """Return 16 hex digits of some sections (``a``) or settings (``a.b``)."""
        whole = self.model_dump(mode="json")
        return digest_of({key: reduce(getitem, key.split("."), whole) for key in sections})


@dataclass(frozen=True, kw_only=True)
class ResolvedFile(Generic[Checked]):
    """A file that stands alone, resolved: its settings, and the name of its report."""

    name: str
    fast: bool
    config: Checked

    @classmethod
    def of(cls, request: Request, whole: type[Checked]) -> Self:
        """Check a file, its ``fast`` section where asked, and ``a.b=c`` assignments; FedprintError is one line."""
        values = file_values(request)
        try:
            config: Any = whole.model_validate(apply_assignments(values, request.assignments))
        except ValidationError as error:
            raise FedprintError(one_line(error, str(request.path), whole, request.assignments)) from None
        title = title_of(request, config.report.title, values, config.data)
        report = config.report.model_copy(update={"title": title})
        return cls(name=request.name, fast=request.fast, config=config.model_copy(update={"report": report}))

    def digest(self) -> str:
        """Return 16 hex digits that identify the configuration, but for the wording of the report."""
        return digest_of(self.config.model_dump(mode="json", exclude={"report"}))

    def text(self) -> str:
        """Return the resolved configuration as YAML."""
        return as_yaml(self.config.model_dump(mode="json"))


def file_values(request: Request) -> dict[str, Any]:
    """Return the settings of a file alone, with its ``fast`` section where asked."""
    values = {key: value for key, value in request.values.items() if key != "fast"}
    return merge(values, request.values.get("fast") or {}) if request.fast else values


def title_of(request: Request, title: str, values: Mapping[str, Any], used: Component) -> str:
    """Return the title of a report: that of the file, or one of the data ``used`` where these are not the file's.

    ``values`` are the settings of the file, before any assignment. Other settings of the same data change no title, and
    a title that was assigned stays.
    """
    declared, now = values.get("data"), used.model_dump(mode="json")
    before = declared if isinstance(declared, Mapping) else {}
    asked = any(text.startswith(("report=", "report.")) for text in request.assignments)
    if asked or all(before.get(key) == now.get(key) for key in ("name", "path")):
        return title
    called = f"Folder {Path(now['path']).name}" if "path" in now else now["name"]
    return f"{called} (settings of {request.path.stem})"


def points_of(name: str, measured: Measurement, step: int = 0) -> list[Point]:
    """Return a measurement for charts: its value, the ends of its interval, and chance where there is one."""
    group, _, rest = name.partition("/")
    points = [(name, measured.value, step), (f"{group}_interval/{rest}_lo", measured.lo, step)]
    points.append((f"{group}_interval/{rest}_hi", measured.hi, step))
    if measured.chance is not None and np.isfinite(measured.chance):
        points.append((f"{group}_chance/{rest}", measured.chance, step))
    return points


def reason_of(error: FedprintError) -> str:
    """Return the reason of a failure, without the names of job and stage."""
    return error.reason if isinstance(error, JobFailed) else str(error)


def crashed(ended: Iterable[tuple[str, Done | FedprintError]]) -> dict[str, str]:
    """Return stage, reason and output of the jobs that crashed, by label.

    A federation that diverges under large noise is a result, which the report names.
    """
    return {
        label: failure_text(label, one) for label, one in ended if isinstance(one, FedprintError) and one.exit_code == 1
    }


def all_done(labels: Sequence[str], ended: Sequence[Done | FedprintError]) -> list[Done]:
    """Return the finished jobs of an experiment that has no report without all of them.

    Raises FedprintError, which names every job that failed, where one did.
    """
    failed = {label: one for label, one in zip(labels, ended, strict=True) if isinstance(one, FedprintError)}
    if failed:
        error = FedprintError(listed({label: failure_text(label, one) for label, one in failed.items()}))
        error.exit_code = min(one.exit_code for one in failed.values())  # 1, a crash, is the worst
        raise error
    return [one for one in ended if isinstance(one, Done)]


HOW_TO_GO_ON = " (mend this and repeat the command: finished work is kept)"


def failure_text(label: str, error: FedprintError) -> str:
    """Return stage, reason and output of a failure, without the job's label."""
    return str(error).removeprefix(f"{label}: ")


def listed(failures: Mapping[str, str], most: int = 5) -> str:
    """Return the failures as one sentence that says how to go on."""
    shown = "; ".join(f"{label}: {reason}" for label, reason in list(failures.items())[:most])
    more = f"; and {len(failures) - most} more" if len(failures) > most else ""
    return f"{shown}{more}{HOW_TO_GO_ON}"
