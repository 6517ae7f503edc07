"""Stage attack: what the adversary makes of the records. It never opens truth/ or a private example."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import log_softmax
from threadpoolctl import threadpool_limits

from fedprint.attacks.adversary.adversaries import (
    Choice,
    TrainedShadows,
    choose,
    distinct,
    train_shadows,
    training_mixes,
)
from fedprint.attacks.adversary.linking import Linking, link
from fedprint.attacks.adversary.modes import have_modes, with_modes
from fedprint.attacks.adversary.shadow_validation import DevicePlan, ShadowTable, train_plan
from fedprint.attacks.problem import Problem
from fedprint.attacks.reidentification.linked import LINKED, linked_parts
from fedprint.attacks.reidentification.reidentify import Tuned, averaged, exchanged_scores, ranked, scores_of, tune
from fedprint.attacks.reidentification.ridge import Ridge
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.attacks.view import AttackerView
from fedprint.data.formats.files import write_json
from fedprint.kinds.components import Attack
from fedprint.kinds.federation.building.effort import asked_of, effort_of, learns_from_records
from fedprint.kinds.federation.building.view import open_view
from fedprint.lab.graph import Task
from fedprint.lab.progress import meter
from fedprint.models.curves import Curves
from fedprint.rng import numpy_rng, torch_rng
from fedprint.types import AdversaryName, Ints, Questions

Halve = Callable[[Problem], Problem]
"""Returns the problem that half of the effort would learn from."""


def run(task: Task) -> None:
    """Choose and fit every attack, answer the questions, and answer them once more with shuffled labels."""
    # Bits must not depend on the machine's cores; kernels bring their own two lanes.
    torch.set_num_threads(1)
    with threadpool_limits(1):
        _run(task)


def _run(task: Task) -> None:
    names = task.config.adversaries
    view, questions = open_view(task, "adaptive" if "adaptive" in names else "naive")
    devices, work = _train_devices(task, view, questions), Workspace(task.device)
    for name in names:
        knows = view if name == "adaptive" else replace(view, defences=None)
        _attack_as(name, task, knows, questions, devices, work)


def _train_devices(task: Task, view: AttackerView, questions: Questions) -> TrainedShadows:
    """Train the devices that the configured adversaries learn from: for both, the clean ones are the same."""
    effort = effort_of(task.config, view.store.rounds)
    with meter(f"attack {task.item}: shadow devices", effort.devices(view)) as bar:
        return train_shadows(view, questions, effort, recorded=learns_from_records(task.config), progress=bar.update)


def _attack_as(
    name: AdversaryName,
    task: Task,
    view: AttackerView,
    questions: Questions,
    devices: TrainedShadows,
    work: Workspace,
) -> None:
    """Weigh the ways to learn, choose every attack's settings; write the folder of one adversary."""
    mixes = training_mixes(name, view, questions, devices)
    rng = torch_rng(task.seed, "attack", "recipe", name)
    choice = choose(mixes, work, rng)
    if have_modes(view):
        (clean,) = (mix for mix in mixes if mix.name == "clean")
        rounds = effort_of(task.config, view.store.rounds).validation_rounds
        train = partial(_train, task, view, questions)
        choice = with_modes(choice, clean, view, questions, devices, train, work, rng, validation_rounds=rounds)
    asked = asked_of(task.config, len(questions.subjects))
    if len(asked) < len(questions.subjects):
        few = (replace(mix, problem=replace(mix.problem, ask=mix.problem.ask[asked])) for mix in choice.mixes)
        choice = replace(choice, mixes=tuple(few))
    exchanged = permutation(task, questions)
    index = view.store.index.iloc[view.anonymous_rows[asked]]
    parts = questions_by_links(index["pseudonym"].tolist(), index["round"].tolist())
    settled: dict[str, dict[str, Any]] = {}
    scores: dict[str, np.ndarray] = {}
    halve = _halving(devices) if name == task.config.adversaries[-1] else None
    with meter(f"attack {task.item}: {name}", len(task.config.attacks)) as bar:
        for i, attack in enumerate(task.config.attacks):
            curves = Curves(send=task.send, name=f"{attack.name} {name}")
            settled[attack.name] = _run_attack(attack, task.seed, choice, exchanged, work, scores, curves, parts, halve)
            bar.update(i + 1, attack.name)
    selectable = [attack.name for attack in task.config.attacks if attack.selectable]
    selected = min(selectable, key=lambda attack: (settled[attack]["log_loss"], attack))
    weights = dict(zip((mix.name for mix in choice.mixes), choice.weights, strict=True))
    learnt = {"adversary": name, "recipe": choice.name, "recipe_ap": choice.aps, "recipe_weights": weights}
    summary = {"attacks": settled, "selected": selected, **learnt}
    _write(task.at("attack") / name, view, questions, asked, scores, summary)
    row = settled[selected]
    note = f"{name} adversary learns from {choice.name} updates, selected {selected}: {row['settings']}"
    print(f"{note}, log-loss {row['log_loss']:.3f}", file=sys.stderr, flush=True)


