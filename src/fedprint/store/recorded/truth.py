"""The truth of a recorded folder: which user owns which anonymous device. For the evaluation only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedprint.errors import FedprintError
from fedprint.store.index import read_truth
from fedprint.store.recorded.findings import Finding, RecordingRefused, Unreadable, inside, quoted
from fedprint.store.recorded.index import Line, read_rows, text_of
from fedprint.store.recorded.manifest import MANIFEST, Manifest
from fedprint.store.recorded.own_store import owners_of
from fedprint.store.recorded.recording import observe

COLUMNS = ("device", "user")


@dataclass(frozen=True, kw_only=True)
class Owner:
    """One line of the truth; ``at`` is its file and row."""

    at: tuple[str, int]
    device: str
    user: str

    def finding(self, what: str, remedy: str) -> Finding:
        """Return a problem with this line."""
        return Finding(file=self.at[0], row=self.at[1], what=what, remedy=remedy)


def read_recorded_truth(folder: Path, manifest: Manifest) -> pd.DataFrame:
    """Return the truth as columns device and user (both str), empty where the folder has none.

    Raises RecordingRefused where it cannot be read.
    """
    owners, findings = _owners(folder, manifest)
    if findings:
        raise RecordingRefused(folder, findings)
    return pd.DataFrame({name: pd.Series([getattr(owner, name) for owner in owners], dtype=object) for name in COLUMNS})


def truth_findings(folder: Path) -> tuple[Finding, ...]:
    """Return every problem with the truth and between the truth and the index."""
    seen = observe(folder)
    if seen.manifest is None or not seen.manifest.truth:
        return ()
    owners, findings = _owners(folder, seen.manifest)
    if seen.manifest.format == "fedprint" or not seen.lines:
        return tuple(findings)
    return (*findings, *_against(owners, seen.lines, seen.manifest.truth))


def _owners(folder: Path, manifest: Manifest) -> tuple[list[Owner], list[Finding]]:
    findings: list[Finding] = []
    owners: list[Owner] = []
    if not manifest.truth:
        return owners, findings
    try:
        path = inside(folder, manifest.truth)
    except Unreadable as error:
        return owners, [Finding(file=MANIFEST, what=f"truth: {error.what}", remedy=error.remedy)]
    if manifest.format == "fedprint" and path.is_dir():
        return _of_store(folder, manifest, path)
    for name, number, values in read_rows(path, manifest.truth, COLUMNS, findings):
        owner = _owner(name, number, values, findings)
        if owner:
            owners.append(owner)
    return owners, findings


def _of_store(folder: Path, manifest: Manifest, path: Path) -> tuple[list[Owner], list[Finding]]:
    """Return the owners that the folder ``truth/`` of a fedprint store names."""
    try:
        owners = owners_of(inside(folder, manifest.updates), read_truth(path)).items()
    except (FedprintError, Unreadable) as error:
        what = f"no truth of a fedprint store ({quoted(error)})"
        return [], [Finding(file=manifest.truth, what=what, remedy="give its folder truth/")]
    at = [(manifest.truth, row + 1) for row in range(len(owners))]
    return [Owner(at=a, device=device, user=user) for a, (device, user) in zip(at, owners, strict=True)], []


def _owner(name: str, number: int, values: object, findings: list[Finding]) -> Owner | None:
    def wrong(what: str, remedy: str) -> None:
        findings.append(Finding(file=name, row=number, what=what, remedy=remedy))

    before = len(findings)
    device, user = (text_of(values.get(key), key, wrong) for key in COLUMNS)  # type: ignore[attr-defined]
    if device is None or user is None:
        if len(findings) == before:
            wrong("'device' or 'user' is empty", "fill both")
        return None
    return Owner(at=(name, number), device=device, user=user)


def _against(owners: Sequence[Owner], lines: Sequence[Line], truth: str) -> Iterator[Finding]:
    """Yield what does not fit between the truth and the index."""
    known = {line.user for line in lines if line.user is not None}
    anonymous = {line.device for line in lines if line.user is None}
    named = {line.device for line in lines if line.user is not None}
    first: dict[str, Owner] = {}
    for owner in owners:
        before = first.setdefault(owner.device, owner)
        device, user = quoted(owner.device), quoted(owner.user)
        if before is not owner:
            yield owner.finding(f"device '{device}' is in row {before.at[1]} already", "drop the duplicate")
        elif owner.device in named and owner.device not in anonymous:
            yield owner.finding(f"device '{device}' has its user in the index", "drop it here or empty 'user' there")
        elif owner.device not in anonymous:
            yield owner.finding(f"device '{device}' is not in the index", "drop the row or correct the name")
        if owner.device == owner.user:
            what = f"device '{device}' is named as its user: the truth leaks into the index"
            yield owner.finding(what, "give devices other names, in both files")
        if known and owner.user not in known:
            what = f"user '{user}' is unknown: no update in the index has it"
            yield owner.finding(what, "add updates with this user to the index, or drop the device")
    yield from _missing(owners, lines, truth, set(first))


def _missing(owners: Sequence[Owner], lines: Sequence[Line], truth: str, told: set[str]) -> Iterator[Finding]:
    appear = {owner.user for owner in owners}
    seen: set[str | None] = set()
    for line in lines:
        if line.user is None and line.device is None:
            yield line.finding("neither device nor user, so the truth says nothing of it", "name the device")
        elif line.user is None and line.device not in told and line.device not in seen:
            seen.add(line.device)
            yield line.finding(f"device '{quoted(line.device)}' is not in '{quoted(truth)}'", "add it there")
        elif line.user is not None and owners and line.user not in appear and line.user not in seen:
            seen.add(line.user)
            what = f"prior user '{quoted(line.user)}' never appears in '{quoted(truth)}'"
            yield line.finding(what, "drop the updates of this user, or add the user's devices to the truth")
