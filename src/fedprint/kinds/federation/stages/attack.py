"""Stage attack: what the adversary makes of the records. It never opens truth/ or a private example."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from fedprint.attacks.adversary.adversaries import (
    Choice,
    Effort,
    TrainedShadows,
    choose,
    distinct,
    relabelled,
    train_shadows,
    training_mixes,
)
from fedprint.attacks.adversary.modes import have_modes, with_modes
from fedprint.attacks.adversary.shadow_validation import DevicePlan, ShadowTable, train_plan
from fedprint.attacks.reidentification.presets import Chance
from fedprint.attacks.reidentification.reidentify import Workspace, answer, averaged, pool, tune
from fedprint.attacks.view import AttackerView, ask_all
from fedprint.component import Component
from fedprint.data.formats.files import read_json, write_json
from fedprint.data.prepared import load_meta, load_users
from fedprint.data.text_columns import CAPTION
from fedprint.federation.ledger import LEDGER, public_norms
from fedprint.kinds.components import Attack
from fedprint.kinds.federation import build
from fedprint.kinds.federation.clustering import with_clusters
from fedprint.kinds.federation.config import Experiment
from fedprint.lab.graph import Task
from fedprint.lab.progress import meter
from fedprint.models.curves import Curves
from fedprint.rng import numpy_rng, torch_rng
from fedprint.store.reader import UpdateStore
from fedprint.types import AdversaryName, Ints, Questions, User


def run(task: Task) -> None:
    """Choose and fit every attack, answer the questions, and answer them once more with shuffled labels."""
    # Bits must not depend on the machine's cores; kernels bring their own two lanes.
    torch.set_num_threads(1)
    with threadpool_limits(1):
        _run(task)


def _run(task: Task) -> None:
    devices, work = run_devices(task), Workspace()
    for name in task.config.adversaries:
        _attack_as(name, task, devices, work)


def run_devices(task: Task) -> TrainedShadows:
    """Run the devices off line that the configured adversaries learn from: for both, the clean ones are the same."""
    view, questions = open_view(task, "adaptive" if "adaptive" in task.config.adversaries else "naive")
    effort = effort_of(task.config, view.store.rounds)
    with meter(f"attack {task.item}: shadow devices", effort.devices(view)) as bar:
        return train_shadows(view, questions, effort, recorded=_recorded(task.config), progress=bar.update)


def effort_of(config: Experiment, rounds: int) -> Effort:
    """Return how much the configured adversaries train off line, of a store with ``rounds`` rounds.

    Random scores learn from nothing: a half of each prior, once, is there to compare them with.
    """
    if not _learns(config):
        return Effort(clean_rounds=0, defended_rounds=0, draws=0, validation_rounds=min(2, rounds))
    threat, adaptive = config.threat, "adaptive" in config.adversaries
    # Who knows of no defence, or where there is none, trains as many devices as who does, all of them clean: no AP is
    # low for want of effort.
    whole = threat.shadow_rounds * (1 + threat.shadow_draws)
    return Effort(
        clean_rounds=whole if adaptive or not _recorded(config) else 0,
        defended_rounds=threat.shadow_rounds,
        draws=threat.shadow_draws if adaptive and config.defences else 0,
        validation_rounds=min(config.selection.shadow_rounds, rounds),
    )


MOST_GUESSES = 2000
"""Updates about which random scores are asked, at most: 100,000 of 5,000 users would fill 24 GB and say no more."""


def asked_of(config: Experiment, count: int) -> Ints:
    """Return which of ``count`` anonymous updates are asked about: all, or evenly spread ones where nobody learns."""
    if _learns(config) or count <= MOST_GUESSES:
        return np.arange(count)
    return np.linspace(0, count - 1, MOST_GUESSES).round().astype(np.int64)


def _recorded(config: Experiment) -> bool:
    """Return whether the naive adversary learns from recorded updates of its own devices.

    It does where they were not defended, or where nobody learns.
    """
    clean = not config.defences or "prior" not in config.threat.defended_roles()
    return (clean and config.threat.learn_from == "records") or not _learns(config)


def _learns(config: Experiment) -> bool:
    """Return whether any attack does better for having examples; the adaptive adversary asks for them in any case."""
    return "adaptive" in config.adversaries or any(not isinstance(attack, Chance) for attack in config.attacks)


def _attack_as(name: AdversaryName, task: Task, devices: TrainedShadows, work: Workspace) -> None:
    """Weigh the ways to learn, choose every attack's settings; write the folder of one adversary."""
    view, questions = open_view(task, name)
    found = training_mixes(name, view, questions, devices)
    rng = torch_rng(task.seed, "attack", "recipe", name)
    choice = choose(found, work, rng)
    if have_modes(view):
        (clean,) = (mix for mix in found if mix.name == "clean")
        rounds = effort_of(task.config, view.store.rounds).validation_rounds
        train = partial(_train, task, view, questions)
        choice = with_modes(choice, clean, view, questions, devices, train, work, rng, validation_rounds=rounds)
    asked = asked_of(task.config, len(questions.subjects))
    if len(asked) < len(questions.subjects):
        few = (replace(mix, problem=replace(mix.problem, ask=mix.problem.ask[asked])) for mix in choice.mixes)
        choice = replace(choice, mixes=tuple(few))
    exchanged = permutation(task, questions)
    settled: dict[str, dict[str, Any]] = {}
    scores: dict[str, np.ndarray] = {}
    with meter(f"attack {task.item}: {name}", len(task.config.attacks)) as bar:
        for i, attack in enumerate(task.config.attacks):
            curves = Curves(tell=task.tell, name=f"{attack.name} {name}")
            settled[attack.name] = _run_attack(attack, task.seed, choice, exchanged, work, scores, curves)
            bar.update(i + 1, attack.name)
    selected = min(settled, key=lambda attack: (settled[attack]["log_loss"], attack))
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


