"""The trained model comes back from what a federation wrote of it."""

from __future__ import annotations

import torch

from fedprint.kinds.federation.building.model import read_model
from fedprint.lab.graph import Task
from fedprint.store.reader import UpdateStore


def test_a_written_model_has_the_final_global_parameters_and_predicts(tiny_run: Task) -> None:
    model = read_model(tiny_run.at("model"))
    store = UpdateStore.open(tiny_run.at("observed"), verify=False)
    final = store.global_params(store.rounds)
    assert all(torch.equal(tensor, final[name]) for name, tensor in model.public_parameters().items())
    assert not model.training


def test_nothing_of_it_is_pickled(tiny_run: Task) -> None:
    assert {path.suffix for path in tiny_run.at("model").iterdir()} == {".safetensors", ".json"}
