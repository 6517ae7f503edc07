"""Recognition by the number of a device's updates that the adversary can link: 1, 3, 10, 30, 100."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fedprint.attacks.reidentification.linked import LINKED, linked_parts
from fedprint.evaluation.measure import measure_reidentification
from fedprint.kinds.federation.stages.attack_scores import AttackScores
from fedprint.lab.graph import Task
from fedprint.rng import seed_for
from fedprint.types import AdversaryName, Measurement

ANALYSIS = "linked"
METRICS = ("ap", "ap_over_chance", "tpr_01")


def measure_linked(
    task: Task, attacks: Mapping[AdversaryName, Mapping[str, Any]], scores: Mapping[AdversaryName, AttackScores]
) -> Iterator[Measurement]:
    """Yield AP of every adversary and attack by ``linked_updates``.

    A device's updates are cut, in order of time, into as many parts of that size as there are; each part is a question.
    Its score is the mean log-probability of its updates, or that of their mean (attacks/adversary/linking.py).
    Keys: ``analysis``, ``linked_updates``, ``adversary``, ``linkage``, ``attack``, ``layers``, ``selected``.
    """
    if "device" not in task.config.selection.linkages:
        return
    evaluation = task.config.evaluation
    for adversary, attack in attacks.items():
        parts = {k: linked_parts(attack["senders"], attack["rounds"], k) for k in LINKED}
        for name, tuned in attack["attacks"].items():
            keys = {"analysis": ANALYSIS, "adversary": adversary, "linkage": "device", "attack": name}
            keys |= {"layers": ",".join(tuned["layers"] or ()) or "all", "selected": name == attack["selected"]}
            for k, rows in parts.items():
                if not len(rows):
                    continue
                truth = scores[adversary].truth["update"][rows[:, 0] if k > 1 else slice(None)]
                measured = measure_reidentification(
                    scores[adversary].linked(name, k),
                    truth,
                    truth,
                    seed_for(task.seed, "interval", ANALYSIS, name, k),
                    confidence=evaluation.confidence,
                    resamples=evaluation.resamples,
                )
                for one in measured:
                    if one.metric in METRICS:
                        yield replace(one, keys={**keys, "linked_updates": k})
