"""The contract of models: a configuration whose network is a :class:`fedprint.models.base.FedModule`."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from fedprint.data.dataset import START, Task
from fedprint.models.base import FedModule
from fedprint.models.networks import build_network, network_inputs
from fedprint.rng import torch_rng
from fedprint.testing.component import ComponentContract

CLASSES, BATCH = 7, 5


class ModelContract(ComponentContract):
    """A network that every backend can train; ``shape`` is that of one image in [0, 1]."""

    shape: tuple[int, int, int] = (1, 32, 32)

    def task(self) -> Task:
        """Return the first task that the network can do."""
        return cast(Task, self.component.tasks[0])

    def batch(self) -> dict[str, Tensor]:
        """Return inputs and targets as the network reads them."""
        rng, task = torch_rng(0, "batch"), self.task()
        if task in ("language_model", "regression"):
            x = torch.randint(START, CLASSES, (BATCH, 6), generator=rng)
            stars = 1 + 4 * torch.rand(BATCH, generator=rng)
            return {"x": x, "y": stars if task == "regression" else x.roll(-1, 1)}
        x = network_inputs(self.component, torch.rand(BATCH, *self.shape, generator=rng))
        return {"x": x, "y": torch.randint(CLASSES, (BATCH,), generator=rng)}

    def network(self, seed: int = 0) -> FedModule:
        """Return the network with the initial parameters of a seed."""
        model = build_network(self.component, tuple(self.batch()["x"].shape[1:]), CLASSES, multi_label=False)
        model.reset(torch_rng(seed, "start"))
        return model

    def test_it_says_which_tasks_it_can_do(self) -> None:
        """Data of any other task are refused."""
        assert self.component.tasks

    def test_it_starts_from_its_seed_alone(self) -> None:
        """Two networks of one seed are equal, whatever the global generator of torch holds."""
        torch.manual_seed(1)
        first = self.network().state_dict()
        torch.manual_seed(2)
        second = self.network().state_dict()
        assert all(torch.equal(first[name], second[name]) for name in first)

    def test_each_example_has_a_loss_of_its_own(self) -> None:
        """Its loss does not depend on who else is in the batch: no statistics over examples."""
        model, batch = self.network(), self.batch()
        whole = model.per_example_loss(batch)
        alone = torch.cat([model.per_example_loss({k: v[i : i + 1] for k, v in batch.items()}) for i in range(BATCH)])
        assert whole.shape == (BATCH,)
        torch.testing.assert_close(whole, alone, rtol=1e-4, atol=1e-5)

    def test_it_keeps_nothing_of_what_it_saw(self) -> None:
        """No running statistics, no hidden randomness: the same batch gives the same loss again."""
        model, batch = self.network(), self.batch()
        model.train()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        first, second = model.per_example_loss(batch), model.per_example_loss(batch)
        assert torch.equal(first, second)
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())

    def test_a_step_lowers_the_loss(self) -> None:
        """Its gradient is finite and leads down."""
        model, batch = self.network(), self.batch()
        loss = model.per_example_loss(batch).mean()
        gradients = torch.autograd.grad(loss, tuple(model.parameters()), allow_unused=True, materialize_grads=True)
        square = torch.stack([gradient.square().sum() for gradient in gradients]).sum()
        assert square.isfinite() and square > 0
        rate = 1e-3 / float(square.sqrt())
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.sub_(rate * gradient)
        assert model.per_example_loss(batch).mean() < loss

    def test_many_clients_train_at_once(self) -> None:
        """The vectorised backend computes stacked copies with ``torch.func.vmap``: their losses are those of each."""
        model, batch = self.network(), self.batch()
        params = [dict(self.network(seed).named_parameters()) for seed in (0, 1)]
        stacked = {name: torch.stack([each[name].detach() for each in params]) for name in params[0]}
        form = model.for_vmap()

        def losses(weights: dict[str, Tensor]) -> Tensor:
            out: Tensor = torch.func.functional_call(form, weights, (batch,))
            return out

        together = torch.func.vmap(losses)(stacked)
        each = torch.stack([self.network(seed).per_example_loss(batch) for seed in (0, 1)])
        torch.testing.assert_close(together, each, rtol=1e-3, atol=1e-4)

    def test_utility_has_a_row_per_example(self) -> None:
        """Hits or scores (b, ...)."""
        assert len(self.network().per_example_utility(self.batch())) == BATCH
