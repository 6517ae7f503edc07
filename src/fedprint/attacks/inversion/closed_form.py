"""The input of a fully connected layer from its gradients, in closed form, and what noise does to it (papers.md 4.2).

``dL/dW = dL/db x^T``: every row of the weight gradient is a multiple of the input, and the bias holds the factors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedprint.attacks.inversion.victims import Victims
from fedprint.component import Component
from fedprint.types import FedprintError

Rows = Literal["best", "least-squares"]


def layer_input(weight: Tensor, bias: Tensor, rows: Rows = "least-squares") -> Tensor:
    """Return the inputs (v, inputs) from gradients of the weights (v, outputs, inputs) and biases (v, outputs).

    best divides the row with the largest bias gradient; least-squares minimises ``sum_i |W_i - b_i x|^2`` over all
    rows, which under noise averages it away. Both are exact for one image without noise; for several they give a
    weighted mean of the images. A layer whose biases have no gradient at all is an error.
    """
    if not bool((bias != 0).any(1).all()):
        raise FedprintError("closed form: the bias gradient of a layer is all zero and hides its input; use another")
    if rows == "best":
        best = bias.abs().argmax(1)[:, None]
        picked = weight.gather(1, best[..., None].expand(-1, -1, weight.shape[2]))[:, 0]
        return picked / bias.gather(1, best)
    return torch.einsum("vo,voi->vi", bias, weight) / bias.square().sum(1, keepdim=True)


class ClosedForm(Component):
    """``closed-form``: the image from the first layer's gradient, for networks whose first layer is fully connected.

    ``rows``: the best row, or least squares over all of them. No label is needed and nothing is searched.
    """

    name: Literal["closed-form"] = "closed-form"
    layer: str = "fc1"
    rows: Rows = "least-squares"

    def run(self, victims: Victims) -> Tensor:
        """Return the images (v, 1, c, h, w) in [0, 1]. Raises FedprintError where the layer does not hold one image."""
        weight, bias = (victims.descents.get(f"{self.layer}.{kind}") for kind in ("weight", "bias"))
        if weight is None or bias is None or weight.dim() != 3 or weight.shape[2] != math.prod(victims.shape):
            raise FedprintError(
                f"attack.layer: '{self.layer}' is no fully connected layer on all pixels; choose model mlp"
            )
        if victims.images > 1 or victims.steps is not None:
            raise FedprintError("attack.name: closed-form is for gradients of one image; choose gradient-matching")
        x = layer_input(weight, bias, self.rows).reshape(-1, 1, *victims.shape)
        return ((x + 1) / 2 if getattr(victims.model, "centred", False) else x).clamp(0, 1)


@dataclass(frozen=True, kw_only=True)
class NoisyBound:
    """Theorem 2.2 on systems ``B x = W`` (n of them).

    ``bound`` (n,) of the relative error of x where ``applies`` (n,): ``|B^-1 E_B| < 1``. Elsewhere the theorem says
    nothing: the bound is infinite there, and that is no statement about the attack (papers.md 4.2, erratum 6).
    """

    bound: Tensor
    applies: Tensor


def noisy_bound(b: Tensor, w: Tensor, noise_b: Tensor, noise_w: Tensor) -> NoisyBound:
    """Return the bound for square B (n, k, k), W (n, k) and the perturbations of both, in spectral norms."""
    size, size_noise = torch.linalg.matrix_norm(b, 2), torch.linalg.matrix_norm(noise_b, 2)
    turned = torch.linalg.matrix_norm(torch.linalg.solve(b, noise_b), 2)
    condition = torch.linalg.cond(b, 2)
    relative = size_noise / size + noise_w.norm(dim=1) / w.norm(dim=1)
    applies = turned < 1
    bound = torch.where(applies, condition * relative / (1 - turned), torch.inf)
    return NoisyBound(bound=bound, applies=applies)


def solve_noisy(b: Tensor, w: Tensor, noise_b: Tensor, noise_w: Tensor) -> Tensor:
    """Return x (n, k) of the perturbed systems ``(B + E_B) x = W + E_W``."""
    x: Tensor = torch.linalg.solve(b + noise_b, w + noise_w)
    return x
