"""Attacks on recorded updates: by several attackers, by linked updates, by layer, by amount of prior.

Nothing here reads a truth: it is met in judge.py. Letters: q asked updates, g questions, m users (columns).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import log_softmax

from fedprint.analyses.base import restricted
from fedprint.analyses.conditions.base import doubling
from fedprint.analyses.conditions.layers import layer_names, on_layers
from fedprint.attacks.adversary.adversaries import Choice, TrainingMix
from fedprint.attacks.adversary.linking import link
from fedprint.attacks.features import Transform, layer_groups, num_rows
from fedprint.attacks.problem import Problem
from fedprint.attacks.reidentification.linked import LINKED, linked_parts
from fedprint.attacks.reidentification.presets import Knn, Svm
from fedprint.attacks.reidentification.reidentify import Tuned, answer, tune
from fedprint.attacks.reidentification.ridge import Ridge, candidate_blocks
from fedprint.attacks.reidentification.side_channels import Count, History, Norm, UpdateAndSideChannels
from fedprint.attacks.reidentification.workspace import Attack, Workspace
from fedprint.errors import FedprintError
from fedprint.records.scene import Scene, sender_groups
from fedprint.rng import numpy_rng, torch_rng
from fedprint.types import Ints, Scores

ATTACKS: Mapping[str, Attack] = {
    one.name: one for one in (Ridge(), Knn(), Svm(), Count(), Norm(), History(), UpdateAndSideChannels())
}
"""The attackers by name. Settings of ridge are chosen on known updates; the others have none, or ridge's."""

UPDATES_OF_SVM, CELLS_OF_DENSE = 4096, 1 << 28
"""Most known updates of a machine, whose cost grows with their cube, and most numbers that are read at once (1 GiB)."""

