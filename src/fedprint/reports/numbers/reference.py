"""The papers' published tables, as they stand in ``reports/reference/*.csv`` of the package (values in per cent)."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from fedprint.types import FedprintError

COMPARABLE: Mapping[str, tuple[str, ...]] = {
    "blog": ("blog",),
    "presidents": ("blog",),
    "mnist_writers": ("pipa", "openimages"),
    "ahcd_writers": ("pipa", "openimages"),
    "albums": ("pipa", "openimages"),
    "openmoji": ("pipa", "openimages"),
    "pipa": ("pipa",),
    "openimages": ("openimages",),
    "yelp": ("yelp",),
    "ratebeer": ("yelp",),
}
"""Our data set -> the published data sets set beside it: the same corpus where there is one, else the same modality."""

SPN_DATA: Mapping[str, str] = {
    "mnist": "mnist",
    "mnist_writers": "mnist",
    "cifar10": "cifar10",
    "cifar100": "cifar100",
    "svhn": "svhn",
}
"""Our data set -> its name in the tables of the spn paper; Fashion-MNIST is not among them."""

TITLES: Mapping[str, str] = {"pipa": "PIPA", "openimages": "OpenImages", "blog": "Blog", "yelp": "Yelp"}

CITATION = (
    "Orekondy, Oh, Zhang, Schiele, Fritz: Understanding and Controlling Deanonymization in Federated Learning, "
    "2018 to 2020, table 3"
)


@dataclass(frozen=True, kw_only=True)
class Published:
    """One row of the paper's re-identification table; per cent, ``over_chance`` is AP over 1/U. No intervals exist."""

    dataset: str
    prior: str
    attack: str
    ap: float
    over_chance: float
    top1: float
    top5: float


@cache
def reference_table(name: str) -> tuple[Mapping[str, str], ...]:
    """Return the rows of ``reference/<name>.csv`` as text; FedprintError lists the tables when there is none."""
    folder = resources.files("fedprint.reports") / "reference"
    path = folder / f"{name}.csv"
    if not path.is_file():
        known = sorted(item.name.removesuffix(".csv") for item in folder.iterdir() if item.name.endswith(".csv"))
        raise FedprintError(f"there is no reference table {name!r}; choose one of {', '.join(known)}")
    return tuple(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def comparable(dataset: str) -> tuple[str, ...]:
    """Return the published data sets beside which ``dataset`` is shown; empty when none is comparable."""
    return COMPARABLE.get(dataset, ())


def published_prior(dataset: str, prior: str) -> str:
    """Return what the papers' tables call our ``prior``: PIPA has no times, and its rows "chrono" are by album."""
    return "chrono" if (dataset, prior) == ("pipa", "photoset") else prior


def published_row(dataset: str, prior: str, attack: str) -> Published | None:
    """Return the paper's row for a published data set, our prior and attack, or None where it has none."""
    for row in reference_table("table3_reidentification"):
        if (row["dataset"], row["prior"], row["attack"]) == (dataset, published_prior(dataset, prior), attack):
            numbers = {key: float(row[key]) for key in ("ap", "over_chance", "top1", "top5")}
            return Published(dataset=dataset, prior=prior, attack=attack, **numbers)
    return None


def published_users(dataset: str) -> int:
    """Return how many users a published data set has (table 1)."""
    return next(int(row["users"]) for row in reference_table("table1_datasets") if row["dataset"] == dataset)


def published_utility(dataset: str, prior: str, training: str) -> tuple[str, float] | None:
    """Return (metric, value) of the paper's utility table, or None where it has none."""
    for row in reference_table("table2_utility"):
        if (row["dataset"], row["prior"], row["training"]) == (dataset, published_prior(dataset, prior), training):
            return row["metric"], float(row["value"])
    return None
