"""Components of other packages, found by entry point (docs/plug-ins.md), and their part in cache keys.

Only the standard library is imported here: a caller of a shared fork server starts at once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache, reduce
from importlib.metadata import EntryPoint, entry_points
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from fedprint.errors import FedprintError

Group = Literal[
    "fedprint.sources",
    "fedprint.models",
    "fedprint.defences",
    "fedprint.attacks",
    "fedprint.analyses",
    "fedprint.kinds",
]
"""Groups of entry points: each adds to one registry."""

_OWN = "fedprint"


@cache
def installed(group: Group) -> tuple[EntryPoint, ...]:
    """Return a group's entry points of installed packages, by name."""
    return tuple(sorted(entry_points(group=group), key=lambda point: (point.name, point.value)))


def plugged(group: Group) -> tuple[Any, ...]:
    """Return what the entry points of a group name.

    Raises FedprintError for one that cannot be imported: with a part missing, an experiment would say that its name is
    unknown.
    """
    return tuple(_loaded(point) for point in installed(group))


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # whatever a stranger's module raises
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise FedprintError(f"plug-in {_shown(point)} does not load ({reason}); mend or uninstall it") from None


def with_plugins(union: Any, group: Group, fits: Callable[[Any], bool] = lambda component: True) -> Any:
    """Return a union of components, told apart by ``name``, with those of a group of entry points that fit.

    A kind of experiment that can use only some components of a group says which by ``fits``.

    Raises FedprintError for what is no component, and for a name that is taken.
    """
    from pydantic import Field

    members = list(get_args(get_args(union)[0]))
    taken = {name for member in members for name in names_of(member)}
    for point, added in zip(installed(group), plugged(group), strict=True):
        if not (names := names_of(added)):
            raise FedprintError(f"plug-in {_shown(point)} is no Component with name: Literal['...'] = '...'")
        if twice := taken & set(names):
            raise FedprintError(f"plug-in {_shown(point)}: the name '{min(twice)}' is taken; give it another one")
        taken |= set(names)
        if fits(added):
            members.append(added)
    return Annotated[reduce(or_, members), Field(discriminator="name")]


def names_of(component: Any) -> tuple[str, ...]:
    """Return the names under which a class of components is configured, none where it is no such class."""
    field = getattr(component, "model_fields", {}).get("name")
    return tuple(get_args(field.annotation)) if field is not None and isinstance(field.default, str) else ()


def plug_in_roots(value: Any) -> set[str]:
    """Return the top-level modules outside fedprint that define a configuration or a part of it."""
    if isinstance(value, Mapping):
        return _roots_of(value.values())
    if isinstance(value, list | tuple):
        return _roots_of(value)
    if is_dataclass(value) or hasattr(type(value), "model_fields"):
        root = type(value).__module__.partition(".")[0]
        return _roots_of(vars(value).values()) | ({root} - {_OWN})
    return set()


def _roots_of(values: Any) -> set[str]:
    return {root for value in values for root in plug_in_roots(value)}


def plug_in_digests(config: Any, *paths: str) -> list[tuple[str, str]]:
    """Return each top-level module outside fedprint that a configuration, or ``module:name``, needs, with its digest.

    The digest is of all Python files of the module or package, as they were when this process first asked.
    """
    roots = plug_in_roots(config) | {path.partition(":")[0].partition(".")[0] for path in paths} - {_OWN}
    return [(root, _digest(root)) for root in sorted(roots)]


def installed_digests() -> list[tuple[str, str]]:
    """Return each top-level module of all plug-ins with its digest."""
    return [(root, _digest(root)) for root in installed_roots()]


@cache
def _digest(root: str) -> str:
    content = hashlib.sha256()
    for path in code_files(root):
        content.update(hashlib.sha256(path.read_bytes()).digest())
    return content.hexdigest()[:16]


def installed_roots() -> tuple[str, ...]:
    """Return the top-level modules of all plug-ins; nothing of them is imported."""
    points = [point for group in get_args(Group) for point in installed(group)]
    return tuple(sorted({point.module.partition(".")[0] for point in points}))


def code_files(root: str) -> list[Path]:
    """Return the Python files of a top-level module or package, sorted; none where it is unknown."""
    places = code_places(root)
    return sorted({file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place])})


def code_places(root: str) -> list[Path]:
    """Return the folders of a top-level package, or the file of a module."""
    loaded = sys.modules.get(root)
    spec = getattr(loaded, "__spec__", None) if loaded else importlib.util.find_spec(root)
    if spec is None:
        return [Path(loaded.__file__)] if loaded and getattr(loaded, "__file__", None) else []  # type: ignore[arg-type]
    if spec.submodule_search_locations is not None:
        return [Path(each) for each in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.has_location and spec.origin else []


def _shown(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist is not None else ""
    return f"'{point.name}' = '{point.value}' ({point.group}{package})"
