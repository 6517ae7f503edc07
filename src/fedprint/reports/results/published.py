"""Published experiments: those whose measurements git holds, as their ``dvc.lock`` names them."""

from __future__ import annotations

import csv
import hashlib
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from fedprint.data.formats.files import read_json
from fedprint.evaluation.rows import NUMBERS, POOLED, Row, read_measurements
from fedprint.evaluation.tradeoffs.planes import over_seeds
from fedprint.reports.claims.verdict import CLAIMS, Verdict, read_verdicts
from fedprint.reports.numbers.evaluations import of_headline
from fedprint.reports.numbers.inversion import rows_where
from fedprint.reports.numbers.plane import NO_DEFENCE
from fedprint.reports.wording import LINKAGES, METRIC_TITLES, people, shown, with_unit
from fedprint.types import FedprintError

SIDES, WITH_SIDES = ("count", "norm", "participation"), ("ridge+sides",)
"""Attacks on what every server sees beside the update, alone and with it."""

_APART = ("analysis", "chosen", "protected")
"""Columns that are set in rows about a part of the users, or by an analysis."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """An experiment as git holds it: the command that made it, the day of its commit, its measurements.

    ``operating`` are a study's operating points, none of other experiments; ``verdicts`` those of the report. ``users``
    are development or confirmation users, or both, where the data set declares any.
    """

    name: str
    command: str
    date: str
    rows: Sequence[Row]
    operating: Sequence[Mapping[str, str]] = ()
    verdicts: Sequence[Verdict] = ()
    users: str | None = None

    @cached_property
    def _by_metric(self) -> Mapping[str, Sequence[Row]]:
        rows: dict[str, list[Row]] = {}
        for row in self.rows:
            rows.setdefault(row["metric"], []).append(row)
        return rows

    def matching(self, **wanted: Any) -> list[Row]:
        """Return the rows with these values, of analyses too."""
        return rows_where(self._by_metric.get(wanted["metric"], ()) if "metric" in wanted else self.rows, **wanted)

    def where(self, **wanted: Any) -> list[Row]:
        """Return the rows with these values about all users."""
        return [row for row in self.matching(**wanted) if _is_about_all(row)]

    def number(self, *, most: bool = False, **wanted: Any) -> Row:
        """Return a number over seeds: that of the adaptive adversary where there is one, or the largest of the rows."""
        every = self.where(**wanted)
        rows = sorted(every if most else of_headline(every), key=lambda row: float(row["value"]))
        by_seed = {row["seed"]: row for row in rows if row["seed"] != POOLED}
        if not by_seed:
            raise FedprintError(f"experiments/{self.name}/measurements.jsonl has no row with {wanted}")
        return over_seeds([{key: by_seed[seed].get(key) for key in (*NUMBERS, "seed")} for seed in sorted(by_seed)])

    def over_seeds(self, **wanted: Any) -> Row | None:
        """Return a number of an analysis over seeds, of the adversary of headlines; None if a seed does not know it."""
        each = [row for row in of_headline(self.matching(**wanted)) if row["seed"] != POOLED]
        single = [{key: row.get(key) for key in (*NUMBERS, "seed")} for row in each]
        return over_seeds(single) if {row["seed"] for row in single} == self.seeds else None

    def gain(self, linkage: str, **where: Any) -> Row | None:
        """Return what the last doubling of effort gained, on one or all updates; None if a seed does not know."""
        return self.over_seeds(analysis="effort", metric="ap_difference", linkage=linkage, selected=True, **where)

    def private_gain(self) -> Row | None:
        """Return what private data add to the utility of public data alone, of a plane that measured both."""
        known = self.where(metric="private_gain")
        return self.number(metric="private_gain", strategy=NO_DEFENCE) if known else None

    def largest(self, names: Collection[str], **part: Any) -> Row | None:
        """Return the largest AP of these attacks on all updates of a device; None where none was made."""
        made = {row["attack"] for row in self.where(metric="ap", linkage="device", **part)} & set(names)
        found = [self.number(metric="ap", linkage="device", attack=name, **part) for name in sorted(made)]
        return max(found, key=lambda row: float(row["value"]), default=None)

    def ap(self, **where: Any) -> list[Row]:
        """Return the AP of the attacker chosen on prior data: of one update, and of all updates of a device."""
        return [self.number(metric="ap", linkage=linkage, selected=True, **where) for linkage in LINKAGES]

    def utility(self, **of: Any) -> tuple[Row, str]:
        """Return the federated model's utility, and its name; with the epsilon where there is a budget."""
        rows = self.where(training="federated", attack=None, **of)
        utility = self.number(training="federated", attack=None, metric=rows[0]["metric"], **of)
        spent = next((row for row in rows if row.get("epsilon")), None)
        budget = f" at epsilon {spent['epsilon']:.2f} of a device (delta {spent['delta']:g})" if spent else ""
        return utility, METRIC_TITLES[utility["metric"]] + budget

    def priors(self) -> list[str]:
        """Return the priors in their order; the first is the headline's."""
        return list(dict.fromkeys(row["prior"] for row in self.where()))

    def parts(self) -> list[dict[str, Any]]:
        """Return member, of a suite, and prior of each part in their order."""
        pairs = dict.fromkeys((row.get("member"), row["prior"]) for row in self.where())
        return [{"member": member, "prior": prior} for member, prior in pairs]

    def points(self) -> list[dict[str, Any]]:
        """Return strategy and strength of each defended point of a plane; nothing of other experiments."""
        pairs = dict.fromkeys((row.get("strategy"), row.get("strength")) for row in self.where())
        return [{"strategy": name, "strength": x} for name, x in pairs if name not in (None, NO_DEFENCE)]

    @cached_property
    def seeds(self) -> set[Any]:
        """The seeds that were measured."""
        return {row["seed"] for row in self.where()} - {POOLED}

    def source(self, row: Row | None = None) -> str:
        """Return what stands with every number: command, day, n, seeds, and what the interval is over.

        Without a ``row`` of an attack, n is left out.
        """
        number = row["n_seeds"] if row else len(self.seeds)
        seeds = (", 1 seed", "") if number == 1 else (f", {number} seeds", " and seeds")
        n = f", {row['n_questions']:,} updates of {_whom(self.users, row['n_users'])}" if row else ""
        return f"`{self.command}`, {self.date}{n}{seeds[0]}, 95 % intervals over users{seeds[1]}"


