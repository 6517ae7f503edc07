"""Recording in a simulation of pfl-research; runs where pfl is installed (test_flower_simulation.py has it)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("pfl", reason="pfl is not in this environment; test_flower_simulation.py uses one that has it")

from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel

from fedprint.record import Recorder

ROUNDS, COHORT = 3, 4
SIZES = (5, 10, 20, 40, 80)


class Linear(nn.Module):
    """A linear classifier with the two methods that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.fc(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


def recording(recorder: Recorder) -> Any:
    path = Path(__file__).parents[1] / "examples" / "pfl" / "recording.py"
    spec = importlib.util.spec_from_file_location("pfl_recording", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Recording(recorder)


def user(name: str) -> PyTorchTensorDataset:
    number = int(name)
    rng = torch.Generator().manual_seed(number)
    x = torch.randn(SIZES[number], 3, generator=rng)
    return PyTorchTensorDataset((x, (x[:, 0] > 0).long()), user_id=name)


def run(network: nn.Module, postprocessors: list[Any]) -> None:
    model = PyTorchModel(
        model=network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    )
    names = [str(number) for number in range(len(SIZES))]
    data = FederatedDataset(user, get_user_sampler("minimize_reuse", names))
    plan = NNAlgorithmParams(
        central_num_iterations=ROUNDS, evaluation_frequency=1, train_cohort_size=COHORT, val_cohort_size=None
    )
    FederatedAveraging().run(
        algorithm_params=plan,
        backend=SimulatedBackend(training_data=data, val_data=None, postprocessors=postprocessors),
        model=model,
        model_train_params=NNTrainHyperParams(local_num_epochs=1, local_learning_rate=0.1, local_batch_size=4),
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_the_model_moves_by_the_mean_of_the_recorded_updates(weighted: bool, tmp_path: Path) -> None:
    network = Linear()
    before = {name: p.detach().numpy().copy() for name, p in network.named_parameters()}
    with Recorder(tmp_path) as recorder:
        run(network, [*([WeightByDatapoints()] if weighted else []), recording(recorder)])
    files = sorted((tmp_path / "index").glob("*.jsonl"))
    rounds = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    assert [len(lines) for lines in rounds] == [COHORT] * ROUNDS
    assert all(line["num_examples"] == SIZES[int(line["device"])] for lines in rounds for line in lines)
    moved = {name: np.zeros_like(array) for name, array in before.items()}
    for lines in rounds:
        weights = np.array([line["num_examples"] if weighted else 1 for line in lines], float)
        for weight, line in zip(weights / weights.sum(), lines, strict=True):
            with np.load(tmp_path / "updates" / line["file"]) as update:
                assert set(update) == set(before)
                for name in before:
                    moved[name] += weight * update[name]
    for name, parameter in network.named_parameters():
        np.testing.assert_allclose(parameter.detach().numpy() - before[name], moved[name], atol=1e-5)
        assert np.abs(moved[name]).max() > 1e-2
