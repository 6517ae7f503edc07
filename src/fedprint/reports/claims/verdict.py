"""Claims of the papers and the verdicts on them, as every page shows them and claims.json and claims.csv hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from fedprint.reports.wording import csv_text

J = TypeVar("J")
State = Literal["holds", "unclear", "fails", "untested"]

STATES: Mapping[str, str] = {
    "holds": "holds",
    "unclear": "order holds, intervals overlap",
    "fails": "fails",
    "untested": "not tested here",
}


class Claim(NamedTuple, Generic[J]):
    """A sentence of the papers (``source``: section of papers.md, or where else it stands) and how it is judged."""

    name: str
    text: str
    source: str
    judge: J


@dataclass(frozen=True, kw_only=True)
class Finding:
    """How one comparison came out, and its numbers in words; ``result`` where the state's own words do not fit it."""

    state: State
    numbers: str
    result: str = ""


UNTESTED = Finding(state="untested", numbers="")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A claim on one data set: ``state`` is a key of :data:`STATES`, ``numbers`` ours with their intervals."""

    claim: str
    text: str
    source: str
    member: str
    dataset: str
    state: str
    result: str
    numbers: str


def side(gaps: Iterable[tuple[float, float]]) -> State:
    """Return the state of "all are above 0" by (value, lower end of its interval): see :data:`STATES`."""
    known = list(gaps)
    if not known:
        return "untested"
    if all(low > 0 for _, low in known):
        return "holds"
    return "unclear" if all(value > 0 for value, _ in known) else "fails"


def verdict_on(claim: Claim[Any], finding: Finding, member: str, dataset: str) -> Verdict:
    """Return the verdict that a finding is on a claim; ``member`` is who or what the claim is judged on."""
    return Verdict(
        claim=claim.name,
        text=claim.text,
        source=claim.source,
        member=member,
        dataset=dataset,
        state=finding.state,
        result=finding.result or STATES[finding.state],
        numbers=finding.numbers,
    )


def verdict_rows(verdicts: Sequence[Verdict]) -> list[Mapping[str, Any]]:
    """Return the verdicts as JSON-ready mappings."""
    return [asdict(verdict) for verdict in verdicts]


def verdict_csv(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts as CSV, one per line."""
    return csv_text([[field.name for field in fields(Verdict)], *map(astuple, verdicts)])


def by_claim(verdicts: Sequence[Verdict]) -> list[tuple[Verdict, list[Verdict]]]:
    """Return each claim once, in order of appearance, with all verdicts on it."""
    groups: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(verdict.claim, []).append(verdict)
    return [(group[0], group) for group in groups.values()]


def count(verdicts: Sequence[Verdict], state: State) -> int:
    """Return how many verdicts have a state."""
    return sum(verdict.state == state for verdict in verdicts)
