"""What a claim is judged on: a member's rows, found by their keys and compared with their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from fedprint.evaluation.rows import Row
from fedprint.reports.claims.verdict import UNTESTED, Finding, State, side
from fedprint.reports.numbers.evaluations import CONTROL, final_analyses, final_rows, prior_rank
from fedprint.reports.numbers.paired import PAIRED
from fedprint.reports.wording import number, shown

Modality = Literal["image", "language", "stars"]


@dataclass(frozen=True)
class Evidence:
    """The final rows of one report (all its priors)."""

    rows: Sequence[Row]

    @cached_property
    def main(self) -> list[Row]:
        """Rows of the main tables."""
        return final_rows(self.rows)

    @cached_property
    def analyses(self) -> list[Row]:
        """Rows of analyses."""
        return final_analyses(self.rows)

    @property
    def modality(self) -> Modality:
        """What the model learns, from its utility's metric: stars (mae), language (top-5 accuracy), else images."""
        metrics = {row["metric"] for row in self.main if row.get("training") and not row.get("attack")}
        return "stars" if "mae" in metrics else "language" if "top5_accuracy" in metrics else "image"

    def attacked(self, prior: str, attack: str, metric: str = "ap") -> Row | None:
        """Return an attack's number on single updates; ``selected`` is the one that validation chose."""
        for row in self.main:
            if (row["prior"], row["metric"], row.get("linkage")) != (prior, metric, "update") or not row.get("attack"):
                continue
            if row["attack"] == attack or (attack == "selected" and row.get("selected") is True):
                return row
        return None

    def larger(self, a: Row | None, b: Row | None, names: tuple[str, str]) -> Finding:
        """Judge whether an attack's AP ``a`` exceeds ``b``, by their paired difference where it was measured."""
        finding = larger(a, b, names)
        if a is None or b is None or finding.state == "untested" or a["metric"] != "ap":
            return finding
        keys = {"prior": a["prior"], "versus_prior": b["prior"], "versus_attack": b["attack"], "attack": a["attack"]}
        paired = self.of(PAIRED, "ap_difference", **keys)
        if not paired:
            return finding
        return replace(above(paired[0], "difference", 0.0), numbers=f"{finding.numbers}, difference {shown(paired[0])}")

    def later(self) -> str:
        """Return the prior that stands for "other data of the same user": chrono, else photoset."""
        known = {row["prior"] for row in self.main}
        return "photoset" if "chrono" not in known and "photoset" in known else "chrono"

    def priors(self, analysis: str) -> list[str]:
        """Return the priors of an analysis but for the iid control."""
        known = {row["prior"] for row in self.analyses if row["analysis"] == analysis}
        return sorted(known - {CONTROL}, key=prior_rank)

    def of(self, analysis: str, metric: str, **keys: Any) -> list[Row]:
        """Return an analysis's rows that have these keys."""
        return [
            row
            for row in self.analyses
            if row["analysis"] == analysis
            and row["metric"] == metric
            and row.get("value") is not None
            and all(row.get(key) == value for key, value in keys.items())
        ]


def mean_row(rows: Sequence[Row]) -> Row | None:
    """Return repeats of one condition as one row with their mean numbers; None without rows."""
    if not rows:
        return None
    means = {key: math.fsum(row[key] for row in rows) / len(rows) for key in ("value", "lo", "hi")}
    return {**rows[0], **means}


def above(row: Row | None, what: str, level: float | None = None) -> Finding:
    """Judge whether a number lies above its chance, or above ``level``."""
    if row is None:
        return UNTESTED
    bound = row["chance"] if level is None else level
    if bound is None or row.get("value") is None:
        return UNTESTED
    state = side([(row["value"] - bound, row["lo"] - bound)])
    beside = "chance" if level is None else "limit"
    return Finding(state=state, numbers=f"{what} {shown(row)}, {beside} {number(bound, row['unit'])}")


def below(row: Row | None, what: str, level: float) -> Finding:
    """Judge whether a number lies below ``level``."""
    if row is None or row.get("value") is None:
        return UNTESTED
    state: State = "holds" if row["hi"] <= level else "unclear" if row["value"] <= level else "fails"
    return Finding(state=state, numbers=f"{what} {shown(row)}, limit {number(level, row['unit'])}")


def larger(a: Row | None, b: Row | None, names: tuple[str, str]) -> Finding:
    """Judge whether ``a`` exceeds ``b``: clearly when the interval of the difference excludes 0.

    Square-and-add from both intervals (Newcombe 1998), as if independent; both are over the same users, so it is wider
    than need be.
    """
    if a is None or b is None or a.get("value") is None or b.get("value") is None:
        return UNTESTED
    return Finding(state=side([difference(a, b)]), numbers=f"{names[0]} {shown(a)}, {names[1]} {shown(b)}")


def difference(a: Row, b: Row) -> tuple[float, float]:
    """Return ``a - b`` and the lower end of its interval."""
    gap = a["value"] - b["value"]
    return gap, gap - math.hypot(a["value"] - a["lo"], b["hi"] - b["value"])


def together(findings: Iterable[Finding]) -> Finding:
    """Return the weakest of the tested findings with everybody's numbers: all must hold."""
    tested = [finding for finding in findings if finding.state != "untested"]
    if not tested:
        return UNTESTED
    order: tuple[State, ...] = ("fails", "unclear", "holds")
    state = min((finding.state for finding in tested), key=order.index)
    return Finding(state=state, numbers="; ".join(finding.numbers for finding in tested))
