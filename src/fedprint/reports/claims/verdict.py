"""Claims of the papers and the verdicts on them, as every page shows them and claims.json and claims.csv hold them.

A verdict is holds, fails or undecided. All claims of a table are decided at once, so that one false verdict among them
has a probability of at most :data:`~fedprint.evaluation.significance.ALPHA` (ADR 17).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from fedprint.evaluation.significance import ALPHA, holm
from fedprint.reports.claims.comparison import AllOf, Test, Weight, leaves, weigh
from fedprint.reports.wording import csv_text, seeds

CLAIMS = "claims.csv"
"""The file of verdicts, of a page and of a published experiment."""
J = TypeVar("J")
State = Literal["holds", "fails", "undecided", "untested"]

STATES: Mapping[State, str] = {
    "holds": "holds",
    "fails": "fails",
    "undecided": "undecided",
    "untested": "not tested here",
}

LEAST_SEEDS = 3
"""With fewer seeds a claim is undecided, whatever the numbers."""


class Claim(NamedTuple, Generic[J]):
    """A sentence of the papers (``source``: section of papers.md, or where else it stands) and how it is judged."""

    name: str
    text: str
    source: str
    judge: J


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a claim was compared with, None where there is nothing to compare, and the numbers in words."""

    test: Test | None
    numbers: str


UNTESTED = Finding(test=None, numbers="")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A finding on a claim; ``member`` is who or what the claim is judged on."""

    claim: Claim[Any]
    finding: Finding
    member: str
    dataset: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A claim on one data set: ``state`` is a key of :data:`STATES`, ``numbers`` ours with their 95 % intervals.

    ``n_users`` (of images: test images) and ``n_seeds`` are the fewest behind any of the numbers. ``p`` is Holm's
    adjusted p over the claims of the table, None where the claim was not tested or has too few seeds.
    """

    claim: str
    text: str
    source: str
    member: str
    dataset: str
    state: State
    result: str
    numbers: str
    n_users: int | None
    n_seeds: int | None
    p: float | None

    @property
    def basis(self) -> str:
        """What the verdict rests on, in words: users (or test images), seeds and the adjusted p."""
        if self.n_seeds is None:
            return ""
        adjusted = "" if self.p is None else f", adjusted p {self.p:.2g}"
        return f"n {self.n_users}, {seeds(self.n_seeds)}{adjusted}"


def decide(judged: Sequence[Judged]) -> list[Verdict]:
    """Return the verdicts on the claims of one table.

    A claim holds or fails where its adjusted two-sided p is below ALPHA, which is to say that its interval, at the
    level of Holm's correction, lies wholly on one side of the bound. Claims with fewer than :data:`LEAST_SEEDS` seeds
    are undecided and do not count among the claims to correct for.
    """
    weights = [_weight(one.finding.test) for one in judged]
    adjusted = iter(holm([weight.two_sided for weight in weights if weight]))
    return [
        _verdict(one, weight, next(adjusted) if weight else None) for one, weight in zip(judged, weights, strict=True)
    ]


def together(findings: Iterable[Finding]) -> Finding:
    """Return the tested findings as one, with everybody's numbers: all must hold."""
    tests = [(finding.test, finding.numbers) for finding in findings if finding.test is not None]
    if not tests:
        return UNTESTED
    return Finding(test=AllOf(tuple(test for test, _ in tests)), numbers="; ".join(numbers for _, numbers in tests))


def _weight(test: Test | None) -> Weight | None:
    return None if test is None or _fewest_seeds(test) < LEAST_SEEDS else weigh(test)


def _fewest_seeds(test: Test) -> int:
    return min(leaf.n_seeds for leaf in leaves(test))


def _verdict(judged: Judged, weight: Weight | None, p: float | None) -> Verdict:
    claim, test = judged.claim, judged.finding.test
    fewest = None if test is None else _fewest_seeds(test)
    state = _state(test, weight, p)
    too_few = fewest is not None and fewest < LEAST_SEEDS
    return Verdict(
        claim=claim.name,
        text=claim.text,
        source=claim.source,
        member=judged.member,
        dataset=judged.dataset,
        state=state,
        result=STATES[state] + (f" ({seeds(fewest or 0)}; a verdict needs {LEAST_SEEDS})" if too_few else ""),
        numbers=judged.finding.numbers,
        n_users=None if test is None else min(leaf.n_users for leaf in leaves(test)),
        n_seeds=fewest,
        p=p,
    )


def _state(test: Test | None, weight: Weight | None, p: float | None) -> State:
    if test is None:
        return "untested"
    if weight is None or p is None or p >= ALPHA:
        return "undecided"
    return "holds" if weight.holds < weight.fails else "fails"


def verdict_rows(verdicts: Sequence[Verdict]) -> list[Mapping[str, Any]]:
    """Return the verdicts as JSON-ready mappings."""
    return [asdict(verdict) for verdict in verdicts]


def verdict_csv(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts as CSV, one per line."""
    return csv_text([[field.name for field in fields(Verdict)], *map(astuple, verdicts)])


def read_verdicts(path: Path) -> list[Verdict]:
    """Return the verdicts of a CSV as :func:`verdict_csv` writes it."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_read(line) for line in csv.DictReader(file)]


def _read(line: Mapping[str, str]) -> Verdict:
    numbers: dict[str, Any] = {key: int(line[key]) if line[key] else None for key in ("n_users", "n_seeds")}
    return Verdict(**{**line, **numbers, "p": float(line["p"]) if line["p"] else None})


def by_claim(verdicts: Sequence[Verdict]) -> list[tuple[Verdict, list[Verdict]]]:
    """Return each claim once, in order of appearance, with all verdicts on it."""
    groups: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(verdict.claim, []).append(verdict)
    return [(group[0], group) for group in groups.values()]


def count(verdicts: Sequence[Verdict], state: State) -> int:
    """Return how many verdicts have a state."""
    return sum(verdict.state == state for verdict in verdicts)
