"""From users to a federation: the model fits the data's task, and predictions line up with their users."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from tiny_project import TINY

from fedprint.data.dataset import Task
from fedprint.data.prepared import Meta
from fedprint.pipeline.config import check_experiment
from fedprint.pipeline.recipes import build_model
from fedprint.pipeline.registry import Model, models_for
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
