"""The background's modes for ``mm-aug``: features that the experiment asks for, clustered, kept beside the store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedprint.data.clusters import Features, cluster, pixel_features, text_features
from fedprint.data.dataset import TEXT_TASKS, Meta
from fedprint.data.examples import CLUSTER, concat
from fedprint.data.formats.files import npz_bytes, read_arrays, write_atomic, write_json
from fedprint.defences.on_data import MmAug
from fedprint.kinds.federation.building import federation as build
from fedprint.kinds.federation.config import Experiment
from fedprint.models.base import FedModule, quiet_trainer
from fedprint.models.batches import ShuffledBatches
from fedprint.models.components import MobileNet
from fedprint.models.inputs import model_input
from fedprint.models.networks import build_network
from fedprint.rng import seed_for, torch_rng
from fedprint.types import Examples, FedprintError, Floats, User

EPOCHS = 3
"""Epochs of the task's model on the background whose activations ``features: model`` are."""
_FILE = "clusters.npz"


def write_clusters(
    out: Path, config: Experiment, meta: Meta, background: Sequence[User], seed: int, device: str = "cpu"
) -> None:
    """Write the public clusters: the mode of each background example where ``mm-aug`` asks for modes.

    ``background`` as prepared; networks compute on a ``device`` (cpu, cuda). A folder that is there is replaced. Raises
    FedprintError where the features do not fit the data, or where there are more clusters than examples.
    """
    shutil.rmtree(out, ignore_errors=True)
    asked = next((defence for defence in config.defences if isinstance(defence, MmAug)), None)
    sizes: list[int] = []
    if asked is not None and background:
        examples = concat([user.examples for user in background])
        features = _features(asked, config, meta, examples, seed, device)
        modes = cluster(features, asked.clusters, seed_for(seed, "clusters"))
        sizes = sorted(np.bincount(modes).tolist())
        write_atomic(out / _FILE, npz_bytes({CLUSTER: modes}))
    shown = dict(zip(("least", "median", "most"), _three(sizes), strict=True))
    write_json(out / "clusters.json", {"clusters": len(sizes), "examples_per_cluster": shown if sizes else None})


def with_clusters(background: Sequence[User], folder: Path) -> tuple[User, ...]:
    """Return the background users with the column ``cluster`` where ``folder`` (updates/.../public) has clusters."""
    if not (folder / _FILE).is_file():
        return tuple(background)
    column = torch.from_numpy(read_arrays(folder / _FILE)[CLUSTER])
    sizes = [len(user.examples["y"]) for user in background]
    if sum(sizes) != len(column):
        raise FedprintError(
            f"{folder / _FILE}: clusters of {len(column)} examples for {sum(sizes)}; run the stage federate again"
        )
    parts = torch.split(column, sizes)
    return tuple(
        replace(user, examples={**user.examples, CLUSTER: part}) for user, part in zip(background, parts, strict=True)
    )


def _three(sizes: Sequence[int]) -> tuple[Any, Any, Any]:
    return (sizes[0], float(np.median(sizes)), sizes[-1]) if sizes else (None, None, None)


def _features(asked: MmAug, config: Experiment, meta: Meta, examples: Examples, seed: int, device: str) -> Features:
    text = meta.task in TEXT_TASKS
    kind = asked.features if asked.features != "auto" else ("tfidf" if text else "pixels")
    if kind == "model":
        return _learned(config, meta, examples, seed, device)
    if text != (kind == "tfidf"):
        holds, fitting = ("texts", "tfidf") if text else ("pictures", "pixels")
        raise FedprintError(f"defences.mm-aug.features: {meta.name} holds {holds}, not for {kind}; use {fitting}")
    if kind == "tfidf":
        # the targets of a next-word model hold every word of a sentence, its inputs all but the last
        return text_features(examples["y"] if meta.task == "language_model" else examples["x"])
    return pixel_features(examples["x"]) if kind == "pixels" else _imagenet(asked, config, examples["x"], device)


def _learned(config: Experiment, meta: Meta, examples: Examples, seed: int, device: str) -> Features:
    """Return penultimate activations (n, hidden) of the experiment's model after :data:`EPOCHS` on the background."""
    ready = model_input(examples, build.DTYPES[config.federation.dtype], model=config.model)
    model = build.build_model(config, meta, [User(user_id=0, examples=ready)], seed_for(seed, "cluster-model"))
    batches = ShuffledBatches({name: ready[name] for name in ("x", "y")}, 32, torch_rng(seed, "cluster-batches"))
    quiet_trainer(EPOCHS).fit(model, batches.loader())
    return _activations(model.to(device), ready["x"])


def _imagenet(asked: MmAug, config: Experiment, images: Tensor, device: str) -> Features:
    """Return penultimate activations of a MobileNet with trained weights: those of the defence or of the model."""
    network = config.model if isinstance(config.model, MobileNet) else MobileNet(normalisation="frozen")
    network = network.model_copy(update={"weights": asked.weights or network.weights})
    if network.weights is None:
        raise FedprintError("defences.mm-aug.weights: imagenet features need a file of trained weights; or use pixels")
    model = build_network(network, (3, *images.shape[2:]), 2, False)
    model.reset(torch_rng(0, "cluster-model"))  # all but the head comes from the file
    return _activations(model.to(device), images.expand(-1, 3, -1, -1))


def _feature_function(model: FedModule) -> Callable[[Tensor], Tensor]:
    compute = getattr(model, "features", None)
    if compute is None:
        raise FedprintError("defences.mm-aug.features: this model has no penultimate features; use pixels or tfidf")
    model.eval()
    return compute  # type: ignore[no-any-return]


def _activations(model: FedModule, x: Tensor) -> Floats:
    compute, device = _feature_function(model), next(model.parameters()).device
    with torch.no_grad():
        inputs = (part.float() / 255 if part.dtype == torch.uint8 else part for part in torch.split(x, 512))
        parts = [compute(part.to(device)).cpu() for part in inputs]
    return torch.cat(parts).float().numpy()
