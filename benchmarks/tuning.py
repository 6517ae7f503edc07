"""A check of a study: its result on ten further sets of seeds, and beside that of a grid with four times the points.

    python -m benchmarks.tuning albums --strategy mm-aug [--fast] [--set K=V] [--repeats 10] [--jobs 2]

Prints how often the operating point stayed below the ceiling (target: 9 of 10), and the best feasible utility of the
study over that of the grid, both on the seeds of the study (target: within 1 %). Points are cached,
so a stopped benchmark continues.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product
from statistics import fmean

from fedprint.evaluation.tradeoffs.tradeoff import Point
from fedprint.kinds.federation.jobs import point_job
from fedprint.kinds.federation.points import points_of
from fedprint.kinds.laboratory import laboratory
from fedprint.kinds.requests import request_for
from fedprint.kinds.study.config import Study
from fedprint.kinds.study.kind import StudyKind
from fedprint.kinds.study.search import Tuned, ceiling_of, judged, score_of, tune
from fedprint.lab.project import find_root
from fedprint.lab.runner import Lab
from fedprint.tuning.score import ranked
from fedprint.tuning.space import Parameter, Value, Values
from fedprint.types import FedprintError

FINER = 4


def points_at(
    study: Study, values: Sequence[Values], seeds: Sequence[int], like: int, lab: Lab, title: str
) -> list[list[Point | FedprintError]]:
    """Return the points of the study's first strategy at each of ``values``, one per seed.

    ``like`` is the seed of the study whose experiment they run: a study may search and report on different data.
    """
    strategy, prior = study.settings.strategies[0], study.settings.prior
    configs = [study.defended(strategy, one, like) for one in values]
    jobs = [
        point_job(config, prior, seed, label=f"{position} seed {seed}")
        for position, config in enumerate(configs)
        for seed in seeds
    ]
    points = points_of(lab.run(jobs, title=title))
    return [points[start : start + len(seeds)] for start in range(0, len(points), len(seeds))]


def kept_below(tuned: Tuned, repeats: int, lab: Lab) -> list[bool]:
    """Return for each of ``repeats`` further sets of seeds whether the operating point stays below the ceiling."""
    study, (operating_point,) = tuned.study, tuned.operating_points
    size = len(study.settings.fresh_seeds)
    seeds = range(10_000, 10_000 + size * repeats)
    like = study.settings.fresh_seeds[0]
    (points,) = points_at(study, [operating_point.parameters], seeds, like, lab, f"{study.name}: repeats")
    groups = [[p for p in points[size * i : size * (i + 1)] if isinstance(p, Point)] for i in range(repeats)]
    return [bool(g) and fmean(judged(study, p).value for p in g) <= ceiling_of(study, g) for g in groups]


def axis(parameter: Parameter, points: int) -> tuple[Value, ...]:
    """Return ``points`` values from end to end, evenly on the scale that is searched; integers once each."""
    steps = [i / (points - 1) for i in range(points)]
    low, high = parameter.low, parameter.high
    values = [low * (high / low) ** s if parameter.log else low + (high - low) * s for s in steps]
    return tuple(dict.fromkeys(round(value) for value in values)) if parameter.integer else tuple(values)


def best_on_grid(tuned: Tuned, lab: Lab) -> float | None:
    """Return the best feasible utility on a grid of four times as many points as the study has trials."""
    study = tuned.study
    space = study.settings.strategies[0].space
    per_axis = max(2, round((FINER * study.settings.trials) ** (1 / len(space))))
    grid = [dict(zip(space, v, strict=True)) for v in product(*(axis(p, per_axis) for p in space.values()))]
    seeds = study.settings.seeds
    batches = points_at(study, grid, seeds, seeds[0], lab, f"{study.name}: grid")
    whole = [[p for p in batch if isinstance(p, Point)] for batch in batches]
    scores = [score_of(study, points, tuned.undefended) for points in whole if len(points) == len(seeds)]
    return max((s.utility for s in scores if s.excess <= 0), default=None)


def main() -> None:
    """Tune one strategy, repeat its result, search the grid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study")
    parser.add_argument("--strategy", required=True)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    root = find_root()
    try:
        given = request_for(
            root, asked.study, fast=asked.fast, assignments=asked.set, strategies=[asked.strategy], folders=["studies"]
        )
        study = StudyKind().load(given)
    except FedprintError as error:
        parser.error(str(error))
    with laboratory(root, StudyKind(), study, jobs=asked.jobs) as lab:
        compare(tune(study, lab), asked.repeats, lab)


def compare(tuned: Tuned, repeats: int, lab: Lab) -> None:
    """Check the result of a study and print both numbers."""
    (point,), (search,) = tuned.operating_points, tuned.searches
    print(f"{point.strategy}: {dict(point.parameters)}, utility {point.utility}, AP {point.attack_ap}, {point.note}")
    kept = kept_below(tuned, repeats, lab)
    print(f"keeps below the ceiling on {sum(kept)} of {len(kept)} further sets of seeds")
    best = next((trial.utility for trial in ranked(search.trials) if trial.feasible), None)
    grid = best_on_grid(tuned, lab)
    ratio = f"{best / grid:.4f}" if best and grid else "-"
    print(f"best feasible utility: study {best}, grid {grid}, ratio {ratio}")


if __name__ == "__main__":
    main()
