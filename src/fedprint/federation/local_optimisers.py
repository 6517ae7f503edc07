"""The steps of local training, for one client or a stack of them: the same arithmetic on every backend."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedprint.models.kernels.dense import Gradient, Outer, whole
from fedprint.types import FedprintError, LocalTraining

MOMENTUM = 0.9
"""Of SGD with momentum, as in torch and in spn's AlexNet and VGG16 (papers.md 4.5)."""

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Of Adam (Kingma and Ba 2015), spn's choice for DLNet."""


class Stepper:
    """Moves ``parameters`` in place, by one step at each call.

    The state of an optimiser starts from zero in every round: clients keep nothing between rounds (except a secret
    head), and the model that a client receives is not the one that it trained last. ``sgd`` is plain SGD.
    """

    def __init__(self, training: LocalTraining, parameters: Sequence[Tensor]) -> None:
        self._lr, self._kind, self._parameters, self._count = training.lr, training.optimiser, list(parameters), 0
        if self._kind not in ("sgd", "momentum", "adam"):
            raise FedprintError(f"federation.optimiser: unknown optimiser '{self._kind}'; choose sgd, momentum or adam")
        memories = {"sgd": 0, "momentum": 1, "adam": 2}[self._kind]
        self._memory = [[torch.zeros_like(p) for p in self._parameters] for _ in range(memories)]

    def reset(self) -> None:
        """Forget the steps that were taken."""
        self._count = 0
        for memory in self._memory:
            torch._foreach_zero_(memory)

    @torch.no_grad()
    def __call__(self, gradients: Sequence[Gradient], active: Tensor | None = None) -> None:
        """Take the step of ``gradients``.

        ``active`` (k,) is 1 for the clients of a stack that still train and 0 for those that have ended, whose
        gradients are zero but whose state would still move them.
        """
        if self._kind == "sgd":
            self._descend(gradients)
            return
        tensors = [whole(gradient) for gradient in gradients]
        steps = self._with_momentum(tensors) if self._kind == "momentum" else self._adam(tensors)
        if active is not None:
            steps = [step * active.reshape(-1, *[1] * (step.dim() - 1)) for step in steps]
        torch._foreach_add_(self._parameters, steps, alpha=-self._lr)

    def _descend(self, gradients: Sequence[Gradient]) -> None:
        pairs = list(zip(self._parameters, gradients, strict=True))
        for parameter, gradient in pairs:
            if isinstance(gradient, Outer):
                parameter.baddbmm_(gradient.left.mT, gradient.right, alpha=-self._lr)
        rest = [(parameter, gradient) for parameter, gradient in pairs if isinstance(gradient, Tensor)]
        if rest:
            torch._foreach_add_(*map(list, zip(*rest, strict=True)), alpha=-self._lr)

    def _with_momentum(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        (velocity,) = self._memory
        torch._foreach_mul_(velocity, MOMENTUM)
        torch._foreach_add_(velocity, list(gradients))
        return velocity

    def _adam(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        self._count += 1
        first, second = self._memory
        torch._foreach_lerp_(first, list(gradients), 1 - BETAS[0])
        torch._foreach_mul_(second, BETAS[1])
        torch._foreach_addcmul_(second, list(gradients), list(gradients), value=1 - BETAS[1])
        bias = [1 - beta**self._count for beta in BETAS]
        return [(m / bias[0]) / ((v / bias[1]).sqrt() + EPSILON) for m, v in zip(first, second, strict=True)]
