"""Secure aggregation: the server learns sums of groups of devices and no single update (papers.md 2.6, 5.2).

It acts at neither point: devices send what they send, and the model is trained as without it. What changes is the
*view*: of each group the server, and so the adversary, sees the weighted sum. It runs the prior devices itself, takes
their parts away, and is left with the sum of the group's anonymous devices (docs/adr/0010).
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

    ``size`` 1 hides nothing; none is the whole cohort. The adversary's own devices are in the groups too: where half of
    all devices are its own, a group of m hides a user among about m / 2. The protocol (Bonawitz et al. 2017) is not
    simulated, only what it shows: sums are exact, nobody drops out.
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
    found = [defence for defence in defences if isinstance(defence, SecureAggregation)]
    if len(found) > 1:
        raise ValueError("defences: the server sees sums of one kind of group; keep one secure-aggregation")
    return found[0] if found else None


def server_view(defences: Sequence[object]) -> View:
    """Return what a curious server sees: single updates (local), or sums of several (aggregate)."""
    found = secure_aggregation(defences)
    return "aggregate" if found is not None and found.protects else "local"


def check_group(defences: Sequence[object], cohort: int) -> None:
    """Raise FedprintError for groups that are larger than a round's cohort."""
    found = secure_aggregation(defences)
    if found is not None and (found.size or 1) > cohort:
        raise FedprintError(
            f"defences.secure-aggregation.size: groups of {found.size} do not fit a cohort of {cohort} devices; lower "
            "size or raise federation.fraction"
        )


def as_seen(
    sent: Sequence[Params], weights: Sequence[float], roles: Sequence[Role], defence: SecureAggregation | None
) -> list[Params]:
    """Return a round's updates as the adversary knows them, slot by slot.

    Its own devices' as they were sent. Each anonymous one's is the mean, by ``weights``, over the anonymous devices of
    its group: the group's sum less the adversary's own part, over the weights that it is made of.
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
    """Return the numbers of examples as the adversary knows them: of a group's anonymous devices only their sum.

    Shared out evenly, the first slots get what is left over, so that a group's weights still add up.
    """
    shown = list(examples)
    for group in defence.groups(len(examples)) if defence is not None else ():
        hidden = [slot for slot in group if roles[slot] == "anonymous"]
        for place, slot in enumerate(hidden):
            each, over = divmod(sum(examples[h] for h in hidden), len(hidden))
            shown[slot] = each + (place < over)
    return shown
