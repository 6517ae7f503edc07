"""Every problem of a recorded folder at once: manifest, index, arrays and truth."""

from __future__ import annotations

from pathlib import Path

from fedprint.errors import FedprintError
from fedprint.store.reader import UpdateStore
from fedprint.store.recorded.findings import Finding, inside
from fedprint.store.recorded.given import given_findings
from fedprint.store.recorded.manifest import Manifest
from fedprint.store.recorded.recording import observe, shapes_of_store
from fedprint.store.recorded.tables import locate, read_all
from fedprint.store.recorded.truth import truth_findings


def findings_of(folder: Path) -> tuple[Finding, ...]:
    """Return every problem of a folder; all arrays are read, nothing is written."""
    seen = observe(folder)
    if seen.manifest is None:
        return seen.findings
    if seen.manifest.format == "fedprint":
        return (*seen.findings, *(() if seen.findings else _damage(folder, seen.manifest)), *truth_findings(folder))
    files, problems = locate(folder, seen.manifest, seen.lines)
    given = given_findings(folder, seen.manifest, files.shapes, (line.round for line in seen.lines))
    return (*seen.findings, *problems, *given, *read_all(files, None), *truth_findings(folder))


def _damage(folder: Path, manifest: Manifest) -> tuple[Finding, ...]:
    try:
        store = UpdateStore.open(inside(folder, manifest.updates))
    except FedprintError as error:
        return (Finding(file=manifest.updates, what=f"damaged ({error})", remedy="restore the store"),)
    return tuple(given_findings(folder, manifest, shapes_of_store(store), ()))
