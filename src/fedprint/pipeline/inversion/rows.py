"""Measurement rows of an inversion experiment: every number with its interval, chance and n.

Images of one gradient are not independent, so intervals resample victims. Chance is what an adversary scores that sees
no gradient: it answers with the mean test image, with random labels, with a random reconstruction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprint.evaluation.capability import LEAKED, cap, cap_difference, region
from fedprint.evaluation.capability import Setting as Weighed
from fedprint.evaluation.intervals import Bounds, Interval, cluster_mean_interval, proportion_interval
from fedprint.evaluation.metrics import METRICS, measurement
from fedprint.evaluation.reconstruction import SUCCESS
from fedprint.evaluation.rows import Row, to_row
from fedprint.pipeline.inversion.cells import Exposure
from fedprint.pipeline.inversion.config import MAIN, InversionExperiment, Setting
from fedprint.pipeline.inversion.judge import IMAGE_LEVEL, MATCHINGS, Judged
from fedprint.rng import numpy_rng
from fedprint.types import Measurement

COMPARED = ("dp", "ppdl_0.05", "ppdl_0.3")
"""Mechanisms that spn is set against."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an exposure belongs: the attack (its place in the file), the setting (its place) and the batch."""

    attack: int
    setting: int
    batch: int


@dataclass(frozen=True, kw_only=True)
class Results:
    """All cells of an experiment. ``hits`` maps (attack, setting) to test hits (n,) of that attack's network."""

    experiment: InversionExperiment
    hits: Mapping[tuple[int, int], NDArray[np.float64]]
    exposures: Mapping[Place, Exposure]

    def accuracy(self, attack: int, setting: int) -> Interval:
        """Return Acc(m) with its interval."""
        found = self.hits[attack, setting]
        return proportion_interval(float(found.sum()), len(found))


def all_rows(results: Results) -> list[Row]:
    """Return every measurement row, in the order of the file."""
    found = [*_accuracies(results)]
    for place, exposure in results.exposures.items():
        found += _perturbations(results, place, exposure)
        for adversary, judged in exposure.judged.items():
            found += _of_images(_Scene.of(results, place, adversary), judged)
    found += [*_regions(results), *_caps(results)]
    return [to_row(one) for one in found]


@dataclass(frozen=True, kw_only=True)
class _Scene:
    """What the rows of one attacked setting share: their keys, and the victims behind the images (n,)."""

    keys: Mapping[str, Any]
    victims: NDArray[np.int64]
    seed: int

    @classmethod
    def of(cls, results: Results, place: Place, adversary: str) -> _Scene:
        config = results.experiment.config
        setting = results.experiment.settings[place.setting]
        victims = np.repeat(np.arange(config.victims_of(place.batch)), place.batch)
        keys = {**_setting_keys(results, setting), **_attack_keys(results, place.attack, place.batch)}
        return cls(keys={**keys, "adversary": adversary}, victims=victims, seed=config.seed)

    def with_keys(self, **keys: Any) -> _Scene:
        """Return the scene with more keys."""
        return replace(self, keys={**self.keys, **keys})

    def mean(self, metric: str, values: Any, chance: Any, bounds: Bounds | None = (0.0, 1.0)) -> Measurement:
        """Return the mean of one number per image."""
        found = cluster_mean_interval(values, self.victims, self.rng(metric), bounds=bounds)
        info = METRICS[metric]
        interval = Interval(value=found.value, lo=max(found.lo, info.low), hi=min(found.hi, info.high))
        return self.stated(metric, interval, float(np.mean(chance)))

    def stated(self, metric: str, interval: Interval, chance: float | None) -> Measurement:
        """Return a measurement on these images."""
        return replace(measurement(metric, interval, chance, self.victims), keys=self.keys)

    def rng(self, metric: str) -> np.random.Generator:
        """Return the generator of an interval: it depends on what is measured, not on the order."""
        return numpy_rng(self.seed, "interval", metric, json.dumps(dict(self.keys), sort_keys=True, default=str))


def _setting_keys(results: Results, setting: Setting) -> dict[str, Any]:
    experiment = results.experiment
    params = [defence.model_dump(mode="json") for defence in setting.defences]
    return {
        "experiment": experiment.name,
        "dataset": experiment.config.data.name,
        "defence": setting.defence,
        "defence_params": json.dumps(params, sort_keys=True),
        "variant": setting.variant,
        "strength": setting.strength,
        "seed": experiment.config.seed,
        "config_hash": experiment.digest(),
    }


def _attack_keys(results: Results, attack: int, batch: int) -> dict[str, Any]:
    chosen = results.experiment.config.attacks[attack]
    return {"attack": chosen.attack.name, "network": chosen.network.name, "attack_batch": batch, "view": "local"}


