"""Stage analyse: the same adversary under other conditions. Like the attack, it never opens truth/ or answers/."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from fedprint.analyses.base import Bench
from fedprint.analyses.trials import load_questions, save_trials
from fedprint.attacks.problem import attack_problem
from fedprint.attacks.reidentification.reidentify import Tuned
from fedprint.attacks.reidentification.slices import SlicedWorkspace
from fedprint.attacks.reidentification.workspace import Attack
from fedprint.data.formats.files import read_json
from fedprint.data.prepared import load_meta
from fedprint.kinds.federation.building.federation import DTYPES
from fedprint.kinds.federation.building.view import open_view
from fedprint.lab.graph import Task
from fedprint.lab.progress import meter
from fedprint.models.inputs import model_input


def run(task: Task) -> None:
    """Write one pair of files per analysis."""
    torch.set_num_threads(1)  # bits must not depend on the machine's cores
    with threadpool_limits(1):
        _run(task)


def _run(task: Task) -> None:
    out = task.at("analysis")
    out.mkdir(parents=True)
    with meter(f"analyse {task.item}", len(task.config.analyses_under(task.prior))) as bar:
        done = [0]
        bench = open_bench(task, lambda note: bar.update(done[0], note))
        for analysis in task.config.analyses_under(task.prior):
            started = time.perf_counter()
            bar.update(done[0], analysis.name)
            trials = save_trials(out, analysis.name, analysis.trials(bench))
            done[0] += 1
            seconds = time.perf_counter() - started
            print(f"{analysis.name}: {trials} trials, {seconds:.1f} s", file=sys.stderr, flush=True)
    # never empty: a folder without files would get lost on its way through a cache
    (out / "finished.txt").write_text(
        "".join(f"{analysis.name}\n" for analysis in task.config.analyses_under(task.prior))
    )


def open_bench(task: Task, progress: Any) -> Bench:
    """Return the bench of the headlines' adversary, with its attacks as the attack stage tuned them."""
    adversary = task.config.adversaries[-1]
    view, everyone = open_view(task, adversary)
    meta = load_meta(task.at("meta"))
    summary = read_json(task.at("attack") / adversary / "attack.json")
    attacks: dict[str, tuple[Attack, Tuned]] = {
        attack.name: (attack, read_tuned(summary["attacks"][attack.name])) for attack in task.config.attacks
    }
    return Bench(
        view=view,
        everyone=everyone,
        questions=load_questions(task.at("questions")),
        attacks=attacks,
        selected=summary["selected"],
        class_names=meta.class_names,
        task=meta.task,
        shadow_rounds=min(task.config.selection.shadow_rounds, view.store.rounds),
        work=SlicedWorkspace(attack_problem(view, everyone), task.device),
        ready=lambda raw: model_input(raw, DTYPES[task.config.federation.dtype], model=task.config.model),
        progress=progress,
    )


def read_tuned(row: dict[str, Any]) -> Tuned:
    """Return what validation chose from its JSON, where tuples have become lists."""
    settings = {name: _tuples(value) for name, value in row["settings"].items()}
    return Tuned(settings=settings, temperature=row["temperature"], log_loss=row["log_loss"])


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
