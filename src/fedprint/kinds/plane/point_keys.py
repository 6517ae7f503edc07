"""Names of cached results: equal names only where settings, data and the code that computes are equal.

What a stage depends on stands in dvc.yaml and nowhere else: its ``params`` are the sections of the configuration, its
``deps`` below src/ the code, ``files_sha256`` what is in files that settings name. A stage's key holds those and the
key of the stage before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

import fedprint
from fedprint.data.splits import Prior
from fedprint.kinds.federation.config import Experiment, ReportConfig
from fedprint.kinds.named_files import files_sha256
from fedprint.types import FedprintError

STAGES = ("prepare", "federate", "ask", "attack", "analyse", "evaluate")
_CONFIG = "artifacts/${experiment}/config.yaml"
_SOURCE = "src/"
_FILES = "files_sha256"


def canonical(config: Experiment, prior: Prior, seed: int) -> Experiment:
    """Return the configuration of one point: what does not change its numbers has one fixed value.

    The backend is ``sequential``, the reference that all others agree with, and right for several points at a time.
    """
    return config.model_copy(
        update={
            "name": "point",
            "report": ReportConfig(title="point"),
            "fast": False,
            "seeds": (seed,),
            "split": config.split.model_copy(update={"priors": (prior,)}),
            "federation": config.federation.model_copy(update={"backend": "sequential"}),
        }
    )


def stage_keys(root: Path, config: Experiment, dataset_sha256: str) -> Mapping[str, str]:
    """Return stage -> 16 hex digits for a :func:`canonical` configuration in the project ``root``."""
    keys: dict[str, str] = {}
    before: list[object] = [dataset_sha256, config.split.priors, config.seeds]
    for stage in STAGES:
        sections, sources, named = _dependencies(root / "dvc.yaml", stage)
        settings = config.digest() if sections is None else config.section_digest(*sections)
        files = files_sha256(config) if named else None
        keys[stage] = _hash([stage, before, settings, files, source_digest(sources)])
        before = [keys[stage]]
    return keys


@cache
def source_digest(sources: tuple[str, ...]) -> str:
    """Return a hash of the installed package's files at or below ``sources`` (``src/fedprint/...``).

    Read once per process, as the code is.
    """
    base = Path(fedprint.__file__).parents[1]
    places = [base / source.removeprefix(_SOURCE) for source in sources]
    files = sorted({file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place])})
    parts = [(str(file.relative_to(base)), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]
    return _hash(parts)


@cache
def _dependencies(dvc_file: Path, stage: str) -> tuple[tuple[str, ...] | None, tuple[str, ...], bool]:
    """Return the configuration's sections (None: all) and the sources of a stage, and if it reads files they name."""
    try:
        found: Mapping[str, Any] = yaml.safe_load(dvc_file.read_text(encoding="utf-8"))["stages"][stage]
        deps: Sequence[str] = found["deps"]
    except (OSError, KeyError, yaml.YAMLError) as error:
        raise FedprintError(f"{dvc_file}: has no readable stage '{stage}' ({error}); restore the file") from None
    params: Sequence[Any] = found.get("params", ())
    sections = [name for entry in params if isinstance(entry, dict) for name in entry[_CONFIG]]
    sources = tuple(sorted(dep for dep in deps if dep.startswith(_SOURCE)))
    return (None if _CONFIG in deps else tuple(sections)), sources, _FILES in params


def _hash(values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