def _accuracies(results: Results) -> Iterator[Measurement]:
    classes = 1 / _classes(results)
    networks = [chosen.network.name for chosen in results.experiment.config.attacks]
    for (attack, place), found in results.hits.items():
        if networks.index(networks[attack]) != attack:
            continue  # the same network under another attack
        keys = _setting_keys(results, results.experiment.settings[place])
        keys |= {"network": networks[attack], "training": "federated"}
        yield replace(
            measurement("accuracy", results.accuracy(attack, place), classes, np.arange(len(found))), keys=keys
        )


def _classes(results: Results) -> int:
    from fedprint.pipeline.inversion.networks import images_of

    config = results.experiment.config
    return len(images_of(config.data, config.seed).class_names)


def _perturbations(results: Results, place: Place, exposure: Exposure) -> Iterator[Measurement]:
    """Yield |B| / |E_B|, and for a secret head the same and the cosine of both by layer."""
    scene = _Scene.of(results, place, "")
    victims = np.arange(len(exposure.perturbation))
    scene = replace(scene, victims=victims, keys={**scene.keys, "adversary": None, "attack": None})
    if not np.isfinite(exposure.ratios).all():
        return
    yield scene.mean("perturbation_ratio", exposure.ratios, np.nan, None)
    if scene.keys["defence"] == "spn":
        for layer in exposure.perturbation[0]["layers"]:
            found = [one["layers"][layer] for one in exposure.perturbation if layer in one["layers"]]
            here = replace(scene.with_keys(layers=layer), victims=victims[: len(found)])
            yield here.mean("perturbation_ratio", [ratio for ratio, _ in found], np.nan, None)
            yield here.mean("gradient_cosine", [cosine for _, cosine in found], 0.0, (-1.0, 1.0))


def _of_images(scene: _Scene, judged: Judged) -> Iterator[Measurement]:
    blind = judged.blind
    top = float(blind["top"].max())
    for matching in MATCHINGS:
        here = scene.with_keys(matching=matching)
        error = judged.by_matching[f"{matching}/error"]
        for threshold in SUCCESS:
            success = here.with_keys(threshold=threshold)
            yield success.mean("reconstruction_success", error < threshold, blind["error"] < threshold)
        yield here.mean("reconstruction_rmse", error, blind["error"], (0.0, top))
        yield here.mean("reconstruction_relative_mse", error**2, blind["error"] ** 2, (0.0, top**2))
        yield here.mean("psnr", judged.by_matching[f"{matching}/psnr"], blind["psnr"], (0.0, 100.0))
        yield here.mean("ssim", judged.by_matching[f"{matching}/ssim"], blind["ssim"], (-1.0, 1.0))
        yield here.mean("label_accuracy", judged.by_matching[f"{matching}/labels"], blind["labels"])
    for number, hits in judged.traced.items():
        level = "image" if number == IMAGE_LEVEL else "participant"
        here = scene.with_keys(level=level, participants=number or len(hits))
        yield here.mean("tracing_accuracy", hits, judged.traced_chance[number])


def _regions(results: Results) -> Iterator[Measurement]:
    """Yield error, ratio and success (< 0.2) of the images in each region, mechanism by mechanism (spn, figure 6)."""
    config = results.experiment.config
    for attack, chosen in enumerate(config.attacks):
        for batch in chosen.batches:
            for adversary in config.adversaries:
                for defence in (*COMPARED, "spn"):
                    yield from _regions_of(results, attack, batch, adversary, defence)


def _regions_of(results: Results, attack: int, batch: int, adversary: str, defence: str) -> Iterator[Measurement]:
    settings = results.experiment.settings
    main = [i for i, s in enumerate(settings) if (s.defence, s.variant) == (defence, MAIN)]
    if not main:
        return
    exposures = [results.exposures[Place(attack=attack, setting=i, batch=batch)] for i in main]
    scene = _Scene.of(results, Place(attack=attack, setting=main[0], batch=batch), adversary)
    scene = scene.with_keys(strength=None, defence_params=None, matching=MATCHINGS[1])
    ratio = np.concatenate([np.repeat(exposure.ratios, batch) for exposure in exposures])
    error = np.concatenate([exposure.judged[adversary].by_matching["assignment/error"] for exposure in exposures])
    blind = np.concatenate([exposure.judged[adversary].blind["error"] for exposure in exposures])
    top = float(exposures[0].judged[adversary].blind["top"].max())
    victims = np.tile(scene.victims, len(main))
    where = np.array([region(float(r), float(e)) for r, e in zip(ratio, error, strict=True)])
    for name in ("green", "white", "red"):
        inside = where == name
        if inside.any():
            here = replace(scene.with_keys(region=name), victims=victims[inside])
            yield here.mean("reconstruction_rmse", error[inside], blind[inside], (0.0, top))
            yield here.mean("perturbation_ratio", ratio[inside], np.nan, None)
            success = here.with_keys(threshold=LEAKED)
            yield success.mean("reconstruction_success", error[inside] < LEAKED, blind[inside] < LEAKED)


