"""The input of a fully connected layer from its gradients, in closed form, and what noise does to it (papers.md 4.2).

``dL/dW = dL/db x^T``: every row of the weight gradient is a multiple of the input, and the bias holds the factors.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from fedprint.attacks.inversion.objectives import NAIVE, Knowledge
from fedprint.attacks.inversion.victims import Victims
from fedprint.component import Component
from fedprint.types import FedprintError

Rows = Literal["best", "least-squares"]
LEAST = 0.1
"""At least this share of the squares of noisy biases counts as signal, to avoid a division by noise."""


def layer_input(weight: Tensor, bias: Tensor, rows: Rows = "least-squares", knowledge: Knowledge = NAIVE) -> Tensor:
    """Return the inputs (v, inputs) from gradients of the weights (v, outputs, inputs) and biases (v, outputs).

    best divides the row with the largest bias gradient; least-squares minimises ``sum_i |W_i - b_i x|^2`` over all
    rows, which averages noise away. Both are exact for one image without noise; for several images they give a
    weighted mean. least-squares uses the adversary's knowledge: a row that did not send a pixel's entry has no weight
    for that pixel, and the noise of the biases, ``sigma^2`` for each row, is subtracted from their squares (down to the
    share :data:`LEAST`). A layer whose biases have no gradient at all is an error.
    """
    if not bool((bias != 0).any(1).all()):
        raise FedprintError("closed form: the bias gradient of a layer is all zero and hides its input; use another")
    if rows == "best":
        best = bias.abs().argmax(1)[:, None]
        picked = weight.gather(1, best[..., None].expand(-1, -1, weight.shape[2]))[:, 0]
        return picked / bias.gather(1, best)
    sent, known = (_sent(part, masked=knowledge.masked) for part in (weight, bias))
    squares, count = (torch.einsum("vo,voi->vi", part, sent) for part in (bias.square(), known))
    signal = torch.maximum(squares - knowledge.sigma**2 * count, LEAST * squares)
    return torch.einsum("vo,voi->vi", bias, weight) / torch.where(signal > 0, signal, 1.0)


def unexplained(weight: Tensor, bias: Tensor, inputs: Tensor, *, masked: bool = False) -> Tensor:
    """Return the squares (v,) of both gradients that ``inputs`` (v, inputs) do not explain, with the best row factors.

    A row of ``(W, b)`` is a multiple of ``(x, 1)``, and the noise of all its entries is alike. So the unexplained part
    is the distance from that line (total least squares; Golub and Van Loan 1980), over the entries that were sent.
    """
    weight, bias, inputs = weight.double(), bias.double(), inputs.double()  # the result is a small difference
    along = torch.einsum("voi,vi->vo", weight, inputs) + bias
    length = torch.einsum("voi,vi->vo", _sent(weight, masked=masked), inputs.square()) + _sent(bias, masked=masked)
    whole = weight.square().sum(2) + bias.square()
    return (whole - along.square() / torch.where(length > 0, length, 1.0)).sum(1)


def _sent(tensor: Tensor, *, masked: bool) -> Tensor:
    """Return 1 for every entry that was sent, and 0 for one that was not."""
    return (tensor != 0).to(tensor) if masked else torch.ones_like(tensor)


class ClosedForm(Component):
    """``closed-form``: the image from the first layer's gradient, for networks whose first layer is fully connected.

    ``rows``: the best row, or least squares over all rows. It needs no label and no search.
    """

    name: Literal["closed-form"] = "closed-form"
    layer: str = "fc1"
    rows: Rows = "least-squares"

    def run(self, victims: Victims, knowledge: Knowledge = NAIVE) -> Tensor:
        """Return the images (v, 1, c, h, w); pixels may leave [0, 1].

        An adversary that knows of noise or of a mask solves in several ways: as ``rows`` says, by the best row, and by
        least squares with the mask, and with the noise. For each victim it keeps the solution that, with pixels cut to
        [0, 1], leaves least unexplained. Raises FedprintError where the layer does not have the gradient of one image.
        """
        weight, bias = self._gradients(victims)
        centred = bool(getattr(victims.model, "centred", False))
        tried = torch.stack([layer_input(weight, bias, *how) for how in self._ways(knowledge)])
        low = -1.0 if centred else 0.0
        rest = [unexplained(weight, bias, x.clamp(low, 1), masked=knowledge.masked) for x in tried]
        chosen = tried[torch.stack(rest).argmin(0), torch.arange(len(bias), device=bias.device)]
        x = chosen.reshape(-1, 1, *victims.shape)
        return (x + 1) / 2 if centred else x

    def _ways(self, knowledge: Knowledge) -> list[tuple[Rows, Knowledge]]:
        """Return the ways to solve that are tried."""
        ways: list[tuple[Rows, Knowledge]] = [(self.rows, NAIVE)]
        if knowledge.sigma or knowledge.masked:
            known = (Knowledge(masked=knowledge.masked), Knowledge(masked=knowledge.masked, sigma=knowledge.sigma))
            ways += [("best", NAIVE), *(("least-squares", one) for one in dict.fromkeys(known))]
        return ways

    def _gradients(self, victims: Victims) -> tuple[Tensor, Tensor]:
        weight, bias = (victims.descents.get(f"{self.layer}.{kind}") for kind in ("weight", "bias"))
        if weight is None or bias is None or weight.dim() != 3 or weight.shape[2] != math.prod(victims.shape):
            raise FedprintError(
                f"attack.layer: '{self.layer}' is no fully connected layer on all pixels; choose model mlp"
            )
        if victims.images > 1 or victims.steps is not None:
            raise FedprintError("attack.name: closed-form is for gradients of one image; choose gradient-matching")
        return weight, bias