def _train(task: Task, view: AttackerView, questions: Questions, plan: DevicePlan) -> ShadowTable:
    listed = list(plan)
    with meter(f"attack {task.item}: devices by mode", len(listed)) as bar:
        return train_plan(view, questions, listed, bar.update)


def questions_by_links(senders: Sequence[str], rounds: Sequence[int]) -> dict[str, Sequence[Ints]]:
    """Return positions of updates that are one question: ``linked-<k>`` of k updates, ``device`` of all of a device."""
    several = {f"linked-{k}": tuple(linked_parts(senders, rounds, k)) for k in LINKED if k > 1}
    names = np.array(senders)
    return {**several, "device": [np.flatnonzero(names == name) for name in sorted(set(senders))]}


def linked_scores(
    parts: Mapping[str, Sequence[Ints]], single: np.ndarray, of_means: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Return the scores (g, m) of each kind of question: its part of ``of_means``, or means of ``single`` updates'."""
    ends = np.cumsum([0, *(len(of_kind) for of_kind in parts.values())])
    made = {}
    for (kind, of_kind), first, last in zip(parts.items(), ends, ends[1:], strict=False):
        if len(of_kind):
            means = [single[part].mean(0) for part in of_kind]
            made[kind] = np.asarray(log_softmax(means, axis=1)) if of_means is None else of_means[first:last]
    return made


def permutation(task: Task, questions: Questions) -> Ints:
    """Return the columns of the answers exchanged at random, for the shuffled-label check."""
    return numpy_rng(task.seed, "shuffled-labels", task.prior).permutation(len(questions.options))


def _run_attack(
    attack: Attack,
    seed: int,
    choice: Choice,
    exchanged: Ints,
    work: Workspace,
    scores: dict[str, np.ndarray],
    curves: Curves,
    parts: Mapping[str, Sequence[Ints]],
    halve: Halve | None,
) -> dict[str, Any]:
    """Fill ``scores`` under ``update/<attack>`` and ``update/<attack>.shuffled``; return what was chosen.

    ``curves`` take the losses of the fits that are reported. Linked updates, by ``parts``, are there too, and for ridge
    the scores from problems that ``halve`` returns.

    Of several training mixes the log-loss is the weighted mean, each on its own validation problems, and settings are
    those of the mix with the largest weight.
    """
    started = time.perf_counter()
    choice = distinct(choice, attack, work)
    tuned = [tune(attack, r.folds, work, torch_rng(seed, "attack", attack.name, "tune")) for r in choice.mixes]
    real: list[np.ndarray] = []
    blind: list[np.ndarray] = []
    for mix, setting in zip(choice.mixes, tuned, strict=True):
        rng = torch_rng(seed, "attack", attack.name)
        with work.reporting(curves):
            found = scores_of(attack, mix.problem, setting.settings, work, rng)
        real.append(ranked(found, setting.temperature, rng).scores)
        rng = torch_rng(seed, "attack", f"{attack.name}.shuffled")
        found = exchanged_scores(attack, mix.problem, setting, found, exchanged, work, rng)
        blind.append(ranked(found, setting.temperature, rng).scores)
    scores[f"update/{attack.name}"] = averaged(real, choice.weights)
    scores[f"update/{attack.name}.shuffled"] = averaged(blind, choice.weights)
    linking = Linking(by="scores", aps={})
    if isinstance(attack, Ridge):
        every = [part for of_links in parts.values() for part in of_links]
        rng = torch_rng(seed, "attack", attack.name, "linked")
        linking = link(attack, choice, tuned, every, exchanged, work, rng)
    for ending, of_means in (("", linking.scores), (".shuffled", linking.blind)):
        single = scores[f"update/{attack.name}{ending}"]
        scores |= {f"{k}/{attack.name}{ending}": of_k for k, of_k in linked_scores(parts, single, of_means).items()}
    if halve is not None and isinstance(attack, Ridge) and attack.selectable:
        linked = parts["device"] if linking.by == "scores" else ()
        scores |= _half_scores(attack, seed, choice, tuned, halve, work, linked)
    # times are for the eye: in a file they would make equal runs differ
    print(f"{attack.name}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
    first = tuned[int(np.argmax(choice.weights))]
    return {
        "settings": dict(first.settings),
        "temperature": first.temperature,
        "log_loss": float(np.average([setting.log_loss for setting in tuned], weights=choice.weights)),
        "layers": list(getattr(attack, "layers", None) or ()) or None,
        "linked_by": {"chosen": linking.by, "validation_ap": dict(linking.aps)},
    }


def _halving(devices: TrainedShadows) -> Halve | None:
    """Return what takes half of the shadow devices from a problem; None where nobody trained any off line.

    It leaves the problem of models by mode as it is.
    """
    if devices.real is None or devices.recorded or not len(spare := devices.real.spare()):
        return None
    table = devices.real.updates
    return lambda problem: problem.without(spare) if problem.updates is table else problem


def _half_scores(
    attack: Attack,
    seed: int,
    choice: Choice,
    tuned: Sequence[Tuned],
    halve: Halve,
    work: Workspace,
    linked: Sequence[Ints],
) -> dict[str, np.ndarray]:
    """Return the scores that half of the devices give, with all settings as before, under ``<linkage>/<attack>.half``.

    A device's updates, ``linked``, have the mean of their scores.
    """
    scored = []
    for mix, setting in zip(choice.mixes, tuned, strict=True):
        rng = torch_rng(seed, "attack", attack.name)
        found = scores_of(attack, halve(mix.problem), setting.settings, work, rng)
        scored.append(ranked(found, setting.temperature, rng).scores)
    single = averaged(scored, choice.weights)
    several = linked_scores({"device": linked}, single, None)
    return {f"{linkage}/{attack.name}.half": of for linkage, of in {"update": single, **several}.items()}


def _write(
    out: Path,
    view: AttackerView,
    questions: Questions,
    asked: Ints,
    scores: Mapping[str, np.ndarray],
    summary: Mapping[str, Any],
) -> None:
    index = view.store.index.iloc[view.anonymous_rows[asked]]
    senders = index["pseudonym"].tolist()
    out.mkdir(parents=True, exist_ok=True)
    np.savez(out / "scores.npz", **scores)  # type: ignore[arg-type]  # float32 would bring back the ties
    write_json(
        out / "attack.json",
        {
            **summary,
            "options": list(questions.options),
            "subjects": [int(questions.subjects[row]) for row in asked],
            "rounds": index["round"].tolist(),
            "senders": senders,
            "devices": sorted(set(senders)),
            "chance_log_loss": float(np.log(len(questions.options))),
            "store_checksum": view.store.checksum(),
        },
    )
