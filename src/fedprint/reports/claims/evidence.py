"""What a claim is judged on: a member's rows, found by their keys and compared with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from fedprint.evaluation.rows import Row
from fedprint.reports.claims.comparison import compared
from fedprint.reports.claims.verdict import UNTESTED, Finding
from fedprint.reports.numbers.evaluations import CONTROL, final_analyses, final_rows, prior_rank
from fedprint.reports.numbers.paired import PAIRED
from fedprint.reports.wording import number, seed_count, shown

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
        """Compare an attack's AP ``a`` with ``b``, by their paired difference where it was measured."""
        if a is None or b is None or a["metric"] != "ap":
            return larger(a, b, names)
        paired = self._paired(a, b)
        if paired is None:
            return larger(a, b, names)
        return _difference(a, b, names, f"difference {shown(paired)}", paired)

    def _paired(self, a: Row, b: Row) -> Row | None:
        """Return ``a - b``, paired user by user; it may have been measured the other way round."""
        for sign, first, second in ((1, a, b), (-1, b, a)):
            keys = {"prior": first["prior"], "attack": first["attack"]}
            keys |= {"versus_prior": second["prior"], "versus_attack": second["attack"]}
            for row in self.of(PAIRED, "ap_difference", **keys):
                ends = ("lo", "hi") if sign > 0 else ("hi", "lo")
                return {**row, "value": sign * row["value"], "lo": sign * row[ends[0]], "hi": sign * row[ends[1]]}
        return None

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
    """Compare a number with its chance, which it should exceed, or with ``level``.

    Where the row has the p of a permutation test, this decides whether the number lies above chance, and not the
    formula for chance: updates of one device resemble one another (evaluation/shuffled.py).
    """
    if row is None:
        return UNTESTED
    bound = row["chance"] if level is None else level
    if bound is None or row.get("value") is None:
        return UNTESTED
    test = compared(row, bound)
    beside, exact = "limit" if level is not None else "chance", row.get("p_chance")
    if level is None and exact is not None:
        test = replace(test, p_chance=exact)
        beside = f"p without a link {exact:.2g}, chance"
    return Finding(test=test, numbers=f"{what} {shown(row)}, {beside} {number(bound, row['unit'])}")


def below(row: Row | None, what: str, level: float) -> Finding:
    """Compare a number with ``level``, which should exceed it."""
    if row is None or row.get("value") is None:
        return UNTESTED
    numbers = f"{what} {shown(row)}, limit {number(level, row['unit'])}"
    return Finding(test=compared(row, level, above=False), numbers=numbers)


def larger(a: Row | None, b: Row | None, names: tuple[str, str]) -> Finding:
    """Compare ``a`` with ``b``, which it should exceed, by their :func:`unpaired` difference."""
    if a is None or b is None or a.get("value") is None or b.get("value") is None:
        return UNTESTED
    gap = unpaired(a, b)
    return _difference(a, b, names, f"difference {shown(gap)}, unpaired", gap)


def _difference(a: Row, b: Row, names: tuple[str, str], words: str, gap: Row) -> Finding:
    return Finding(test=compared(gap, 0.0), numbers=f"{names[0]} {shown(a)}, {names[1]} {shown(b)}, {words}")


def unpaired(a: Row, b: Row, share: float = 1.0) -> Row:
    """Return ``a - share * b`` as a row, from both intervals as if they were independent.

    Square-and-add (Newcombe, Stat. Med. 1998, 17:873). Both are over the same users, so it is wider than need be.
    """
    gap = a["value"] - share * b["value"]
    below = math.hypot(a["value"] - a["lo"], share * (b["hi"] - b["value"]))
    above = math.hypot(a["hi"] - a["value"], share * (b["value"] - b["lo"]))
    fewest = {"n_users": min(a["n_users"], b["n_users"]), "n_seeds": min(seed_count(a), seed_count(b))}
    return {**a, "value": gap, "lo": gap - below, "hi": gap + above, "chance": 0.0, **fewest}
