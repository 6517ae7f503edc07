"""Cells: accuracies and attacks, computed once each and kept below work/inversion under a name that says from what.

The name holds the cell's settings, the data's fingerprint and the code that computes it. A cell appears when it is
complete; several processes may want the same one.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save_file

from fedprint.data.locate import data_root
from fedprint.evaluation.reconstruction import assignment, rearranged
from fedprint.kinds.inversion.attack import FOUND, reconstruct, seek, trace
from fedprint.kinds.inversion.judge import Judged, Sought, judge, read_perturbation
from fedprint.kinds.inversion.networks import images_of
from fedprint.kinds.inversion.utility import UtilityCell
from fedprint.kinds.inversion.victims import IMAGES, ExposureCell, expose
from fedprint.kinds.plane.point_keys import source_digest
from fedprint.kinds.workspace import find_root
from fedprint.models.base import FedModule
from fedprint.rng import seed_for
from fedprint.types import Doubles, Floats, Ints

Cell = UtilityCell | ExposureCell
MODEL = "model.safetensors"

_PACKAGE = "src/fedprint/"
_TRAINED = (
    "rng.py", "params.py", "data/labelled_images.py", "data/examples.py", "defences", "models",
    "federation/client.py", "federation/gradient_rounds.py", "pipeline/inversion/networks.py",
)  # fmt: skip
_SOURCES: Mapping[type[Cell], tuple[str, ...]] = {
    UtilityCell: (*_TRAINED, "pipeline/inversion/utility.py"),
    ExposureCell: (
        *_TRAINED,
        "attacks/inversion",
        "evaluation/reconstruction.py",
        "evaluation/tracing.py",
        *(f"pipeline/inversion/{name}.py" for name in ("victims", "attack", "judge", "cells")),
    ),
}
"""The code that a cell's numbers come from."""

_NAMES: Mapping[type[Cell], str] = {UtilityCell: "utility", ExposureCell: "exposure"}


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """What an exposure cell found: :class:`Judged` per adversary, and what a figure shows.

    ``perturbation`` per victim; ``layers`` maps a layer to quantiles of B and E_B (victims.py). ``labels`` (n,) are the
    true ones. ``pictures`` (n, c, h, w) uint8 under "truth" and each adversary's name, best assigned.
    ``trajectories`` map an adversary to evaluations (s,) and values (s, v), none for the closed form. ``seconds`` of
    processor time that each adversary took.
    """

    judged: Mapping[str, Judged]
    perturbation: list[dict[str, Any]]
    layers: Mapping[str, Mapping[str, list[float]]]
    labels: Ints
    pictures: Mapping[str, NDArray[np.uint8]]
    trajectories: Mapping[str, tuple[Ints, Floats]]
    seconds: Mapping[str, float]

    @property
    def ratios(self) -> Doubles:
        """|B| / |E_B| of every victim, infinite without a perturbation."""
        return np.array([np.inf if one["ratio"] is None else one["ratio"] for one in self.perturbation])


def accuracy_of(cell: UtilityCell) -> Doubles:
    """Return which test images (n,) the cell's model classifies right, computed unless it is known."""
    found: Doubles = np.load(_trained(cell) / "hits.npy", allow_pickle=False)
    return found


def model_of(cell: UtilityCell) -> FedModule:
    """Return the model that an undefended cell's federation trained; those of others are not kept."""
    return cell.model(load_tensors(_trained(cell) / MODEL))


def _trained(cell: UtilityCell) -> Path:
    def train(partial: Path) -> None:
        params = cell.train()
        np.save(partial / "hits.npy", cell.hits(params))
        if not cell.defences:
            save_file(params, partial / MODEL)

    return _finished(cell, train)


def exposure_of(cell: ExposureCell) -> Exposure:
    """Return what the cell's attacks found, computed unless it is known."""
    return read_exposure(_finished(cell, lambda partial: attack_cell(cell, partial)))


