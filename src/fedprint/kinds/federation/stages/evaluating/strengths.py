"""Recognition of users by the strength of defence that their devices chose (gradient-leaks, 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedprint.data.formats.files import read_json
from fedprint.evaluation.measure import measure_outcomes
from fedprint.evaluation.outcomes import outcomes, outcomes_of
from fedprint.kinds.federation.config import Experiment
from fedprint.kinds.federation.stages.attack_scores import AttackScores
from fedprint.lab.graph import Task
from fedprint.rng import seed_for
from fedprint.store.index import read_truth
from fedprint.types import Measurement

ANALYSIS = "strengths"
ANY = "any"
"""The ``strength`` of a row about all protected or all unprotected devices."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Users (columns of the attack's scores) whose anonymous devices chose the same."""

    strength: str
    protected: bool
    columns: tuple[int, ...]


def measure_strengths(task: Task, attack: Mapping[str, Any], scores: AttackScores) -> Iterator[Measurement]:
    """Yield the selected attack's measurements by chosen strength, and of all protected and unprotected devices.

    Nothing where all devices are defended alike. A user's questions are ranked among everybody's, as in the total.
    Keys: ``analysis``, ``strength``, ``protected``, ``linkage``, ``attack``, ``layers``, ``selected``.
    """
    if not any(defence.varying for defence in task.config.defences):
        return
    of_device = read_json(task.at("truth") / "strengths.json")
    groups = group_users(_choices(task, attack, of_device))
    name, evaluation = attack["selected"], task.config.evaluation
    layers = attack["attacks"][name]["layers"]
    for linkage in task.config.selection.linkages:
        truth = scores.truth[linkage]
        everyone = outcomes(scores.of(linkage, name), truth, truth)
        for group in groups:
            keys = {"analysis": ANALYSIS, "strength": group.strength, "protected": group.protected}
            keys |= {"linkage": linkage, "attack": name, "layers": ",".join(layers) if layers else "all"}
            measured = measure_outcomes(
                outcomes_of(everyone, group.columns),
                seed_for(task.seed, "interval", ANALYSIS, linkage, group.strength, group.protected),
                confidence=evaluation.confidence,
                resamples=evaluation.resamples,
            )
            for one in measured:
                yield replace(one, keys={**keys, "selected": True})


def group_users(choices: Mapping[int, tuple[str, bool]]) -> list[Group]:
    """Return the groups of column -> (strength, protected): all unprotected, all protected, then each strength."""
    groups = [(ANY, protected) for protected in sorted({protected for _, protected in choices.values()})]
    groups += sorted(set(choices.values()), key=lambda choice: (choice[1], choice[0]))
    return [
        Group(strength=strength, protected=protected, columns=_members(choices, strength, protected))
        for strength, protected in groups
    ]


def strength_label(config: Experiment, settings: Sequence[Mapping[str, Any]]) -> str:
    """Return the choice of a device, such as ``mm-aug alpha=0.5``: the settings in which devices differ."""
    chosen = [
        f"{defence.name} {name}={values[name]:g}"
        for defence, values in zip(config.defences, settings, strict=True)
        for name in defence.varying
    ]
    return ", ".join(chosen)


def _choices(task: Task, attack: Mapping[str, Any], of_device: Mapping[str, Any]) -> dict[int, tuple[str, bool]]:
    """Return column -> what the user's anonymous device chose, for every user that is asked about."""
    table = read_truth(task.at("truth"))
    asked = table[np.isin(table["obs_id"], attack["subjects"])]
    column = {user: i for i, user in enumerate(attack["options"])}
    pairs = sorted(set(zip(asked["user_id"].tolist(), asked["device_id"].tolist(), strict=True)))
    return {
        column[user]: (strength_label(task.config, of_device[device]["defences"]), of_device[device]["protected"])
        for user, device in pairs
    }


def _members(choices: Mapping[int, tuple[str, bool]], strength: str, protected: bool) -> tuple[int, ...]:
    return tuple(column for column, (chose, safe) in choices.items() if safe == protected and strength in (ANY, chose))
