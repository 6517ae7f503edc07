"""How often each label occurs in a device's data, by the bias of the last layer alone: no model is needed.

The gradient of the cross-entropy by that bias is the mean over examples of p - y. The bias of a class that a device has
often rises, that of a class it lacks falls. After many local steps, or of a model that predicts some classes more often
than others, the counts are biased. Nobody checks them here: no truth about labels is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from fedprint.attacks.inversion.labels import labels_from
from fedprint.attacks.problem import Problem
from fedprint.attacks.updates import RowsOf
from fedprint.types import Doubles

COUNTED = 100
"""So many labels are counted for a device: shares in per cent."""
MOST_CLASSES, MOST_DEVICES = 1000, 20


@dataclass(frozen=True, kw_only=True)
class LabelShares:
    """Estimated ``shares`` (devices, C) of each class, by the bias ``layer``; ``senders`` are positions of devices."""

    layer: str
    senders: tuple[str, ...]
    shares: Doubles


def label_shares(problem: Problem, senders: Sequence[str], classes: Sequence[str]) -> LabelShares | str:
    """Return the estimate for the first devices that are asked about, or in words why there is none."""
    sizes = problem.updates.sizes
    last = problem.updates.layers[-1]
    if not last.endswith("bias"):
        return f"The last layer, {last}, is no bias: labels cannot be counted without the model."
    if not 2 <= sizes[last] <= MOST_CLASSES or (classes and len(classes) != sizes[last]):
        return f"The last bias, {last}, has {sizes[last]} entries, which are not the {len(classes) or 'few'} classes."
    names = list(dict.fromkeys(senders))[:MOST_DEVICES]
    rows = np.flatnonzero(np.isin(senders, names))
    table = RowsOf(updates=problem.updates, rows=problem.ask[rows])
    values = np.concatenate([np.asarray(block, np.float64) for block in table.blocks([last])], axis=1)
    means = pd.DataFrame(values).groupby(np.asarray(senders)[rows]).mean().loc[names].to_numpy()
    means = means - means.mean(1, keepdims=True)
    found = labels_from("bias", {"head.bias": torch.from_numpy(-means)}, COUNTED).numpy()
    shares = np.stack([np.bincount(one, minlength=sizes[last]) for one in found]) / COUNTED
    return LabelShares(layer=last, senders=tuple(names), shares=shares)
