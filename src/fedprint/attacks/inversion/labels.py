"""Labels from the gradient of the last layer alone: the papers' membership attack without a reconstruction.

Row c of the weight gradient is the mean over images of ``(p_c - y_c) h``, with p the predicted probabilities and h the
layer's input. Only the rows of labels that occur hold negative multiples of h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedprint.attacks.inversion.closed_form import layer_input
from fedprint.types import FedprintError, Params

Rule = Literal["row-sum", "sign", "bias", "counts"]
BY_SUMS: tuple[Rule, ...] = ("row-sum", "counts")
"""The rules that add up the last layer's inputs, which therefore must not be negative."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The model's mean outputs for images of the adversary.

    ``probabilities`` (v, C) of the classes and ``mass`` (v,), the sum of the last layer's inputs.
    """

    probabilities: Tensor
    mass: Tensor


def expected_from(gradients: Params) -> Expected:
    """Return the outputs of a model, computed from its gradients (v, ...) of images of class 0."""
    weight, bias = gradients["head.weight"], gradients["head.bias"]
    target = torch.zeros_like(bias)
    target[:, 0] = 1
    return Expected(probabilities=bias + target, mass=layer_input(weight, bias).sum(1))


def labels_from(rule: Rule, descents: Params, count: int, expected: Expected | None = None) -> Tensor:
    """Return ``count`` labels (v, count) of every victim, in rising order, from the gradients of its head.

    ``descents`` are stacked (v, ...) as simulate.py has them. row-sum: the rows with the smallest sums, for inputs that
    are not negative (ReLU, sigmoid). bias: the smallest entries of the bias. sign: the row that points against all
    others, for any inputs, of one image (iDLG, Zhao et al. 2020, eq. 4). counts: how often each label occurs, from the
    row sums and the ``expected`` outputs of the model (ours), for inputs as in row-sum. ``descents`` do not show
    whether inputs are signed: see :func:`check_rule`. Raises FedprintError where a rule cannot work.
    """
    name = "head.bias" if rule == "bias" else "head.weight"
    if name not in descents:
        raise FedprintError(f"labels: the update holds no '{name}'; choose one of {', '.join(descents)}")
    rows = descents[name]
    if rule == "sign":
        if count > 1:
            raise FedprintError(f"labels: rule 'sign' is for one image, not {count}; choose counts")
        return _against_all_others(rows)
    if rule == "counts":
        if expected is None:
            raise FedprintError("labels: rule 'counts' needs the model's outputs for images; choose row-sum")
        share = expected.probabilities - rows.sum(2) / expected.mass[:, None]
        return _largest(share * count, torch.ones_like(share[:, 0]), count)
    evidence = -(rows.sum(2) if rule == "row-sum" else rows)
    # An image's share (Wainakh et al. 2022, algorithm 1), a little larger to correct for the softmax.
    each = evidence.clamp(min=0).sum(1) * (1 + 1 / evidence.shape[1]) / count
    return _largest(evidence, each, count)


def check_rule(rule: Rule, model: object) -> None:
    """Raise FedprintError where the rule adds up inputs of the last layer that may be negative (tanh)."""
    if rule in BY_SUMS and getattr(model, "activation", None) is torch.tanh:
        raise FedprintError(
            f"attack.labels: rule '{rule}' adds up the inputs of the last layer, which are signed in "
            f"{type(model).__name__} with tanh; choose sign for one image, bias for several"
        )


def _against_all_others(weight: Tensor) -> Tensor:
    """Return the row (v, 1) with the smallest inner product with the sum of all others, each row of length 1."""
    rows = functional.normalize(weight, dim=2)
    others = rows.sum(1, keepdim=True) - rows
    return (rows * others).sum(2).argmin(1, keepdim=True)


def _largest(evidence: Tensor, each: Tensor, count: int) -> Tensor:
    """Return labels (v, count): the largest evidence (v, C) gives one and falls by ``each`` (v,), ``count`` times."""
    rest, every, chosen = evidence.clone(), torch.arange(len(evidence), device=evidence.device), []
    for _ in range(count):
        label = rest.argmax(1)
        chosen.append(label)
        rest[every, label] -= each
    return torch.stack(chosen, 1).sort(1).values
