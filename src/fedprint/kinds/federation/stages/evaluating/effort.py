"""How much the last doubling of the adversary's shadow devices gained: what a table's AP may still lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedprint.evaluation.intervals import difference_interval
from fedprint.evaluation.metrics import measurement
from fedprint.kinds.federation.stages.attack_scores import AttackScores
from fedprint.lab.graph import Task
from fedprint.ranking import average_precision
from fedprint.rng import numpy_rng
from fedprint.types import Measurement

ANALYSIS = "effort"


def measure_effort(task: Task, attack: Mapping[str, Any], scores: AttackScores) -> Iterator[Measurement]:
    """Yield AP with all shadow devices less AP with those of every other global model, paired over users.

    Of the headlines' adversary, for one update and for all of a device. ``attack`` is its attack.json. Keys:
    ``analysis``, ``linkage``, ``attack``, ``selected``.
    """
    evaluation = task.config.evaluation
    for name in attack["attacks"]:
        for linkage in task.config.selection.linkages:
            half = scores.half(linkage, name)
            if half is None:
                continue
            truth = scores.truth[linkage]
            aps = [average_precision(each, truth) for each in (scores.of(linkage, name), half)]
            whole, less = (ap[~np.isnan(ap)] for ap in aps)
            rng = numpy_rng(task.seed, "interval", ANALYSIS, name, linkage)
            gain = difference_interval(
                whole, less, rng, confidence=evaluation.confidence, resamples=evaluation.resamples
            )
            keys = {"analysis": ANALYSIS, "linkage": linkage, "attack": name, "selected": name == attack["selected"]}
            yield replace(measurement("ap_difference", gain, 0.0, truth), keys=keys)
