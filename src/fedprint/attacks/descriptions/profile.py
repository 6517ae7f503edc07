"""The profile prior: find devices that fit a description, without any data of their users (papers.md 2.2; v2, 6.1.1).

The adversary has examples of interest (the query) and other people's data (the background). It trains shadow devices
from the recorded global models, some on background alone and some on background mixed with the query, and learns to
separate the two kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedprint.attacks.adversary.shadow_devices import ShadowDevice, shadow_updates, spread_rounds
from fedprint.attacks.features import ROW_WISE, Block, Updates
from fedprint.attacks.problem import Problem, Validation
from fedprint.attacks.reidentification.reidentify import TIE
from fedprint.attacks.reidentification.ridge import candidate_blocks, choose_kernel, combined, ridge_scores
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.attacks.updates import MemoryUpdates
from fedprint.attacks.view import AttackerView
from fedprint.data.dataset import Task
from fedprint.types import Doubles, Examples, FedprintError, Ints


def has_any(examples: Examples, labels: Sequence[int], task: Task) -> NDArray[np.bool_]:
    """Return which examples (n,) have one of the labels; for texts, which contain one of the words."""
    wanted = torch.tensor(list(labels))
    if task == "multi_label":
        matches = examples["y"][:, wanted].any(1)
    elif task == "single_label":
        matches = torch.isin(examples["y"], wanted)
    else:
        words = examples["y"] if task == "language_model" else examples["x"]
        matches = torch.isin(words, wanted).any(1)
    return np.asarray(matches.numpy(), dtype=bool)


@dataclass(frozen=True, kw_only=True)
class Shadows:
    """Updates of shadow devices: ``positive`` (n,) if it has query examples, ``side`` (n,) the half of the query."""

    updates: MemoryUpdates
    positive: NDArray[np.bool_]
    side: Ints


@dataclass(frozen=True, kw_only=True)
class ShadowSettings:
    """How shadow devices are made: ``devices`` of the background, each once alone and once mixed, at ``rounds`` models.

    The mixed devices have the ``shares`` of query examples in turn.
    """

    devices: int
    rounds: int
    shares: tuple[float, ...]


def make_shadows(
    view: AttackerView, query: Examples, background: Sequence[Examples], settings: ShadowSettings, rng: torch.Generator
) -> Shadows:
    """Train the shadow devices; ``background`` are devices' examples without the profile.

    The two halves of the query go to different devices, so that validation between the sides uses different examples.
    Raises FedprintError when the query has fewer than four examples or the background fewer than four devices.
    """
    n = len(query["x"])
    if n < 4 or len(background) < 4:
        raise FedprintError(
            f"profile: {n} query examples and {len(background)} background devices, at least 4 of each are needed; "
            "choose other labels or a data set with more background"
        )
    halves = torch.tensor_split(torch.randperm(n, generator=rng), 2)
    devices: list[ShadowDevice] = []
    kinds: list[tuple[bool, int]] = []
    for i, plain in enumerate(background[: settings.devices]):
        alone = {"x": plain["x"], "y": plain["y"]}
        mixed = _mix(plain, query, halves[i % 2], settings.shares[(i // 2) % len(settings.shares)], rng)
        for t in spread_rounds(view, settings.rounds):
            devices.append(ShadowDevice(user_id=2 * i, examples=alone, round=t, tag="plain"))
            devices.append(ShadowDevice(user_id=2 * i + 1, examples=mixed, round=t, tag="profile"))
            kinds += [(False, i % 2), (True, i % 2)]
    positive, side = (np.array(column) for column in zip(*kinds, strict=True))
    return Shadows(updates=shadow_updates(view, devices), positive=positive, side=side.astype(np.int64))


def _mix(plain: Examples, query: Examples, half: torch.Tensor, share: float, rng: torch.Generator) -> Examples:
    """Return as many examples as ``plain`` has, ``share`` of them (at least one) drawn from half the query."""
    n = len(plain["y"])
    count = max(1, min(n, round(share * n)))
    drawn = half[torch.randint(len(half), (count,), generator=rng)]
    kept = torch.randperm(n, generator=rng)[: n - count]
    return {name: torch.cat([query[name][drawn], plain[name][kept]]) for name in ("x", "y")}


def background_devices(
    view: AttackerView, labels: Sequence[int], task: Task, rng: torch.Generator
) -> list[dict[str, torch.Tensor]]:
    """Return background examples without the labels, cut into devices of a usual size, in random order."""
    size = int(np.median([len(user.examples["y"]) for user in view.prior_users]))
    devices = []
    for user in view.background:
        plain = torch.from_numpy(np.flatnonzero(~has_any(user.examples, labels, task)))
        parts = [part for part in torch.split(plain, size) if 2 * len(part) >= size]
        devices += [{name: user.examples[name][part] for name in ("x", "y")} for part in parts]
    return [devices[i] for i in torch.randperm(len(devices), generator=rng).tolist()]


def choose_blocks(shadows: Shadows, work: Workspace) -> tuple[tuple[Block, ...], float]:
    """Return the layers, transforms and penalty that separate devices with the profile best, across the two sides."""
    labels = shadows.positive.astype(np.int64)
    folds = []
    for side in (0, 1):
        fit, ask = np.flatnonzero(shadows.side == side), np.flatnonzero(shadows.side != side)
        problem = Problem(updates=shadows.updates, fit=fit, labels=labels[fit], ask=ask, options=2)
        folds.append(Validation(problem=problem, answers=labels[ask]))
    candidates = candidate_blocks(shadows.updates, None, ROW_WISE)
    return choose_kernel(folds, work, candidates, most=2)


def fit_scores(
    shadows: Shadows, joined: Updates, ask: Ints, chosen: tuple[tuple[Block, ...], float], work: Workspace
) -> dict[str, Doubles]:
    """Return how well the rows ``ask`` (q,) of ``joined`` fit the profile, by attack: (q,), higher = better.

    The shadow rows come first in ``joined``. ``ridge`` regresses on the kind of device; ``similarity`` is the mean
    kernel with devices that have the profile minus that with the others.
    """
    rows = np.arange(len(shadows.positive))
    problem = Problem(updates=joined, fit=rows, labels=shadows.positive.astype(np.int64), ask=ask, options=2)
    blocks, penalty = chosen
    kernel = combined(problem, blocks, work)
    regressed = ridge_scores(kernel, problem, penalty)
    near = kernel[ask].astype(np.float64)
    return {
        "ridge": regressed[:, 1] - regressed[:, 0],
        "similarity": near[:, shadows.positive].mean(1) - near[:, ~shadows.positive].mean(1),
    }


def break_ties(scores: Doubles, rng: torch.Generator) -> Doubles:
    """Return scores (q,) plus small random numbers."""
    noise: Doubles = TIE * np.ptp(scores) * torch.rand(len(scores), generator=rng, dtype=torch.float64).numpy()
    broken: Doubles = scores + noise
    return broken


def head_columns(updates: Updates, classes: int) -> Doubles | None:
    """Return how much each class's column of the last layer moved (n, classes), as a share of the row.

    It is the output bias with its sign (a class that the device has more often than the model expects moves up), or,
    where no bias is stored, the norms of the weight columns. None where neither is stored.
    """
    for layer, size in (("head.bias", classes), ("head.weight", None)):
        names = [n for n in updates.layers if n.endswith(layer) and updates.sizes[n] % classes == 0]
        if names and size in (None, updates.sizes[names[0]]):
            return _column_shares(updates, names[0], classes)
    return None


def _column_shares(updates: Updates, name: str, classes: int) -> Doubles:
    values = np.concatenate([np.asarray(block, np.float64) for block in updates.blocks([name])], axis=1)
    if values.shape[1] > classes:
        values = np.linalg.norm(values.reshape(len(values), classes, -1), axis=2)
    shares: Doubles = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-30)
    return shares


def deviations(moved: Doubles, usual: Doubles) -> Doubles:
    """Return how far columns ``moved`` (devices, classes) deviate from ``usual`` (n, classes).

    In units of a class's standard deviation over single updates of devices without the profile, plus the mean of these
    over classes: without the mean a word that none of these devices uses would deviate without bound.
    """
    spread = usual.std(0)
    units: Doubles = (moved - usual.mean(0)) / (spread + spread.mean() + 1e-12)
    return units


def evidence(deviating: Doubles, class_names: Sequence[str], most: int = 3) -> tuple[Mapping[str, Any], ...]:
    """Return for each row of :func:`deviations` (devices, classes) the classes that deviate most upwards."""
    top = np.argsort(-deviating, axis=1, kind="stable")[:, :most]
    return tuple(
        {"classes": [{"name": class_names[c], "deviations": round(float(row[c]), 2)} for c in best.tolist()]}
        for row, best in zip(deviating, top, strict=True)
    )


def combine(first: Doubles, second: Doubles) -> Doubles:
    """Return the sum of two scores (devices,), each standardised over the devices: no label is needed for that."""
    total: Doubles = sum(((s - s.mean()) / max(float(s.std()), 1e-12) for s in (first, second)), np.zeros(len(first)))
    return total
