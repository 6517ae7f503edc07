"""Run an inversion experiment: all cells, several at a time, then rows, the report and MLflow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedprint.evaluation.rows import Row
from fedprint.kinds.inversion.cells import Cell, Exposure, accuracy_of, exposure_of, model_of
from fedprint.kinds.inversion.config import MAIN, InversionExperiment, load_inversion
from fedprint.kinds.inversion.networks import images_of
from fedprint.kinds.inversion.rows import all_rows
from fedprint.kinds.inversion.scene import Place, Reading, Results
from fedprint.kinds.inversion.utility import UtilityCell, hits
from fedprint.kinds.inversion.victims import LEVELS, ExposureCell
from fedprint.kinds.plane.point_pool import run_all
from fedprint.kinds.workspace import workspace_lock
from fedprint.models.base import FedModule
from fedprint.reports.inversion_rows import InversionHead, Layers, Other, Sample, Trail
from fedprint.types import FedprintError

PUBLISHED_ALPHA2 = 0.1
"""The secret head's strength outside of the papers' grids (papers.md 4.5)."""


@dataclass(frozen=True, kw_only=True)
class CellRequest:
    """A cell to compute; ``label`` is what progress shows."""

    cell: Cell
    label: str


def compute(request: CellRequest) -> Exposure | Any:
    """Return what a cell holds: hits of a federation, or an exposure."""
    return accuracy_of(request.cell) if isinstance(request.cell, UtilityCell) else exposure_of(request.cell)


def utility_cell(experiment: InversionExperiment, attack: int, setting: int, run: int = 0) -> UtilityCell:
    """Return a federation behind Acc(m) of an attack's network; how many others there are is no part of it."""
    config = experiment.config
    return UtilityCell(
        data=config.data,
        network=config.attacks[attack].network,
        training=config.training.model_copy(update={"seeds": 1}),
        defences=experiment.settings[setting].defences,
        seed=config.seed,
        run=run,
    )


def exposure_cell(experiment: InversionExperiment, place: Place) -> ExposureCell:
    """Return the attacks at one place."""
    config = experiment.config
    chosen, candidates = config.attacks[place.attack], config.candidates
    if config.repeats(place.attack, place.batch):
        candidates = candidates.model_copy(update={"lira": 0})
    return ExposureCell(
        data=config.data,
        network=chosen.network,
        defences=experiment.settings[place.setting].defences,
        attack=chosen.attack_on(place.batch),
        adversaries=config.adversaries_of(place.attack),
        participants=tuple(sorted({*config.participants, config.traced_among(place.attack)})),
        candidates=candidates,
        batch=place.batch,
        victims=config.victims_of(place.attack, place.batch),
        seed=config.seed,
        local=chosen.local,
    )


def places_of(experiment: InversionExperiment) -> list[Place]:
    """Return where attacks are made: small batches first, so that a stopped run has whole tables.

    Ablations are attacked by main attacks only, and in their first batch size; a variant may attack some mechanisms.
    """
    attacks = experiment.config.attacks
    batches = sorted({batch for chosen in attacks for batch in chosen.batches})
    return [
        Place(attack=attack, setting=place, batch=batch)
        for batch in batches
        for attack, chosen in enumerate(attacks)
        if batch in chosen.batches
        for place, setting in enumerate(experiment.settings)
        if (
            setting.defence in (chosen.mechanisms or (setting.defence,))
            if setting.variant == MAIN
            else chosen.variant == MAIN and batch == chosen.batches[0]
        )
    ]