def find_published(root: Path, name: str) -> Published | None:
    """Return an experiment, None where git has none; FedprintError where its lock names other measurements."""
    path = Path("experiments", name, "measurements.jsonl")
    git = ["git", "log", "-1", "--format=%as", "--", str(path)]
    date = subprocess.run(git, cwd=root, capture_output=True, text=True, check=True).stdout.strip()
    if not date or not (root / path).is_file():
        return None
    own = root / path.with_name("dvc.lock")
    stages = yaml.safe_load((own if own.is_file() else root / "dvc.lock").read_text(encoding="utf-8"))["stages"]
    recorded = {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs", ())}
    if recorded.get(str(path)) != hashlib.md5((root / path).read_bytes(), usedforsecurity=False).hexdigest():
        raise FedprintError(f"{path} is not what its dvc.lock names: publish '{name}' again")
    command = next(iter(stages.values()))["cmd"] if own.is_file() else f"fedprint run {name}"
    points = root / path.with_name("plots") / "operating-points.csv"
    operating = list(csv.DictReader(points.read_text(encoding="utf-8").splitlines())) if points.is_file() else []
    claims, published = root / path.with_name(CLAIMS), root / path.with_name("published.json")
    return Published(
        name=name,
        command=command,
        date=date,
        rows=read_measurements(root / path),
        operating=operating,
        verdicts=read_verdicts(claims) if claims.is_file() else (),
        users=read_json(published).get("users") if published.is_file() else None,
    )


def _is_about_all(row: Row) -> bool:
    return row["world"] == "closed" and not any(row.get(key) for key in _APART)


def _whom(users: str | None, count: int) -> str:
    """Return how many users, and of which kind where that is declared."""
    return people(count) if users in (None, "both") else f"{count:,} {users} users"


def against(row: Row) -> str:
    """Return a number with its interval and chance."""
    return f"{shown(row)} (chance {with_unit(row['chance'], row['unit'])})"


def sent(single: Row, pooled: Row) -> str:
    """Return how many updates a device sent, in the mean, from its AP of one update and of all."""
    return f"all {single['n_questions'] / pooled['n_questions']:.0f} updates of a device"
