"""The messages of victims under a mechanism, and apart from them the truth, which only the judge may know."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from fedprint.attacks.inversion.simulate import as_descent, local_batches
from fedprint.attacks.inversion.victims import Labelled
from fedprint.data.examples import take
from fedprint.data.sources.labelled_images import LabelledSet
from fedprint.defences.points import defend_data, defend_update, settle
from fedprint.federation.gradient_rounds import client_gradient, private_start
from fedprint.kinds.federation.building.federation import parameters_of
from fedprint.kinds.images import client, network_of
from fedprint.kinds.inversion.config import LocalSgd
from fedprint.kinds.inversion.settings import ExposureSettings
from fedprint.models.base import FedModule
from fedprint.params import add, flatten
from fedprint.rng import seed_for, torch_rng
from fedprint.types import Examples, FedprintError, Params

GRADIENTS, SETTING, MECHANISM = "gradients.safetensors", "setting.json", "mechanism.json"
IMAGES, PERTURBATION = "images.safetensors", "perturbation.json"
LEVELS = tuple(round(float(level), 3) for level in np.linspace(0.01, 0.99, 50))
"""Levels of the quantiles of a layer's entries, from the first to the last per cent."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One victim: ``params`` received, the ``clean`` descent on the public loss, and what was ``sent``.

    A descent is a gradient, or the update of local training over minus its rate.
    """

    params: Params
    clean: Params
    sent: Params


def expose(settings: ExposureSettings, images: LabelledSet, paths: Mapping[str, Path]) -> None:
    """Write observed/ (what a server sees), public/ (the mechanism), truth/, and the images that the adversary has.

    queries/ are to be traced; candidates/, with labels, are to be looked for in the first gradients, and lie beside
    public images.
    """
    (x, y), others = attacked(images, settings), beside(images, settings)
    victims = [_victim(settings, images, number, x[number], y[number]) for number in range(settings.victims)]
    for name in ("observed", "public", "truth", "queries", "candidates"):
        paths[name].mkdir(parents=True, exist_ok=True)
    seen = {f"{kind}.{name}": t for kind in ("params", "sent") for name, t in _stacked(victims, kind).items()}
    save_file(seen, paths["observed"] / GRADIENTS)
    setting = {
        "network": settings.network.model_dump(mode="json"),
        "shape": images.shape,
        "classes": len(images.class_names),
        "images": settings.batch,
        "local": None if settings.local is None else settings.local.model_dump(mode="json"),
    }
    _write(paths["observed"] / SETTING, setting)
    _write(paths["public"] / MECHANISM, [defence.model_dump(mode="json") for defence in settings.defences])
    blind = images.test_x.mean(0)
    order = torch.randperm(x.shape[0] * x.shape[1], generator=torch_rng(settings.seed, "queries"))
    strangers = settings.candidates.strangers(settings.victims)
    inside = x[: settings.candidates.searched(settings.victims)].flatten(0, 1)
    candidates = torch.randperm(len(inside) + strangers, generator=torch_rng(settings.seed, "candidates"))
    asked = _asked(settings, candidates)
    truth = {"x": x, "y": y, "blind": blind, "order": order, "candidates": candidates, "asked": asked}
    save_file(truth, paths["truth"] / IMAGES)
    save_file({"x": x.flatten(0, 1)[order].contiguous()}, paths["queries"] / IMAGES)
    held = {
        "x": torch.cat([inside, others.x[:strangers]])[candidates],
        "y": torch.cat([y.flatten()[: len(inside)], others.y[:strangers]])[candidates],
        "public_x": others.x[strangers:].contiguous(),
        "public_y": others.y[strangers:].contiguous(),
        "asked": asked,
    }
    save_file(held, paths["candidates"] / IMAGES)
    measured = {"victims": [perturbation(victim) for victim in victims], "layers": distributions(victims)}
    _write(paths["truth"] / PERTURBATION, measured)


def _asked(settings: ExposureSettings, candidates: Tensor) -> Tensor:
    """Return which candidates (k, v) are asked about one by one: some members of each gradient, or all, and strangers.

    ``candidates`` (q,) are their numbers: first the images of all gradients that are searched, then the strangers.
    """
    searched = settings.candidates.searched(settings.victims)
    inside, position = searched * settings.batch, torch.argsort(candidates)
    few, others = settings.candidates.asked(settings.batch)
    columns = []
    for victim in range(searched):
        rng = torch_rng(settings.seed, "asked", victim)
        members = victim * settings.batch + torch.randperm(settings.batch, generator=rng)[:few]
        strangers = inside + torch.randperm(len(candidates) - inside, generator=rng)[:others]
        both = torch.cat([members, strangers])
        columns.append(position[both[torch.randperm(len(both), generator=rng)]])
    return torch.stack(columns, 1)


def attacked(images: LabelledSet, settings: ExposureSettings) -> tuple[Tensor, Tensor]:
    """Return training images (v, b, c, h, w) and labels (v, b): the first of one random order for all cells."""
    order, shape = _drawn(images, settings)[: settings.victims * settings.batch], (settings.victims, settings.batch)
    return images.x[order].reshape(*shape, *images.shape), images.y[order].reshape(shape)


def beside(images: LabelledSet, settings: ExposureSettings) -> Labelled:
    """Return the next images of that order, of the same kind and in no gradient: strangers, then public ones."""
    order = _drawn(images, settings)[settings.victims * settings.batch :]
    return Labelled(x=images.x[order], y=images.y[order])


def _drawn(images: LabelledSet, settings: ExposureSettings) -> Tensor:
    """Return the indices of all images that an exposure needs; FedprintError where there are too few."""
    inside, strangers = settings.victims * settings.batch, settings.candidates.strangers(settings.victims)
    if wrong := settings.candidates.lacking(len(images.y), settings.victims, settings.batch):
        raise FedprintError(wrong)
    count = inside + strangers + settings.candidates.public
    return torch.randperm(len(images.y), generator=torch_rng(settings.seed, "attacked"))[:count]


def perturbation(victim: Sent) -> dict[str, object]:
    """Return ``ratio`` = |B| / |E_B| over all layers, None without E_B, and (ratio, cosine) of both per layer with one.

    B is the gradient of the public loss, E_B what the mechanism added to it (papers.md 4.1).
    """
    added = add(victim.sent, victim.clean, -1.0)
    size, size_added = float(flatten(victim.clean).norm()), float(flatten(added).norm())
    layers = {
        name: (
            float(victim.clean[name].norm() / tensor.norm()),
            float(torch.cosine_similarity(victim.clean[name].flatten(), tensor.flatten(), dim=0)),
        )
        for name, tensor in added.items()
        if bool((tensor != 0).any())
    }
    return {"ratio": size / size_added if size_added else None, "layers": layers}


def distributions(victims: Sequence[Sent]) -> dict[str, dict[str, list[float]]]:
    """Return quantiles at :data:`LEVELS` of the entries of B (``gradient``) and of E_B (``added``), layer by layer.

    Over all victims; layers with a perturbation only (papers.md 4.3).
    """
    quantiles = {}
    for name in victims[0].clean:
        clean = torch.stack([victim.clean[name] for victim in victims])
        added = torch.stack([victim.sent[name] for victim in victims]) - clean
        if bool((added != 0).any()):
            quantiles[name] = {"gradient": _quantiles(clean), "added": _quantiles(added)}
    return quantiles


def _quantiles(tensor: Tensor) -> list[float]:
    quantiles: list[float] = np.quantile(tensor.numpy(), LEVELS).tolist()
    return quantiles


def _victim(settings: ExposureSettings, images: LabelledSet, number: int, x: Tensor, y: Tensor) -> Sent:
    """Compute the message of one victim, whose network has random weights of its own."""
    model = network_of(settings.network, images.shape, len(images.class_names), settings.defences)
    model.reset(torch_rng(settings.seed, "network", number))
    shared, seed = parameters_of(model), seed_for(settings.seed, "victim")
    plain = client("victim", number, x, y)
    (device,) = defend_data([plain], settings.defences, {}, seed)
    order = seed_for(seed, "batches", number)
    clean = descent(model, shared, {}, plain.examples, settings.local, order)
    defended = descent(model, shared, private_start(model, device, seed), device.examples, settings.local, order)
    return Sent(
        params=shared,
        clean=clean,
        sent=defend_update(defended, settle(settings.defences, device.device_id, seed), seed, 0, device.device_id),
    )


def descent(
    model: FedModule, shared: Params, private: Params, examples: Examples, local: LocalSgd | None, seed: int
) -> Params:
    """Return the gradient of ``examples`` for the shared parameters or, after local training, the update over ``-lr``.

    Private parameters train along and stay. Each epoch goes through the examples in an order of its own.
    """
    if local is None:
        return client_gradient(model, shared, private, examples)[0]
    count, now, kept = len(examples["y"]), shared, private

    def shuffled(epoch: int) -> list[int]:
        order: list[int] = torch.randperm(count, generator=torch_rng(seed, epoch)).tolist()
        return order

    for batch in local_batches(count, local.steps, local.batch_size, shuffled):
        gradient, secret = client_gradient(model, now, kept, take(examples, torch.tensor(batch)))
        now, kept = add(now, gradient, -local.lr), add(kept, secret, -local.lr)
    return as_descent(add(now, shared, -1.0), local.lr)


def _stacked(victims: list[Sent], kind: str) -> dict[str, Tensor]:
    each = [getattr(victim, kind) for victim in victims]
    return {name: torch.stack([one[name] for one in each]) for name in each[0]}


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
