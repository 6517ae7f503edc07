"""Run an inversion experiment: all cells, several at a time, then rows, the report and MLflow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedprint.evaluation.rows import Row
from fedprint.models.base import FedModule
from fedprint.pipeline.inversion.cells import Cell, Exposure, accuracy_of, exposure_of, model_of
from fedprint.pipeline.inversion.config import MAIN, InversionExperiment, load_inversion
from fedprint.pipeline.inversion.networks import images_of
from fedprint.pipeline.inversion.rows import all_rows
from fedprint.pipeline.inversion.scene import Place, Reading, Results
from fedprint.pipeline.inversion.utility import UtilityCell, hits
from fedprint.pipeline.inversion.victims import ExposureCell
from fedprint.pipeline.point_pool import run_all
from fedprint.pipeline.workspace import workspace_lock
from fedprint.reports.inversion_rows import InversionHead, Sample, Trail
from fedprint.types import FedprintError


@dataclass(frozen=True, kw_only=True)
class CellRequest:
    """A cell to compute; ``label`` is what progress shows."""

    cell: Cell
    label: str


def compute(request: CellRequest) -> Exposure | Any:
    """Return what a cell holds: hits of a federation, or an exposure."""
    return accuracy_of(request.cell) if isinstance(request.cell, UtilityCell) else exposure_of(request.cell)


def utility_cell(experiment: InversionExperiment, attack: int, setting: int) -> UtilityCell:
    """Return the federation behind Acc(m) of an attack's network."""
    config = experiment.config
    return UtilityCell(
        data=config.data,
        network=config.attacks[attack].network,
        training=config.training,
        defences=experiment.settings[setting].defences,
        seed=config.seed,
    )


def exposure_cell(experiment: InversionExperiment, place: Place) -> ExposureCell:
    """Return the attacks at one place."""
    config = experiment.config
    chosen = config.attacks[place.attack]
    return ExposureCell(
        data=config.data,
        network=chosen.network,
        defences=experiment.settings[place.setting].defences,
        attack=chosen.attack_on(place.batch),
        adversaries=config.adversaries,
        participants=tuple(sorted(config.participants)),
        candidates=config.candidates,
        batch=place.batch,
        victims=config.victims_of(place.batch),
        seed=config.seed,
    )


def places_of(experiment: InversionExperiment) -> list[Place]:
    """Return where attacks are made: small batches first, so that a stopped run has whole tables.

    Ablations are attacked in the first batch size of an attack only.
    """
    attacks = experiment.config.attacks
    batches = sorted({batch for chosen in attacks for batch in chosen.batches})
    return [
        Place(attack=attack, setting=place, batch=batch)
        for batch in batches
        for attack, chosen in enumerate(attacks)
        if batch in chosen.batches
        for place, setting in enumerate(experiment.settings)
        if setting.variant == MAIN or batch == chosen.batches[0]
    ]


def run_cells(experiment: InversionExperiment, jobs: int | None = None) -> Results:
    """Compute every cell, ``jobs`` at a time (default: one per core); FedprintError for the first that cannot be."""
    settings, attacks = experiment.settings, experiment.config.attacks
    trained = [(attack, setting) for attack in range(len(attacks)) for setting in range(len(settings))]
    places = places_of(experiment)
    requests = [
        CellRequest(cell=utility_cell(experiment, *one), label=f"accuracy {settings[one[1]].label}") for one in trained
    ]
    requests += [
        CellRequest(
            cell=exposure_cell(experiment, place),
            label=f"{attacks[place.attack].attack.name}, batch {place.batch}, {settings[place.setting].label}",
        )
        for place in places
    ]
    found = run_all(compute, requests, jobs=jobs or os.cpu_count() or 1, title=experiment.name)
    for one in found:
        if isinstance(one, FedprintError):
            raise one
    right = {key: np.asarray(one) for key, one in zip(trained, found[: len(trained)], strict=True)}
    exposures = {
        place: one for place, one in zip(places, found[len(trained) :], strict=True) if isinstance(one, Exposure)
    }
    undefended = next(i for i, one in enumerate(settings) if (one.defence, one.variant) == ("none", MAIN))
    models = [model_of(utility_cell(experiment, attack, undefended)) for attack in range(len(attacks))]
    blind = images_of(experiment.config.data, experiment.config.seed).test_x.mean(0)
    readings = {
        (place, adversary): reading_of(models[place.attack], exposure, adversary, blind)
        for place, exposure in exposures.items()
        for adversary in exposure.judged
    }
    return Results(experiment=experiment, hits=right, exposures=exposures, readings=readings)


