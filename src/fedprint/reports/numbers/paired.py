"""Differences between two conditions over the same users, paired user by user: narrower than two separate intervals."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedprint.evaluation.intervals import difference_interval
from fedprint.evaluation.metrics import measurement
from fedprint.evaluation.rows import Row, pool_seeds, to_row
from fedprint.reports.numbers.evaluations import CONTROL, Evaluation
from fedprint.rng import numpy_rng

PAIRED = "paired"
"""The ``analysis`` of these rows; ``versus_attack`` and ``versus_prior`` name what is subtracted."""

RIVALS = (("mlp", "knn"), ("mlp", "svm"), ("svm", "knn"), ("mlp-std", "knn-std"))
"""Attacks that the papers compare, and the same on standardised updates."""

Aps = Mapping[str, float]
"""User id -> AP of one update."""


def paired_rows(evaluations: Sequence[Evaluation]) -> list[Row]:
    """Return the mean differences of AP with their intervals over users, and over seeds pooled where there are several.

    Within a prior: the attacks of :data:`RIVALS`, and the chosen attacker minus every other. Between two priors: each
    attack under both, users who have questions in both. ``chance`` is 0.
    """
    rows = [row for item in evaluations for row in _within(item)]
    for first, second in itertools.permutations(evaluations, 2):
        if first.seed == second.seed and first.prior != second.prior and CONTROL not in (first.prior, second.prior):
            rows += [
                _row(first, second, (attack, attack), seed_path=("priors", attack))
                for attack in _attacks(first)
                if attack in _attacks(second)
            ]
    return pool_seeds(rows)


def _within(item: Evaluation) -> Iterator[Row]:
    known, chosen = _attacks(item), str(item.details["selected"])
    pairs = [*RIVALS, *((chosen, attack) for attack in known if attack != chosen)]
    for pair in dict.fromkeys(pairs):
        if pair[0] in known and pair[1] in known:
            yield _row(item, item, pair, seed_path=pair)


def _attacks(item: Evaluation) -> Mapping[str, Aps]:
    by_attack: Mapping[str, Aps] = item.details.get("ap_by_user", {}).get(item.details.get("adversary"), {})
    return by_attack


def _row(first: Evaluation, second: Evaluation, attacks: tuple[str, str], seed_path: tuple[Any, ...]) -> Row:
    left, right = _attacks(first)[attacks[0]], _attacks(second)[attacks[1]]
    users = sorted(set(left) & set(right), key=int)
    rng = numpy_rng(first.seed, "paired", first.prior, second.prior, *seed_path)
    interval = difference_interval([left[user] for user in users], [right[user] for user in users], rng)
    number = to_row(measurement("ap_difference", interval, 0.0, [int(user) for user in users]))
    condition = {key: first.rows[0].get(key) for key in ("experiment", "dataset", "world", "training", "view")}
    keys = {
        "analysis": PAIRED,
        "prior": first.prior,
        "versus_prior": second.prior,
        "attack": attacks[0],
        "versus_attack": attacks[1],
        "linkage": "update",
        "seed": first.seed,
        "config_hash": first.details["config_hash"],
    }
    return {**number, **condition, **keys}
