"""The report of a suite: its members' measurements in one table, the papers' tables, and links to the full reports."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from fedprint.evaluation.rows import Row, plain_value, read_measurements, write_measurements
from fedprint.reports import wording
from fedprint.reports.claims.federation import Verdict, by_claim, judge_claims
from fedprint.reports.figures.drawing import Drawing
from fedprint.reports.figures.suite import draw_suite
from fedprint.reports.numbers.reference import CITATION
from fedprint.reports.pages.federation import (
    environment,
    fresh_folder,
    read_summary,
    swap,
    write_claims,
    write_drawings,
    write_tables,
)
from fedprint.reports.tables.analyses import ResultTable
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
    shown = SuiteContent(
        drawings=draw_suite(rows),
        tables=_tables(members),
        verdicts=tuple(verdict for member in members for verdict in judge_claims(member.rows, member.name)),
    )
    partial = fresh_folder(Path(out))
    try:
        write_measurements(partial / "measurements.jsonl", partial / "measurements.csv", rows)
        text = json.dumps(plain_value(head), indent=1, ensure_ascii=False)
        (partial / "summary.json").write_text(text + "\n", encoding="utf-8")
        (partial / "index.html").write_text(_page(head, members, shown), encoding="utf-8")
        write_drawings(partial, shown.drawings)
        write_tables(partial, shown.tables)
        write_claims(partial, shown.verdicts)
        swap(partial, Path(out))
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _tables(members: Sequence[MemberReport]) -> tuple[ResultTable, ...]:
    budgets = client_dp_table({member.name: (member.rows, member.config_text) for member in members})
    return (*(() if budgets is None else (budgets,)), *paper_tables(members))


@dataclass(frozen=True, kw_only=True)
class SuiteContent:
    """What the page of a suite shows besides its members."""

    drawings: tuple[Drawing, ...]
    tables: tuple[ResultTable, ...]
    verdicts: tuple[Verdict, ...]


def _page(head: Mapping[str, Any], members: Sequence[MemberReport], shown: SuiteContent) -> str:
    return environment().get_template("suite.html").render(
        head=head,
        members=members,
        drawings=shown.drawings,
        tables=shown.tables,
        # of members that nobody attacks, a table of claims would be empty
        claims=by_claim(shown.verdicts) if any(verdict.state != "untested" for verdict in shown.verdicts) else [],
        verdicts=shown.verdicts,
        stands_for=stands_for,
        citation=CITATION,
        wording=wording,
    )  # fmt: skip


def suite_rows(suite: str, members: Sequence[MemberReport]) -> list[Row]:
    """Return all measurements under the suite's name, each with its ``member``."""
    return [{**row, "experiment": suite, "member": member.name} for member in members for row in member.rows]


def _headline(member: MemberReport) -> Mapping[str, Any]:
    kept = ("title", "dataset", "config_hash", "priors", "seeds", "attack", "verdict", "sanity_passed")
    return {"name": member.name, "experiment": member.experiment, **{key: member.summary[key] for key in kept}}
