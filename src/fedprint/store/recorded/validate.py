"""Every problem of a recorded folder at once: manifest, index, arrays and truth."""

from __future__ import annotations

from pathlib import Path

from fedprint.store.recorded.findings import Finding
from fedprint.store.recorded.recording import observe
from fedprint.store.recorded.tables import locate, read_all
from fedprint.store.recorded.truth import truth_findings


def findings_of(folder: Path) -> tuple[Finding, ...]:
    """Return every problem of a folder; all arrays are read, nothing is written."""
    seen = observe(folder)
    if seen.manifest is None:
        return seen.findings
    files, problems = locate(folder, seen.manifest, seen.lines)
    return (*seen.findings, *problems, *read_all(files, None), *truth_findings(folder))