def _caps(results: Results) -> Iterator[Measurement]:
    config = results.experiment.config
    for attack, chosen in enumerate(config.attacks):
        for batch in chosen.batches:
            for adversary in config.adversaries:
                yield from _caps_of(results, attack, batch, adversary)


@dataclass(frozen=True, kw_only=True)
class _Distance:
    """One of the papers' distances of an image, as CAP takes it, and what a blind adversary leaves."""

    metric: str
    keys: Mapping[str, Any]
    values: NDArray[np.float64]
    blind: NDArray[np.float64]
    top: float

    @property
    def main(self) -> bool:
        """Whether this reading is the headline: the best assignment, participants."""
        return self.keys.get("matching") == MATCHINGS[1] or self.keys.get("level") == "participant"


def _distances(judged: Judged) -> list[_Distance]:
    """Return the distances of one setting: relative error, labels missed, images mistraced."""
    found = []
    top = float(judged.blind["top"].max())
    for matching in MATCHINGS:
        keys = {"matching": matching}
        error, labels = (judged.by_matching[f"{matching}/{name}"] for name in ("error", "labels"))
        blind, guessed = judged.blind["error"], judged.blind["labels"]
        found.append(_Distance(metric="cap_reconstruction", keys=keys, values=error, blind=blind, top=top))
        found.append(_Distance(metric="cap_membership", keys=keys, values=1 - labels, blind=1 - guessed, top=1.0))
    everyone = max(judged.traced)
    for number, level in ((everyone, "participant"), (IMAGE_LEVEL, "image")):
        hits, chance = judged.traced[number], judged.traced_chance[number]
        asked: dict[str, Any] = {"level": level, "participants": number or len(hits)}
        found.append(_Distance(metric="cap_tracing", keys=asked, values=1 - hits, blind=1 - chance, top=1.0))
    return found


def _caps_of(results: Results, attack: int, batch: int, adversary: str) -> Iterator[Measurement]:
    groups: dict[tuple[str, str], list[int]] = {}
    for place, setting in enumerate(results.experiment.settings):
        if Place(attack=attack, setting=place, batch=batch) not in results.exposures:
            continue  # an ablation
        groups.setdefault((setting.defence, setting.variant), []).append(place)
    main: dict[str, tuple[list[Weighed], float]] = {}
    for (defence, variant), places in groups.items():
        scene = _Scene.of(results, Place(attack=attack, setting=places[0], batch=batch), adversary)
        averaged = {"strength": None, "strengths": len(places), "defence_params": None}
        scene = scene.with_keys(**averaged)
        headline = variant == MAIN and adversary == results.experiment.config.adversaries[-1]
        judged = [
            results.exposures[Place(attack=attack, setting=place, batch=batch)].judged[adversary] for place in places
        ]
        accuracies = [results.accuracy(attack, place) for place in places]
        for alike in zip(*(_distances(one) for one in judged), strict=True):
            first = alike[0]
            here = scene.with_keys(**first.keys, selected=headline and first.main)
            weighed = [
                Weighed(accuracy=a, distances=distance.values) for a, distance in zip(accuracies, alike, strict=True)
            ]
            interval = cap(weighed, scene.victims, here.rng(first.metric), first.top)
            chance = np.mean([a.value * d.blind.mean() for a, d in zip(accuracies, alike, strict=True)])
            yield here.stated(first.metric, interval, float(chance))
            if variant == MAIN and first.metric == "cap_reconstruction" and first.main:
                main[defence] = weighed, first.top
    yield from _leads(main, scene)


def _leads(main: Mapping[str, tuple[list[Weighed], float]], scene: _Scene) -> Iterator[Measurement]:
    """Yield how far spn's reconstruction CAP is above each other mechanism's, on the papers' grid."""
    for other in COMPARED:
        if "spn" in main and other in main:
            (own, top), (theirs, _) = main["spn"], main[other]
            here = scene.with_keys(defence="spn", variant=MAIN, against=other, matching=MATCHINGS[1])
            interval = cap_difference(own, theirs, scene.victims, here.rng("cap_difference"), top)
            yield here.stated("cap_difference", interval, None)
