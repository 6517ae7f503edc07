"""Stage analyse: the same adversary under other conditions. Like the attack, it never opens truth/ or answers/."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from fedprint.analyses.base import Bench
from fedprint.analyses.trials import load_questions, save_trials
from fedprint.attacks.problem import attack_problem
from fedprint.attacks.reidentify import Attack, Tuned
from fedprint.attacks.slices import SlicedWorkspace
from fedprint.data.prepared import load_meta
from fedprint.pipeline.progress import meter
from fedprint.pipeline.recipes import DTYPES, to_model_input
from fedprint.pipeline.stages.attack import open_view
from fedprint.pipeline.stages.paths import Job, read_json


def run(job: Job) -> None:
    """Write one pair of files per analysis."""
    torch.set_num_threads(1)  # bits must not depend on the machine's cores
    with threadpool_limits(1):
        _run(job)


def _run(job: Job) -> None:
    out = job.paths.analysis
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with meter(f"analyse {job.paths.item}", len(job.analyses)) as bar:
        done = [0]
        bench = open_bench(job, lambda note: bar.update(done[0], note))
        for analysis in job.analyses:
            started = time.perf_counter()
            bar.update(done[0], analysis.name)
            trials = save_trials(out, analysis.name, analysis.trials(bench))
            done[0] += 1
            seconds = time.perf_counter() - started
            print(f"{analysis.name}: {trials} trials, {seconds:.1f} s", file=sys.stderr, flush=True)
    # never empty: a folder without files would get lost on its way through a cache
    (out / "finished.txt").write_text("".join(f"{analysis.name}\n" for analysis in job.analyses))


def open_bench(job: Job, progress: Any) -> Bench:
    """Return the desk of the headlines' adversary, with its attacks as the attack stage tuned them."""
    adversary = job.config.adversaries[-1]
    view, everyone = open_view(job, adversary)
    meta = load_meta(job.paths.prepared)
    found = read_json(job.paths.attack_of(adversary) / "attack.json")
    attacks: dict[str, tuple[Attack, Tuned]] = {
        attack.name: (attack, read_tuned(found["attacks"][attack.name])) for attack in job.config.attacks
    }
    return Bench(
        view=view,
        everyone=everyone,
        questions=load_questions(job.paths.updates / "questions"),
        attacks=attacks,
        selected=found["selected"],
        class_names=meta.class_names,
        task=meta.task,
        shadow_rounds=min(job.config.selection.shadow_rounds, view.store.rounds),
        work=SlicedWorkspace(attack_problem(view, everyone)),
        ready=lambda raw: to_model_input(raw, DTYPES[job.config.federation.dtype], model=job.config.model),
        progress=progress,
    )


def read_tuned(row: dict[str, Any]) -> Tuned:
    """Return what validation chose from its JSON, where tuples have become lists."""
    settings = {name: _tuples(value) for name, value in row["settings"].items()}
    return Tuned(settings=settings, temperature=row["temperature"], log_loss=row["log_loss"])


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