MOST_LAYERS, MOST_AMOUNT = 64, 64
FIXED_TRANSFORM: Transform = "sqrt"
FIXED_PENALTY, FIXED_TEMPERATURE, FIXED_NORM_WEIGHT = 1.0, 10.0, 0.25
"""Ridge on all layers, and norms beside it, where they cannot be validated between devices of the same users.

Between rounds of one device validation prefers small penalties and plain values, which tell a device's examples and not
its user: LOG.md, 11-27.
"""

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Scores (g, m) of one attack; ``keys`` say under which condition.

    ``parts`` are the positions among the asked updates that each question is about; None: one update each.
    """

    scores: Scores
    keys: Mapping[str, Any]
    parts: Sequence[Ints] | None = None


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """All answers to a scene. ``selected`` was chosen by validation; ``left_out`` maps an attack to why it was not run.

    ``log_loss`` (nats) and ``settings`` are those of validation, by attack.
    """

    scene: Scene
    answers: tuple[Answer, ...]
    selected: str
    log_loss: Mapping[str, float]
    settings: Mapping[str, Mapping[str, Any]]
    left_out: Mapping[str, str] = field(default_factory=dict)


def attacked(scene: Scene, names: Sequence[str], seed: int, progress: Progress = lambda note: None) -> Attacked:
    """Run the attacks; raises FedprintError for an unknown name, or where none of them can be run."""
    left_out = {name: why for name in names if (why := why_not(name, scene))}
    attacks = [ATTACKS[name] for name in dict.fromkeys(names) if name not in left_out]
    if not attacks:
        raise FedprintError(f"--attacks: none of these can be run here: {left_out}; add ridge")
    work, real = Workspace(), Workspace()
    tuned: dict[str, Tuned] = {}
    answers: list[Answer] = []
    for attack in attacks:
        progress(attack.name)
        rng = torch_rng(seed, "records", attack.name)
        tuned[attack.name] = _tuned(attack, scene, work, seed)
        scores = answer(attack, scene.problem, tuned[attack.name], real, rng).scores
        answers.append(Answer(scores=scores, keys={"attack": attack.name, "linkage": "update"}))
    selected = _selected(attacks, tuned)
    answers += _linked(scene, tuple(answers), tuned, selected, work, seed, progress)
    answers += _amounts(scene, ATTACKS[selected], tuned[selected], seed, progress)
    answers += _layers(scene, work, seed, progress)
    return Attacked(
        scene=scene,
        answers=tuple(answers),
        selected=selected,
        log_loss={name: one.log_loss for name, one in tuned.items()},
        settings={name: {**one.settings, "temperature": one.temperature} for name, one in tuned.items()},
        left_out=left_out,
    )


def count_steps(scene: Scene, names: Sequence[str]) -> int:
    """Return about how many notes :func:`attacked` sends."""
    layers = len(layer_groups(scene.problem.updates))
    most = int(np.bincount(scene.problem.labels).max())
    return len(names) + 1 + len(doubling(min(MOST_AMOUNT, most))) + (layers if 1 < layers <= MOST_LAYERS else 0)


def why_not(name: str, scene: Scene) -> str:
    """Return why an attack cannot be run on a scene; nothing where it can."""
    if name not in ATTACKS:
        raise FedprintError(f"--attacks: there is no attack {name!r}; choose of {', '.join(ATTACKS)}")
    updates = scene.problem.updates
    examples = updates.sent.examples
    cells = num_rows(updates) * sum(updates.sizes.values()) if name in ("knn", "svm") else 0
    if name in ("count", "ridge+sides") and not (len(examples) and (examples > 0).all()):
        return "the index does not give num_examples of every update"
    if name == "count" and len(np.unique(examples)) == 1:
        return "all updates name the same number of examples"
    if name == "participation" and scene.split:
        return "the same devices are known and asked"
    if name == "participation" and not scene.linkable:
        return "rounds cannot be linked by device"
    if name == "participation" and updates.sent.history.shape[1] < 2:
        return "there is one round only, or there are too many"
    if cells > CELLS_OF_DENSE:
        return f"{cells:,} numbers do not fit into the memory that it is given"
    if name == "svm" and len(scene.problem.fit) > UPDATES_OF_SVM:
        return f"{len(scene.problem.fit):,} known updates would take too long"
    return ""


def _tuned(attack: Attack, scene: Scene, work: Workspace, seed: int) -> Tuned:
    fixed: dict[str, Any] = {}
    if isinstance(attack, Ridge | UpdateAndSideChannels):
        layers = attack.layers if isinstance(attack, Ridge) else None
        fixed = {"blocks": (candidate_blocks(scene.problem.updates, layers, (FIXED_TRANSFORM,))[-1],)}
        fixed |= {"penalty": FIXED_PENALTY, "ridge_temperature": FIXED_TEMPERATURE, "norm_weight": FIXED_NORM_WEIGHT}
    if not scene.folds:
        return Tuned(settings=fixed, temperature=FIXED_TEMPERATURE, log_loss=float("nan"))
    like_the_attack = scene.split or scene.basis == "devices"
    if isinstance(attack, UpdateAndSideChannels) and not like_the_attack:
        fixed["ridge_temperature"] = _tuned(Ridge(), scene, work, seed).temperature
    given = fixed if fixed and not like_the_attack else None
    return tune(attack, scene.folds, work, torch_rng(seed, "records", attack.name, "tune"), given)


def _selected(attacks: Sequence[Attack], tuned: Mapping[str, Tuned]) -> str:
    """Return the selectable attack with the least log-loss in validation; the first where nothing was validated."""
    choice = [attack.name for attack in attacks if attack.selectable] or [attack.name for attack in attacks]
    return min(choice, key=lambda name: np.nan_to_num(tuned[name].log_loss, nan=0.0))


def _linked(
    scene: Scene,
    single: Sequence[Answer],
    tuned: Mapping[str, Tuned],
    selected: str,
    work: Workspace,
    seed: int,
    progress: Progress,
) -> Iterator[Answer]:
    """Yield every attack's answers about linked updates of a device: k of them in order of time, and all of them.

    They are mean log-probabilities, or of ridge the answers about mean updates where validation prefers these.
    """
    if not scene.linkable:
        return
    rounds = scene.rounds.tolist()
    several = {k: list(linked_parts(scene.senders, rounds, k)) for k in LINKED if k > 1}
    parts: dict[int | None, list[Ints]] = {k: of_k for k, of_k in several.items() if of_k}
    parts[None] = sender_groups(scene.senders)
    of_means = None
    if selected == "ridge" and scene.folds:
        progress("linked updates")
        mix = TrainingMix(name="recorded", problem=scene.problem, folds=scene.folds)
        choice, every = Choice(mixes=(mix,), weights=(1.0,), aps={}), [part for of_k in parts.values() for part in of_k]
        same, rng = np.arange(scene.problem.options), torch_rng(seed, "records", "linked")
        of_means = link(ATTACKS[selected], choice, [tuned[selected]], every, same, work, rng).scores
    for found in single:
        name, first = found.keys["attack"], 0
        keys = {"attack": name, "linkage": "device"}
        yield replace(found, keys={**keys, "analysis": "linked", "linked_updates": 1})
        for k, of_k in parts.items():
            scores = log_softmax([found.scores[part].mean(0) for part in of_k], axis=1)
            if of_means is not None and name == selected:
                scores = of_means[first : first + len(of_k)]
            first += len(of_k)
            more = {} if k is None else {"analysis": "linked", "linked_updates": k}
            yield Answer(scores=scores, keys={**keys, **more}, parts=of_k)


def _amounts(scene: Scene, attack: Attack, tuned: Tuned, seed: int, progress: Progress) -> Iterator[Answer]:
    """Yield answers of an attack that learns from 1, 2, 4 ... known updates of each user, nested, at random."""
    problem = scene.problem
    rank = rank_within(problem, seed)
    for k in doubling(min(MOST_AMOUNT, int(rank.max()) + 1)):
        progress(f"{k} known updates")
        few = restricted(problem, fit=rank < k)
        scores = answer(attack, few, tuned, Workspace(), torch_rng(seed, "records", "amounts", k)).scores
        keys = {"analysis": "training-updates", "attack": attack.name, "linkage": "update", "training_updates": k}
        yield Answer(scores=scores, keys=keys)


def rank_within(problem: Problem, seed: int) -> Ints:
    """Return each known update's place (p,) in a random order of its user's."""
    drawn = numpy_rng(seed, "records", "amounts").permutation(len(problem.fit))
    order = np.lexsort([drawn, problem.labels])
    starts = np.searchsorted(problem.labels[order], problem.labels[order], side="left")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - starts
    return rank


def _layers(scene: Scene, work: Workspace, seed: int, progress: Progress) -> Iterator[Answer]:
    """Yield ridge's answers from each layer alone, tuned anew on it; none where there is one layer, or very many."""
    updates = scene.problem.updates
    groups = layer_groups(updates)
    if not 1 < len(groups) <= MOST_LAYERS:
        return
    for depth, (layer, group) in enumerate(zip(layer_names(groups), groups, strict=True), 1):
        progress(f"layer {layer}")
        attack, rng = on_layers(Ridge(), group), torch_rng(seed, "records", "layers", *group)
        scores = answer(attack, scene.problem, _tuned(attack, scene, work, seed), Workspace(), rng).scores
        keys = {"analysis": "layers", "attack": "ridge", "linkage": "update", "layer": layer, "depth": depth}
        keys |= {"layers": ",".join(group), "parameters": sum(updates.sizes[name] for name in group)}
        yield Answer(scores=scores, keys=keys)