def attack_cell(cell: ExposureCell, folder: Path) -> None:
    """Expose the victims, attack them as each adversary, judge, and reduce the folder to what was found."""
    torch.set_num_threads(1)
    expose(cell, folder)
    classes = len(images_of(cell.data, cell.seed).class_names)
    known = load_file(folder / "truth" / IMAGES)
    truth = known["x"]
    flat: dict[str, Any] = {"truth": _picture(truth), "labels": known["y"].ravel()}
    seconds: dict[str, float] = {}
    for adversary in cell.adversaries:
        found, traced = folder / "found" / adversary, folder / "traced" / adversary
        started = time.process_time()
        # without a mechanism there is nothing to know, and both adversaries are one
        public = folder / "public" if adversary == "adaptive" and cell.defences else None
        if cell.defences or not seconds:
            seed = seed_for(cell.seed, "attack")
            reconstruct(cell.attack, folder / "observed", public, found, seed)
            seek(folder / "observed", public, folder / "candidates", cell.candidates.shadows, found, seed)
        else:
            shutil.copytree(folder / "found" / cell.adversaries[0], found)
        seconds[adversary] = time.process_time() - started
        trace(found, folder / "queries", traced)
        judged = judge(folder / "truth", found, traced, cell.participants, classes)
        flat |= {f"{adversary}|{key}": value for key, value in _flat(judged).items()}
        answers = load_file(found / FOUND)
        flat[f"{adversary}|picture"] = _picture(rearranged(answers["images"], assignment(answers["images"], truth)))
        flat |= {f"{adversary}|{name}": answers[name] for name in ("at", "values") if name in answers}
    np.savez(folder / "outcome.npz", **flat)
    outcome = {**read_perturbation(folder / "truth"), "seconds": seconds}
    (folder / "outcome.json").write_text(json.dumps(outcome, sort_keys=True) + "\n", encoding="utf-8")
    for name in ("observed", "public", "truth", "queries", "candidates", "found", "traced"):
        shutil.rmtree(folder / name)


def read_exposure(folder: Path) -> Exposure:
    """Return a finished cell."""
    outcome = json.loads((folder / "outcome.json").read_text(encoding="utf-8"))
    with np.load(folder / "outcome.npz", allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    adversaries = tuple(outcome["seconds"])
    of = {
        adversary: {k.partition("|")[2]: v for k, v in arrays.items() if k.startswith(f"{adversary}|")}
        for adversary in adversaries
    }
    return Exposure(
        judged={adversary: _judged(found) for adversary, found in of.items()},
        perturbation=outcome["victims"],
        layers=outcome["layers"],
        labels=arrays["labels"],
        pictures={"truth": arrays["truth"]} | {adversary: found["picture"] for adversary, found in of.items()},
        trajectories={a: (found["at"], found["values"]) for a, found in of.items() if "at" in found},
        seconds=outcome["seconds"],
    )


def _flat(judged: Judged) -> dict[str, Any]:
    flat = {f"by_matching|{name}": array for name, array in judged.by_matching.items()}
    flat |= {f"blind|{name}": array for name, array in judged.blind.items()}
    flat |= {f"traced|{number}": array for number, array in judged.traced.items()}
    flat["course"] = judged.course
    flat |= {f"sought|{name}": array for name, array in vars(judged.sought).items()}
    return flat | {f"traced_chance|{number}": array for number, array in judged.traced_chance.items()}


def _judged(found: Mapping[str, Any]) -> Judged:
    def part(name: str) -> dict[str, Any]:
        return {key.partition("|")[2]: value for key, value in found.items() if key.startswith(f"{name}|")}

    traced, chance = part("traced"), part("traced_chance")
    return Judged(
        by_matching=part("by_matching"),
        blind=part("blind"),
        traced={int(number): array for number, array in traced.items()},
        traced_chance={int(number): array for number, array in chance.items()},
        sought=Sought(**part("sought")),
        course=found["course"],
    )


def _picture(images: NDArray[Any]) -> NDArray[np.uint8]:
    """Return images (v, b, c, h, w) as bytes (n, c, h, w)."""
    return np.round(255 * images.reshape(-1, *images.shape[2:])).astype(np.uint8)


def _finished(cell: Cell, compute: Callable[[Path], object]) -> Path:
    """Return the folder of a cell, computed into one of another name first."""
    folder = cells_folder() / f"{_NAMES[type(cell)]}-{cell_key(cell)}"
    if folder.is_dir():
        return folder
    locks = cells_folder() / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    with FileLock(locks / f"{folder.name}.lock"):
        if not folder.is_dir():
            partial = folder.with_name(f".{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            compute(partial)
            partial.rename(folder)
    return folder


def cells_folder() -> Path:
    """Return where cells are kept."""
    return find_root() / "work" / "inversion"


def cell_key(cell: Cell) -> str:
    """Return 16 hex digits that name a cell by settings, data and code."""
    sources = tuple(sorted(_PACKAGE + name for name in _SOURCES[type(cell)]))
    content = [cell.model_dump(mode="json"), cell.data.fingerprint(data_root(None)), source_digest(sources)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
