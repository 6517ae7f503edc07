"""The rounds of pfl 0.6."""

from __future__ import annotations

from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.peers.beside import Beside
from benchmarks.workloads import Workload


class WithLoss(nn.Module):
    """A network with the two methods that pfl asks for."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy."""
        return functional.cross_entropy(self.network(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        """Return the loss: pfl evaluates in the first round."""
        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


class AfterEachRound(TrainingProcessCallback):  # type: ignore[misc]
    """Tells a :class:`Beside`."""

    def __init__(self, beside: Beside) -> None:
        self.beside = beside

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Note the end of a round."""
        self.beside.ended()
        return False, Metrics()


def run(work: Workload, rounds: int) -> None:
    """Run the rounds and print their times."""
    beside = Beside(work)
    network = WithLoss(work.network())
    model = PyTorchModel(
        model=network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=1.0),
    )
    numbers = list(range(work.clients))
    data = FederatedDataset(lambda n: PyTorchTensorDataset(beside.clients[n]), get_user_sampler("random", numbers))
    training = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=work.lr, local_batch_size=work.batch)
    plan = NNAlgorithmParams(
        central_num_iterations=rounds,
        evaluation_frequency=rounds + 1,
        train_cohort_size=work.cohort,
        val_cohort_size=None,
    )
    FederatedAveraging().run(
        algorithm_params=plan,
        backend=SimulatedBackend(training_data=data, val_data=None),
        model=model,
        model_train_params=training,
        callbacks=[AfterEachRound(beside)],
    )
    beside.print()
