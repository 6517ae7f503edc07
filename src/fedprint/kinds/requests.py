"""What a user asks for: files of settings by name or path, and the names of their reports."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedprint.errors import FedprintError, did_you_mean
from fedprint.kinds.base import Request
from fedprint.kinds.hardware import hardware_for, read_settings
from fedprint.lab.project import checked_name, find_root

FOLDERS = ("experiments", "studies")
_SINGULAR = {"experiments": "experiment", "studies": "study"}
_STUDY = "study-"
_LONGEST = 60


def request_for(
    root: Path,
    what: str,
    *,
    fast: bool = False,
    assignments: Sequence[str] = (),
    strategies: Sequence[str] = (),
    name: str | None = None,
    folders: Sequence[str] = FOLDERS,
) -> Request:
    """Return the request for the file ``what``: a name below configs/ or a path to a file, also outside the project.

    Without a ``name`` a variant gets one made from what differs (``quickstart-fast``,
    ``quickstart-federation.rounds=5``), so that it never replaces the report of another. Raises FedprintError for an
    unknown file, and for a name that belongs to a file of the project (:func:`refuse_taken`).
    """
    path = file_of(root, what, folders)
    hardware, assignments = hardware_for(root, assignments, path, fast=fast)
    if name is None:
        name = variant(plain_name(root, path), fast=fast, assignments=assignments, strategies=strategies)
    request = Request(
        root=root,
        path=path,
        values=read_settings(path),
        name=checked_name(name),
        fast=fast,
        assignments=tuple(assignments),
        strategies=tuple(strategies),
        hardware=hardware,
    )
    refuse_taken(request)
    return request


def file_of(root: Path, what: str, folders: Sequence[str] = FOLDERS, beside: Path | None = None) -> Path:
    """Return the file of a name, of the name of its report, or of a path.

    A relative path counts from the folder ``beside``, else from the current one. Raises FedprintError where there is no
    such file.
    """
    if _is_path(what):
        candidates = [*([beside / what] if beside else []), Path(what)]
        file = next((path for path in candidates if path.is_file()), None)
        if file is None:
            raise FedprintError(f"{what}: no such file; give a path to a file of settings, or a name")
        return file.resolve()
    file = _named_file(root, what, folders)
    if file is None:
        known = sorted({path.stem for folder in folders for path in (root / "configs" / folder).glob("*.yaml")})
        kind = _SINGULAR[folders[0]]
        raise FedprintError(
            f"unknown {kind} '{what}'; {did_you_mean(what, known)}choose one of {', '.join(known)}, or give a path"
        )
    return file


def experiments_by_data() -> dict[str, list[str]]:
    """Return the names of the project's experiments by the data set that their file names; none outside a project."""
    try:
        root = find_root()
    except FedprintError:
        return {}
    out: dict[str, list[str]] = {}
    for path in sorted((root / "configs" / "experiments").glob("*.yaml"), key=lambda path: (len(path.stem), path.stem)):
        data = read_settings(path).get("data")
        if isinstance(data, Mapping):
            out.setdefault(Path(str(data.get("path") or data.get("name"))).name, []).append(path.stem)
    return out


def plain_name(root: Path, path: Path) -> str:
    """Return the name of the report of a file as it is; of a study of the project's own that is ``study-<file>``.

    Raises FedprintError for a file from elsewhere that is called as one of the project's own.
    """
    name = f"{_STUDY}{path.stem}" if path.parent == (root / "configs" / "studies").resolve() else path.stem
    owner = _owner(root, name)
    if owner is not None and owner != path:
        raise FedprintError(f"{path}: '{name}' is the report of {_shown(root, owner)}; give another --name")
    return name


def report_name(root: Path, what: str) -> str:
    """Return the name of a report that is given by name, by folder, or by its file (name or path).

    Any other text is returned as it is. Raises FedprintError for a path without a file.
    """
    if Path(what).is_dir():
        return Path(what).resolve().name
    if any((root / folder / what).is_dir() for folder in ("reports", "experiments")):
        return what
    path = file_of(root, what) if _is_path(what) else _named_file(root, what, FOLDERS)
    return plain_name(root, path) if path else what


def is_unchanged(request: Request) -> bool:
    """Return whether a file of the project is to run as it is, under its own name."""
    changed = request.fast or request.assignments or request.strategies or request.values != read_settings(request.path)
    return not changed and _owner(request.root, request.name) == request.path


def refuse_taken(request: Request) -> None:
    """Raise FedprintError where the report would replace that of a file of the project, as it is."""
    owner = _owner(request.root, request.name)
    if owner is not None and not is_unchanged(request):
        raise FedprintError(
            f"'{request.name}' is the report of {_shown(request.root, owner)} as it is; give another --name"
        )


def variant(plain: str, *, fast: bool, assignments: Sequence[str], strategies: Sequence[str] = ()) -> str:
    """Return a unique name for the changes to a file; ``plain`` without changes.

    It spells the changes out where that is unambiguous. For several strategies, values with a '-' and characters that
    no name may hold, a digest is added.
    """
    name = "-".join([plain, *(["fast"] if fast else []), *strategies, *assignments])
    literal = len(strategies) <= 1 and all(re.fullmatch(r"[A-Za-z0-9._]+=[A-Za-z0-9._]+", each) for each in assignments)
    if literal and len(name) <= _LONGEST:
        return name
    text = "\n".join([str(fast), str(len(strategies)), *strategies, *assignments])
    readable = re.sub(r"[^A-Za-z0-9._=-]+", "_", re.sub(r"[][{}]", "", name))[:_LONGEST]
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _is_path(what: str) -> bool:
    return what.endswith((".yaml", ".yml"))


def _named_file(root: Path, name: str, folders: Sequence[str]) -> Path | None:
    """Return the file of a name, else that of a report's name."""
    paths = (root / "configs" / folder / f"{name}.yaml" for folder in folders)
    owner = _owner(root, name)
    reported = owner if owner is not None and owner.parent.name in folders else None
    return next((path.resolve() for path in paths if path.is_file()), reported)


def _owner(root: Path, name: str) -> Path | None:
    """Return the file of the project whose report has this name."""
    candidates = [("experiments", name)]
    if name.startswith(_STUDY):
        candidates.append(("studies", name.removeprefix(_STUDY)))
    paths = (root / "configs" / folder / f"{each}.yaml" for folder, each in candidates)
    return next((path.resolve() for path in paths if path.is_file()), None)


def _shown(root: Path, path: Path) -> Path:
    return path.relative_to(root.resolve())
