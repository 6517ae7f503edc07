"""Recorded updates of a federation as victims of reconstruction, from what the server knows and set itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import torch
from torch import Generator, Tensor

from fedprint.attacks.inversion.matching import GradientMatching
from fedprint.attacks.inversion.objectives import NAIVE, Knowledge
from fedprint.attacks.inversion.simulate import LocalSteps, as_descent, local_batches
from fedprint.attacks.inversion.victims import Victims
from fedprint.attacks.view import AttackerView
from fedprint.defences.on_update import DpFedAvg, DpLocal, Laplace, Noise, Quantise, Sign, TopK
from fedprint.defences.points import Defence
from fedprint.defences.secret_head import secret_head
from fedprint.models.convnets import ImageClassifier
from fedprint.models.dual_head import DualHead
from fedprint.params import add
from fedprint.types import FedprintError, Ints, LocalTraining, Params


@dataclass(frozen=True, kw_only=True)
class Sender:
    """The updates of one device, ``rows`` (r,) of the store in order of their rounds; the device has ``images``."""

    rows: tuple[int, ...]
    images: int
    pseudonym: str


@dataclass(frozen=True, kw_only=True)
class Group:
    """Senders that can be searched together: with the same number of images and the same learning rate."""

    senders: tuple[Sender, ...]
    victims: Victims
    lr: float


def senders_of(view: AttackerView, rounds: int) -> list[Sender]:
    """Return the anonymous devices by their first ``rounds`` updates: fewest images first, then the earliest.

    Updates of few images and of early models reveal most. Raises FedprintError where no device sent as many updates.
    """
    index = view.store.index.iloc[view.anonymous_rows].assign(row=view.anonymous_rows).sort_values(["round", "row"])
    senders = [
        Sender(
            rows=tuple(part["row"].tolist()[:rounds]),
            images=int(part["num_examples"].iloc[0]),
            pseudonym=str(pseudonym),
        )
        for pseudonym, part in index.groupby("pseudonym", sort=True)
        if len(part) >= rounds
    ]
    if not senders:
        raise FedprintError(f"rounds={rounds}: no anonymous device sent as many updates; lower it")
    return sorted(senders, key=lambda sender: (sender.images, sender.rows))


def groups_of(view: AttackerView, senders: Sequence[Sender], shape: tuple[int, int, int], classes: int) -> list[Group]:
    """Return the senders as victims, with models and local training as the server set them.

    Raises FedprintError for local training that this attack cannot unroll, and for layers that were not recorded.
    """
    if missing := set(view.store.layout.shapes) - set(view.store.layers):
        raise FedprintError(
            f"store.layers: {', '.join(sorted(missing))} were not recorded; record all (store.layers=all) and run anew"
        )
    model, rounds = public_network(view), view.store.index["round"].to_numpy()
    alike: dict[tuple[int, float], list[Sender]] = {}
    for sender in senders:
        rates = {view.training[rounds[row]].lr for row in sender.rows}
        if len(rates) > 1 and _steps(view.training[0], sender.images):
            raise FedprintError(
                f"rounds={len(sender.rows)}: the learning rate changes between these rounds; reconstruct from rounds=1"
            )
        alike.setdefault((sender.images, view.training[rounds[sender.rows[0]]].lr), []).append(sender)
    return [
        Group(senders=tuple(some), victims=_victims(view, model, some, shape, classes), lr=lr)
        for (_, lr), some in alike.items()
    ]


def public_network(view: AttackerView) -> ImageClassifier:
    """Return the network that the server knows. Raises FedprintError where its inputs are not images."""
    model = view.model.public if isinstance(view.model, DualHead) else view.model
    if not isinstance(model, ImageClassifier):
        raise FedprintError(
            f"model: {type(model).__name__} does not take images; nothing here can reconstruct its input"
        )
    return model


def knowledge_of(view: AttackerView, lr: float) -> Knowledge:
    """Return the adversary's knowledge of the defence of descents: the noise of an update divided by ``lr``.

    Where devices choose a strength, the adversary assumes the mean of the possible values.
    """
    defences = view.defences or ()
    masked = any(isinstance(d, TopK) and _mean(d.share) < 1 for d in defences)
    variance = sum(_noise(d) ** 2 for d in defences)
    if not (masked or variance or secret_head(defences)):
        return NAIVE
    return Knowledge(sigma=variance**0.5 / lr, masked=masked, secret_head=secret_head(defences) is not None)


def in_orders(victims: Victims, count: int, rng: Generator) -> list[Victims]:
    """Return the victims with ``count`` different orders of their local batches, or with all orders if there are fewer.

    A client shuffles its images and the server does not learn the order; the first order is that of the labels. Where
    every step takes all images there is only one order.
    """
    steps = victims.steps
    if steps is None or all(len(batch) == victims.images for batch in steps.batches):
        return [victims]
    most = math.factorial(victims.images) if victims.images < 6 else count
    orders = {tuple(range(victims.images)): None}
    while len(orders) < min(count, most):
        orders[tuple(torch.randperm(victims.images, generator=rng).tolist())] = None
    return [
        replace(victims, steps=replace(steps, batches=tuple(tuple(order[i] for i in batch) for batch in steps.batches)))
        for order in orders
    ]


def fitting(attack: GradientMatching, view: AttackerView, images: int) -> GradientMatching:
    """Return the attack with the labels and the distance that suit updates of so many ``images``.

    Labels of several images are counted. Multi-hot labels are searched with the image. Where the last layer's inputs
    are signed, counts are not possible and the bias is used. An adversary that knows that updates are clipped or
    rounded, and so have lost their length, compares directions.
    """
    model, update = public_network(view), {}
    if attack.labels == "row-sum":
        signed = getattr(model, "activation", None) is torch.tanh
        if model.multi_label:
            update["labels"] = "joint"
        elif images > 1:
            update["labels"] = "bias" if signed else "counts"
        elif signed:
            update["labels"] = "sign"
    if any(isinstance(d, DpLocal | DpFedAvg | Quantise | Sign) for d in view.defences or ()):
        update["distance"] = "cosine"
    return attack.model_copy(update=update)


def _victims(
    view: AttackerView, model: ImageClassifier, senders: Sequence[Sender], shape: tuple[int, int, int], classes: int
) -> Victims:
    rounds = view.store.index["round"].to_numpy()
    received = [[_received(view, row, rounds) for row in sender.rows] for sender in senders]
    descents = [
        [as_descent(_update(view, row), view.training[rounds[row]].lr) for row in sender.rows] for sender in senders
    ]
    training, images = view.training[rounds[senders[0].rows[0]]], senders[0].images
    return Victims(
        model=model,
        params=_stacked(received),
        descents=_stacked(descents),
        shape=shape,
        classes=classes,
        images=images,
        rounds=len(senders[0].rows),
        shared=False,
        multi_label=model.multi_label,
        steps=_steps(training, images),
    )


def _steps(training: LocalTraining, images: int) -> LocalSteps | None:
    """Return the local steps on so many images, in the assumed order; None for a single step, which is a gradient.

    Raises FedprintError for an optimiser with a state, except momentum in a single step, which begins at zero.
    """
    each = -(-images // training.batch_size)
    steps = training.epochs * each
    if training.optimiser == "adam" or (training.optimiser != "sgd" and steps > 1):
        raise FedprintError(
            f"federation.optimiser: {steps} local steps of '{training.optimiser}' cannot be unrolled; plain sgd can"
        )
    if steps == 1:
        return None
    return LocalSteps(
        batches=local_batches(images, steps, training.batch_size, lambda _: range(images)), lr=training.lr
    )


def _update(view: AttackerView, row: int) -> Params:
    flat = torch.from_numpy(view.store.matrix(rows=np.array([row]))[0])
    shapes = view.store.layout.shapes
    return {name: flat[part].reshape(shapes[name]) for name, part in view.store.columns().items()}


def _received(view: AttackerView, row: int, rounds: Ints) -> Params:
    """Return the model that the sender of ``row`` received: the round's, plus earlier updates if devices take turns."""
    model = {name: tensor.float() for name, tensor in view.store.global_params(int(rounds[row])).items()}
    if not view.rule.in_turn:
        return model
    before = np.flatnonzero(rounds[:row] == rounds[row])
    return reduce(add, (_update(view, int(earlier)) for earlier in before), model)


def _stacked(each: Sequence[Sequence[Params]]) -> dict[str, Tensor]:
    """Return parameters (v, r, ...), or (v, ...) of a single round."""
    whole = {name: torch.stack([torch.stack([one[name] for one in rounds]) for rounds in each]) for name in each[0][0]}
    return whole if len(each[0]) > 1 else {name: tensor[:, 0] for name, tensor in whole.items()}


def _noise(defence: Defence) -> float:
    """Return the standard deviation of the noise that a defence adds to each entry of an update on the device."""
    if isinstance(defence, Noise | Laplace):
        return _mean(defence.sigma)
    return _mean(defence.z) * defence.clip if isinstance(defence, DpLocal) else 0.0


def _mean(value: float | tuple[float, ...]) -> float:
    return float(np.mean(value))
