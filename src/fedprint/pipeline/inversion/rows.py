"""Measurement rows of an inversion experiment: every number with its interval, chance and n.

Images of one gradient are not independent, so intervals resample victims. Chance is what an adversary scores that sees
no gradient: it answers with the mean test image, with random labels, with a random reconstruction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprint.evaluation.capability import LEAKED, cap, cap_difference, region
from fedprint.evaluation.capability import Setting as Weighed
from fedprint.evaluation.intervals import Bounds
from fedprint.evaluation.metrics import measurement
from fedprint.evaluation.reconstruction import SUCCESS
from fedprint.evaluation.rows import Row, to_row
from fedprint.pipeline.inversion.cells import Exposure
from fedprint.pipeline.inversion.config import MAIN
from fedprint.pipeline.inversion.judge import IMAGE_LEVEL, MATCHINGS, Judged
from fedprint.pipeline.inversion.scene import Place, Reading, Results, Scene, setting_keys
from fedprint.pipeline.inversion.sought import rows_of_sought
from fedprint.types import Measurement

COMPARED = ("dp", "ppdl_0.05", "ppdl_0.3")
"""Mechanisms that spn is set against."""


def all_rows(results: Results) -> list[Row]:
    """Return every measurement row, in the order of the file."""
    found = [*_accuracies(results)]
    for place, exposure in results.exposures.items():
        found += _perturbations(results, place, exposure)
        for adversary, judged in exposure.judged.items():
            scene = Scene.of(results, place, adversary)
            found += _of_images(scene, judged, results.readings[place, adversary])
            if _first_on_its_network(results, place):
                found += rows_of_sought(scene, judged.sought, results.experiment.config.participants)
    found += [*_regions(results), *_caps(results)]
    return [to_row(one) for one in found]


def _first_on_its_network(results: Results, place: Place) -> bool:
    """Return whether no attack before attacks such gradients too: what needs no reconstruction is the same for both."""
    attacks = results.experiment.config.attacks
    network = attacks[place.attack].network
    return not any(one.network == network and place.batch in one.batches for one in attacks[: place.attack])


def _accuracies(results: Results) -> Iterator[Measurement]:
    classes = 1 / _classes(results)
    networks = [chosen.network.name for chosen in results.experiment.config.attacks]
    for (attack, place), found in results.hits.items():
        if networks.index(networks[attack]) != attack:
            continue  # the same network under another attack
        keys = setting_keys(results, results.experiment.settings[place])
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
    scene = Scene.of(results, place, "")
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


PIXELS: Mapping[str, str] = {"raw": "raw-error", "clipped": "error"}
"""How images are measured -> the name of their errors: as the search left them (papers.md 4.1), or cut to [0, 1]."""


def _of_images(scene: Scene, judged: Judged, reading: Reading) -> Iterator[Measurement]:
    blind = judged.blind
    for matching in MATCHINGS:
        here = scene.with_keys(matching=matching)
        for pixels, name in PIXELS.items():
            error, top = judged.by_matching[f"{matching}/{name}"], _top(judged, pixels)
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
    seen = scene.with_keys(matching=MATCHINGS[1], labels="image")
    yield seen.mean("label_accuracy", reading.hits, reading.blind)
    for number, hits in judged.traced.items():
        level = "image" if number == IMAGE_LEVEL else "participant"
        traced = scene.with_keys(level=level, participants=number or len(hits))
        yield traced.mean("tracing_accuracy", hits, judged.traced_chance[number])


def _top(judged: Judged, pixels: str) -> float | None:
    """Return the largest error that there can be: none for pixels that may be anything."""
    return None if pixels == "raw" else float(judged.blind["top"].max())


def _up_to(top: float | None, power: int = 1) -> Bounds | None:
    return None if top is None else (0.0, top**power)


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
    scene = Scene.of(results, Place(attack=attack, setting=main[0], batch=batch), adversary)
    scene = scene.with_keys(strength=None, defence_params=None, matching=MATCHINGS[1])
    judged = [exposure.judged[adversary] for exposure in exposures]
    ratio = np.concatenate([np.repeat(exposure.ratios, batch) for exposure in exposures])
    errors = {
        pixels: np.concatenate([one.by_matching[f"assignment/{name}"] for one in judged])
        for pixels, name in PIXELS.items()
    }
    error, blind = errors["clipped"], np.concatenate([one.blind["error"] for one in judged])
    victims = np.tile(scene.victims, len(main))
    where = np.array([region(float(r), float(e)) for r, e in zip(ratio, error, strict=True)])
    for name in ("green", "white", "red"):
        inside = where == name
        if inside.any():
            here = replace(scene.with_keys(region=name), victims=victims[inside])
            for pixels, values in errors.items():
                bounds = _up_to(_top(judged[0], pixels))
                measured = here.with_keys(pixels=pixels)
                yield measured.mean("reconstruction_rmse", values[inside], blind[inside], bounds)
            yield here.mean("perturbation_ratio", ratio[inside], np.nan, None)
            success = here.with_keys(threshold=LEAKED, pixels="clipped")
            yield success.mean("reconstruction_success", error[inside] < LEAKED, blind[inside] < LEAKED)


def _caps(results: Results) -> Iterator[Measurement]:
    config = results.experiment.config
    for attack, chosen in enumerate(config.attacks):
        for batch in chosen.batches:
            for adversary in config.adversaries:
                yield from _caps_of(results, attack, batch, adversary)


@dataclass(frozen=True, kw_only=True)
class _Distance:
    """One of the papers' distances of an image, as CAP takes it, and what a blind adversary leaves.

    ``top`` is the largest that there can be, None without one.
    """

    metric: str
    keys: Mapping[str, Any]
    values: NDArray[np.float64]
    blind: NDArray[np.float64]
    top: float | None = 1.0

    @property
    def main(self) -> bool:
        """Whether this is the reading of headlines: cut pixels, best assignment, labels of gradients, participants."""
        other = self.keys.get("pixels") == "raw" or self.keys.get("labels") == "image"
        return not other and (self.keys.get("matching") == MATCHINGS[1] or self.keys.get("level") == "participant")


def _distances(judged: Judged, reading: Reading) -> list[_Distance]:
    """Return the distances of one setting: relative error, labels missed, images mistraced."""
    found, blind = [], judged.blind
    for matching in MATCHINGS:
        for pixels, name in PIXELS.items():
            keys = {"matching": matching, "pixels": pixels}
            error, top = judged.by_matching[f"{matching}/{name}"], _top(judged, pixels)
            found.append(_Distance(metric="cap_reconstruction", keys=keys, values=error, blind=blind["error"], top=top))
        missed, guessed = (1 - one[f"{matching}/labels"] for one in (judged.by_matching, blind))
        keys = {"matching": matching, "labels": "gradient"}
        found.append(_Distance(metric="cap_membership", keys=keys, values=missed, blind=guessed))
    keys = {"matching": MATCHINGS[1], "labels": "image"}
    found.append(_Distance(metric="cap_membership", keys=keys, values=1 - reading.hits, blind=1 - reading.blind))
    everyone = max(judged.traced)
    for number, level in ((everyone, "participant"), (IMAGE_LEVEL, "image")):
        hits, chance = judged.traced[number], judged.traced_chance[number]
        asked: dict[str, Any] = {"level": level, "participants": number or len(hits)}
        found.append(_Distance(metric="cap_tracing", keys=asked, values=1 - hits, blind=1 - chance))
    return found


def _caps_of(results: Results, attack: int, batch: int, adversary: str) -> Iterator[Measurement]:
    groups: dict[tuple[str, str], list[Place]] = {}
    for number, setting in enumerate(results.experiment.settings):
        place = Place(attack=attack, setting=number, batch=batch)
        if place in results.exposures:  # an ablation may not be attacked here
            groups.setdefault((setting.defence, setting.variant), []).append(place)
    main: dict[tuple[str, str], _Averaged] = {}
    for (defence, variant), places in groups.items():
        scene = Scene.of(results, places[0], adversary)
        scene = scene.with_keys(strength=None, strengths=len(places), defence_params=None)
        headline = variant == MAIN and adversary == results.experiment.config.adversaries[-1]
        found = [
            _distances(results.exposures[place].judged[adversary], results.readings[place, adversary])
            for place in places
        ]
        accuracies = [results.accuracy(attack, place.setting) for place in places]
        for alike in zip(*found, strict=True):
            first = alike[0]
            here = scene.with_keys(**first.keys, selected=headline and first.main)
            weighed = [
                Weighed(accuracy=a, distances=distance.values) for a, distance in zip(accuracies, alike, strict=True)
            ]
            interval = cap(weighed, scene.victims, here.rng(first.metric), first.top)
            chance = np.mean([a.value * d.blind.mean() for a, d in zip(accuracies, alike, strict=True)])
            yield here.stated(first.metric, interval, float(chance))
            if variant == MAIN and first.metric == "cap_reconstruction" and first.keys["matching"] == MATCHINGS[1]:
                main[defence, first.keys["pixels"]] = _Averaged(scene=scene, settings=weighed, top=first.top)
    yield from _leads(main)


@dataclass(frozen=True, kw_only=True)
class _Averaged:
    """A mechanism at the strengths of the papers' grid, with the scene of their mean."""

    scene: Scene
    settings: list[Weighed]
    top: float | None


def _leads(main: Mapping[tuple[str, str], _Averaged]) -> Iterator[Measurement]:
    """Yield how far spn's reconstruction CAP is above each other mechanism's, on the papers' grid."""
    for other in COMPARED:
        for pixels in PIXELS:
            own, theirs = main.get(("spn", pixels)), main.get((other, pixels))
            if own and theirs:
                here = own.scene.with_keys(against=other, matching=MATCHINGS[1], pixels=pixels)
                rng = here.rng("cap_difference")
                interval = cap_difference(own.settings, theirs.settings, here.victims, rng, own.top)
                yield here.stated("cap_difference", interval, None)