def run_cells(experiment: InversionExperiment, jobs: int | None = None) -> Results:
    """Compute every cell, ``jobs`` at a time (default: one per core).

    What fails, a federation that diverges under large noise, is left out and named. Raises FedprintError for too few
    images, and where nothing is left to set beside the rest: a cell without a mechanism failed.
    """
    config, settings, attacks = experiment.config, experiment.settings, experiment.config.attacks
    images = images_of(config.data, config.seed)
    if lacking := config.lacking(len(images.y)):
        raise FedprintError(lacking)
    networks = [chosen.network for chosen in attacks]
    first = [networks.index(network) for network in networks]  # attacks on one network share its federations
    runs = range(config.training.seeds)
    trained = [(attack, at, run) for attack in dict.fromkeys(first) for at in range(len(settings)) for run in runs]
    places = places_of(experiment)
    requests = [
        CellRequest(
            cell=utility_cell(experiment, attack, at, run),
            label=_label(experiment, attack, at, f"accuracy, run {run + 1}" if run else "accuracy"),
        )
        for attack, at, run in trained
    ]
    requests += [
        CellRequest(
            cell=exposure_cell(experiment, place),
            label=_label(
                experiment, place.attack, place.setting, f"{attacks[place.attack].label}, batch {place.batch}"
            ),
        )
        for place in places
    ]
    found = run_all(compute, requests, jobs=jobs or os.cpu_count() or 1, title=experiment.name)
    owners = [*(at for _, at, _ in trained), *(place.setting for place in places)]
    failures = {}
    for owner, request, one in zip(owners, requests, found, strict=True):
        if isinstance(one, FedprintError):
            if settings[owner].defence == "none":
                raise one
            failures[request.label] = str(one)
    ended = dict(zip(trained, found[: len(trained)], strict=True))
    each = {(attack, at): [ended[attack, at, run] for run in runs] for attack, at, _ in trained}
    right = {
        key: np.stack([np.asarray(one) for one in hits])
        for key, hits in each.items()
        if not any(isinstance(one, FedprintError) for one in hits)
    }
    exposures = {
        place: one for place, one in zip(places, found[len(trained) :], strict=True) if isinstance(one, Exposure)
    }
    undefended = next(i for i, one in enumerate(settings) if (one.defence, one.variant) == ("none", MAIN))
    models = [model_of(utility_cell(experiment, attack, undefended)) for attack in range(len(attacks))]
    blind = images.test_x.mean(0)
    readings = {
        (place, adversary): reading_of(models[place.attack], exposure, adversary, blind)
        for place, exposure in exposures.items()
        for adversary in exposure.judged
    }
    return Results(
        experiment=experiment,
        hits={
            (attack, setting): right[first[attack], setting]
            for attack in range(len(attacks))
            for setting in range(len(settings))
            if (first[attack], setting) in right
        },
        exposures=exposures,
        readings=readings,
        failures=failures,
    )


def _label(experiment: InversionExperiment, attack: int, setting: int, what: str) -> str:
    """Return what progress and failures call a cell."""
    return f"{what}, {experiment.config.attacks[attack].network.name}, {experiment.settings[setting].label}"


def reading_of(model: FedModule, exposure: Exposure, adversary: str, blind: Tensor) -> Reading:
    """Return the labels that a trained model reads from what an adversary found, and from a mean image (c, h, w)."""
    images = torch.from_numpy(exposure.pictures[adversary]).float() / 255
    labels = torch.from_numpy(exposure.labels)
    return Reading(hits=hits(model, images, labels), blind=hits(model, blind.expand_as(images), labels))


def run_named(root: Path, name: str, line: tuple[bool, Sequence[str]], dry_run: bool, jobs: int | None) -> bool:
    """Run the experiment of a file under ``--fast`` and assignments; return whether there is a report now."""
    experiment = load_inversion(root, name, fast=line[0], assignments=line[1])
    if dry_run:
        networks = len({chosen.network.name for chosen in experiment.config.attacks})
        federations = networks * len(experiment.settings) * experiment.config.training.seeds
        print(f"{name}: {federations} federations and {len(places_of(experiment))} sets of attacked gradients")
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
        gradients=len(exposure.perturbation),
        levels=LEVELS,
        quantiles=exposure.layers,
    )


def _shown(results: Results) -> Iterator[tuple[Place, Exposure]]:
    """Yield what figures show: the papers' grid before the attackers of headlines."""
    for place, exposure in results.exposures.items():
        attack, setting = results.experiment.config.attacks[place.attack], results.experiment.settings[place.setting]
        if attack.variant == setting.variant == MAIN:
            yield place, exposure


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
