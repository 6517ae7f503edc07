"""A suite as a value: several experiments with attacks under changed settings, reported together.

A suite is a file in configs/experiments with ``members``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError, field_validator

from fedprint.component import Component
from fedprint.kinds.base import Kind, Request, Resolved, data_of
from fedprint.kinds.config_files import as_yaml, merge, one_line
from fedprint.kinds.federation.config import ReportConfig
from fedprint.kinds.hardware import read_settings
from fedprint.kinds.jobs import title_of
from fedprint.kinds.requests import file_of
from fedprint.lab.keys import digest_of
from fedprint.types import FedprintError

KindOf = Callable[[Mapping[str, Any]], Kind[Any]]
"""Returns the kind of a file's values."""


class MemberConfig(Component):
    """One member: an ``experiment``, settings ``with`` which it differs, and entries that ``plus`` adds to its lists.

    ``name`` is needed for two members of one experiment; by default it is the experiment's.
    """

    experiment: str
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    changes: Mapping[str, Any] = Field(default_factory=dict, alias="with")
    plus: Mapping[str, list[Any]] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """The member's folder below reports/<suite>/."""
        return self.name or re.sub(r"\.ya?ml$", "", Path(self.experiment).name)


class SuiteConfig(Component):
    """A suite's file: a title, settings ``with`` which all members differ from their own files, and the members."""

    report: ReportConfig
    changes: Mapping[str, Any] = Field(default_factory=dict, alias="with")
    members: tuple[MemberConfig, ...] = Field(min_length=1)

    @field_validator("members")
    @classmethod
    def _members_have_their_own_names(cls, members: tuple[MemberConfig, ...]) -> tuple[MemberConfig, ...]:
        labels = [member.label for member in members]
        if len(set(labels)) < len(labels):
            raise ValueError(f"names must differ, got {labels}; give the second one a name")
        return members


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member ready to run, named ``<suite>.<label>``: a plain run of its ``experiment`` stays what it was."""

    label: str
    experiment: str
    kind: Kind[Any]
    config: Resolved


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite with all its members resolved; ``fast`` is set when they use their ``fast`` sections."""

    name: str
    title: str
    members: tuple[Member, ...]
    fast: bool

    def digest(self) -> str:
        """Return a hash of everything that numbers depend on."""
        return digest_of({member.label: member.config.digest() for member in self.members})

    def text(self) -> str:
        """Return the resolved members as YAML."""
        members = {member.label: yaml.safe_load(member.config.text()) for member in self.members}
        content = {"report": {"title": self.title}, "members": members}
        return as_yaml(content)


def load_suite(request: Request, kind_of: KindOf) -> Suite:
    """Resolve every member of a suite.

    Assignments change all members, or one: ``mnist-writers.federation.rounds=20``. Raises FedprintError (one line) for
    an unknown member, a member that is itself a suite, or settings that a member does not have.
    """
    try:
        config = SuiteConfig.model_validate(request.values)
    except ValidationError as error:
        raise FedprintError(one_line(error, str(request.path), SuiteConfig)) from None
    members = _members(request, config, request.assignments, kind_of)
    return Suite(
        name=request.name,
        title=_title(request, config, members, kind_of),
        members=tuple(members),
        fast=request.fast,
    )


def _title(request: Request, config: SuiteConfig, members: Sequence[Member], kind_of: KindOf) -> str:
    """Return the suite's title, or one of the data that all members were given in place of their own."""
    title = config.report.title
    if not any(text.startswith(("data=", "data.")) for text in request.assignments):
        return title
    plain = _members(request, config, (), kind_of)
    titles = (
        title_of(request, title, {"data": data_of(a.config).model_dump()}, data_of(b.config))
        for a, b in zip(plain, members, strict=True)
    )
    return next((each for each in titles if each != title), title)


def _members(request: Request, config: SuiteConfig, assignments: Sequence[str], kind_of: KindOf) -> list[Member]:
    labels = [member.label for member in config.members]
    return [
        _resolve(request, config, member, _assignments_of(member.label, labels, assignments), kind_of)
        for member in config.members
    ]


def _resolve(
    request: Request, config: SuiteConfig, member: MemberConfig, assignments: Sequence[str], kind_of: KindOf
) -> Member:
    path = file_of(request.root, member.experiment, beside=request.path.parent)
    file = read_settings(path)
    if "members" in file:
        raise FedprintError(f"{request.path.stem}: member '{member.label}' is itself a suite; list its members instead")
    values = _extended(request, merge(merge(file, config.changes), member.changes), member)
    kind = kind_of(values)
    if kind.name != "federation":
        raise FedprintError(
            f"{request.path.stem}: member '{member.label}' is of kind {kind.name}, which a suite's page does not show; "
            f"run it by itself: `fedprint run {member.experiment}`"
        )
    asked = replace(
        request, path=path, values=values, name=f"{request.name}.{member.label}", assignments=tuple(assignments)
    )
    try:
        resolved = kind.load(asked)
    except FedprintError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise FedprintError(f"{request.path.stem}: member {member.label}: {reason}") from None
    return Member(label=member.label, experiment=path.stem, kind=kind, config=resolved)


def _extended(request: Request, settings: Mapping[str, Any], member: MemberConfig) -> dict[str, Any]:
    """Return the settings with the entries of ``plus`` appended to their lists, or to those of the defaults.

    A list that the ``fast`` section has in place of another gets them too.
    """
    base = merge(read_settings(request.root / "configs" / "defaults.yaml"), settings) if member.plus else {}
    extended = {**settings, **{key: [*(base.get(key) or []), *more] for key, more in member.plus.items()}}
    fast = settings.get("fast") or {}
    replaced = {key: [*(fast[key] or []), *more] for key, more in member.plus.items() if key in fast}
    return {**extended, "fast": {**fast, **replaced}} if replaced else extended


def _assignments_of(label: str, labels: Sequence[str], assignments: Sequence[str]) -> list[str]:
    """Return the assignments that concern a member, without its name in front."""
    chosen = []
    for text in assignments:
        head, _, rest = text.partition(".")
        if head not in labels:
            chosen.append(text)
        elif head == label:
            chosen.append(rest)
    return chosen
