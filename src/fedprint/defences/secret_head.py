"""The secret head as a defence (papers.md 4.3): the codes of a device; the network is in models/dual_head.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from fedprint.data.examples import CODE, CODE_WEIGHT
from fedprint.defences.strength import Amount, Defence, single
from fedprint.types import DataDefence, Examples


class SecretHead(Defence):
    """``spn``: a private head of ``bits`` outputs pulls each class towards a secret code (spn, section 3).

    The device minimises ``alpha1 * CE + alpha2 * L_P`` with the hinge loss L_P of margin ``margin`` (1 where the paper
    gives none). It draws a code of +-1 per class, once; its head never leaves it and is kept over the rounds.
    Experiments of the paper: alpha1 = 1, 64 bits, alpha2 from 1e-4 to .5. It must come after every other defence of the
    data.
    """

    neutral: ClassVar[Mapping[str, Any]] = {"alpha1": 1, "alpha2": 0}

    name: Literal["spn"] = "spn"
    bits: int = Field(default=64, ge=1, le=2**16)
    alpha1: float = Field(default=1.0, gt=0)
    alpha2: Amount | Annotated[tuple[Amount, ...], Field(min_length=1)] = 0.1
    margin: float = Field(default=1.0, ge=1)

    def on_data(self, examples: Examples, background: Examples, rng: Generator) -> Examples:
        """Return the examples with the columns ``code`` (n, bits) and ``code_weight`` (n,), alpha2 everywhere."""
        y, x = examples["y"], examples["x"]
        codes = target_codes(y, self.bits, rng).to(x)
        return {**examples, CODE: codes, CODE_WEIGHT: torch.full_like(codes[:, 0], single(self.alpha2))}


def target_codes(y: Tensor, bits: int, rng: Generator) -> Tensor:
    """Return the target (n, bits) of labels (n,), or of multi-hot labels (n, classes): the sum of the classes' codes.

    Each class has a code of +-1, drawn from ``rng``.
    """
    classes = y.shape[1] if y.is_floating_point() else int(y.max()) + 1
    codes = 2.0 * torch.randint(2, (classes, bits), generator=rng) - 1
    labels = y.cpu()
    return labels.to(codes) @ codes if y.is_floating_point() else codes[labels]


def secret_head(defences: Sequence[object]) -> SecretHead | None:
    """Return the secret head among ``defences``; ValueError for two, or for one that other data defences follow."""
    positions = [position for position, defence in enumerate(defences) if isinstance(defence, SecretHead)]
    if not positions:
        return None
    if len(positions) > 1:
        raise ValueError("defences: a network has one secret head; keep one spn")
    for later in defences[positions[0] + 1 :]:
        if isinstance(later, DataDefence):
            name = getattr(later, "name", type(later).__name__)
            raise ValueError(f"defences: {name} after spn would add examples without codes; put spn behind it")
    head = defences[positions[0]]
    assert isinstance(head, SecretHead)
    return head
