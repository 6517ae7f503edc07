"""The Secret Polarization Network: a second head that never leaves the client (papers.md 4.3; spn, section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedprint.data.examples import CODE, CODE_WEIGHT
from fedprint.models.base import FedModule, initialise
from fedprint.models.convnets import ImageClassifier
from fedprint.types import Examples, FedprintError, Params

SECRET = "secret_head"


def polarization_loss(v: Tensor, codes: Tensor, margin: float = 1.0) -> Tensor:
    """Return ``L_P = sum_k max(m - v_k t_k, 0)`` of each example: (b,), for ``v`` and ``codes`` (b, K) (spn, eq. 18).

    ``codes`` are those of the example's own class (erratum 5). For margins of at least 1 and codes of +-1 it bounds the
    Hamming distance between the signs of ``v`` and the code from above (spn, lemma 5.5).
    """
    return torch.relu(margin - v * codes).sum(1)


class DualHead(FedModule):
    """A classifier with its public head and a private one of ``bits`` outputs: ``alpha1 * CE + alpha2 * L_P``.

    The layers of the public network keep their names, so whoever sees an update sees the same layers with and without
    this defence. Codes and alpha2 are columns of a device's examples (``code`` (n, K), ``code_weight`` (n,)): they
    belong to the device. A batch without them trains, and is scored, as the public network alone.
    """

    private_prefixes = (SECRET,)

    def __init__(self, public: FedModule, *, bits: int, alpha1: float = 1.0, margin: float = 1.0) -> None:
        super().__init__()
        if not isinstance(public, ImageClassifier):
            raise FedprintError(
                f"defences.spn: {type(public).__name__} has no classes with a code each; a next-word model would need "
                "one per word of the text, a regression has none: choose an image classifier"
            )
        self.alpha1, self.margin = alpha1, margin
        self.central_lr = public.central_lr
        # Outside the module tree, or every public name would change: its layers are ours.
        self._public = (public,)
        for name, layer in public.named_children():
            self.add_module(name, layer)
        self.secret_head = nn.Linear(public.head.in_features, bits)

    @property
    def public(self) -> ImageClassifier:
        """The network that the server knows; it shares its tensors with this one."""
        return self._public[0]

    def reset(self, rng: torch.Generator) -> None:
        """Set the public parameters as without this defence; private ones are zero until a client draws its own."""
        self.public.reset(rng)
        with torch.no_grad():
            for parameter in self.secret_head.parameters():
                parameter.zero_()

    def draw_private(self, rng: torch.Generator) -> dict[str, Tensor]:
        """Return the private parameters with which one client begins.

        Where the public network starts uniform in +-bound this head does too (spn, table 2: one rule for all weights).
        """
        fresh = nn.Linear(self.secret_head.in_features, self.secret_head.out_features)
        initialise(fresh, rng)
        if (bound := self.public.bound) is not None:
            with torch.no_grad():
                for parameter in fresh.parameters():
                    parameter.uniform_(-bound, bound, generator=rng)
        return {f"{SECRET}.{name}": p.detach().to(self.secret_head.weight) for name, p in fresh.named_parameters()}

    def scores(self, x: Tensor) -> Tensor:
        """Class scores (b, classes) of the public head."""
        return self.public.scores(x)

    def bits(self, x: Tensor) -> Tensor:
        """Outputs v (b, K) of the private head."""
        out: Tensor = self.secret_head(self.public.features(x))
        return out

    def losses(self, batch: Examples) -> tuple[Tensor, Tensor]:
        """Return cross-entropy and polarization loss of each example, (b,) each, without their weights."""
        features = self.public.features(batch["x"])
        public = self.public.loss_of(self.public.head(features), batch["y"])
        return public, polarization_loss(self.secret_head(features), batch[CODE], self.margin)

    def per_example_loss(self, batch: Examples) -> Tensor:
        """``alpha1 * CE + alpha2 * L_P`` (b,); the public loss alone for a device without codes."""
        if CODE not in batch:
            return self.public.per_example_loss(batch)
        public, secret = self.losses(batch)
        return self.alpha1 * public + batch[CODE_WEIGHT] * secret

    def per_example_utility(self, batch: Examples) -> Tensor:
        """What the public head predicts."""
        return self.public.per_example_utility(batch)


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
    own, added = (
        _gradients(term, leaves, public) for term in ((model.alpha1 * ce).mean(), (batch[CODE_WEIGHT] * secret).mean())
    )
    whole = torch.cat([own[name] for name in public]), torch.cat([added[name] for name in public])
    return {"": _compared(*whole)} | {name: _compared(own[name], added[name]) for name in public}


class _Losses(nn.Module):
    """``DualHead.losses`` as the forward pass that ``functional_call`` runs."""

    def __init__(self, model: DualHead) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Examples) -> tuple[Tensor, Tensor]:
        """Both losses (b,)."""
        return self.model.losses(batch)


def _gradients(loss: Tensor, leaves: Mapping[str, Tensor], names: list[str]) -> dict[str, Tensor]:
    found = torch.autograd.grad(
        loss, [leaves[n] for n in names], retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return {name: gradient.flatten() for name, gradient in zip(names, found, strict=True)}


def _compared(own: Tensor, added: Tensor) -> Polarization:
    a, b = float(own.norm()), float(added.norm())
    cosine = float(own @ added) / (a * b) if a and b else float("nan")
    return Polarization(ratio=a / b if b else float("inf"), cosine=cosine)
