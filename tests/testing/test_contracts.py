"""Every registered component keeps the contract that plug-ins are tested with (fedprint.testing)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from tiny_project import CHECKOUT, TINY

from fedprint.data.sources.albums import Albums
from fedprint.data.sources.registry import SOURCES
from fedprint.kinds import components
from fedprint.kinds.config_files import read_yaml
from fedprint.kinds.registry import kind_of, kinds
from fedprint.models.components import Model
from fedprint.plugins import names_of
from fedprint.testing.attack import AttackContract
from fedprint.testing.defence import DefenceContract
from fedprint.testing.kind import KindContract
from fedprint.testing.model import ModelContract
from fedprint.testing.source import SourceContract

NEEDED: Mapping[str, Mapping[str, Any]] = {
    "bkg-repl": {"alpha": 0.5}, "rand-aug": {"alpha": 0.5}, "repeat-aug": {"alpha": 0.5},
    "mm-aug": {"alpha": 0.5, "clusters": 3, "features": "pixels"}, "counter-aug": {"alpha": 0.5, "candidates": 40},
    "noise": {"sigma": [0.0, 0.1]}, "laplace": {"sigma": 0.1}, "dp-local": {"z": 0.1}, "dp-fedavg": {"z": 0.1},
    "top-k": {"share": 0.1}, "quantise": {"bits": 4}, "same-size": {"examples": 5},
}  # fmt: skip
"""Settings that a component has no default for, or whose default is meant for more data."""
BASELINES = ("chance",)


def registered(union: Any) -> list[Any]:
    """Return one component of each name of a union."""
    classes = [(name, each) for each in get_args(get_args(union)[0]) for name in names_of(each)]
    return [each.model_validate({"name": name, **NEEDED.get(name, {})}) for name, each in classes]


def of_each(contract: type, parts: Mapping[str, Mapping[str, Any]]) -> dict[str, type]:
    """Return a class of tests for each part."""
    titles = {name: f"Test{contract.__name__}[{name}]" for name in parts}
    return {titles[name]: type(titles[name], (contract,), dict(values)) for name, values in parts.items()}


globals().update(
    of_each(
        AttackContract,
        {
            each.name: {"component": each, "learns": each.name not in BASELINES}
            for each in registered(components.Attack)
        },
    )
)
globals().update(of_each(DefenceContract, {each.name: {"component": each} for each in registered(components.Defence)}))
globals().update(of_each(ModelContract, {each.name: {"component": each} for each in registered(Model)}))


class TestAlbums(SourceContract):
    component = Albums(users=4, images=12, background_users=2)


class TestCaptions(SourceContract):
    component = Albums(users=4, images=12, background_users=2, modality="captions")


@pytest.mark.parametrize("name", ["mnist_writers", "blog", "ratebeer"])
def test_a_source_of_files_keeps_the_contract(name: str, data_dir: Path) -> None:
    if not (data_dir / name).is_dir():
        pytest.skip(f"{name} is not in {data_dir}")
    case = SourceContract()
    case.component, case.data_dir = SOURCES[name].model_validate({"name": name, "users": 5}), data_dir
    for test in (each for each in dir(case) if each.startswith("test_")):
        getattr(case, test)()


FILES: Mapping[str, Mapping[str, Any]] = {
    "federation": TINY,
    **{
        name: read_yaml(CHECKOUT / "configs" / folder / f"{name}.yaml")
        for folder, name in (
            ("studies", "albums"), ("experiments", "albums-plane"), ("experiments", "spn-mnist"),
            ("experiments", "spn-clients"), ("experiments", "paper-tables"),
        )
    },
}  # fmt: skip
OF_FILES = ("inversion", "clients", "suite")
"""Kinds whose files are about data sets in files: without these their jobs are unknown."""


def kind_case(values: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = kind_of(values)
    marks = [pytest.mark.usefixtures("data_dir")] if kind.name in OF_FILES else []
    return {"kind": kind, "values": values, "root": CHECKOUT, "pytestmark": marks}


globals().update(of_each(KindContract, {kind_of(values).name: kind_case(values) for values in FILES.values()}))


def test_every_kind_but_audits_is_here() -> None:
    """An audit's file is made from an experiment by its command."""
    tested = {kind_of(values).name for values in FILES.values()}
    assert {kind.name for kind in kinds()} - tested == {"audit"}
