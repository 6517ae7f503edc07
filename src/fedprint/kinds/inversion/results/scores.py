"""CAP rows of an inversion experiment: what each mechanism protects and costs, and by how much one is above another.

A mechanism of which a strength is missing has no score: a mean over another grid would be another score.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprint.evaluation.inversion.capability import Setting, cap, cap_difference
from fedprint.kinds.inversion.config import MAIN
from fedprint.kinds.inversion.jobs import Cell
from fedprint.kinds.inversion.results.judge import IMAGE_LEVEL, MATCHINGS, PIXELS, Judged, largest_error
from fedprint.kinds.inversion.results.scene import Reading, Results, Scene
from fedprint.reports.numbers.inversion import AGAINST
from fedprint.types import Doubles, Measurement

COMPARED = ("dp", "ppdl_0.05", "ppdl_0.3")
"""Mechanisms that spn is set against."""


def rows_of_scores(results: Results) -> Iterator[Measurement]:
    """Yield every CAP score, how far spn's is above the others', and how far an ablation is above what it varies."""
    for attack, chosen in enumerate(results.experiment.config.attacks):
        for batch in chosen.batches:
            for adversary in results.experiment.config.adversaries_of(attack):
                grids = _grids(results, attack, batch, adversary)
                for grid in grids.values():
                    yield from _caps(grid)
                for other in COMPARED:
                    if {("spn", MAIN), (other, MAIN)} <= set(grids):
                        yield from _leads(grids["spn", MAIN], grids[other, MAIN], other)
                for (defence, variant), grid in grids.items():
                    if variant != MAIN and (defence, MAIN) in grids:
                        yield from _beside(grid, grids[defence, MAIN], defence)
                if chosen.local:
                    of_gradients = _grids_of_gradients(results, attack, batch, adversary)
                    for name in (name for name in grids if name in of_gradients):
                        yield from _beside(grids[name], of_gradients[name], AGAINST)


@dataclass(frozen=True, kw_only=True)
class _Distance:
    """One of the papers' distances of an image, as CAP takes it, and what a blind adversary leaves.

    ``top`` is the largest that there can be, None without one.
    """

    metric: str
    keys: Mapping[str, Any]
    values: Doubles
    blind: Doubles
    top: float | None = 1.0

    @property
    def main(self) -> bool:
        """Whether this is the reading of headlines: cut pixels, best assignment, labels of gradients, participants."""
        other = self.keys.get("pixels") == "raw" or self.keys.get("labels") == "image"
        return not other and (self.keys.get("matching") == MATCHINGS[1] or self.keys.get("level") == "participant")


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """A mechanism at all its strengths before one adversary: test hits, distances and a scene of each strength."""

    strengths: tuple[float, ...]
    hits: list[Doubles]
    distances: list[list[_Distance]]
    scenes: list[Scene]
    headline: bool

    def scene(self, strengths: int, **keys: Any) -> Scene:
        """Return the scene of a mean over so many strengths."""
        return self.scenes[0].with_keys(strength=None, strengths=strengths, defence_params=None, **keys)

    def settings(self, reading: int, strengths: Collection[float]) -> list[Setting]:
        """Return what CAP averages over these of the strengths, in one of the readings."""
        return [
            Setting(hits=hits, distances=distances[reading].values)
            for strength, hits, distances in zip(self.strengths, self.hits, self.distances, strict=True)
            if strength in strengths
        ]

    @property
    def errors(self) -> list[tuple[int, str]]:
        """The readings of relative errors in the best assignment, with their pixels."""
        return [
            (index, str(one.keys["pixels"]))
            for index, one in enumerate(self.distances[0])
            if one.metric == "cap_reconstruction" and one.keys["matching"] == MATCHINGS[1]
        ]


def _grids(results: Results, attack: int, batch: int, adversary: str) -> dict[tuple[str, str], _Grid]:
    """Return the whole grids by (defence, variant); an ablation may not be attacked here."""
    config, settings = results.experiment.config, results.experiment.settings
    groups: dict[tuple[str, str], list[Cell]] = {}
    for number, setting in enumerate(settings):
        groups.setdefault((setting.defence, setting.variant), []).append(
            Cell(attack=attack, setting=number, batch=batch)
        )
    first = config.attacks[attack].variant == MAIN and adversary == config.adversaries[-1]
    participants = config.traced_among(attack)
    return {
        name: _Grid(
            strengths=tuple(settings[cell.setting].strength for cell in cells),
            hits=[results.hits[attack, cell.setting] for cell in cells],
            distances=[
                _distances(results.exposures[cell].judged[adversary], results.readings[cell, adversary], participants)
                for cell in cells
            ],
            scenes=[Scene.of(results.experiment, cell, adversary) for cell in cells],
            headline=first and name[1] == MAIN,
        )
        for name, cells in groups.items()
        if all(cell in results.exposures and (attack, cell.setting) in results.hits for cell in cells)
    }


def _grids_of_gradients(results: Results, attack: int, batch: int, adversary: str) -> dict[tuple[str, str], _Grid]:
    """Return the grids of the same attack, of headlines, on single gradients of the same images; none without one."""
    config = results.experiment.config
    here = config.attacks[attack]
    for other, one in enumerate(config.attacks):
        if (one.attack.name, one.network, one.variant) == (here.attack.name, here.network, MAIN):
            asked = batch in one.batches and adversary in config.adversaries_of(other)
            return _grids(results, other, batch, adversary) if asked else {}
    return {}


def _distances(judged: Judged, reading: Reading, participants: int) -> list[_Distance]:
    """Return the distances of one setting: relative error, labels missed, images mistraced."""
    distances, blind = [], judged.blind
    for matching in MATCHINGS:
        for pixels, name in PIXELS.items():
            keys = {"matching": matching, "pixels": pixels}
            error, top = judged.by_matching[f"{matching}/{name}"], largest_error(judged, pixels)
            distances.append(
                _Distance(metric="cap_reconstruction", keys=keys, values=error, blind=blind["error"], top=top)
            )
        missed, guessed = (1 - one[f"{matching}/labels"] for one in (judged.by_matching, blind))
        keys = {"matching": matching, "labels": "gradient"}
        distances.append(_Distance(metric="cap_membership", keys=keys, values=missed, blind=guessed))
    keys = {"matching": MATCHINGS[1], "labels": "image"}
    distances.append(_Distance(metric="cap_membership", keys=keys, values=1 - reading.hits, blind=1 - reading.blind))
    for number, level in ((participants, "participant"), (IMAGE_LEVEL, "image")):
        hits, chance = judged.traced[number], judged.traced_chance[number]
        asked: dict[str, Any] = {"level": level, "participants": number or len(hits)}
        distances.append(_Distance(metric="cap_tracing", keys=asked, values=1 - hits, blind=1 - chance))
    return distances


def _caps(grid: _Grid) -> Iterator[Measurement]:
    scene = grid.scene(len(grid.strengths))
    for reading, first in enumerate(grid.distances[0]):
        here = scene.with_keys(**first.keys, selected=grid.headline and first.main)
        settings = grid.settings(reading, grid.strengths)
        interval = cap(settings, scene.victims, here.rng(first.metric), first.top)
        blind = [one[reading].blind.mean() for one in grid.distances]
        chance = np.mean([s.accuracy.value * b for s, b in zip(settings, blind, strict=True)])
        yield here.stated(first.metric, interval, float(chance))


def _leads(spn: _Grid, theirs: _Grid, other: str) -> Iterator[Measurement]:
    """Yield how far spn's reconstruction CAP is above another mechanism's, on the papers' grid."""
    for reading, pixels in spn.errors:
        here = spn.scene(len(spn.strengths), against=other, matching=MATCHINGS[1], pixels=pixels)
        first, second = (grid.settings(reading, grid.strengths) for grid in (spn, theirs))
        yield _difference(here, first, second, spn.distances[0][reading].top)


def _beside(ablation: _Grid, main: _Grid, against: str) -> Iterator[Measurement]:
    """Yield how far an ablation is above what it varies at the strengths of both: CAP, and the error at each."""
    shared = [strength for strength in ablation.strengths if strength in main.strengths]
    for reading, pixels in ablation.errors if shared else ():
        keys = {"against": against, "matching": MATCHINGS[1], "pixels": pixels}
        top = ablation.distances[0][reading].top
        first, second = (grid.settings(reading, shared) for grid in (ablation, main))
        yield _difference(ablation.scene(len(shared), **keys), first, second, top)
        for strength in shared:
            one, other = ablation.strengths.index(strength), main.strengths.index(strength)
            apart = ablation.distances[one][reading].values - main.distances[other][reading].values
            here = ablation.scenes[one].with_keys(**keys)
            yield here.mean("rmse_difference", apart, np.nan, None if top is None else (-top, top))


def _difference(here: Scene, first: list[Setting], second: list[Setting], top: float | None) -> Measurement:
    interval = cap_difference(first, second, here.victims, here.rng("cap_difference"), top)
    return here.stated("cap_difference", interval, None)
