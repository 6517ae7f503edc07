"""``fedprint reconstruct``: images from the recorded updates of a finished run, their senders and labels.

Inversion experiments compute gradients; here a federation did. The adversary has the store and what the server knows
(attacks/view.py). Only the judge reads the senders and the images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedprint.attacks.inversion.adaptive import better, reconstruct
from fedprint.attacks.inversion.closed_form import ClosedForm
from fedprint.attacks.inversion.labels import labels_from
from fedprint.attacks.inversion.matching import GradientMatching
from fedprint.attacks.inversion.membership import Beliefs, Membership
from fedprint.attacks.inversion.recorded import Group, Sender, fitting, groups_of, in_orders, knowledge_of, senders_of
from fedprint.attacks.inversion.victims import Labelled
from fedprint.attacks.view import AttackerView
from fedprint.data.examples import concat
from fedprint.defences.secure_aggregation import secure_aggregation
from fedprint.kinds.federation.building.view import open_view
from fedprint.kinds.federation.config import Experiment
from fedprint.kinds.inversion.config import Adversaries, Inversion
from fedprint.kinds.jobs import JobSettings
from fedprint.lab.graph import Task
from fedprint.lab.progress import meter
from fedprint.rng import seed_for, torch_rng
from fedprint.types import AdversaryName, FedprintError, User

SCORES: tuple[Literal["alignment", "loss"], ...] = ("alignment", "loss")
"""Of membership: ratios over shadows would train clients for every candidate and update."""


class RecordedInversion(JobSettings):
    """What is attacked and how: ``updates`` devices, by ``rounds`` of their updates each.

    Devices with the fewest images come first. Of local training in several batches it tries ``orders`` of the images,
    and keeps for each device what explains its update best. ``public`` images of the adversary's (background users', or
    its own) show it what gradients of any images have in common; ``strangers`` are images that no attacked update
    holds, against which membership is measured.
    """

    attack: Inversion = GradientMatching(evaluations=600)
    updates: int = Field(default=8, ge=2)
    rounds: int = Field(default=1, ge=1)
    orders: int = Field(default=4, ge=1)
    adversaries: Adversaries = ("naive", "adaptive")
    public: int = Field(default=64, ge=1)
    strangers: int = Field(default=200, ge=1)
    seed: int = 0


class RecordedSettings(JobSettings):
    """A finished federation's ``experiment``, and what is attacked of its records."""

    experiment: Experiment
    inversion: RecordedInversion


@dataclass(frozen=True, kw_only=True)
class Reconstructed:
    """The results of an adversary on one device's update: ``images`` (b, c, h, w) in [0, 1], ``raw`` as searched.

    ``labels`` (b,), empty for images of several classes; ``alignment`` and ``loss`` (q,) score the candidate images.
    """

    images: Tensor
    raw: Tensor
    labels: Tensor
    alignment: Tensor
    loss: Tensor


def attacked(task: Task, config: RecordedInversion) -> tuple[Sender, ...]:
    """Return the devices that are attacked. Raises FedprintError where the server saw no single update."""
    if secure_aggregation(task.config.defences):
        raise FedprintError(
            "defences.secure-aggregation: the server saw sums of updates, none of one device to reconstruct from"
        )
    view, _ = open_view(task, "naive")
    return tuple(senders_of(view, config.rounds)[: config.updates])


def attack_as(
    adversary: AdversaryName, task: Task, config: RecordedInversion, senders: Sequence[Sender], candidates: Labelled
) -> dict[str, Reconstructed]:
    """Return the results of an adversary by pseudonym; ``candidates`` are images with labels that it looks for."""
    view, _ = open_view(task, adversary)
    channels, height, width = view.prior_users[0].examples["x"].shape[1:]
    classes = int(view.store.layout.shapes["head.bias"][0])
    groups = groups_of(view, senders, (channels, height, width), classes)
    public = public_images(view, config.public, config.seed)
    results: dict[str, Reconstructed] = {}
    with meter(f"reconstruct {task.item}: {adversary}", len(senders)) as bar:
        for group in groups:
            results |= _of_group(group, view, config, public, candidates)
            bar.update(len(results), f"{group.victims.images} images an update")
    return results


def public_images(view: AttackerView, count: int, seed: int) -> Labelled:
    """Return images with labels that the adversary has itself: of background users, or of its own devices."""
    users: tuple[User, ...] = view.background or view.prior_users
    whole = concat([{"x": user.examples["x"], "y": user.examples["y"]} for user in users])
    order = torch.randperm(len(whole["y"]), generator=torch_rng(seed, "public"))[:count]
    return Labelled(x=whole["x"][order], y=whole["y"][order])


def _of_group(
    group: Group, view: AttackerView, config: RecordedInversion, public: Labelled, candidates: Labelled
) -> dict[str, Reconstructed]:
    victims, knowledge = group.victims, knowledge_of(view, group.lr)
    if isinstance(config.attack, ClosedForm):
        raw = config.attack.run(victims.one_round(), knowledge)
        images, targets = raw.clamp(0, 1), labels_from("row-sum", victims.averaged(), 1)
    else:
        attack = fitting(config.attack, view, victims.images)
        seed = seed_for(config.seed, "recorded")
        victims = victims.to(view.device)
        orders = in_orders(victims, config.orders, torch_rng(config.seed, "orders", victims.images))
        result = reduce(better, (reconstruct(attack, one, knowledge, seed=seed) for one in orders))
        images, raw, targets = result.images, result.raw, result.targets.argmax(-1)
    beliefs = Beliefs(public=public, knowledge=knowledge)
    alignment, loss = (Membership(score=score).run(victims, candidates, beliefs, seed=config.seed) for score in SCORES)
    labels = targets[:, :0] if victims.multi_label else targets
    return {
        sender.pseudonym: Reconstructed(
            images=images[index].float().cpu(),
            raw=raw[index].float().cpu(),
            labels=labels[index].cpu(),
            alignment=alignment[:, index],
            loss=loss[:, index],
        )
        for index, sender in enumerate(group.senders)
    }
