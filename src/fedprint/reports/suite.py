"""The report of a suite: its members' measurements in one table, the papers' tables, and links to the full reports."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedprint.evaluation.rows import Row, plain_value, read_measurements, write_measurements
from fedprint.reports import wording
from fedprint.reports.evaluations import final_rows
from fedprint.reports.page import environment, fresh_folder, read_summary, swap
from fedprint.reports.tables import AttackTable, attack_tables


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

    @property
    def tables(self) -> tuple[AttackTable, ...]:
        """Its re-identification tables, one per prior."""
        return attack_tables(final_rows(self.rows), self.rows)


def write_suite(
    *, suite: str, title: str, fast: bool, members: Sequence[MemberReport], failures: Mapping[str, str], out: Path
) -> None:
    """Write the folder ``out``: index.html, measurements.jsonl and .csv, summary.json.

    The page links to ``<member>/index.html`` beside it. ``failures`` says of members without a report why they have
    none. The folder appears as a whole; equal input gives equal bytes.
    """
    head = {"suite": suite, "title": title, "fast": fast, "failures": dict(failures)}
    head["members"] = [_headline(member) for member in members]
    page = environment().get_template("suite.html").render(head=head, members=members, wording=wording)
    partial = fresh_folder(Path(out))
    try:
        write_measurements(partial / "measurements.jsonl", partial / "measurements.csv", suite_rows(suite, members))
        text = json.dumps(plain_value(head), indent=1, ensure_ascii=False)
        (partial / "summary.json").write_text(text + "\n", encoding="utf-8")
        (partial / "index.html").write_text(page, encoding="utf-8")
        swap(partial, Path(out))
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def suite_rows(suite: str, members: Sequence[MemberReport]) -> list[Row]:
    """Return all measurements under the suite's name, each with its ``member``."""
    return [{**row, "experiment": suite, "member": member.name} for member in members for row in member.rows]


def _headline(member: MemberReport) -> Mapping[str, Any]:
    kept = ("title", "dataset", "config_hash", "priors", "seeds", "attack", "verdict", "sanity_passed")
    return {"name": member.name, "experiment": member.experiment, **{key: member.summary[key] for key in kept}}
