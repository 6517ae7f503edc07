"""Checks of the lines of an index among each other: who is known, what occurs twice, what cannot be linked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fedprint.store.recorded.findings import Finding, quoted
from fedprint.store.recorded.index import Line

LEAST_USERS = 2


def check_lines(lines: Sequence[Line], index: str, *, truth: bool) -> Iterator[Finding]:
    """Yield every problem among the lines; without a ``truth`` known users are split, so each needs two updates."""
    yield from _twice(lines)
    yield from _of_two_users(lines)
    yield from _known(lines, index, truth)


def _twice(lines: Iterable[Line]) -> Iterator[Finding]:
    updates: dict[tuple[str | None, int | None], Line] = {}
    sent: dict[tuple[str, int], Line] = {}
    for line in lines:
        first = updates.setdefault((line.file, line.row), line)
        if first is not line:
            yield line.finding(f"the same update as row {first.at[1]}", "drop the duplicate")
        if line.device is None:
            continue
        before = sent.setdefault((line.device, line.round), line)
        if before is not line and first is line:
            what = f"device '{quoted(line.device)}' sent in round {line.round} already (row {before.at[1]})"
            yield line.finding(what, "drop the duplicate, or number the rounds apart")


def _of_two_users(lines: Iterable[Line]) -> Iterator[Finding]:
    first: dict[str, Line] = {}
    for line in lines:
        before = first.setdefault(line.device, line) if line.device is not None else line
        if before.user == line.user:
            continue
        names = [f"'{quoted(user)}'" if user is not None else "nobody known" for user in (before.user, line.user)]
        what = f"device '{quoted(line.device)}' is of {names[0]} in row {before.at[1]} and here of {names[1]}"
        yield line.finding(what, "give a device one user, or none in all its rows")


def _known(lines: Sequence[Line], index: str, truth: bool) -> Iterator[Finding]:
    counts = Counter(line.user for line in lines if line.user is not None)
    enough = counts if truth else [user for user, count in counts.items() if count > 1]
    if lines and len(enough) < LEAST_USERS:
        often = "" if truth else " with two updates or more (there is no truth, so known users are split)"
        what = f"{len(enough)} known users{often}"
        yield Finding(file=index, what=what, remedy=f"fill column 'user' for updates of {LEAST_USERS} users or more")
    if truth and lines and all(line.user is not None for line in lines):
        yield Finding(
            file=index,
            what="every update has a user, so nothing is left to attack: the truth leaks into the index",
            remedy="leave 'user' empty but for the users whose updates the auditor knows",
        )
