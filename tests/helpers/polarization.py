"""What the private term of a secret head adds to the gradient of each layer (spn, figure 4 and section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedprint.data.examples import CODE_WEIGHT
from fedprint.models.dual_head import SECRET, DualHead
from fedprint.types import Examples, Params


@dataclass(frozen=True, kw_only=True)
class Polarization:
    """What the private term adds to the gradient of one layer.

    ``ratio`` = |B| / |E_B|, the norm of ``alpha1 * CE``'s gradient over that of ``alpha2 * L_P``'s (infinite where the
    latter is zero: it is for the public head); ``cosine`` between both gradients, NaN where one is zero.
    """

    ratio: float
    cosine: float


def polarization(model: DualHead, params: Params, batch: Examples) -> dict[str, Polarization]:
    """Return :class:`Polarization` of every public parameter, and of all of them together under ``""``.

    ``params`` are public and private parameters of one client, ``batch`` some of its examples with their codes; both
    terms are means over the batch, as in training (spn, figure 4 and section 4.2). Nothing is changed.
    """
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in params.items()}
    public = [name for name in leaves if not name.startswith(SECRET)]
    ce, secret = functional_call(_Losses(model), {f"model.{name}": leaf for name, leaf in leaves.items()}, (batch,))
    public_terms, added = (
        _gradients(term, leaves, public) for term in ((model.alpha1 * ce).mean(), (batch[CODE_WEIGHT] * secret).mean())
    )
    whole = torch.cat([public_terms[name] for name in public]), torch.cat([added[name] for name in public])
    return {"": _compared(*whole)} | {name: _compared(public_terms[name], added[name]) for name in public}


class _Losses(nn.Module):
    """``DualHead.losses`` as the forward pass that ``functional_call`` runs."""

    def __init__(self, model: DualHead) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Examples) -> tuple[Tensor, Tensor]:
        """Both losses (b,)."""
        return self.model.losses(batch)


def _gradients(loss: Tensor, leaves: Mapping[str, Tensor], names: list[str]) -> dict[str, Tensor]:
    gradients = torch.autograd.grad(
        loss, [leaves[n] for n in names], retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return {name: gradient.flatten() for name, gradient in zip(names, gradients, strict=True)}


def _compared(public: Tensor, added: Tensor) -> Polarization:
    a, b = float(public.norm()), float(added.norm())
    cosine = float(public @ added) / (a * b) if a and b else float("nan")
    return Polarization(ratio=a / b if b else float("inf"), cosine=cosine)
