"""Every kind of experiment by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedprint.kinds.base import Kind
from fedprint.kinds.federation.kind import FederationKind

KINDS: tuple[Kind[Any], ...] = (FederationKind(),)


def kind_of(values: Mapping[str, Any]) -> Kind[Any]:
    """Return of which kind a file's values are, by their own keys."""
    marked = next((kind for kind in KINDS if kind.mark is not None and kind.mark in values), None)
    return marked or next(kind for kind in KINDS if kind.mark is None)
