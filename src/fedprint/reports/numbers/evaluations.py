"""The evaluate stage's folders, one per prior and seed, read and pooled for the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedprint.attacks.choices import HEADLINE
from fedprint.evaluation.rows import COLUMNS, GUARANTEE, POOLED, Row, pool_seeds, read_measurements
from fedprint.reports.numbers.people import may_show, numbered, numbers_of
from fedprint.types import FedprintError, Floats, Ints

PRIOR_ORDER = ("random", "chrono", "photoset")
CONTROL = "iid"
CHOSEN = "selected"
"""The ``attack`` of a pooled row whose seeds chose different attackers."""

_REQUIRED = ("prior", "seed", "config_hash")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One folder: measurement ``rows`` and the ``details`` that are no measurements.

    ``analyses`` are the measurements of the analyses (rows that have ``analysis``), ``exhibits`` what analyses show
    besides, by name; both are empty for an experiment without any.
    """

    folder: Path
    prior: str
    seed: int
    rows: tuple[Row, ...]
    details: Mapping[str, Any]
    analyses: tuple[Row, ...] = ()
    exhibits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """A t-SNE of updates: ``xy`` (n, 2), ``user`` (n,), ``role`` (n,) 0 = anonymous device, 1 = prior device."""

    xy: Floats
    user: Ints
    role: Ints


def read_evaluation(folder: Path) -> Evaluation:
    """Read one evaluation folder; FedprintError names what is missing or damaged."""
    details = _read_json(folder / "details.json")
    missing = [key for key in _REQUIRED if key not in details]
    if missing:
        raise FedprintError(f"{folder / 'details.json'} lacks {', '.join(missing)}; run the evaluate stage again")
    rows = read_measurements(folder / "rows.jsonl")
    if not rows:
        raise FedprintError(f"{folder / 'rows.jsonl'} has no rows; run the evaluate stage again")
    analyses, exhibits = folder / "analysis_rows.jsonl", folder / "exhibits.json"
    return Evaluation(
        folder=folder,
        prior=details["prior"],
        seed=int(details["seed"]),
        rows=tuple(rows),
        details=details,
        analyses=tuple(read_measurements(analyses)) if analyses.exists() else (),
        exhibits=_read_json(exhibits) if exhibits.exists() else {},
    )


def read_evaluations(folders: Sequence[Path]) -> tuple[Evaluation, ...]:
    """Read all folders, sorted by prior (see :func:`prior_rank`), then by seed.

    Users of data that may not be shared have numbers instead of ids (:mod:`fedprint.reports.numbers.people`).
    """
    if not folders:
        raise FedprintError("no evaluation to report; run the evaluate stage first")
    evaluations = _numbered([read_evaluation(Path(folder)) for folder in folders])
    return tuple(sorted(evaluations, key=lambda item: (prior_rank(item.prior), item.seed)))


