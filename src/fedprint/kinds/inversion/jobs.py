"""The jobs of an inversion experiment: federations that give each mechanism its accuracy, and attacks on gradients."""

from __future__ import annotations

from dataclasses import dataclass

from fedprint.data.sources.labelled_images import LabelledImages, LabelledSet
from fedprint.kinds.images import image_job, loaded
from fedprint.kinds.inversion.config import MAIN, InversionExperiment
from fedprint.kinds.inversion.graph import ACCURACY_WORK, ADAPTIVE_WORK, NAIVE_WORK
from fedprint.kinds.inversion.settings import AccuracySettings, ExposureSettings
from fedprint.lab.graph import Job
from fedprint.rng import seed_for
from fedprint.types import AdversaryName


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of the grid: an attack and a setting, by their indices, and a batch size."""

    attack: int
    setting: int
    batch: int


@dataclass(frozen=True, kw_only=True)
class Training:
    """A federation: the ``run``-th of an attack's network under a setting."""

    attack: int
    setting: int
    run: int


@dataclass(frozen=True, kw_only=True)
class Attacking:
    """An adversary that attacks a cell."""

    cell: Cell
    adversary: AdversaryName


Part = Training | Attacking


def images_of(source: LabelledImages, seed: int) -> LabelledSet:
    """Return the images of an experiment, outside of stages."""
    return loaded(source, seed_for(seed, "data"))


def parts_of(experiment: InversionExperiment) -> list[Part]:
    """Return the parts of the experiment: federations first, then small batches first.

    Attacks on one network share its federations. Without a mechanism all adversaries know the same, and one job stands
    for all of them.
    """
    networks = [chosen.network for chosen in experiment.config.attacks]
    trainings = [
        Training(attack=attack, setting=setting, run=run)
        for attack in dict.fromkeys(networks.index(network) for network in networks)
        for setting in range(len(experiment.settings))
        for run in range(experiment.config.training.seeds)
    ]
    attacks = [
        Attacking(cell=cell, adversary=adversary)
        for cell in cells_of(experiment)
        for adversary in adversaries_in(experiment, cell)
    ]
    return [*trainings, *attacks]


def cells_of(experiment: InversionExperiment) -> list[Cell]:
    """Return the attacked cells: small batches first, so that a stopped run has whole tables.

    Only main attacks attack ablations, in their first batch size; a variant may attack some mechanisms.
    """
    attacks = experiment.config.attacks
    batches = sorted({batch for chosen in attacks for batch in chosen.batches})
    return [
        Cell(attack=attack, setting=number, batch=batch)
        for batch in batches
        for attack, chosen in enumerate(attacks)
        if batch in chosen.batches
        for number, setting in enumerate(experiment.settings)
        if (
            setting.defence in (chosen.mechanisms or (setting.defence,))
            if setting.variant == MAIN
            else chosen.variant == MAIN and batch == chosen.batches[0]
        )
    ]


def adversaries_in(experiment: InversionExperiment, cell: Cell) -> tuple[AdversaryName, ...]:
    """Return the adversaries of a cell that differ."""
    adversaries = experiment.config.adversaries_of(cell.attack)
    return adversaries if experiment.settings[cell.setting].defences else adversaries[:1]


def job_of(experiment: InversionExperiment, part: Part) -> Job:
    """Return a job. An adversary who does not know the mechanism cannot open it."""
    label = label_of(experiment, part)
    if isinstance(part, Training):
        training = accuracy_settings(experiment, part.attack, part.setting, part.run)
        return image_job(ACCURACY_WORK, training, training.data, training.seed, label)
    exposure = exposure_settings(experiment, part.cell)
    work = ADAPTIVE_WORK if exposure.defences and part.adversary == "adaptive" else NAIVE_WORK
    return image_job(work, exposure, exposure.data, exposure.seed, label)


def label_of(experiment: InversionExperiment, part: Part) -> str:
    """Return the label of a job."""
    attacks, settings = experiment.config.attacks, experiment.settings
    if isinstance(part, Training):
        what = f"accuracy, run {part.run + 1}" if part.run else "accuracy"
        return f"{what}, {attacks[part.attack].network.name}, {settings[part.setting].label}"
    chosen, setting = attacks[part.cell.attack], settings[part.cell.setting]
    label = f"{chosen.label}, batch {part.cell.batch}, {chosen.network.name}, {setting.label}"
    return f"{label}, {part.adversary}" if setting.defences else label


def accuracy_settings(experiment: InversionExperiment, attack: int, setting: int, run: int = 0) -> AccuracySettings:
    """Return a federation behind Acc(m) of an attack's network; it does not depend on how many others there are."""
    config = experiment.config
    return AccuracySettings(
        data=config.data,
        network=config.attacks[attack].network,
        training=config.training.model_copy(update={"seeds": 1}),
        defences=experiment.settings[setting].defences,
        seed=config.seed,
        run=run,
    )


def exposure_settings(experiment: InversionExperiment, cell: Cell) -> ExposureSettings:
    """Return the settings of the attack on one cell."""
    config = experiment.config
    chosen, candidates = config.attacks[cell.attack], config.candidates
    if config.repeats(cell.attack, cell.batch):  # the earlier attack's rows stand for what is found without a search
        candidates = candidates.model_copy(update={"lira": 0, "gradients": 2, "pairs": 2})
    return ExposureSettings(
        data=config.data,
        network=chosen.network,
        defences=experiment.settings[cell.setting].defences,
        attack=chosen.attack_on(cell.batch),
        participants=tuple(sorted({*config.participants, config.traced_among(cell.attack)})),
        candidates=candidates,
        batch=cell.batch,
        victims=config.victims_of(cell.attack, cell.batch),
        seed=config.seed,
        local=chosen.local,
    )
