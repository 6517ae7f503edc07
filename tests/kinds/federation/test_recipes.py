"""From users to a federation: the model fits the data's task, and predictions line up with their users."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from tiny_project import TINY

from fedprint.data.dataset import Meta, Task
from fedprint.kinds.federation.building.federation import build_model, make_plan
from fedprint.kinds.federation.config import check_experiment
from fedprint.models.components import Model, models_for
from fedprint.types import FedprintError, User


def meta(task: Task) -> Meta:
    """Return the header of some data set of ``task``."""
    return Meta(
        name="some", task=task, class_names=("a", "b"), has_time=True, shareable=True, licence="CC0", sha256="0" * 64
    )


@pytest.mark.parametrize("task", ["language_model"])
def test_a_model_of_another_task_is_refused_with_those_that_fit(task: Task) -> None:
    users = [User(user_id=0, examples={"x": torch.zeros(2, 16, dtype=torch.int64), "y": torch.zeros(2, 16)})]
    config = check_experiment({"name": "tiny", **TINY}, "test")
    with pytest.raises(FedprintError) as refused:
        build_model(config, meta(task), users, 0)
    message = str(refused.value)
    assert "\n" not in message and "'cnn'" in message and task in message
    for fitting in models_for(task):
        assert fitting in message.partition("choose one of")[2]


@pytest.mark.parametrize("model", get_args(get_args(Model)[0]))
def test_every_model_names_the_tasks_it_does(model: type) -> None:
    name = model.model_fields["name"].default  # type: ignore[attr-defined]
    assert model.tasks and all(name in models_for(task) for task in model.tasks)  # type: ignore[attr-defined]
    others = [task for task in get_args(Task) if task not in model.tasks]  # type: ignore[attr-defined]
    assert others and all(name not in models_for(task) for task in others)


@pytest.mark.parametrize(
    "schedule",
    [
        {"name": "constant"},
        {"name": "linear", "to": 0.1, "levels": 4},
        {"name": "step", "at": [2, 5], "factors": [0.5, 0.25]},
    ],
)
def test_the_adversary_knows_the_learning_rate_of_every_round(schedule: dict[str, object]) -> None:
    settings = {**TINY["federation"], "rounds": 8, "lr": 0.3, "lr_schedule": schedule}
    config = check_experiment({"name": "tiny", **TINY, "federation": settings}, "test")
    known, plan = config.federation.training_by_round(), make_plan(config, 16, 0)
    assert len(known) == plan.rounds == 8
    assert list(known) == [plan.training_at(t) for t in range(8)]
    assert known[0] == config.federation.local_training()
    assert (len({training.lr for training in known}) == 1) == (schedule["name"] == "constant")
