"""Labels from the gradient of the last layer alone: the papers' membership attack without a reconstruction.

Row c of the weight gradient is the mean over images of ``(p_c - y_c) h``, with p the predicted probabilities and h the
layer's input. Only the rows of labels that occur hold negative multiples of h.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from fedprint.types import FedprintError, Params

Rule = Literal["row-sum", "sign", "bias"]


def labels_from(rule: Rule, descents: Params, count: int, layer: str = "head") -> Tensor:
    """Return ``count`` labels (v, count) of every victim from its ``layer``'s gradients, each label's images together.

    ``descents`` are stacked (v, ...) as in :func:`~fedprint.attacks.inversion.simulate.simulation`. row-sum: the rows
    with the smallest sums, for inputs that are not negative (ReLU, sigmoid). sign: the row that turns against all
    others, for any input, one image (iDLG, Zhao et al. 2020, eq. 4). bias: the smallest entries of the bias.
    """
    names = {"row-sum": "weight", "sign": "weight", "bias": "bias"}
    name = f"{layer}.{names[rule]}"
    if name not in descents:
        raise FedprintError(f"labels: the update holds no '{name}'; choose one of {', '.join(descents)}")
    if rule == "sign" and count > 1:
        raise FedprintError(f"labels: rule 'sign' is for one image, not {count}; choose row-sum")
    return _RULES[rule](descents[name], count)


def _by_row_sums(weight: Tensor, count: int) -> Tensor:
    return _most_negative(weight.sum(2), count)


def _by_bias(bias: Tensor, count: int) -> Tensor:
    return _most_negative(bias, count)


def _by_signs(weight: Tensor, count: int) -> Tensor:
    """Return the row (v, 1) with the smallest inner product with the sum of all others, each row of length 1."""
    rows = torch.nn.functional.normalize(weight, dim=2)
    others = rows.sum(1, keepdim=True) - rows
    return (rows * others).sum(2).argmin(1, keepdim=True)


def _most_negative(evidence: Tensor, count: int) -> Tensor:
    """Return labels (v, count) of evidence (v, classes) in which each image adds about the same negative amount.

    The smallest entry gives a label and rises by an image's share, until all images have one (Wainakh et al. 2022,
    algorithm 1: the share is the mean of the negative evidence, a little more for what the softmax takes back).
    """
    classes = evidence.shape[1]
    share = -evidence.clamp(max=0).sum(1) * (1 + 1 / classes) / count
    left, every, found = evidence.clone(), torch.arange(len(evidence), device=evidence.device), []
    for _ in range(count):
        label = left.argmin(1)
        found.append(label)
        left[every, label] += share
    return torch.stack(found, 1).sort(1).values


_RULES: Mapping[Rule, Callable[[Tensor, int], Tensor]] = {
    "row-sum": _by_row_sums,
    "sign": _by_signs,
    "bias": _by_bias,
}
