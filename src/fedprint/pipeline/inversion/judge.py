"""Attacks beside the truth: one number per image of everything that is measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from fedprint.evaluation import reconstruction as measure
from fedprint.pipeline.inversion.attack import FOUND, TRACED
from fedprint.pipeline.inversion.victims import IMAGES, PERTURBATION

Numbers = NDArray[Any]
MATCHINGS = ("index", "assignment")
"""How reconstructions of one gradient are held against its images: in the order found, or in the best one."""

IMAGE_LEVEL = 0
"""The number of participants that stands for tracing to the image itself."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One adversary's result on n = v b images; every array is (n,), images victim by victim.

    ``by_matching`` maps "<matching>/<measure>" (error, psnr, ssim, labels); ``blind`` maps a measure to what the mean
    test image, or random labels, would score. ``traced`` and ``traced_chance`` map the number of participants to hits
    and their expectation for a random reconstruction; :data:`IMAGE_LEVEL` asks for the image itself.
    """

    by_matching: Mapping[str, Numbers]
    blind: Mapping[str, Numbers]
    traced: Mapping[int, Numbers]
    traced_chance: Mapping[int, Numbers]


def judge(truth: Path, found: Path, traced: Path, participants: Sequence[int], classes: int) -> Judged:
    """Hold what one adversary found against the truth."""
    known, answers = load_file(truth / IMAGES), load_file(found / FOUND)
    x, y, images, labels = known["x"], known["y"], answers["images"], answers["labels"]
    places = measure.assignment(images, x)
    paired = {"index": images, "assignment": measure.rearranged(images, places)}
    by_matching = {f"{name}/{key}": v for name, found in paired.items() for key, v in _quality(found, x).items()}
    by_matching["index/labels"] = (labels == y).astype(float).ravel()
    by_matching["assignment/labels"] = measure.label_hits(labels, y).ravel()
    nearest = load_file(traced / TRACED)["nearest"]
    hits, chance = _traced(nearest, known["order"], places, participants)
    blind = np.broadcast_to(known["blind"], x.shape)
    random_labels = measure.chance_label_hits(y, classes).ravel()
    return Judged(
        by_matching=by_matching,
        blind={**_quality(blind, x), "labels": random_labels, "top": measure.largest_errors(x).ravel()},
        traced=hits,
        traced_chance=chance,
    )


def dealt(victims: int, participants: int) -> Numbers:
    """Return whose each victim is: dealt in turn."""
    return np.arange(victims) % participants


def _quality(found: Numbers, truth: Numbers) -> dict[str, Numbers]:
    return {
        "error": measure.relative_errors(found, truth).ravel(),
        "psnr": measure.psnr(found, truth).ravel(),
        "ssim": measure.ssim(found, truth).ravel(),
    }


def _traced(
    nearest: Numbers, order: Numbers, places: Numbers, participants: Sequence[int]
) -> tuple[dict[int, Numbers], dict[int, Numbers]]:
    """Return hits and chance (n,) of every number of participants; query q is image ``order[q]``."""
    v, b = places.shape
    answer = np.empty_like(nearest)
    answer[order] = nearest  # by image
    own = (places + b * np.arange(v)[:, None]).ravel()
    hits = {IMAGE_LEVEL: (answer == own).astype(float)}
    chance = {IMAGE_LEVEL: np.full(v * b, 1 / (v * b))}
    for number in sorted({n for n in participants if n < v} | {v}):
        owner = dealt(v, number)
        truth = np.repeat(owner, b)
        hits[number] = (owner[answer // b] == truth).astype(float)
        chance[number] = np.bincount(owner, minlength=number)[truth] / v
    return hits, chance


def read_perturbation(truth: Path) -> list[dict[str, Any]]:
    """Return |B| / |E_B| and the cosines of every victim."""
    found: list[dict[str, Any]] = json.loads((truth / PERTURBATION).read_text(encoding="utf-8"))
    return found
