"""The Secret Polarization Network: a second head that never leaves the client (papers.md 4.3; spn, section 3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedprint.data.examples import CODE, CODE_WEIGHT
from fedprint.models.base import FedModule, initialise
from fedprint.models.convnets import ImageClassifier
from fedprint.types import Examples, FedprintError

SECRET = "secret_head"


def polarization_loss(v: Tensor, codes: Tensor, margin: float = 1.0) -> Tensor:
    """Return ``L_P = sum_k max(m - v_k t_k, 0)`` of each example: (b,), for ``v`` and ``codes`` (b, K) (spn, eq. 18).

    ``codes`` are those of the example's class (papers.md, erratum 5). For margins of at least 1 and codes of +-1 it
    bounds the Hamming distance between the signs of ``v`` and the code from above (spn, lemma 5.5).
    """
    return torch.relu(margin - v * codes).sum(1)


class DualHead(FedModule):
    """A classifier with its public head and a private one of ``bits`` outputs: ``alpha1 * CE + alpha2 * L_P``.

    The layers of the public network keep their names, so an update has the same layers with and without this defence.
    Codes and alpha2 belong to a device: they are columns of its examples (``code`` (n, K), ``code_weight`` (n,)). A
    batch without them trains and scores the public network alone.
    """

    private_prefixes = (SECRET,)

    def __init__(self, public: FedModule, *, bits: int, alpha1: float = 1.0, margin: float = 1.0) -> None:
        super().__init__()
        if not isinstance(public, ImageClassifier):
            raise FedprintError(
                f"defences.spn: {type(public).__name__} has no classes that could have a code each; choose an image "
                "classifier"
            )
        self.alpha1, self.margin = alpha1, margin
        self.central_lr, self.channels_last = public.central_lr, public.channels_last
        # In a tuple, so that it is no submodule and the public names stay; its layers become ours.
        self._public = (public,)
        for name, layer in public.named_children():
            self.add_module(name, layer)
        self.secret_head = nn.Linear(public.head.in_features, bits)

    @property
    def public(self) -> ImageClassifier:
        """The network that the server knows; both networks share their tensors."""
        return self._public[0]

    def reset(self, rng: torch.Generator) -> None:
        """Set the public parameters as without this defence; the private ones are zero until a client draws them."""
        self.public.reset(rng)
        with torch.no_grad():
            for parameter in self.secret_head.parameters():
                parameter.zero_()

    def draw_private(self, rng: torch.Generator) -> dict[str, Tensor]:
        """Draw the private parameters with which one client begins.

        If the public network starts uniform in +-bound, so does this head (spn, table 2: one rule for all weights).
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
        """``alpha1 * CE + alpha2 * L_P`` (b,); for a device without codes the public loss alone."""
        if CODE not in batch:
            return self.public.per_example_loss(batch)
        public, secret = self.losses(batch)
        return self.alpha1 * public + batch[CODE_WEIGHT] * secret

    def per_example_utility(self, batch: Examples) -> Tensor:
        """What the public head predicts."""
        return self.public.per_example_utility(batch)
