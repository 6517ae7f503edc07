"""The costs of an inversion experiment before it runs, from a round of a federation and a few evaluations."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from fedprint.attacks.inversion.adaptive import tactics
from fedprint.attacks.inversion.matching import GradientMatching
from fedprint.data.sources.labelled_images import LabelledSet
from fedprint.kinds.base import Costs
from fedprint.kinds.federation.plan import PROCESS_BYTES
from fedprint.kinds.inversion.attack import knowledge_of, observed_victims
from fedprint.kinds.inversion.config import InversionExperiment
from fedprint.kinds.inversion.jobs import (
    Attacking,
    Cell,
    Training,
    accuracy_settings,
    exposure_settings,
    images_of,
    parts_of,
)
from fedprint.kinds.inversion.settings import ExposureSettings
from fedprint.kinds.inversion.utility import train
from fedprint.kinds.inversion.victims import expose

TIMED = 8
"""Evaluations that are timed."""

JOB_SECONDS = 1.0
"""Time of a job's processes besides training and searching, about."""


@dataclass(frozen=True, kw_only=True)
class _Speed:
    """Seconds of one core: of a ``round`` of a network's federation, and of the gradient of one ``example``."""

    round: float
    example: float


def costs_of(experiment: InversionExperiment, jobs: int, device: str) -> Costs:
    """Return the costs on a ``device`` (cpu, cuda); those of adversaries who know a mechanism are a rough guess."""
    torch.set_num_threads(1)
    config = experiment.config
    images, undefended = images_of(config.data, config.seed), _undefended(experiment)
    speeds = [_speed(experiment, attack, undefended, images, device) for attack in range(len(config.attacks))]
    federations, attacks = 0.0, 0.0
    evaluations: dict[tuple[int, int], float] = {}
    for part in parts_of(experiment):
        if isinstance(part, Training):
            federations += config.training.rounds * speeds[part.attack].round
            continue
        cell = part.cell
        if (cell.attack, cell.batch) not in evaluations:
            plain = Cell(attack=cell.attack, setting=undefended, batch=cell.batch)
            evaluations[cell.attack, cell.batch] = _evaluation(exposure_settings(experiment, plain), images, device)
        attacks += _search(experiment, part) * evaluations[cell.attack, cell.batch]
        attacks += _looked_up(exposure_settings(experiment, cell)) * speeds[cell.attack].example
    pixels = prod(images.shape)
    return Costs(
        jobs=jobs,
        seconds=federations + attacks + JOB_SECONDS * jobs,
        disk=pixels * (len(images.y) + len(images.test_y)) + jobs * 4 * pixels * config.images,
        memory=PROCESS_BYTES + 8 * pixels * (len(images.y) + len(images.test_y)),
        details={
            "federations": f"{sum(isinstance(part, Training) for part in parts_of(experiment))}",
            "attacks on sets of gradients": f"{sum(isinstance(part, Attacking) for part in parts_of(experiment))}",
            "time, federations": f"{federations / 60:.1f} min of one core",
            "time, attacks (rough)": f"{attacks / 60:.1f} min of one core",
        },
    )


def _undefended(experiment: InversionExperiment) -> int:
    return next(number for number, setting in enumerate(experiment.settings) if setting.defence == "none")


def _speed(experiment: InversionExperiment, attack: int, setting: int, images: LabelledSet, device: str) -> _Speed:
    settings = accuracy_settings(experiment, attack, setting)
    once = settings.model_copy(update={"training": settings.training.model_copy(update={"rounds": 1})})
    seconds = _seconds(lambda: train(once, images, device=device), device)
    return _Speed(round=seconds, example=seconds / (settings.training.clients * settings.training.batch_size))


def _evaluation(settings: ExposureSettings, images: LabelledSet, device: str) -> float:
    """Return the seconds of one evaluation on one set of gradients; of the closed form, of all of it."""
    with TemporaryDirectory() as folder:
        paths = {name: Path(folder) / name for name in ("observed", "public", "truth", "queries", "candidates")}
        expose(settings, images, paths)
        victims = observed_victims(paths["observed"])
    attack = settings.attack
    if not isinstance(attack, GradientMatching):
        return _seconds(lambda: attack.run(victims, knowledge_of(())), "cpu")
    few, there = attack.model_copy(update={"evaluations": TIMED, "restarts": 0}), victims.to(device)
    return _seconds(lambda: few.run(there, seed=0), device) / TIMED


def _search(experiment: InversionExperiment, part: Attacking) -> int:
    """Return how many evaluations a search takes."""
    settings = exposure_settings(experiment, part.cell)
    if not isinstance(settings.attack, GradientMatching):
        return 1
    known = knowledge_of(settings.defences if part.adversary == "adaptive" else ())
    ways = len(tactics(settings.attack, known, settings.batch))
    return ways * settings.attack.evaluations * (1 + settings.attack.restarts)


def _looked_up(settings: ExposureSettings) -> int:
    """Return the number of gradients of examples that looking for candidates takes, those of shadows included."""
    candidates = settings.candidates
    searched = candidates.searched(settings.victims)
    held = searched * settings.batch + candidates.strangers(settings.victims) + candidates.public
    asked = sum(candidates.asked(settings.batch))
    return searched * (2 * held + asked * candidates.shadows)


def _seconds(work: Callable[[], object], device: str) -> float:
    """Return the time of the second of two calls: processor time, on a GPU time on the clock."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    work()
    started = clock()
    work()
    return clock() - started
