"""The report of an inversion experiment: what its page, figures and tables show of the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from fedprint.evaluation.rows import Row
from fedprint.kinds.inversion.config import MAIN, InversionExperiment
from fedprint.kinds.inversion.jobs import Place
from fedprint.kinds.inversion.results.outcome import Exposure
from fedprint.kinds.inversion.results.scene import Results
from fedprint.kinds.inversion.victims import LEVELS
from fedprint.reports.numbers.inversion import InversionHead, Layers, Other, Sample, Trail
from fedprint.reports.pages.inversion import write_inversion

PUBLISHED_ALPHA2 = 0.1
"""The secret head's strength outside of the papers' grids (papers.md 4.5)."""


def publish(results: Results, rows: list[Row], folder: Path) -> None:
    """Write the report."""
    write_inversion(
        head=head_of(results.experiment, results.failures),
        rows=rows,
        samples=samples_of(results),
        layers=layers_of(results),
        trails=trails_of(results),
        config_text=results.experiment.text(),
        out=folder,
    )


def head_of(experiment: InversionExperiment, failures: Mapping[str, str]) -> InversionHead:
    """Return what holds for the whole page."""
    config = experiment.config
    return InversionHead(
        name=experiment.name,
        title=config.report.title,
        dataset=config.data.name,
        adversaries=config.adversaries,
        attacks=tuple(
            (one.attack.name, one.network.name, one.batches) for one in config.attacks if one.variant == MAIN
        ),
        others=tuple(
            Other(
                variant=one.variant,
                attack=one.attack.name,
                network=one.network.name,
                batches=one.batches,
                adversaries=config.adversaries_of(place),
                local_steps=None if one.local is None else one.local.steps,
            )
            for place, one in enumerate(config.attacks)
            if one.variant != MAIN
        ),
        participants=config.traced_among(0),
        failures=failures,
        images=config.images,
        strengths={m.defence: len(m.strengths) for m in config.mechanisms if m.variant == MAIN},
        fast=experiment.fast,
        config_hash=experiment.digest(),
    )


def samples_of(results: Results) -> list[Sample]:
    """Return every attacked image of the papers' grid with the numbers of its region."""
    config, found = results.experiment.config, []
    for place, exposure in _shown(results):
        setting = results.experiment.settings[place.setting]
        ratios = np.repeat(exposure.ratios, place.batch)
        for adversary, judged in exposure.judged.items():
            found += [
                Sample(
                    attack=config.attacks[place.attack].attack.name,
                    batch=place.batch,
                    adversary=adversary,
                    defence=setting.defence,
                    variant=setting.variant,
                    strength=setting.strength,
                    ratio=float(ratio),
                    error=float(error),
                    truth=truth,
                    found=picture,
                )
                for ratio, error, truth, picture in zip(
                    ratios,
                    judged.by_matching["assignment/error"],
                    exposure.pictures["truth"],
                    exposure.pictures[adversary],
                    strict=True,
                )
            ]
    return found


def trails_of(results: Results) -> list[Trail]:
    """Return how the searches of the papers' grid went, where there was a search."""
    config, settings = results.experiment.config, results.experiment.settings
    return [
        Trail(
            attack=config.attacks[place.attack].attack.name,
            batch=place.batch,
            adversary=adversary,
            defence=settings[place.setting].defence,
            strength=settings[place.setting].strength,
            evaluations=evaluations,
            values=values,
            errors=exposure.judged[adversary].course,
        )
        for place, exposure in _shown(results)
        for adversary, (evaluations, values) in exposure.trajectories.items()
    ]


def layers_of(results: Results) -> Layers | None:
    """Return how gradients are distributed at the secret head's strength nearest to the papers', None without one."""
    settings = results.experiment.settings
    found = [
        (place, exposure)
        for place, exposure in _shown(results)
        if settings[place.setting].defence == "spn" and place.attack == 0
    ]
    if not found:
        return None
    place, exposure = min(
        found, key=lambda one: (abs(settings[one[0].setting].strength - PUBLISHED_ALPHA2), one[0].batch)
    )
    return Layers(
        network=results.experiment.config.attacks[place.attack].network.name,
        batch=place.batch,
        strength=settings[place.setting].strength,
        gradients=len(exposure.any.perturbation),
        levels=LEVELS,
        quantiles=exposure.any.layers,
    )


def _shown(results: Results) -> Iterator[tuple[Place, Exposure]]:
    """Yield what figures show: the papers' grid before the attackers of headlines."""
    for place, exposure in results.exposures.items():
        attack, setting = results.experiment.config.attacks[place.attack], results.experiment.settings[place.setting]
        if attack.variant == setting.variant == MAIN:
            yield place, exposure
