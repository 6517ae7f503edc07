"""Reconstructions compared with the truth: one number per image of everything that is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from fedprint.data.formats.files import read_json
from fedprint.evaluation.inversion import reconstruction as measure
from fedprint.evaluation.inversion.tracing import participants_of
from fedprint.kinds.inversion.attack import RECONSTRUCTED, SCORES, TRACED
from fedprint.kinds.inversion.victims import IMAGES, PERTURBATION, SETTING

Numbers = NDArray[Any]
MATCHINGS = ("index", "assignment")
"""How reconstructions of one gradient are compared with its images: in their own order, or in the best one."""

PIXELS: Mapping[str, str] = {"raw": "raw-error", "clipped": "error"}
"""How images are measured -> the name of their errors: as the search left them (papers.md 4.1), or cut to [0, 1]."""

DEAL = 0
"""The seed that groups victims into participants: the same for every attack on them."""

IMAGE_LEVEL = 0
"""The number of participants that stands for tracing to the image itself."""


@dataclass(frozen=True, kw_only=True)
class CandidateScores:
    """How likely each of q candidate images is in each of the first v gradients, and the truth ``owner`` (q,).

    ``scores`` (q, v) by alignment, ``loss`` (q, v) by loss. ``owner`` is the victim whose image a candidate is, -1 for
    a stranger's. For each gradient k candidates (k may be 0) were ``asked`` about one by one, (k, v), with
    ``lira`` (k, v).
    """

    scores: Numbers
    loss: Numbers
    owner: Numbers
    asked: Numbers
    lira: Numbers


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One adversary's result on n = v b images; every array is (n,), images victim by victim.

    ``by_matching`` maps "<matching>/<measure>" (error, raw-error of images that are not cut to [0, 1], psnr, ssim,
    labels); ``blind`` maps a measure to what the mean test image would score, and "<matching>/labels" to what random
    labels would. ``traced`` and ``traced_chance`` map the number of participants to hits and their expectation for a
    random reconstruction; :data:`IMAGE_LEVEL` asks for the image itself. ``candidates`` need no reconstruction.
    ``course`` (s, n) are the errors of what a search had after each of its s logged evaluations, best assigned and cut
    to [0, 1]; s is 0 where nothing was searched.
    """

    by_matching: Mapping[str, Numbers]
    blind: Mapping[str, Numbers]
    traced: Mapping[int, Numbers]
    traced_chance: Mapping[int, Numbers]
    candidates: CandidateScores
    course: Numbers


def judge(opened: Mapping[str, Path], participants: Sequence[int]) -> Judged:
    """Compare what one adversary reconstructed/, its scores/ and what it traced/ with the truth/ about observed/."""
    known, answers = load_file(opened["truth"] / IMAGES), load_file(opened["reconstructed"] / RECONSTRUCTED)
    classes = read_json(opened["observed"] / SETTING)["classes"]
    x, y, images, raw, labels = known["x"], known["y"], answers["images"], answers["raw"], answers["labels"]
    assigned = measure.assignment(images, x)
    paired = {"index": images, "assignment": measure.rearranged(images, assigned)}
    uncut = {"index": raw, "assignment": measure.rearranged(raw, measure.assignment(raw, x))}
    by_matching = {f"{name}/{key}": v for name, made in paired.items() for key, v in _quality(made, x).items()}
    by_matching |= {f"{name}/raw-error": measure.relative_errors(made, x).ravel() for name, made in uncut.items()}
    by_matching["index/labels"] = (labels == y).astype(float).ravel()
    by_matching["assignment/labels"] = measure.label_hits(labels, y).ravel()
    nearest = load_file(opened["traced"] / TRACED)["nearest"]
    hits, chance = _traced(nearest, known["order"], assigned, participants)
    blind = _quality(np.broadcast_to(known["blind"], x.shape), x)
    blind |= {"index/labels": np.full(y.size, 1 / classes), "top": measure.largest_errors(x).ravel()}
    blind["assignment/labels"] = measure.chance_label_hits(y, classes).ravel()
    return Judged(
        by_matching=by_matching,
        blind=blind,
        traced=hits,
        traced_chance=chance,
        candidates=CandidateScores(
            **load_file(opened["scores"] / SCORES),
            owner=owners_of(known["candidates"], known["asked"].shape[1], y.shape[1]),
            asked=known["asked"],
        ),
        course=_course(answers["course"], x) if "course" in answers else np.empty((0, y.size)),
    )


def _course(images: Numbers, truth: Numbers) -> Numbers:
    """Return the errors (s, n) of images (s, v, b, c, h, w), cut to [0, 1] and best assigned at each of the s times."""
    cut = np.clip(images, 0, 1)
    best = [measure.rearranged(one, measure.assignment(one, truth)) for one in cut]
    return np.stack([measure.relative_errors(one, truth).ravel() for one in best])


def largest_error(judged: Judged, pixels: str) -> float | None:
    """Return the largest error that there can be: none for pixels that may be anything."""
    return None if pixels == "raw" else float(judged.blind["top"].max())


def owners_of(candidates: Numbers, victims: int, batch: int) -> Numbers:
    """Return the victim (q,) whose image each candidate is, -1 for a stranger; given their numbers (q,)."""
    owners: Numbers = np.where(candidates < victims * batch, candidates // batch, -1)
    return owners


def _quality(images: Numbers, truth: Numbers) -> dict[str, Numbers]:
    return {
        "error": measure.relative_errors(images, truth).ravel(),
        "psnr": measure.psnr(images, truth).ravel(),
        "ssim": measure.ssim(images, truth).ravel(),
    }


def _traced(
    nearest: Numbers, order: Numbers, assigned: Numbers, participants: Sequence[int]
) -> tuple[dict[int, Numbers], dict[int, Numbers]]:
    """Return hits and chance (n,) of every number of participants; query q is image ``order[q]``."""
    v, b = assigned.shape
    answer = np.empty_like(nearest)
    answer[order] = nearest  # by image
    right = (assigned + b * np.arange(v)[:, None]).ravel()
    hits = {IMAGE_LEVEL: (answer == right).astype(float)}
    chance = {IMAGE_LEVEL: np.full(v * b, 1 / (v * b))}
    for number in sorted({n for n in participants if n < v} | {v}):
        owner = participants_of(v, number, DEAL)
        truth = np.repeat(owner, b)
        hits[number] = (owner[answer // b] == truth).astype(float)
        chance[number] = np.bincount(owner, minlength=number)[truth] / v
    return hits, chance


def read_perturbation(truth: Path) -> dict[str, Any]:
    """Return ``victims``: |B| / |E_B| and the cosines of each; and ``layers``: quantiles of both (victims.py)."""
    perturbation: dict[str, Any] = read_json(truth / PERTURBATION)
    return perturbation
