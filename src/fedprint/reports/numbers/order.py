"""In which order reports name attacks and models, and which attack stands for the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedprint.evaluation.rows import Row
from fedprint.reports.numbers.evaluations import CONTROL

ATTACK_ORDER = (
    "chance",
    "knn",
    "knn-std",
    "svm",
    "svm-hard",
    "svm-std",
    "mlp",
    "mlp-std",
    "mlp-tuned",
    "ridge",
    "ridge-means",
)
TRAINING_ORDER = ("federated", "centralised", "knn", "median", "chance")


def rank(order: Sequence[str], name: str) -> tuple[int, str]:
    """Return a sort key: the place in ``order``, other names after it."""
    return (order.index(name) if name in order else len(order), name)


def attack_rank(attack: str) -> tuple[int, str]:
    """Return a sort key: from chance to the strongest of the bench, other attacks by name after them."""
    return rank(ATTACK_ORDER, attack)


def prior_title(prior: str) -> str:
    """Return the title of a prior's panel."""
    return "iid control" if prior == CONTROL else f"{prior} prior"


def strongest(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of one attack, chosen by name and never by result: a strong one, ridge, or the last in order."""
    known = list(rows)
    names = sorted({str(row["attack"]) for row in known}, key=_strength)
    return [row for row in known if row["attack"] == names[-1]] if names else []


def _strength(name: str) -> tuple[bool, bool, tuple[int, str]]:
    return name.endswith("-strong"), name in {"ridge", "likelihood", "selected"}, attack_rank(name)
