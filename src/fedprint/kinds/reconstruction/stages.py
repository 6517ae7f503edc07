"""The stages of ``fedprint reconstruct`` on the outputs of a finished federation: who may open what.

hold -> reconstruct -> compare. ``reconstruct`` opens what the server observed, what is public and the adversary's own
users, beside images to look for; ``hold``, which picks these, and ``compare`` know the truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from fedprint.attacks.inversion.victims import Labelled
from fedprint.evaluation.rows import write_measurements
from fedprint.kinds.federation.graph import FEDERATION
from fedprint.kinds.reconstruction.judge import candidates_of, truth_of
from fedprint.kinds.reconstruction.judge import compare as compared
from fedprint.kinds.reconstruction.settings import Reconstructed, RecordedSettings, attack_as, attacked
from fedprint.lab.graph import Graph, Stage, Task, Work
from fedprint.types import AdversaryName

ROWS, TABLE, IMAGES = "measurements.jsonl", "measurements.csv", "images.png"
_CANDIDATES, _HELD = "candidates.safetensors", "held.npy"

_SEEN = ("prior", "background", "meta", "observed", "public")
_KNOWN = (*_SEEN, "truth", "private", "test")
_CODE = (
    "kinds/reconstruction",
    "kinds/inversion",
    "kinds/federation",
    "data",
    "models",
    "accounting",
    "defences",
    "federation",
    "attacks",
    "evaluation",
    "reports",
    "tuning/space.py",
    "params.py",
    "rng.py",
)


def _stage(name: str, inputs: tuple[str, ...], *outputs: str) -> Stage:
    """Return a stage that reads all settings."""
    run = f"{__name__}:{name}"
    return Stage(name=name, run=run, inputs=inputs, outputs=outputs, settings=None, code=_CODE, files=True)


RECORDED = (
    _stage("hold", _KNOWN, "candidates", "held"),
    _stage("reconstruct", (*_SEEN, "candidates"), "reconstructions"),
    _stage("compare", (*_KNOWN, "held", "reconstructions"), "comparison"),
)


def hold(task: Task) -> None:
    """Write images to look for, and apart from them which device holds each."""
    torch.set_num_threads(1)
    federation, config = _federation(task), task.config.inversion
    candidates = candidates_of(federation, truth_of(federation, attacked(federation, config)), config)
    for name in ("candidates", "held"):
        task.at(name).mkdir()
    tensors = {"x": candidates.images.x.contiguous(), "y": candidates.images.y.contiguous()}
    save_file(tensors, task.at("candidates") / _CANDIDATES)
    np.save(task.at("held") / _HELD, candidates.owner)


def reconstruct(task: Task) -> None:
    """Write the results of every adversary."""
    torch.set_num_threads(1)
    federation, config = _federation(task), task.config.inversion
    held = load_file(task.at("candidates") / _CANDIDATES)
    candidates, senders = Labelled(x=held["x"], y=held["y"]), attacked(federation, config)
    # without a defence all adversaries know the same
    for adversary in config.adversaries if federation.config.defences else config.adversaries[:1]:
        _write(task.at("reconstructions") / adversary, attack_as(adversary, federation, config, senders, candidates))


def compare(task: Task) -> None:
    """Compare the results with the truth."""
    torch.set_num_threads(1)
    config, out = task.config.inversion, task.at("comparison")
    folders = [task.at("reconstructions") / name for name in config.adversaries]
    results = {cast(AdversaryName, folder.name): _read(folder) for folder in folders if folder.is_dir()}
    rows, picture = compared(_federation(task), config, np.load(task.at("held") / _HELD), results)
    out.mkdir()
    write_measurements(out / ROWS, out / TABLE, rows)
    (out / IMAGES).write_bytes(picture)


def _federation(task: Task) -> Task:
    return replace(task, config=task.config.experiment)


def _write(folder: Path, results: Mapping[str, Reconstructed]) -> None:
    folder.mkdir(parents=True)
    for pseudonym, one in results.items():
        save_file({name: part.contiguous() for name, part in vars(one).items()}, folder / f"{pseudonym}.safetensors")


def _read(folder: Path) -> dict[str, Reconstructed]:
    return {path.stem: Reconstructed(**load_file(path)) for path in folder.glob("*.safetensors")}


RECORDED_WORK = Work(
    path=f"{__name__}:RECORDED_WORK",
    graph=Graph((*FEDERATION.stages, *RECORDED)),
    parse=RecordedSettings.model_validate,
)
"""Stages that are run on the outputs of a finished federation, so that those before them are only named."""
