"""The published run on other users of a data set that stands beside a plane (``beside`` in its file)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedprint.data.sources.folder import Folder
from fedprint.data.sources.registry import AnySource, label_of
from fedprint.evaluation.rows import read_measurements
from fedprint.kinds.config_files import read_yaml
from fedprint.kinds.federation.declared import Part, part_of
from fedprint.reports.pages.plane.beside import Beside
from fedprint.types import FedprintError


def load_beside(root: Path, name: str, source: AnySource, users: Part | None) -> Beside:
    """Return the run ``name`` as git holds it, or without rows and with a hint where it cannot be compared.

    ``source`` and ``users`` are the plane's own. Users in a folder of one's own, of whom none are declared, stand
    beside any run. Raises FedprintError for a run of another data set.
    """
    folder = root / "experiments" / name
    measurements, config = folder / "measurements.jsonl", folder / "config.yaml"
    if not (measurements.is_file() and config.is_file()):
        return Beside(name=name, hint=f"No users beside: experiments/{name} is not published; `fedprint run {name}`.")
    theirs = _source(read_yaml(config), f"beside: {name}")
    part, own = part_of(root, theirs), isinstance(source, Folder) and users is None
    if not own and label_of(theirs) != label_of(source):
        raise FedprintError(f"beside: {name} is about {label_of(theirs)}; name a plane of {label_of(source)}")
    if part is None or part == "both" or not (own or {users, part} == {"development", "confirmation"}):
        hint = f"No users beside: {name} and this plane have to be about development and confirmation users"
        return Beside(name=name, hint=f"{hint} (configs/users.yaml); they are about {part} and {users} ones.")
    return Beside(name=name, users=part, rows=tuple(read_measurements(measurements)))


def _source(config: Mapping[str, Any], where: str) -> AnySource:
    """Return the source of data in a published plane's configuration."""
    data = config.get("experiment", {}).get("data") if isinstance(config.get("experiment"), Mapping) else None
    if not isinstance(data, Mapping):
        raise FedprintError(f"{where} is no plane; name a published plane")
    try:
        return _SOURCE.validate_python(data)
    except ValidationError:
        raise FedprintError(f"{where} was published with settings that are no more; `fedprint run` it again") from None


_SOURCE: TypeAdapter[AnySource] = TypeAdapter(AnySource)
