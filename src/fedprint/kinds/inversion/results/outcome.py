"""The small file that is kept of judged gradients, and its values as reports read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from fedprint.data.formats.files import read_json, write_json
from fedprint.evaluation.inversion.reconstruction import assignment, rearranged
from fedprint.kinds.inversion.attack import RECONSTRUCTED
from fedprint.kinds.inversion.results.judge import CandidateScores, Judged, read_perturbation
from fedprint.kinds.inversion.victims import IMAGES
from fedprint.types import Doubles, Floats, Ints


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of one adversary, and the truth about its victims.

    ``perturbation`` per victim; ``layers`` maps a layer to quantiles of B and E_B (victims.py). ``labels`` (n,) are the
    true ones, ``truth`` and ``picture`` (n, c, h, w) uint8 the images and the reconstructions, best assigned.
    ``trajectory`` holds evaluations (s,) and values (s, v), None for the closed form.
    """

    judged: Judged
    perturbation: list[dict[str, Any]]
    layers: Mapping[str, Mapping[str, list[float]]]
    labels: Ints
    truth: NDArray[np.uint8]
    picture: NDArray[np.uint8]
    trajectory: tuple[Ints, Floats] | None


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """The outcomes of all adversaries on the same gradients, by adversary."""

    outcomes: Mapping[str, Outcome]

    @property
    def judged(self) -> Mapping[str, Judged]:
        """The judged results by adversary."""
        return {adversary: outcome.judged for adversary, outcome in self.outcomes.items()}

    @property
    def pictures(self) -> Mapping[str, NDArray[np.uint8]]:
        """Images under "truth" and each adversary's name."""
        pictures = {adversary: outcome.picture for adversary, outcome in self.outcomes.items()}
        return {"truth": self.any.truth, **pictures}

    @property
    def trajectories(self) -> Mapping[str, tuple[Ints, Floats]]:
        """The trajectories of searches by adversary."""
        return {name: one.trajectory for name, one in self.outcomes.items() if one.trajectory is not None}

    @property
    def any(self) -> Outcome:
        """Any outcome, for properties that all of them share."""
        return next(iter(self.outcomes.values()))

    @property
    def ratios(self) -> Doubles:
        """|B| / |E_B| of every victim, infinite without a perturbation."""
        return np.array([np.inf if one["ratio"] is None else one["ratio"] for one in self.any.perturbation])


def write_outcome(folder: Path, judged: Judged, truth: Path, reconstructed: Path) -> None:
    """Write what reports need of one adversary, without times, so that equal runs write equal files."""
    known, answers = load_file(truth / IMAGES), load_file(reconstructed / RECONSTRUCTED)
    flat = {"truth": _picture(known["x"]), "labels": known["y"].ravel(), **_flat(judged)}
    flat["picture"] = _picture(rearranged(answers["images"], assignment(answers["images"], known["x"])))
    flat |= {name: answers[name] for name in ("at", "values") if name in answers}
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "outcome.npz", **flat)
    write_json(folder / "outcome.json", read_perturbation(truth))


def read_outcome(folder: Path) -> Outcome:
    """Return what :func:`write_outcome` wrote."""
    truth = read_json(folder / "outcome.json")
    with np.load(folder / "outcome.npz", allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return Outcome(
        judged=_judged(arrays),
        perturbation=truth["victims"],
        layers=truth["layers"],
        labels=arrays["labels"],
        truth=arrays["truth"],
        picture=arrays["picture"],
        trajectory=(arrays["at"], arrays["values"]) if "at" in arrays else None,
    )


def _flat(judged: Judged) -> dict[str, Any]:
    flat = {f"by_matching|{name}": array for name, array in judged.by_matching.items()}
    flat |= {f"blind|{name}": array for name, array in judged.blind.items()}
    flat |= {f"traced|{number}": array for number, array in judged.traced.items()}
    flat["course"] = judged.course
    flat |= {f"candidates|{name}": array for name, array in vars(judged.candidates).items()}
    return flat | {f"traced_chance|{number}": array for number, array in judged.traced_chance.items()}


def _judged(arrays: Mapping[str, Any]) -> Judged:
    def part(name: str) -> dict[str, Any]:
        return {key.partition("|")[2]: value for key, value in arrays.items() if key.startswith(f"{name}|")}

    traced, chance = part("traced"), part("traced_chance")
    return Judged(
        by_matching=part("by_matching"),
        blind=part("blind"),
        traced={int(number): array for number, array in traced.items()},
        traced_chance={int(number): array for number, array in chance.items()},
        candidates=CandidateScores(**part("candidates")),
        course=arrays["course"],
    )


def _picture(images: NDArray[Any]) -> NDArray[np.uint8]:
    """Return images (v, b, c, h, w) as bytes (n, c, h, w)."""
    return np.round(255 * images.reshape(-1, *images.shape[2:])).astype(np.uint8)