def _numbered(evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
    if all(may_show(item.details) for item in evaluations):
        return evaluations
    numbers = numbers_of([values for item in evaluations for values in (item.details, item.exhibits)])
    return [
        replace(item, details=numbered(item.details, numbers), exhibits=numbered(item.exhibits, numbers))
        for item in evaluations
    ]


def read_scatter(evaluation: Evaluation) -> Scatter | None:
    """Return the folder's t-SNE, None where the evaluate stage wrote none."""
    path = evaluation.folder / "tsne.npz"
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return Scatter(xy=arrays["xy"], user=arrays["user"], role=arrays["role"])
    except (OSError, ValueError, KeyError) as error:
        raise FedprintError(f"{path} is damaged ({error}); run the evaluate stage again") from error


def read_samples(evaluation: Evaluation) -> Mapping[str, Any]:
    """Return ``samples.json``, or its kind ``withheld``: nothing is read unless the data are marked shareable."""
    if not may_show(evaluation.details):
        return {"kind": "withheld", "reason": "The data set is not marked shareable: real people's data stay out."}
    path = evaluation.folder / "samples" / "samples.json"
    return _read_json(path) if path.exists() else {"kind": "withheld", "reason": "No samples were written."}


Exhibit = Mapping[str, Any]
"""What an analysis shows under one prior: plain values for figures and tables."""


def exhibits_of(evaluations: Sequence[Evaluation], name: str) -> dict[str, Exhibit]:
    """Return prior -> what an analysis exhibited in its first seed, priors in reading order."""
    by_prior: dict[str, Exhibit] = {}
    for item in evaluations:
        shown = item.exhibits.get(name)
        if shown and item.prior not in by_prior:
            by_prior[item.prior] = shown
    return by_prior


def prior_rank(prior: str) -> tuple[int, str]:
    """Return a sort key: random, chrono, photoset, other priors by name, the iid control last."""
    if prior in PRIOR_ORDER:
        return PRIOR_ORDER.index(prior), prior
    return (len(PRIOR_ORDER) + (prior == CONTROL), prior)


def all_rows(evaluations: Sequence[Evaluation]) -> list[Row]:
    """Return every row with its ``config_hash`` and, where there are several seeds, the pooled rows; analyses last.

    A pooled attack row is ``selected`` when every seed chose that attack. Where the seeds chose different ones, the
    chosen attackers are pooled as well, under the attack :data:`CHOSEN`, and that row is the selected one.
    """
    rows = [{**row, "config_hash": item.details["config_hash"]} for item in evaluations for row in item.rows]
    extras = {key for row in rows for key in row} - {*COLUMNS, *GUARANTEE}
    pooled = _pool(rows, {*extras, "selected"})
    agreed = {_condition(row) for row in pooled if row["selected"]}
    chosen = [{**row, "attack": CHOSEN, "layers": None} for row in rows if row.get("selected")]
    mixed = [row for row in _pool(chosen, extras) if _condition(row) not in agreed]
    analyses = [{**row, "config_hash": item.details["config_hash"]} for item in evaluations for row in item.analyses]
    added = pooled + mixed + _pool_analyses(analyses)
    hashes = {row["config_hash"] for row in rows}
    common = hashes.pop() if len(hashes) == 1 else "mixed"
    return rows + analyses + [{**row, "config_hash": common} for row in added]


def _pool_analyses(rows: Sequence[Row]) -> list[Row]:
    """Pool over seeds; where each seed has one attack but not all the same one, as :data:`CHOSEN`.

    Layers are what a seed's attack settled on: they may differ, unless they are what the analysis varies.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(json.dumps([row.get(key) for key in ("analysis", "prior", "adversary")]), []).append(row)
    pooled = []
    for group in groups.values():
        attacks: dict[Any, set[Any]] = {}
        for row in group:
            attacks.setdefault(row["seed"], set()).add(row.get("attack"))
        one_each = all(len(names) == 1 for names in attacks.values())
        mixed = one_each and len(set.union(*attacks.values())) > 1
        same = [{**row, "attack": CHOSEN} for row in group] if mixed else group
        pooled += [
            row for row in pool_seeds(same, varying={"config_hash", "layers", "recipe"}) if row["seed"] == POOLED
        ]
    return pooled


def final_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows to print but for analyses: the pooled ones of a prior that has any, else its single seed's.

    Of several adversaries those of the strongest; the others stand in the section "adversaries".
    """
    main = of_headline([row for row in rows if not row.get("analysis") and not of_one_seed(row)])
    pooled = {row["prior"] for row in main if row.get("seed") == POOLED}
    return [row for row in main if (row.get("seed") == POOLED) == (row["prior"] in pooled)]


def of_one_seed(row: Row) -> bool:
    """Return whether a pooled row repeats a single seed's: for readers that ask for a pooled one (client_dp.py)."""
    return (row.get("seed"), row.get("n_seeds")) == (POOLED, 1)


def of_headline(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the adversary of headlines where there are any, else all."""
    return [row for row in rows if row.get("adversary") == HEADLINE] or list(rows)


def final_analyses(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of analyses to print: the pooled ones of an analysis and prior that have any."""
    analyses = [row for row in rows if row.get("analysis") and not of_one_seed(row)]
    pooled = {(row["analysis"], row["prior"]) for row in analyses if row.get("seed") == POOLED}
    return [row for row in analyses if (row.get("seed") == POOLED) == ((row["analysis"], row["prior"]) in pooled)]


def _pool(rows: Sequence[Row], varying: set[str]) -> list[Row]:
    votes: dict[str, list[bool]] = {}
    for row in rows:
        votes.setdefault(_condition(row, "attack", "layers"), []).append(bool(row.get("selected")))
    pooled = [row for row in pool_seeds(rows, varying=varying) if row["seed"] == POOLED]
    return [
        {**row, "selected": all(votes[_condition(row, "attack", "layers")]) if row.get("attack") else None}
        for row in pooled
    ]


def _condition(row: Row, *more: str) -> str:
    return json.dumps(
        [row.get(key) for key in ("prior", "world", "defence", "adversary", "linkage", "metric", "training", *more)]
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FedprintError(f"{path} is missing; run the evaluate stage again") from error
    except json.JSONDecodeError as error:
        raise FedprintError(f"{path} is not JSON ({error.msg}); run the evaluate stage again") from error
    if not isinstance(content, dict):
        raise FedprintError(f"{path} is not a JSON object; run the evaluate stage again")
    return content
