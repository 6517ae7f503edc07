"""Impossible values of every numeric setting: refused by the setting's name, or network and plan are made."""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import pytest
import torch
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from tiny_project import TINY

from fedprint.cli.main import main
from fedprint.component import LARGEST_SEED, Component
from fedprint.kinds.federation.building.federation import make_plan
from fedprint.kinds.federation.config import Experiment, FederationConfig, check_experiment
from fedprint.kinds.jobs import JobSettings
from fedprint.kinds.reconstruction.settings import RecordedInversion
from fedprint.kinds.registry import kinds
from fedprint.models.components import Model
from fedprint.models.inputs import model_input
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng

NEVER = (math.nan, math.inf, -math.inf, 1e30, 10**30, -(10**30), "", [math.nan], [10**30])
"""No setting can be any of these."""

BELOW_ZERO = {
    ("StarLstm", "centre"), ("StarLstm", "forget_bias"), ("Parameter", "low"), ("Parameter", "high"),
    ("SweptStrategy", "strengths"), ("MechanismConfig", "strengths"), ("Profile", "labels"),
}  # fmt: skip
"""Numbers of either sign; strengths are checked as settings of their defences, labels in the data."""


def _components(parent: type[Component] = Component) -> Iterator[type[Component]]:
    for child in parent.__subclasses__():
        if child.__module__.startswith("fedprint.") and not issubclass(child, JobSettings):
            yield child
            yield from _components(child)


def _numeric(annotation: Any) -> bool:
    """Return whether a setting is a number, or a list of numbers."""
    origin = typing.get_origin(annotation)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return False
    parts = [part for part in typing.get_args(annotation) if not isinstance(part, FieldInfo)]
    return annotation in (int, float) or any(map(_numeric, parts))


assert kinds() and RecordedInversion, "importing them defines all components"
FIELDS = {
    f"{component.__name__}.{name}": (component, name)
    for component in _components()
    for name, field in component.model_fields.items()
    if _numeric(field.annotation)
}


def _refused(component: type[Component], name: str, value: Any) -> bool:
    """Return whether the value is refused by the setting's name; that others are missing is another error."""
    try:
        component.model_validate({name: value})
    except ValidationError as error:
        return any(found["loc"][:1] == (name,) or name in found["msg"] for found in error.errors())
    return False


def test_the_sweep_sees_the_settings() -> None:
    assert {"SmallCnn.hidden", "FederationConfig.lr", "Noise.sigma", "ClientsConfig.clients", "Albums.users"} <= {
        *FIELDS
    }
    assert len(FIELDS) > 200


@pytest.mark.parametrize(("component", "name"), FIELDS.values(), ids=FIELDS.keys())
def test_impossible_numbers_are_refused_by_the_name_of_the_setting(component: type[Component], name: str) -> None:
    if inspect.isabstract(component):
        return  # its children are asked
    assert [value for value in NEVER if not _refused(component, name, value)] == []
    if (component.__name__, name) not in BELOW_ZERO and "seed" not in name:
        assert _refused(component, name, -1) and _refused(component, name, [-1])


def test_seeds_may_be_long() -> None:
    assert FederationConfig.model_validate({"rounds": 1}) and not _refused(Experiment, "seeds", [LARGEST_SEED])
    assert _refused(Experiment, "seeds", [LARGEST_SEED + 1]) and _refused(FederationConfig, "batch_size", 10**8)


# Networks and plans ---------------------------------------------------------------------------------------------------

MODELS = [model for model in get_args(get_args(Model)[0]) if model.__module__.startswith("fedprint.")]
SMALL = [
    (model, name, value)
    for model in MODELS
    for name, field in model.model_fields.items()
    if _numeric(field.annotation)
    for value in (0, 1, 2, [1, 1])
]


@pytest.mark.parametrize(
    ("model", "name", "value"), SMALL, ids=[f"{model.__name__}.{name}={value}" for model, name, value in SMALL]
)
def test_a_network_of_an_accepted_small_value_learns(model: type[Component], name: str, value: Any) -> None:
    if _refused(model, name, value):
        return
    config, text = model.model_validate({name: value}), {"language_model", "regression"} & set(model.tasks)
    side = 32 if config.name == "vgg16" else 8
    examples: dict[str, torch.Tensor] = {"x": torch.rand(2, 1, side, side), "y": torch.tensor([0, 1])}
    if text:
        words = torch.randint(4, 9, (2, 6))
        examples = {"x": words, "y": torch.tensor([1.0, 5.0]) if "regression" in model.tasks else words}
    ready = model_input(examples, torch.float32, model=config)
    network = build_network(config, tuple(ready["x"].shape[1:]), 9, False)
    network.reset(torch_rng(0, "model"))
    losses = network.per_example_loss(ready)
    losses.mean().backward()
    assert losses.shape == (2,) and losses.isfinite().all()


PLANNED = {"rounds": 1, "fraction": 1e-12, "epochs": 10**7, "batch_size": 10**7, "evaluate_every": 10**7, "lr": 1e12}


@pytest.mark.parametrize(("name", "value"), PLANNED.items(), ids=PLANNED.keys())
def test_a_plan_is_made_of_the_ends_of_ranges(name: str, value: float) -> None:
    values = {**TINY, "name": "tiny", "federation": {**TINY["federation"], name: value}}
    plan = make_plan(check_experiment(values, "tiny"), devices=10, seed=0)
    assert plan.rounds >= 1 and plan.expected(0) >= 1


@pytest.mark.parametrize(
    "typed",
    [
        "federation.rounds=0", "federation.rounds=1e30", "federation.lr=nan", "federation.lr=.inf", "data.users=-1",
        "model.hidden=1e30", "model.hidden=-1", "model.channels=[0, 1]", "seeds=[]", "attacks=[]", "split.priors=[]",
        "data.users=''", "evaluation.confidence=1", "selection.shadow_rounds=100000000",
    ],
)  # fmt: skip
def test_what_is_typed_is_refused_in_one_line(
    typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fedprint", "config", "quickstart", "--set", typed])
    with pytest.raises(SystemExit) as ended:
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and line.startswith(f"error: --set {typed}: {typed.partition('=')[0]}")


def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def hungry() -> None:
        raise MemoryError("Unable to allocate 7 PiB")

    monkeypatch.setattr("fedprint.cli.main.app", hungry)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "error: this needs more memory than there is (Unable to allocate 7 PiB); take smaller numbers\n"
    )
