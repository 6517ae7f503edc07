"""Every kind of experiment by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from fedprint.kinds.base import Kind
from fedprint.plugins import plugged

BUILT_IN = (
    ("federation", None),
    ("study", "ceiling"),  # before planes, whose mark studies have too
    ("plane", "strategies"),
    ("audit", "canaries"),
    ("suite", "members"),
    ("inversion", "mechanisms"),
    ("clients", "methods"),
)
"""Names and marks of our own kinds. One is imported when a file is of it: all together take seconds."""


def kinds() -> tuple[Kind[Any], ...]:
    """Return every kind, ours and those of plug-ins."""
    return (*(_own(name) for name, _ in BUILT_IN), *_plugged())


def kind_of(values: Mapping[str, Any]) -> Kind[Any]:
    """Return of which kind a file's values are, by their own keys."""
    own = next((name for name, mark in BUILT_IN if mark is not None and mark in values), None)
    if own is not None:
        return _own(own)
    return next((kind for kind in _plugged() if kind.mark in values), None) or _own("federation")


@cache
def _own(name: str) -> Kind[Any]:
    made = getattr(import_module(f"fedprint.kinds.{name}.kind"), f"{name.capitalize()}Kind")
    kind: Kind[Any] = made(kind_of) if name == "suite" else made()
    return kind


@cache
def _plugged() -> tuple[Kind[Any], ...]:
    return tuple(kind() for kind in plugged("fedprint.kinds"))
