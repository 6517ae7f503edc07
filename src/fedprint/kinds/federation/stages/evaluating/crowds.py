"""Recognition by the number of users, and what to expect of the same attack among up to a million."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedprint.evaluation.chance import expected_ap
from fedprint.evaluation.crowds import among_parts, predicted_ap
from fedprint.evaluation.intervals import Interval
from fedprint.evaluation.metrics import measurement
from fedprint.kinds.federation.stages.attack_scores import AttackScores
from fedprint.lab.graph import Task
from fedprint.rng import numpy_rng
from fedprint.types import Doubles, Ints, Measurement

ANALYSIS = "crowds"
LEAST = 50
"""Users below which nothing is predicted."""
SIZES = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
DRAWS = 5


def measure_crowds(task: Task, attack: Mapping[str, Any], scores: AttackScores) -> Iterator[Measurement]:
    """Yield AP, and TPR at false positive rates of 1 % and .1 %, of the chosen attack by number of users.

    ``attack`` is the headline's attack.json. ``number`` says whether it is measured, or predicted, from all users or,
    as a check that can fail, from a quarter of them for all. Keys: ``analysis``, ``linkage``, ``attack``, ``selected``,
    ``options`` (users), ``number``.
    """
    name = attack["selected"]
    for linkage in task.config.selection.linkages:
        truth = scores.truth[linkage]
        if len(users := np.unique(truth)) < LEAST:
            continue
        keys = {"analysis": ANALYSIS, "linkage": linkage, "attack": name, "selected": True}
        for metric, number, n, found in _numbers(task, scores.of(linkage, name), truth, linkage):
            chance = {"tpr_1": 0.01, "tpr_01": 0.001}.get(metric, _chance(n, len(truth) / len(users)))
            yield replace(measurement(metric, found, chance, truth), keys={**keys, "options": n, "number": number})


def _numbers(task: Task, scores: Doubles, truth: Ints, linkage: str) -> Iterator[tuple[str, str, int, Interval]]:
    """Yield metric, kind of number, number of users, and interval."""
    confidence = task.config.evaluation.confidence
    rng = numpy_rng(task.seed, "interval", ANALYSIS, linkage)
    users = np.unique(truth)
    for n in (*(size for size in SIZES if size < len(users)), len(users)):
        for metric, found in among_parts(scores, truth, n, rng, draws=DRAWS, confidence=confidence).items():
            yield metric, "measured", n, found
    quarter = np.sort(rng.permutation(users)[: len(users) // 4])
    asked = np.isin(truth, quarter)
    fewer = scores[np.ix_(asked, quarter)], np.searchsorted(quarter, truth[asked])
    for n, found in predicted_ap(*fewer, [len(users)], rng, confidence=confidence).items():
        yield "ap", "predicted from a quarter", n, found
    larger = [len(users), *(size for size in SIZES if size > len(users))]
    for n, found in predicted_ap(scores, truth, larger, rng, confidence=confidence).items():
        yield "ap", "predicted", n, found


def _chance(users: int, questions: float) -> float:
    """Return the AP of random scores where each user has as many questions, rounded."""
    each = max(round(questions), 1)
    return float(expected_ap([each], users * each)[0])
