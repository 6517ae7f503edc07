"""What the jobs of an inversion experiment found, put together; what failed is left out and named."""

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
    Part,
    Place,
    Training,
    accuracy_settings,
    attackers_at,
    images_of,
    label_of,
    places_of,
)
from fedprint.kinds.inversion.results.outcome import Exposure, read_outcome
from fedprint.kinds.inversion.results.scene import Reading, Results
from fedprint.kinds.inversion.utility import hits, trained_model
from fedprint.kinds.jobs import reason_of
from fedprint.lab.runner import Done
from fedprint.models.base import FedModule
from fedprint.types import Doubles

Found = Mapping[Part, Done | FedprintError]


def check_images(experiment: InversionExperiment) -> None:
    """Raise FedprintError where the folder has fewer images than the attacks take."""
    config = experiment.config
    if lacking := config.lacking(len(images_of(config.data, config.seed).y)):
        raise FedprintError(lacking)


def results_of(experiment: InversionExperiment, found: Found) -> Results:
    """Return all that was found; what failed, a federation that diverges under large noise, is left out and named.

    Raises FedprintError where nothing is left to set beside the rest: a job without a mechanism failed.
    """
    failures = {}
    for part, one in found.items():
        if isinstance(one, FedprintError):
            if experiment.settings[setting_of(part)].defence == "none":
                raise one
            failures[label_of(experiment, part)] = reason_of(one)
    exposures = _exposures(experiment, found)
    return Results(
        experiment=experiment,
        hits=_hits(experiment, found),
        exposures=exposures,
        readings=_readings(experiment, found, exposures),
        failures=failures,
    )


def setting_of(part: Part) -> int:
    """Return the place of a part's mechanism and strength."""
    return part.setting if isinstance(part, Training) else part.place.setting


def _hits(experiment: InversionExperiment, found: Found) -> dict[tuple[int, int], Doubles]:
    """Return the test hits (r, n) of the federations of each attack's network, where none of them failed."""
    runs, count = range(experiment.config.training.seeds), len(experiment.settings)
    right = {}
    for attack, first in enumerate(_first(experiment)):
        for setting in range(count):
            ended = [found[Training(attack=first, setting=setting, run=run)] for run in runs]
            done = [one for one in ended if isinstance(one, Done)]
            if len(done) == len(ended):
                right[attack, setting] = np.stack([read_hits(one.outputs["hits"]) for one in done])
    return right


def _exposures(experiment: InversionExperiment, found: Found) -> dict[Place, Exposure]:
    """Return what was found at each place where no adversary failed; without a mechanism all are one."""
    exposures = {}
    for place in places_of(experiment):
        adversaries = attackers_at(experiment, place)
        ended = [found[Attacking(place=place, adversary=adversary)] for adversary in adversaries]
        done = [one for one in ended if isinstance(one, Done)]
        if len(done) == len(ended):
            outcomes = dict(zip(adversaries, (read_outcome(one.outputs["outcome"]) for one in done), strict=True))
            everyone = sorted(experiment.config.adversaries_of(place.attack))
            first = outcomes[adversaries[0]]
            exposures[place] = Exposure(outcomes={name: outcomes.get(name, first) for name in everyone})
    return exposures


def _readings(
    experiment: InversionExperiment, found: Found, exposures: Mapping[Place, Exposure]
) -> dict[tuple[Place, str], Reading]:
    """Return the labels that undefended models read from what was found."""
    config = experiment.config
    images = images_of(config.data, config.seed)
    undefended = next(i for i, one in enumerate(experiment.settings) if (one.defence, one.variant) == ("none", MAIN))
    models = []
    for first in _first(experiment):
        done = found[Training(attack=first, setting=undefended, run=0)]
        assert isinstance(done, Done), "a failure without a mechanism has been raised"
        settings = accuracy_settings(experiment, first, undefended)
        models.append(trained_model(settings, read_model(done.outputs["model"]), images))
    blind = images.test_x.mean(0)
    return {
        (place, adversary): reading_of(models[place.attack], exposure, adversary, blind)
        for place, exposure in exposures.items()
        for adversary in exposure.outcomes
    }


def reading_of(model: FedModule, exposure: Exposure, adversary: str, blind: Tensor) -> Reading:
    """Return the labels that a trained model reads from what an adversary found, and from a mean image (c, h, w)."""
    outcome = exposure.outcomes[adversary]
    images, labels = torch.from_numpy(outcome.picture).float() / 255, torch.from_numpy(outcome.labels)
    return Reading(hits=hits(model, images, labels), blind=hits(model, blind.expand_as(images), labels))


def _first(experiment: InversionExperiment) -> list[int]:
    """Return, for each attack, the first one on its network: they share federations."""
    networks = [chosen.network for chosen in experiment.config.attacks]
    return [networks.index(network) for network in networks]
