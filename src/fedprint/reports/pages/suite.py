"""The report of a suite: its members' measurements in one table, the papers' tables, and links to the full reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from fedprint.evaluation.rows import Row, read_measurements
from fedprint.reports.claims.federation import judge_claims
from fedprint.reports.figures.suite import draw_suite
from fedprint.reports.numbers.reference import CITATION
from fedprint.reports.pages.html import Page, read_summary, write_page
from fedprint.reports.tables.client_dp import client_dp_table
from fedprint.reports.tables.papers import paper_tables, stands_for


@dataclass(frozen=True, kw_only=True)
class MemberReport:
    """A member's published report ``folder``; ``experiment`` is the one it is a variant of."""

    name: str
    experiment: str
    folder: Path

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """The content of its summary.json."""
        return read_summary(self.folder)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """All its measurements."""
        return tuple(read_measurements(self.folder / "measurements.jsonl"))

    @cached_property
    def config_text(self) -> str:
        """Its resolved configuration (YAML)."""
        return (self.folder / "config.yaml").read_text(encoding="utf-8")

    @property
    def model(self) -> str:
        """The name of its model."""
        config = yaml.safe_load(self.config_text)
        model = config.get("model") if isinstance(config, dict) else None
        return str(model.get("name", "")) if isinstance(model, dict) else ""


def write_suite(
    *, suite: str, title: str, fast: bool, members: Sequence[MemberReport], failures: Mapping[str, str], out: Path
) -> None:
    """Write the folder ``out``: index.html, measurements, claims, tables/, figures/ and summary.json.

    The page links to ``<member>/index.html`` beside it. ``failures`` says of members without a report why they have
    none. The folder appears as a whole; equal input gives equal bytes.
    """
    head = {"suite": suite, "title": title, "fast": fast, "failures": dict(failures)}
    head["members"] = [_headline(member) for member in members]
    rows = suite_rows(suite, members)
    attacked = {member.name for member in members if member.summary["attack"]}
    verdicts = judge_claims({member.name: member.rows for member in members})
    budgets = client_dp_table({member.name: (member.rows, member.config_text) for member in members})
    page = Page(
        template="suite",
        drawings=draw_suite([row for row in rows if not row.get("attack") or row["member"] in attacked]),
        tables=[*([] if budgets is None else [budgets]), *paper_tables(members)],
        verdicts=verdicts,
        rows=rows,
        files={"summary.json": head},
        values={
            "head": head,
            "failed": [f"{name} failed" for name in failures],
            "members": members,
            "tested": any(verdict.state != "untested" for verdict in verdicts),
            "stands_for": stands_for,
            "citation": CITATION,
        },
    )
    write_page(page, out)


def suite_rows(suite: str, members: Sequence[MemberReport]) -> list[Row]:
    """Return all measurements under the suite's name, each with its ``member``."""
    return [{**row, "experiment": suite, "member": member.name} for member in members for row in member.rows]


def _headline(member: MemberReport) -> Mapping[str, Any]:
    kept = ("title", "dataset", "config_hash", "priors", "seeds", "attack", "verdict", "sanity_passed")
    return {"name": member.name, "experiment": member.experiment, **{key: member.summary[key] for key in kept}}