def reading_of(model: FedModule, exposure: Exposure, adversary: str, blind: Tensor) -> Reading:
    """Return the labels that a trained model reads from what an adversary found, and from a mean image (c, h, w)."""
    images = torch.from_numpy(exposure.pictures[adversary]).float() / 255
    labels = torch.from_numpy(exposure.labels)
    return Reading(hits=hits(model, images, labels), blind=hits(model, blind.expand_as(images), labels))


def run_named(root: Path, name: str, line: tuple[bool, Sequence[str]], dry_run: bool, jobs: int | None) -> bool:
    """Run the experiment of a file under ``--fast`` and assignments; return whether there is a report now."""
    experiment = load_inversion(root, name, fast=line[0], assignments=line[1])
    if dry_run:
        attacks, settings = experiment.config.attacks, len(experiment.settings)
        print(
            f"{name}: {settings * len(attacks)} federations and {len(places_of(experiment))} sets of attacked gradients"
        )
        return False
    run_inversion(root, experiment, jobs)
    return True


def run_inversion(root: Path, experiment: InversionExperiment, jobs: int | None = None) -> Path:
    """Compute, publish and log an experiment; return the report's folder."""
    with workspace_lock(root, experiment.name):
        results = run_cells(experiment, jobs)
        rows = all_rows(results)
        folder = root / "reports" / experiment.name
        publish(results, rows, folder)
        _log(root, experiment, rows, folder)
        return folder


def publish(results: Results, rows: list[Row], folder: Path) -> None:
    """Write the report."""
    from fedprint.reports.inversion import write_inversion

    write_inversion(
        head=head_of(results.experiment),
        rows=rows,
        samples=samples_of(results),
        trails=trails_of(results),
        config_text=results.experiment.text(),
        out=folder,
    )


def head_of(experiment: InversionExperiment) -> InversionHead:
    """Return what holds for the whole page."""
    config = experiment.config
    return InversionHead(
        name=experiment.name,
        title=config.report.title,
        dataset=config.data.name,
        adversaries=config.adversaries,
        attacks=tuple((one.attack.name, one.network.name, one.batches) for one in config.attacks),
        images=config.images,
        strengths={m.defence: len(m.strengths) for m in config.mechanisms if m.variant == MAIN},
        fast=experiment.fast,
        config_hash=experiment.digest(),
    )


def samples_of(results: Results) -> list[Sample]:
    """Return every attacked image of the papers' grid with the numbers of its region."""
    config, found = results.experiment.config, []
    for place, exposure in results.exposures.items():
        setting = results.experiment.settings[place.setting]
        if setting.variant != MAIN:
            continue
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
        )
        for place, exposure in results.exposures.items()
        if settings[place.setting].variant == MAIN
        for adversary, (evaluations, values) in exposure.trajectories.items()
    ]


def _log(root: Path, experiment: InversionExperiment, rows: list[Row], folder: Path) -> None:
    """Log the scores that a chart compares, and the report."""
    from fedprint.tracking.runs import log_report

    key = {"experiment": experiment.name, "config": experiment.digest()}
    scores = [
        (f"{row['metric']}/{row['attack']}/{row['defence']}/batch{row['attack_batch']}", float(row["value"]), 0)
        for row in rows
        if row.get("selected")
    ]
    log_report(root, experiment.name, key, folder, points=scores, tags={"fast": experiment.fast})
