"""The report of an inversion experiment: the parts of the results that its page, figures and tables show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from fedprint.evaluation.rows import Row
from fedprint.kinds.inversion.config import MAIN, InversionExperiment
from fedprint.kinds.inversion.jobs import Cell
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
    """Return the facts about the whole experiment."""
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
                adversaries=config.adversaries_of(number),
                local_steps=None if one.local is None else one.local.steps,
            )
            for number, one in enumerate(config.attacks)
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
    config, samples = results.experiment.config, []
    for cell, exposure in _shown(results):
        setting = results.experiment.settings[cell.setting]
        ratios = np.repeat(exposure.ratios, cell.batch)
        for adversary, judged in exposure.judged.items():
            samples += [
                Sample(
                    attack=config.attacks[cell.attack].attack.name,
                    batch=cell.batch,
                    adversary=adversary,
                    defence=setting.defence,
                    variant=setting.variant,
                    strength=setting.strength,
                    ratio=float(ratio),
                    error=float(error),
                    truth=truth,
                    reconstructed=picture,
                )
                for ratio, error, truth, picture in zip(
                    ratios,
                    judged.by_matching["assignment/error"],
                    exposure.pictures["truth"],
                    exposure.pictures[adversary],
                    strict=True,
                )
            ]
    return samples


def trails_of(results: Results) -> list[Trail]:
    """Return the trajectories of the searches of the papers' grid."""
    config, settings = results.experiment.config, results.experiment.settings
    return [
        Trail(
            attack=config.attacks[cell.attack].attack.name,
            batch=cell.batch,
            adversary=adversary,
            defence=settings[cell.setting].defence,
            strength=settings[cell.setting].strength,
            evaluations=evaluations,
            values=values,
            errors=exposure.judged[adversary].course,
        )
        for cell, exposure in _shown(results)
        for adversary, (evaluations, values) in exposure.trajectories.items()
    ]


def layers_of(results: Results) -> Layers | None:
    """Return how gradients are distributed at the secret head's strength nearest to the papers', None without one."""
    settings = results.experiment.settings
    protected = [
        (cell, exposure)
        for cell, exposure in _shown(results)
        if settings[cell.setting].defence == "spn" and cell.attack == 0
    ]
    if not protected:
        return None
    cell, exposure = min(
        protected, key=lambda one: (abs(settings[one[0].setting].strength - PUBLISHED_ALPHA2), one[0].batch)
    )
    return Layers(
        network=results.experiment.config.attacks[cell.attack].network.name,
        batch=cell.batch,
        strength=settings[cell.setting].strength,
        gradients=len(exposure.any.perturbation),
        levels=LEVELS,
        quantiles=exposure.any.layers,
    )


def _shown(results: Results) -> Iterator[tuple[Cell, Exposure]]:
    """Yield the exposures that figures show: the papers' grid before the attackers of headlines."""
    for cell, exposure in results.exposures.items():
        attack, setting = results.experiment.config.attacks[cell.attack], results.experiment.settings[cell.setting]
        if attack.variant == setting.variant == MAIN:
            yield cell, exposure
