"""Names of results: equal only where settings, data, code and kind of machine are equal.

A stage's key holds the sections of the configuration that it reads, the code that its numbers depend on, the content of
the data and files that it opens, and the keys of the stages before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import fedprint
from fedprint.lab.graph import Job, Stage
from fedprint.lab.machine import machine
from fedprint.plugins import plug_in_digests

PACKAGE = Path(fedprint.__file__).parent


def stage_key(job: Job, stage: Stage, before: Mapping[str, str], device: str) -> str:
    """Return 16 hex digits for a stage of a job on a ``device`` (cpu, cuda).

    ``before`` maps each output that it opens to the key of the stage that made it or, where that one is ``settled``,
    to the digest of what it wrote. All code of plug-ins in the sections that it reads is in the key. The result of a
    settled stage belongs to its machine, and not to a prior and seed.
    """
    plug_ins = plug_in_digests(_parts(job, stage), stage.run)
    scope = [machine()] if stage.settled else [job.prior, job.seed]
    return digest_of(
        {
            "stage": stage.name,
            "of": [*scope, device],
            "data": job.data,
            "settings": _settings(job, stage),
            "files": job.files if stage.files else None,
            "code": source_digest(stage.code),
            "before": dict(before),
            **({"plug-ins": plug_ins} if plug_ins else {}),
        }
    )


def _settings(job: Job, stage: Stage) -> str:
    if stage.settings is None:
        return digest_of(job.config.model_dump(mode="json"))
    return job.config.section_digest(*stage.settings)


def _parts(job: Job, stage: Stage) -> object:
    if stage.settings is None:
        return job.config
    return [getattr(job.config, setting.partition(".")[0], None) for setting in stage.settings]


@cache
def source_digest(sources: tuple[str, ...]) -> str:
    """Return a hash of the package's files at or below ``sources`` (paths below src/fedprint).

    Read once per process, as the code is. Raises FileNotFoundError for a source that does not exist.
    """
    paths = [PACKAGE / source for source in sources]
    files = sorted({file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])})
    return digest_of([(str(file.relative_to(PACKAGE)), sha256_of(file.read_bytes())) for file in files])


def content_digest(paths: Iterable[Path]) -> str:
    """Return a hash of the names and contents of files, and of all files below folders."""
    digests = []
    for path in paths:
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        digests += [(str(file.relative_to(path.parent)), sha256_of(file.read_bytes())) for file in files]
    return digest_of(digests)


def digest_of(values: object) -> str:
    """Return 16 hex digits of a JSON value."""
    return sha256_of(json.dumps(values, sort_keys=True).encode())[:16]


def sha256_of(data: bytes) -> str:
    """Return the hash of some bytes."""
    return hashlib.sha256(data).hexdigest()
