"""Deep leakage as published, one image at a time through ``torch.optim.LBFGS``: slow, and easy to check by eye."""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch.nn import functional

from fedprint.attacks.inversion.optimisers.starts import start_images
from fedprint.models.base import FedModule


def deep_leakage(
    net: FedModule, observed: list[Tensor], shape: tuple[int, int, int], classes: int, rng: Generator, steps: int = 300
) -> tuple[Tensor, Tensor]:
    """Return the image (1, c, h, w) and soft label (1, classes) whose gradient is nearest to ``observed``.

    ``net`` holds the parameters that the client received. 300 steps of up to 20 evaluations; patterned start (spn,
    section 4.1), joint label.
    """
    dummy = start_images("pattern", 1, shape, rng).to(observed[0]).requires_grad_()
    logits = torch.randn(1, classes, generator=rng).to(observed[0]).requires_grad_()
    optimiser = torch.optim.LBFGS([dummy, logits])

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = -(logits.softmax(1) * functional.log_softmax(net.scores(dummy), 1)).sum()
        found = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
        apart = torch.stack([(a - b).square().sum() for a, b in zip(found, observed, strict=True)]).sum()
        apart.backward()
        return apart

    for _ in range(steps):
        if not torch.isfinite(optimiser.step(closure)):  # type: ignore[arg-type]
            break
    return dummy.detach(), logits.softmax(1).detach()
