"""Simulation of what a client sends for given images: gradients, or updates of several local steps, unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn import functional

from fedprint.params import add, scale
from fedprint.types import Params

if TYPE_CHECKING:
    from fedprint.models.base import FedModule


class Simulation(Protocol):
    """What a client would have sent."""

    def __call__(self, params: Params, x: Tensor, targets: Tensor, push: Tensor | None = None) -> dict[str, Tensor]:
        """Return the descent for images ``x`` (b, c, h, w) and ``targets`` (b, classes).

        ``push`` (b, features) is the gradient of a private loss at the features of each image. A private head
        influences the public layers only through this vector (papers.md 4.3).
        """


@dataclass(frozen=True, kw_only=True)
class LocalSteps:
    """The plain SGD of a client: which of its b images each step takes, in order, and the learning rate.

    An adversary that does not know the order of the batches assumes one (Geiping et al. 2020, section 5).
    """

    batches: tuple[tuple[int, ...], ...]
    lr: float


def local_batches(
    images: int, steps: int, batch_size: int, order: Callable[[int], Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    """Return which of a client's ``images`` each of its ``steps`` takes, where epoch e goes through ``order(e)``."""
    each = range(0, images, batch_size)
    epochs = (tuple(order(epoch)) for epoch in range(-(-steps // len(each))))
    return tuple(epoch[start : start + batch_size] for epoch in epochs for start in each)[:steps]


class _Scores(nn.Module):
    """A model's class scores, and a push's part of the loss, as a forward pass for ``functional_call``."""

    def __init__(self, model: FedModule) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, push: Tensor | None) -> tuple[Tensor, Tensor | float]:
        """Return the scores (b, classes), and the mean product of features and ``push`` (b, features)."""
        if push is None:
            return self.model.scores(x), 0.0
        features: Tensor = self.model.features(x)  # type: ignore[operator]
        scores: Tensor = self.model.head(features)  # type: ignore[operator]
        return scores, (features * push).sum(1).mean()


def mean_loss(model: FedModule, *, multi_label: bool) -> Callable[..., Tensor]:
    """Return ``loss(params, x, targets, push=None)``: the mean loss for soft targets (b, classes).

    For one-hot, or multi-hot, targets it is the mean of ``model.per_example_loss``, plus the part of a ``push``.
    """
    scores = _Scores(model)

    def loss(params: Params, x: Tensor, targets: Tensor, push: Tensor | None = None) -> Tensor:
        logits, pushed = functional_call(scores, {f"model.{name}": p for name, p in params.items()}, (x, push))
        if multi_label:
            public: Tensor = functional.binary_cross_entropy_with_logits(logits, targets)
        else:
            public = -(targets * functional.log_softmax(logits, 1)).sum(1).mean()
        return public if push is None else public + pushed

    return loss


def simulation(model: FedModule, *, multi_label: bool = False, steps: LocalSteps | None = None) -> Simulation:
    """Return what a client sends, as a descent: its gradient, or its update over ``-lr`` after ``steps``.

    Both have the same sign and, after a single step on all images, the same value. They are differentiable in images
    and targets. A ``push`` (b, features) is the same for every step; one of (s, b, features) has a part for each of s
    steps, because a private head trains too, and its influence on the features changes.
    """
    gradient = grad(mean_loss(model, multi_label=multi_label))
    if steps is None:
        return gradient
    batches = [torch.tensor(batch) for batch in steps.batches]

    def unrolled(params: Params, x: Tensor, targets: Tensor, push: Tensor | None = None) -> dict[str, Tensor]:
        # The sum of gradients is the update over -lr, without the rounding of a small difference of large weights.
        total = {name: torch.zeros_like(p) for name, p in params.items()}
        for step, batch in enumerate(batches):
            index = batch.to(x.device)
            pushed = None if push is None else (push[step] if push.dim() > 2 else push)[index]
            total = add(total, gradient(add(params, total, -steps.lr), x[index], targets[index], pushed))
        return total

    return unrolled


def as_descent(update: Params, lr: float) -> dict[str, Tensor]:
    """Return an observed update ``w - w_t`` as the descent that :func:`simulation` gives: the update over ``-lr``."""
    return scale(update, -1 / lr)
