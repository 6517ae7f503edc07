"""Measurement rows of an inversion experiment: every number with its interval, chance and n.

Images of one gradient are not independent, so intervals resample victims. Chance is the score of an
adversary that sees no gradient: it answers with the mean test image, random labels or a random reconstruction.
``n_seeds`` counts victims, who share no randomness, or federations (:func:`seeds_behind`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedprint.evaluation.intervals import Bounds
from fedprint.evaluation.inversion.capability import LEAKED, region
from fedprint.evaluation.inversion.reconstruction import SUCCESS
from fedprint.evaluation.metrics import measurement
from fedprint.evaluation.rows import Row, to_row
from fedprint.kinds.inversion.config import MAIN
from fedprint.kinds.inversion.jobs import Cell, images_of
from fedprint.kinds.inversion.results.candidates import rows_of_candidates
from fedprint.kinds.inversion.results.judge import IMAGE_LEVEL, MATCHINGS, PIXELS, Judged, largest_error
from fedprint.kinds.inversion.results.outcome import Exposure
from fedprint.kinds.inversion.results.scene import Reading, Results, Scene, setting_keys
from fedprint.kinds.inversion.results.scores import COMPARED, rows_of_scores
from fedprint.types import Measurement


def all_rows(results: Results) -> list[Row]:
    """Return every measurement row, in the order of the file."""
    rows = [*_accuracies(results)]
    for cell, exposure in results.exposures.items():
        first = not results.experiment.config.repeats(cell.attack, cell.batch)
        if first:
            rows += _perturbations(results, cell, exposure)
        for adversary, judged in exposure.judged.items():
            scene = Scene.of(results.experiment, cell, adversary)
            rows += rows_of_images(scene, judged, results.readings[cell, adversary])
            if first:
                rows += rows_of_candidates(scene, judged.candidates, results.experiment.config.participants)
    rows += [*_regions(results), *rows_of_scores(results)]
    return [{**to_row(one), "n_seeds": seeds_behind(one, results.experiment.config.training.seeds)} for one in rows]


def seeds_behind(one: Measurement, federations: int) -> int:
    """Return how many draws of all that is random a number rests on.

    Each victim has a network, images and a mechanism's randomness of its own. An accuracy has so many federations, and
    CAP both. Labels are read from images by one trained model.
    """
    if one.metric == "accuracy":
        return federations
    if one.keys.get("labels") == "image":
        return 1
    return min(one.n_users, federations) if one.metric.startswith("cap_") else one.n_users


def _accuracies(results: Results) -> Iterator[Measurement]:
    classes = 1 / _classes(results)
    networks = [chosen.network.name for chosen in results.experiment.config.attacks]
    for (attack, setting), hits in results.hits.items():
        if networks.index(networks[attack]) != attack:
            continue  # the same network under another attack
        keys = setting_keys(results.experiment, results.experiment.settings[setting])
        keys |= {"network": networks[attack], "training": "federated", "runs": len(hits)}
        yield replace(
            measurement("accuracy", results.accuracy(attack, setting), classes, np.arange(hits.shape[1])), keys=keys
        )


def _classes(results: Results) -> int:
    config = results.experiment.config
    return len(images_of(config.data, config.seed).class_names)


def _perturbations(results: Results, cell: Cell, exposure: Exposure) -> Iterator[Measurement]:
    """Yield |B| / |E_B|, and for a secret head the same and the cosine of both by layer."""
    scene = Scene.of(results.experiment, cell, "")
    victims = np.arange(len(exposure.any.perturbation))
    scene = replace(
        scene, victims=victims, keys={**scene.keys, "adversary": None, "attack": None, "attack_variant": None}
    )
    if not np.isfinite(exposure.ratios).all():
        return
    yield scene.mean("perturbation_ratio", exposure.ratios, np.nan, None)
    if scene.keys["defence"] == "spn":
        for layer in exposure.any.perturbation[0]["layers"]:
            pairs = [one["layers"][layer] for one in exposure.any.perturbation if layer in one["layers"]]
            here = replace(scene.with_keys(layers=layer), victims=victims[: len(pairs)])
            yield here.mean("perturbation_ratio", [ratio for ratio, _ in pairs], np.nan, None)
            yield here.mean("gradient_cosine", [cosine for _, cosine in pairs], 0.0, (-1.0, 1.0))


def rows_of_images(scene: Scene, judged: Judged, reading: Reading | None = None) -> Iterator[Measurement]:
    """Yield the results of one adversary; a ``reading`` adds the labels that a model reads from the images."""
    blind = judged.blind
    for matching in MATCHINGS:
        here = scene.with_keys(matching=matching)
        for pixels, name in PIXELS.items():
            error, top = judged.by_matching[f"{matching}/{name}"], largest_error(judged, pixels)
            measured = here.with_keys(pixels=pixels)
            yield measured.mean("reconstruction_rmse", error, blind["error"], _up_to(top))
            yield measured.mean("reconstruction_relative_mse", error**2, blind["error"] ** 2, _up_to(top, 2))
        cut, error = here.with_keys(pixels="clipped"), judged.by_matching[f"{matching}/error"]
        for threshold in SUCCESS:
            success = cut.with_keys(threshold=threshold)
            yield success.mean("reconstruction_success", error < threshold, blind["error"] < threshold)
        yield cut.mean("psnr", judged.by_matching[f"{matching}/psnr"], blind["psnr"], (0.0, 100.0))
        yield cut.mean("ssim", judged.by_matching[f"{matching}/ssim"], blind["ssim"], (-1.0, 1.0))
        labels, guessed = judged.by_matching[f"{matching}/labels"], blind[f"{matching}/labels"]
        yield here.with_keys(labels="gradient").mean("label_accuracy", labels, guessed)
    if reading is not None:
        seen = scene.with_keys(matching=MATCHINGS[1], labels="image")
        yield seen.mean("label_accuracy", reading.hits, reading.blind)
    for number, hits in judged.traced.items():
        level = "image" if number == IMAGE_LEVEL else "participant"
        traced = scene.with_keys(level=level, participants=number or len(hits))
        yield traced.mean("tracing_accuracy", hits, judged.traced_chance[number])


def _up_to(top: float | None, power: int = 1) -> Bounds | None:
    return None if top is None else (0.0, top**power)


def _regions(results: Results) -> Iterator[Measurement]:
    """Yield error, ratio and success (< 0.2) of the images in each region, mechanism by mechanism (spn, figure 6)."""
    config = results.experiment.config
    for attack, chosen in enumerate(config.attacks):
        for batch in chosen.batches:
            for adversary in config.adversaries_of(attack):
                for defence in (*COMPARED, "spn"):
                    yield from _regions_of(results, attack, batch, adversary, defence)


def _regions_of(results: Results, attack: int, batch: int, adversary: str, defence: str) -> Iterator[Measurement]:
    settings = results.experiment.settings
    main = [i for i, s in enumerate(settings) if (s.defence, s.variant) == (defence, MAIN)]
    asked = (Cell(attack=attack, setting=i, batch=batch) for i in main)
    cells = [cell for cell in asked if cell in results.exposures]
    if not cells:
        return
    exposures = [results.exposures[cell] for cell in cells]
    scene = Scene.of(results.experiment, cells[0], adversary)
    scene = scene.with_keys(strength=None, defence_params=None, matching=MATCHINGS[1])
    judged = [exposure.judged[adversary] for exposure in exposures]
    ratio = np.concatenate([np.repeat(exposure.ratios, batch) for exposure in exposures])
    errors = {
        pixels: np.concatenate([one.by_matching[f"assignment/{name}"] for one in judged])
        for pixels, name in PIXELS.items()
    }
    error, blind = errors["clipped"], np.concatenate([one.blind["error"] for one in judged])
    victims = np.tile(scene.victims, len(cells))
    where = np.array([region(float(r), float(e)) for r, e in zip(ratio, error, strict=True)])
    for name in ("green", "white", "red"):
        inside = where == name
        if inside.any():
            here = replace(scene.with_keys(region=name), victims=victims[inside])
            for pixels, values in errors.items():
                bounds = _up_to(largest_error(judged[0], pixels))
                measured = here.with_keys(pixels=pixels)
                yield measured.mean("reconstruction_rmse", values[inside], blind[inside], bounds)
            if np.isfinite(ratio[inside]).all():  # a strength of 0 perturbs nothing
                yield here.mean("perturbation_ratio", ratio[inside], np.nan, None)
            success = here.with_keys(threshold=LEAKED, pixels="clipped")
            yield success.mean("reconstruction_success", error[inside] < LEAKED, blind[inside] < LEAKED)
