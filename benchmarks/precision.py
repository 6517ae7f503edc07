"""What rounding the products of local training does to an attack: the same federation and adversary, at each precision.

Example:
  FEDPRINT_DATA=~/data make bench ARGS="--only precision"
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measuring import ROOT, Cell, Section, say
from benchmarks.stages import STAGES, run_stage
from fedprint.data.formats.locate import data_root
from fedprint.lab.gpus import gpu_count

WORDS = ("data.users=100", "federation.rounds=100", "attacks=[{name: ridge}]")
QUICKER = ("data.users=20", "federation.rounds=12", "attacks=[{name: ridge}]", "selection.shadow_rounds=2")


def measure(quick: bool) -> Section:
    """Measure AP by user at each precision, and the differences over the same users; TF32 needs a GPU."""
    root = data_root(None)
    if root is None or not (root / "mnist_writers").exists():
        return Section(notes=("MNIST's writers are missing: FEDPRINT_DATA does not name a folder that has them.",))
    words = QUICKER if quick else WORDS
    aps = {name: ap_by_user(name, words) for name in ("full", "bf16", *(["tf32"] if gpu_count() else []))}
    users = sorted(set.intersection(*map(set, aps.values())))  # in a short federation some users never take part
    by_user = {name: np.array([found[user] for user in users]) for name, found in aps.items()}
    cells = [mean(name, "AP", values) for name, values in by_user.items()]
    cells += [mean(name, "AP less that in full", by_user[name] - by_user["full"]) for name in aps if name != "full"]
    note = f"Experiment writers-scale, {', '.join(words)}; {len(users)} users, one seed; bootstrap over users."
    return Section(cells=tuple(cells), notes=(note,))


def ap_by_user(precision: str, words: tuple[str, ...]) -> dict[str, float]:
    """Return ridge's AP by user after local training at this precision."""
    say(f"  {precision}")
    folder = Path(tempfile.mkdtemp(prefix="fedprint-precision-", dir=ROOT / "work"))
    try:
        for stage in STAGES:
            run_stage(stage, folder, "writers-scale", (*words, f"federation.precision={precision}"))
        details = json.loads((folder / "evaluation" / "details.json").read_text())
    finally:
        shutil.rmtree(folder)
    return dict(details["ap_by_user"]["naive"]["ridge"])


def mean(row: str, column: str, values: np.ndarray) -> Cell:
    """Return the mean over users with its 95 % bootstrap interval."""
    draws = np.random.default_rng(0).choice(values, (2000, len(values))).mean(1)
    lo, hi = np.quantile(draws, [0.025, 0.975])
    return Cell(row=row, column=column, value=float(values.mean()), lo=float(lo), hi=float(hi))
