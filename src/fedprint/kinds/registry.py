"""Every kind of experiment by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedprint.kinds.audit.kind import AuditKind
from fedprint.kinds.base import Kind
from fedprint.kinds.clients.kind import ClientsKind
from fedprint.kinds.federation.kind import FederationKind
from fedprint.kinds.inversion.kind import InversionKind
from fedprint.kinds.plane.kind import PlaneKind
from fedprint.kinds.study.kind import StudyKind
from fedprint.kinds.suite.kind import SuiteKind
from fedprint.plugins import plugged

KINDS: tuple[Kind[Any], ...] = (
    FederationKind(),
    StudyKind(),  # before planes, whose mark studies have too
    PlaneKind(),
    AuditKind(),
    SuiteKind(lambda values: kind_of(values)),
    InversionKind(),
    ClientsKind(),
    *(kind() for kind in plugged("fedprint.kinds")),
)


def kind_of(values: Mapping[str, Any]) -> Kind[Any]:
    """Return of which kind a file's values are, by their own keys."""
    marked = next((kind for kind in KINDS if kind.mark is not None and kind.mark in values), None)
    return marked or next(kind for kind in KINDS if kind.mark is None)
