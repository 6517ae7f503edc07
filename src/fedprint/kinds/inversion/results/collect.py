"""The results of an inversion experiment, collected from its jobs; failed jobs are left out and named."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedprint.errors import FedprintError
from fedprint.kinds.images import read_hits, read_model
from fedprint.kinds.inversion.config import MAIN, InversionExperiment
from fedprint.kinds.inversion.jobs import (
    Attacking,
    Cell,
    Part,
    Training,
    accuracy_settings,
    adversaries_in,
    cells_of,
    images_of,
    label_of,
)
from fedprint.kinds.inversion.results.outcome import Exposure, read_outcome
from fedprint.kinds.inversion.results.scene import Reading, Results
from fedprint.kinds.inversion.utility import hits, trained_model
from fedprint.kinds.jobs import reason_of
from fedprint.lab.runner import Done
from fedprint.models.base import FedModule
from fedprint.types import Doubles

Ended = Mapping[Part, Done | FedprintError]


def check_images(experiment: InversionExperiment) -> None:
    """Raise FedprintError where the folder has fewer images than the attacks take."""
    config = experiment.config
    if lacking := config.lacking(len(images_of(config.data, config.seed).y)):
        raise FedprintError(lacking)


def results_of(experiment: InversionExperiment, jobs: Ended) -> Results:
    """Return the results of all jobs; failed ones, as of a federation that diverges, are left out and named.

    Raises FedprintError where a job without a mechanism failed: the others are compared with it.
    """
    failures = {}
    for part, one in jobs.items():
        if isinstance(one, FedprintError):
            if experiment.settings[setting_of(part)].defence == "none":
                raise one
            failures[label_of(experiment, part)] = reason_of(one)
    exposures = _exposures(experiment, jobs)
    return Results(
        experiment=experiment,
        hits=_hits(experiment, jobs),
        exposures=exposures,
        readings=_readings(experiment, jobs, exposures),
        failures=failures,
    )


def setting_of(part: Part) -> int:
    """Return the index of a part's mechanism and strength."""
    return part.setting if isinstance(part, Training) else part.cell.setting


def _hits(experiment: InversionExperiment, jobs: Ended) -> dict[tuple[int, int], Doubles]:
    """Return the test hits (r, n) of the federations of each attack's network, where none of them failed."""
    runs, count = range(experiment.config.training.seeds), len(experiment.settings)
    right = {}
    for attack, first in enumerate(_first(experiment)):
        for setting in range(count):
            ended = [jobs[Training(attack=first, setting=setting, run=run)] for run in runs]
            done = [one for one in ended if isinstance(one, Done)]
            if len(done) == len(ended):
                right[attack, setting] = np.stack([read_hits(one.outputs["hits"]) for one in done])
    return right


def _exposures(experiment: InversionExperiment, jobs: Ended) -> dict[Cell, Exposure]:
    """Return the exposure of each cell where no adversary failed; without a mechanism one job is that of all."""
    exposures = {}
    for cell in cells_of(experiment):
        adversaries = adversaries_in(experiment, cell)
        ended = [jobs[Attacking(cell=cell, adversary=adversary)] for adversary in adversaries]
        done = [one for one in ended if isinstance(one, Done)]
        if len(done) == len(ended):
            outcomes = dict(zip(adversaries, (read_outcome(one.outputs["outcome"]) for one in done), strict=True))
            everyone = sorted(experiment.config.adversaries_of(cell.attack))
            first = outcomes[adversaries[0]]
            exposures[cell] = Exposure(outcomes={name: outcomes.get(name, first) for name in everyone})
    return exposures


def _readings(
    experiment: InversionExperiment, jobs: Ended, exposures: Mapping[Cell, Exposure]
) -> dict[tuple[Cell, str], Reading]:
    """Return the labels that undefended models read from the reconstructions."""
    config = experiment.config
    images = images_of(config.data, config.seed)
    undefended = next(i for i, one in enumerate(experiment.settings) if (one.defence, one.variant) == ("none", MAIN))
    models = []
    for first in _first(experiment):
        done = jobs[Training(attack=first, setting=undefended, run=0)]
        assert isinstance(done, Done), "a failure without a mechanism has been raised"
        settings = accuracy_settings(experiment, first, undefended)
        models.append(trained_model(settings, read_model(done.outputs["model"]), images))
    blind = images.test_x.mean(0)
    return {
        (cell, adversary): reading_of(models[cell.attack], exposure, adversary, blind)
        for cell, exposure in exposures.items()
        for adversary in exposure.outcomes
    }


def reading_of(model: FedModule, exposure: Exposure, adversary: str, blind: Tensor) -> Reading:
    """Return the labels that a trained model reads from an adversary's images, and from a mean image (c, h, w)."""
    outcome = exposure.outcomes[adversary]
    images, labels = torch.from_numpy(outcome.picture).float() / 255, torch.from_numpy(outcome.labels)
    return Reading(hits=hits(model, images, labels), blind=hits(model, blind.expand_as(images), labels))


def _first(experiment: InversionExperiment) -> list[int]:
    """Return, for each attack, the first one on its network: they share federations."""
    networks = [chosen.network for chosen in experiment.config.attacks]
    return [networks.index(network) for network in networks]
