"""A kind of experiment: how many examples do people have? It reads a data set and trains nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
from pydantic import Field

from fedprint.component import Component
from fedprint.data.examples import num_examples
from fedprint.data.sources.registry import AnySource
from fedprint.kinds.base import Costs, Findings, OnOneSource, Request
from fedprint.kinds.federation.config import ReportConfig
from fedprint.kinds.jobs import ResolvedFile
from fedprint.lab.graph import Job
from fedprint.lab.runner import Done, Lab
from fedprint.lab.tracking.runs import Run, RunHead
from fedprint.reports.pages.html import replacing
from fedprint.types import FedprintError


class SurveyConfig(Component):
    """The data, and the ``survey`` quantiles of the number of examples; a file with ``survey`` is of this kind."""

    data: AnySource
    survey: tuple[float, ...] = Field(min_length=1)
    report: ReportConfig


class SurveyFile(ResolvedFile[SurveyConfig]):
    """A file of this kind, resolved."""


class Survey(OnOneSource):
    """``survey``: quantiles of the number of examples of a user."""

    name = "survey"
    mark = "survey"

    def load(self, request: Request) -> SurveyFile:
        """Return the checked file."""
        return SurveyFile.of(request, SurveyConfig)

    def jobs(self, config: SurveyFile) -> Sequence[Job]:
        """Return no job: nothing is trained."""
        return ()

    def carry_out(self, config: SurveyFile, lab: Lab, out: Path) -> Findings:
        """Write the page and the summary."""
        users = config.config.data.load(None, 0).users
        counts = [num_examples(user.examples) for user in users]
        found = {f"quantile {q:g}": float(np.quantile(counts, q)) for q in config.config.survey}
        title = config.config.report.title
        table = [{"what": what, "examples": value} for what, value in found.items()]
        summary = {"table": table, "title": title, "fast": config.fast, "name": config.name}
        lines = "".join(f"<li>{escape(what)}: {value:g} examples" for what, value in found.items())
        with replacing(out) as folder:
            (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
            (folder / "index.html").write_text(f"<h1>{escape(title)}</h1><ul>{lines}</ul>", encoding="utf-8")
        return Findings(metrics=found)

    def costs(self, config: SurveyFile, device: str) -> Costs:
        """Return that it costs nothing worth naming."""
        return Costs(jobs=0, seconds=0.0, disk=0, memory=0)

    def head(self, config: SurveyFile, job: Job) -> RunHead:
        """There is no job that could be tracked."""
        raise FedprintError(f"a survey has no jobs, so not '{job.label}'")

    def log(self, config: SurveyFile, done: Done, run: Run) -> None:
        """There is no job that could be tracked."""
