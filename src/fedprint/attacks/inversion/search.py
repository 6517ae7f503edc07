"""The objective of gradient matching as a function of vectors, for many victims at once.

Letters: v victims, k of them searched together, b images of each, r rounds, C classes, F features, d variables.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor
from torch.func import grad_and_value, vmap
from torch.nn import functional

from fedprint.attacks.inversion.label_counts import likeliest_labels
from fedprint.attacks.inversion.labels import Expected, Rule, check_rule, expected_from, labels_from
from fedprint.attacks.inversion.objectives import Distance, Knowledge, Prior, distance, prior_cost
from fedprint.attacks.inversion.optimisers.starts import Start, start_images
from fedprint.attacks.inversion.simulate import simulation
from fedprint.attacks.inversion.victims import Victims
from fedprint.component import Component
from fedprint.types import FedprintError, Params

PUSH = 0.1
"""Unit of the variables that hold a push, so that a step in them moves gradients about as far as one in the pixels."""


class Objective(Component):
    """The objective of gradient matching.

    ``labels``: known to the adversary, from a rule on the last layer (labels.py), or joint: searched with the images,
    as in deep leakage. ``tv``, ``nats`` and ``box`` are the image prior (objectives.py). ``secret`` says how to treat a
    private head behind the features (SPN): ignore it; leave-out all layers that it reaches and match the public head
    alone; or fit the push that it gives the features of each image, together with the images. ``block`` victims are
    searched together; the last digits of a result depend on it.
    """

    distance: Distance = "l2"
    labels: Literal["known", "row-sum", "sign", "bias", "counts", "joint"] = "row-sum"
    tv: float = Field(default=0.0, ge=0)
    nats: float = Field(default=0.0, ge=0)
    box: float = Field(default=0.0, ge=0)
    secret: Literal["ignore", "leave-out", "fit"] = "ignore"
    block: int = Field(default=32, ge=1)


class Search:
    """Vectors (d,): the pixels, then the logits of joint labels, then the push on the features, image by image.

    ``targets`` (k, b, C) are labels from an earlier search, which replace those of the attack.
    """

    def __init__(
        self,
        attack: Objective,
        victims: Victims,
        index: Tensor,
        knowledge: Knowledge,
        targets: Tensor | None = None,
    ) -> None:
        self._attack, self._victims, self._knowledge = attack, victims, knowledge
        self._index = index.to(next(iter(victims.descents.values())).device)
        self.like = next(iter(victims.descents.values()))
        self.pixels = victims.images * math.prod(victims.shape)
        self._joint = attack.labels == "joint"
        self._logits = victims.images * victims.classes if self._joint else 0
        self._features = _features(victims) if attack.secret == "fit" else 0
        steps = () if victims.steps is None else (len(victims.steps.batches),)
        self._push_shape = (victims.rounds, *steps, victims.images, self._features)
        self._targets = self._known_targets() if targets is None or self._joint else targets.to(self.like)
        self._simulate = simulation(victims.model, multi_label=victims.multi_label, steps=victims.steps)
        dims = (0, None if victims.shared else 0, 0, 0)
        self._derivative = vmap(grad_and_value(self._objective), in_dims=dims)
        self._chosen: tuple[Tensor, tuple[Params, Params, Tensor]] | None = None

    @property
    def fixed(self) -> int:
        """Return the number of variables without the push."""
        return self.pixels + self._logits

    def only(self, rows: Tensor) -> Search:
        """Return the search for some of these victims."""
        return Search(self._attack, self._victims, self._index[rows], self._knowledge, self._targets[rows])

    def start(self, kind: Start, rng: Generator) -> Tensor:
        """Return the start (d,) of one victim, without a push."""
        victims = self._victims
        begin = start_images(kind, victims.images, victims.shape, rng).flatten()
        if self._joint:
            begin = torch.cat([begin, torch.randn(self._logits, generator=rng)])
        return torch.cat([begin, begin.new_zeros(math.prod(self._push_shape))])

    def around(self, images: Tensor, targets: Tensor) -> Tensor:
        """Return points (k, d) with images (k, b, c, h, w) and targets (k, b, C) of all these victims, and no push."""
        parts = [images.flatten(1)]
        if self._joint:
            sure = targets.clamp(1e-6, 1 - 1e-6)
            parts.append((sure.logit() if self._victims.multi_label else sure.log()).flatten(1))
        parts.append(images.new_zeros(len(images), math.prod(self._push_shape)))
        return torch.cat(parts, 1)

    def split(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return images (k, b, c, h, w) and targets (k, b, C) of points (k, d) of all these victims."""
        shape = (len(points), self._victims.images)
        images = points[:, : self.pixels].reshape(*shape, *self._victims.shape)
        if self._joint:
            logits = points[:, self.pixels : self.fixed]
            return images, self._whole(logits.reshape(*shape, -1))
        return images, self._targets

    def __call__(self, points: Tensor, problems: Tensor) -> tuple[Tensor, Tensor]:
        """Return values (k,) and gradients (k, d), for an optimiser."""
        if self._chosen is None or self._chosen[0] is not problems:
            self._chosen = problems, (*self._victims.select(self._index[problems]), self._targets[problems])
        gradients, values = self._derivative(points, *self._chosen[1])
        return values.detach(), gradients.detach()

    def _objective(self, point: Tensor, params: Params, observed: Params, targets: Tensor) -> Tensor:
        attack, count = self._attack, self._victims.images
        x = point[: self.pixels].reshape(count, *self._victims.shape)
        logits = point[self.pixels : self.fixed]
        y = self._whole(logits.reshape(count, -1)) if self._joint else targets
        simulated, observed = self._simulated(params, x, y, point), _by_round(observed, self._victims.rounds)
        if attack.secret == "leave-out":
            simulated, observed = (
                {n: t for n, t in sent.items() if n.startswith("head.")} for sent in (simulated, observed)
            )
        prior = Prior(tv=attack.tv, nats=attack.nats, box=attack.box)
        apart = distance(attack.distance, simulated, observed, masked=self._knowledge.masked)
        return apart + prior_cost(x, prior, self._knowledge, observed, attack.distance)

    def _simulated(self, params: Params, x: Tensor, y: Tensor, point: Tensor) -> Params:
        """Return what the client would have sent; each round has its own names."""
        rounds = self._victims.rounds
        push = None
        if self._features:
            push = PUSH * point[self.fixed :].reshape(self._push_shape)
        if rounds == 1:
            return self._simulate(params, x, y, None if push is None else push[0])
        each = vmap(self._simulate, in_dims=(0, None, None, None if push is None else 0))
        return _by_round(each(params, x, y, push), rounds)

    def _whole(self, logits: Tensor) -> Tensor:
        return logits.sigmoid() if self._victims.multi_label else logits.softmax(-1)

    def _known_targets(self) -> Tensor:
        """Return targets (k, b, C): known ones, those of a rule, or empty ones where they are searched.

        Rules treat zeros and noise as gradients. An adversary that knows of these computes the likeliest labels
        instead.
        """
        victims, labels = self._victims, self._attack.labels
        if labels == "joint":
            return self.like.new_zeros(len(self._index), victims.images, 0)
        if labels == "known":
            if victims.labels is None:
                raise FedprintError("attack.labels: known, but this adversary has no labels; choose row-sum or joint")
            known = victims.labels.to(self.like.device)[self._index]
        elif victims.multi_label:
            raise FedprintError(f"attack.labels: rule '{labels}' is for one label per image; choose known or joint")
        elif self._knowledge.masked or self._knowledge.sigma:
            params, descents = victims.select(self._index)
            known = likeliest_labels(replace(victims, params=params, descents=descents), self._knowledge)
        else:
            known = self._by_rule(labels)
        return known.to(self.like) if victims.multi_label else functional.one_hot(known, victims.classes).to(self.like)

    def _by_rule(self, rule: Rule) -> Tensor:
        """Return labels (k, b)."""
        victims = self._victims
        check_rule(rule, victims.model)
        params, _ = (first := victims.one_round()).select(self._index)
        # An update over -lr is the sum of one gradient per step; rules take the mean.
        steps = 1 if victims.steps is None else len(victims.steps.batches)
        descents = {name: d[self._index] / steps for name, d in victims.averaged().items()}
        expected = expected_of(first, params) if rule == "counts" else None
        return labels_from(rule, descents, victims.images, expected)


