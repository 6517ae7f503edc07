"""Secure aggregation: the server learns sums of groups of devices and no single update (papers.md 2.6, 5.2).

It acts at neither point: the updates and the trained model are those without it. It changes the *view*: of each group
the server, and so the adversary, sees only the weighted sum. The adversary runs the prior devices itself, so it can
subtract their updates; the sum of the group's anonymous devices is left (docs/adr/0010).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedprint.defences.strength import Defence
from fedprint.params import weighted_mean
from fedprint.types import FedprintError, Params, Role, View


class SecureAggregation(Defence):
    """``secure-aggregation``: the server sees sums of groups of at least ``size`` devices of a round's cohort.

    ``size`` 1 hides nothing; null is the whole cohort. The adversary's devices are in the groups too: if half of all
    devices are the adversary's, a group of m hides a user among about m / 2. The protocol (Bonawitz et al. 2017) is not
    simulated, only its result: sums are exact, no device drops out.
    """

    neutral: ClassVar[Mapping[str, Any]] = {"size": 1}

    name: Literal["secure-aggregation"] = "secure-aggregation"
    size: int | None = Field(default=None, ge=1)

    def groups(self, count: int) -> list[list[int]]:
        """Cut the slots 0 .. ``count`` - 1 of a round, in order, into groups of at least ``size`` (of fewer, into one).

        The order of slots is random and carries no identity, so the groups are random too.
        """
        parts = max(1, count // (self.size or max(count, 1)))
        return [part.tolist() for part in np.array_split(np.arange(count), parts)]


def secure_aggregation(defences: Sequence[object]) -> SecureAggregation | None:
    """Return the secure aggregation among ``defences``; ValueError for two of them."""
    aggregations = [defence for defence in defences if isinstance(defence, SecureAggregation)]
    if len(aggregations) > 1:
        raise ValueError("defences: the server sees sums of one kind of group; keep one secure-aggregation")
    return aggregations[0] if aggregations else None


def server_view(defences: Sequence[object]) -> View:
    """Return what a curious server sees: single updates (local), or sums of several (aggregate)."""
    aggregation = secure_aggregation(defences)
    return "aggregate" if aggregation is not None and aggregation.protects else "local"


def check_group(defences: Sequence[object], cohort: int) -> None:
    """Raise FedprintError for groups that are larger than a round's cohort."""
    aggregation = secure_aggregation(defences)
    if aggregation is not None and (aggregation.size or 1) > cohort:
        raise FedprintError(
            f"defences.secure-aggregation.size: groups of {aggregation.size} do not fit a cohort of {cohort} devices; "
            "lower size or raise federation.fraction"
        )


def as_seen(
    sent: Sequence[Params], weights: Sequence[float], roles: Sequence[Role], defence: SecureAggregation | None
) -> list[Params]:
    """Return a round's updates as the adversary knows them, slot by slot.

    Updates of the adversary's devices are known as sent. For an anonymous device it is the mean, weighted by
    ``weights``, over the anonymous devices of its group: the group's sum without the adversary's part, divided by the
    remaining weights.
    """
    seen = list(sent)
    for group in defence.groups(len(sent)) if defence is not None else ():
        hidden = [slot for slot in group if roles[slot] == "anonymous"]
        if len(hidden) > 1:
            mean = weighted_mean([sent[slot] for slot in hidden], [weights[slot] for slot in hidden])
            for slot in hidden:
                seen[slot] = mean
    return seen


def shared_counts(examples: Sequence[int], roles: Sequence[Role], defence: SecureAggregation | None) -> list[int]:
    """Return the numbers of examples as the adversary knows them: for a group's anonymous devices only their sum.

    The sum is divided evenly and the first slots get the remainder, so that a group's weights still add up.
    """
    shown = list(examples)
    for group in defence.groups(len(examples)) if defence is not None else ():
        hidden = [slot for slot in group if roles[slot] == "anonymous"]
        for position, slot in enumerate(hidden):
            each, over = divmod(sum(examples[h] for h in hidden), len(hidden))
            shown[slot] = each + (position < over)
    return shown