def open_view(task: Task, adversary: AdversaryName) -> tuple[AttackerView, Questions]:
    """Return all that the adversary may know, and what it is asked."""
    meta = load_meta(task.at("meta"))
    dtype = build.DTYPES[task.config.federation.dtype]
    prior = readable(load_users(task.at("prior")), dtype, task.config.model)
    store = UpdateStore.open(task.at("observed"))
    model = build.build_model(task.config, meta, prior, build.federation_seed(task.seed))
    background = with_clusters(load_users(task.at("background")), task.at("public"))
    view = AttackerView(
        store=store,
        prior_users=prior,
        background=readable(background, dtype, task.config.model),
        model=model,
        training=task.config.federation.training_by_round(),
        rule=build.server_rule(
            task.config,
            task.config.federation.device_count(len(prior)),
            public_norms(task.at("public") / LEDGER),
        ),
        chronological=task.prior == "chrono",
        by_album=task.prior == "photoset",
        defences=task.config.defences if adversary == "adaptive" else None,
        seed=task.seed,
        labels={user.user_id: user.user_id for user in prior},
    )
    options = tuple(read_json(task.at("questions") / "questions.json")["options"])
    return view, ask_all(store, options)


def readable(users: Sequence[User], dtype: torch.dtype, model: Component) -> tuple[User, ...]:
    """Return the users as model input, with the captions that the adversary can read and no device trains on."""
    return tuple(
        replace(ready, examples={**ready.examples, CAPTION: user.examples[CAPTION]})
        if CAPTION in user.examples
        else ready
        for user, ready in zip(users, build.ready(users, dtype, model=model), strict=True)
    )


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
) -> dict[str, Any]:
    """Fill ``scores`` under ``<attack>`` and ``<attack>.shuffled``; return what was chosen.

    ``curves`` take the losses of the fits that are reported.

    Of several recipes the log-loss is the weighted mean of theirs, each in its own rehearsals, and settings are those
    of the one that counts most.
    """
    started = time.perf_counter()
    choice = distinct(choice, attack, work)
    tuned = [tune(attack, r.folds, work, torch_rng(seed, "attack", attack.name, "tune")) for r in choice.mixes]
    real = [mix.problem for mix in choice.mixes]
    permuted = [relabelled(problem, exchanged) for problem in real]
    for name, problems, shown in ((attack.name, real, curves), (f"{attack.name}.shuffled", permuted, None)):
        with work.reporting(shown):
            scores[name] = averaged(
                [
                    answer(attack, problem, found, work, torch_rng(seed, "attack", name)).scores
                    for problem, found in zip(problems, tuned, strict=True)
                ],
                choice.weights,
            )
    # times are for the eye: in a file they would make equal runs differ
    print(f"{attack.name}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
    first = tuned[int(np.argmax(choice.weights))]
    return {
        "settings": dict(first.settings),
        "temperature": first.temperature,
        "log_loss": float(np.average([found.log_loss for found in tuned], weights=choice.weights)),
        "layers": list(getattr(attack, "layers", None) or ()) or None,
    }


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
    pooled = {name: pool(values, senders) for name, values in scores.items()}
    arrays = {f"update/{name}": values for name, values in scores.items()}  # float32 would bring back the ties
    arrays |= {f"device/{name}": values for name, (values, _) in pooled.items()}
    out.mkdir(parents=True, exist_ok=True)
    np.savez(out / "scores.npz", **arrays)  # type: ignore[arg-type]
    write_json(
        out / "attack.json",
        {
            **summary,
            "options": list(questions.options),
            "subjects": [int(questions.subjects[place]) for place in asked],
            "rounds": index["round"].tolist(),
            "senders": senders,
            "devices": sorted(set(senders)),
            "chance_log_loss": float(np.log(len(questions.options))),
            "store_checksum": view.store.checksum(),
        },
    )
