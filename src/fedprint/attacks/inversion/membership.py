"""Whether an image is among those of an update: membership of single examples, from recorded updates.

This is not the papers' membership, the labels of reconstructed images (labels.py). Letters: q candidate images, v
victims, b images of each, S shadows. All scores are higher for images that are more likely in the update.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor
from torch.func import vmap

from fedprint.attacks.inversion.alignment import Aligner, as_targets
from fedprint.attacks.inversion.objectives import NAIVE, Knowledge
from fedprint.attacks.inversion.shadows import Client, Shadows, plain
from fedprint.attacks.inversion.simulate import mean_loss
from fedprint.attacks.inversion.victims import Labelled, Victims
from fedprint.component import Component
from fedprint.types import FedprintError, Params

Statistic = Literal["loss", "alignment"]


class Measure(Protocol):
    """A statistic of candidates and descents from one model, float64 on the CPU."""

    def __call__(self, descents: Params, candidates: Labelled) -> Tensor:
        """Return that of each of q candidates with each of the descents (v, ...): (q, v)."""

    def of_own(self, descents: Params, candidates: Labelled) -> Tensor:
        """Return that of each of q candidates with its own s descents, of (q, s, ...): (q, s)."""


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """The adversary's resources: ``public`` images for its shadow clients, and its knowledge of the defence.

    ``client`` is its model of a client (shadows.py); None is an undefended client.
    """

    public: Labelled | None = None
    knowledge: Knowledge = NAIVE
    client: Client | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A statistic of q candidates: ``observed`` (q, v), and (q, S) of shadow clients with the candidate and without.

    ``among`` are the values with the candidate, ``without`` the others. For a member ``observed`` is one more draw of
    ``among``.
    """

    observed: Tensor
    among: Tensor
    without: Tensor

    def log_ratio(self) -> Tensor:
        """Return the log likelihood ratios (q, v)."""
        mean_in, mean_out = self.among.mean(1, keepdim=True), self.without.mean(1, keepdim=True)
        spread = torch.cat([self.among - mean_in, self.without - mean_out], 1).square().mean().clamp(min=1e-30)
        return ((self.observed - mean_out).square() - (self.observed - mean_in).square()) / (2 * spread)


class Membership(Component):
    """``membership``: a score for each candidate and update.

    ``loss``: by how much the candidate's loss falls along the update, over a step of ``rate`` where the update is a
    gradient. ``alignment``: the cosine of its gradient and the update (alignment.py). ``lira`` compares that
    ``statistic`` with what ``shadows`` clients of public images give with the candidate among theirs and without
    (Carlini et al. 2022, algorithm 1): the logarithm of the likelihood ratio of two normal distributions, with one
    variance for all candidates because there are few shadows (their section VI-A). Shadows have every second public
    image, and the alignment removes what is common to the others: images that it already knows stand out less.
    """

    name: Literal["membership"] = "membership"
    score: Literal["loss", "alignment", "lira"] = "lira"
    statistic: Statistic = "alignment"
    shadows: int = Field(default=16, ge=2)
    rate: float = Field(default=0.1, gt=0)

    def run(self, victims: Victims, candidates: Labelled, beliefs: Beliefs | None = None, *, seed: int) -> Tensor:
        """Return scores (q, v). Raises FedprintError where lira has fewer public images than two clients."""
        known = beliefs or Beliefs()
        rounds = [self._of_one_round(victims.one_round(r), candidates, known, seed, r) for r in range(victims.rounds)]
        return torch.stack(rounds).sum(0)

    def _of_one_round(self, victims: Victims, candidates: Labelled, beliefs: Beliefs, *path: int) -> Tensor:
        """Return the scores (q, v) from the updates of one round; ``path`` is that of the randomness."""
        if victims.shared:
            return self._at_one_model(victims, candidates, beliefs, *path)
        ones = [victims.of_one_model(victim) for victim in range(len(victims))]
        columns = [self._at_one_model(one, candidates, beliefs, *path, i) for i, one in enumerate(ones)]
        return torch.cat(columns, 1)

    def _at_one_model(self, victims: Victims, candidates: Labelled, beliefs: Beliefs, seed: int, *path: int) -> Tensor:
        if self.score == "lira":
            return self.evidence(victims, candidates, beliefs, seed=seed, path=path).log_ratio()
        return self._measure(self.score, victims, beliefs)(victims.descents, candidates)

    def evidence(
        self, victims: Victims, candidates: Labelled, beliefs: Beliefs, *, seed: int, path: tuple[int, ...] = ()
    ) -> Evidence:
        """Return the ``statistic`` for victims of one model and round. FedprintError as in :meth:`run`."""
        held, rest = _halves(victims, beliefs)
        measure = self._measure(self.statistic, victims, replace(beliefs, public=rest))
        client = beliefs.client or plain(victims)
        shadows = Shadows(victims=victims, client=client, public=held, count=self.shadows, seed=seed, path=path)
        return Evidence(
            observed=measure(victims.descents, candidates),
            among=torch.cat([measure.of_own(sent, some) for some, sent in shadows.with_first(candidates)]),
            without=measure(shadows.without(), candidates),
        )

    def _measure(self, kind: Statistic, victims: Victims, beliefs: Beliefs) -> Measure:
        if kind == "alignment":
            return Aligner(victims, beliefs.knowledge, beliefs.public)
        return _LossDrop(victims, self.rate if victims.steps is None else victims.steps.lr)


class _LossDrop:
    """By how much the candidates' losses fall from the received model to that of each client."""

    def __init__(self, victims: Victims, rate: float) -> None:
        self._victims, self._rate = victims, rate
        loss = mean_loss(victims.model, multi_label=victims.multi_label)
        self._losses = vmap(loss, in_dims=(None, 0, 0))

    def __call__(self, descents: Params, candidates: Labelled) -> Tensor:
        """Return the drops (q, v), float64 on the CPU."""
        received = self._victims.params
        like = next(iter(received.values()))
        x, targets = candidates.x.to(like)[:, None], as_targets(self._victims, candidates.y, like)[:, None]
        before, columns = self._losses(received, x, targets), []
        for victim in range(len(next(iter(descents.values())))):
            after: Params = {name: p - self._rate * descents[name][victim] for name, p in received.items()}
            columns.append(before - self._losses(after, x, targets))
        return torch.stack(columns, 1).double().cpu()

    def of_own(self, descents: Params, candidates: Labelled) -> Tensor:
        """Return the drops (q, s) of each candidate along its own s descents, of (q, s, ...)."""
        return torch.cat([
            self({name: each[i] for name, each in descents.items()}, candidates[i : i + 1])
            for i in range(len(candidates))
        ])  # fmt: skip


def _halves(victims: Victims, beliefs: Beliefs) -> tuple[Labelled, Labelled]:
    """Return the public images that shadows hold, and the others."""
    public = beliefs.public
    have = 0 if public is None else len(public)
    if public is None or have < 2 * victims.images:
        raise FedprintError(
            f"attack.score: lira needs {2 * victims.images} public images or more, not {have}; choose alignment"
        )
    return public[::2], public[1::2]