def objective_at(attack: Objective, victims: Victims, knowledge: Knowledge, images: Tensor, targets: Tensor) -> Tensor:
    """Return the objective (v,) of ``attack`` at images (v, b, c, h, w) and targets (v, b, C), without a push."""
    values = []
    for index in torch.split(torch.arange(len(victims)), attack.block):
        x, y = (part[index.to(part.device)] for part in (images, targets))
        search = Search(attack, victims, index, knowledge, y)
        points = search.around(x.to(search.like), y.to(search.like))
        values.append(search(points, torch.arange(len(index), device=points.device))[0])
    return torch.cat(values)


def expected_of(victims: Victims, params: Params) -> Expected:
    """Return the outputs of models of ``params`` for a grey image of the victims' shape (labels.py, rule counts)."""
    like = next(iter(params.values()))
    grey = like.new_full((1, *victims.shape), 0.5)
    first = functional.one_hot(torch.zeros(1, dtype=torch.long), victims.classes).to(like)
    each = {name: p[None] for name, p in params.items()} if victims.shared else params
    return expected_from(vmap(simulation(victims.model), in_dims=(0, None, None))(each, grey, first))


def _by_round(sent: Params, rounds: int) -> Params:
    """Return tensors (r, ...) as one tensor per round; those of a single round are unchanged."""
    if rounds == 1:
        return sent
    return {f"{name}.{r}": tensor[r] for name, tensor in sent.items() for r in range(rounds)}


def _features(victims: Victims) -> int:
    """Return F, the inputs of the public head. Raises FedprintError for a model without features."""
    head = getattr(victims.model, "head", None)
    if head is None or not hasattr(victims.model, "features"):
        raise FedprintError(
            f"attack.secret: {type(victims.model).__name__} has no features in front of a head; choose ignore"
        )
    return int(head.in_features)
