"""What the command line does with sweeps and studies: run them, or say what they would cost, and print the result."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fedprint.kinds.federation.config import Experiment

Line = tuple[bool, Sequence[str]]
"""--fast, and the assignments of --set."""


def run_sweep(root: Path, name: str, line: Line, dry_run: bool, jobs: int | None) -> bool:
    """Run a sweep over the privacy-utility plane; return whether there is a report now."""
    from fedprint.kinds.plane.plane import load_plane, run_plane

    plane = load_plane(root, name, fast=line[0], assignments=line[1])
    if dry_run:
        _print_costs(name, [(place.config, len(plane.settings.seeds)) for place in plane.places], jobs)
        return False
    run_plane(root, plane, jobs)
    return True


def run_study(
    root: Path,
    name: str,
    line: Line,
    workers: int | None,
    timeout_minutes: float | None,
    dry_run: bool,
    only: Sequence[str] = (),
) -> None:
    """Run or resume a study, write its report and print the operating points."""
    from fedprint.kinds.study.config import load_study

    study = load_study(root, name, fast=line[0], assignments=line[1], only=only)
    if dry_run:
        _print_costs(name, study.points, workers)
        return
    from fedprint.kinds.study.report import print_operating_points, publish
    from fedprint.kinds.study.search import tune

    tuned = tune(root, study, workers=workers, timeout_s=60 * timeout_minutes if timeout_minutes else None)
    print_operating_points(root, publish(root, tuned), tuned)


def _print_costs(name: str, points: Sequence[tuple[Experiment, int]], jobs: int | None) -> None:
    from fedprint.kinds.federation.plan import estimate_points

    minutes = estimate_points(points, jobs or os.cpu_count() or 1)
    count = sum(number for _, number in points)
    print(f"{name}: at most {count} federations with their attacks, about {minutes:.0f} min; nothing written")
