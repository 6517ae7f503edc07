"""Measurements as table rows: one JSON line and one CSV line each, pooled over seeds."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedprint.evaluation.intervals import student_half_width
from fedprint.evaluation.metrics import METRICS
from fedprint.types import FedprintError, Measurement

Row = dict[str, Any]

CONDITION = (
    "experiment", "dataset", "prior", "world", "training", "defence", "defence_params", "defended", "adversary",
    "view", "linkage", "attack", "layers", "selected",
)  # fmt: skip
"""Columns that say under which condition a number was measured."""

NUMBERS = ("metric", "unit", "value", "lo", "hi", "chance", "n_questions", "n_users", "p_chance")
"""Columns that come from the measurement itself; files written before there was a ``p_chance`` lack that one."""

COLUMNS = (*CONDITION, *NUMBERS, "seed", "direction")
"""Column order of every table; extra keys follow in alphabetical order."""

POOLED = "all"
"""The ``seed`` of a row that pools several."""

GUARANTEE = (
    "epsilon", "epsilon_user", "delta", "accountant", "sampling", "adjacency", "rounds", "communication",
    "not_covered",
)  # fmt: skip
"""Extra keys of numbers under a privacy budget; they are part of the condition.

``epsilon`` protects a device, ``epsilon_user`` a user with two devices (always by pld; None where no accountant can
compute it). ``communication`` is the sum of m_t; ``not_covered`` lists what the guarantee does not cover, joined by
semicolons.
"""

_VARYING = ("seed", "value", "lo", "hi", "chance", "n_questions", "n_users", "p_chance")


def to_row(measurement: Measurement) -> Row:
    """Return the measurement as a row in the order of :data:`COLUMNS`, None where ``keys`` has no entry.

    Raises:
        FedprintError: a key has the name of one of :data:`NUMBERS`.
    """
    taken = set(measurement.keys) & set(NUMBERS)
    if taken:
        raise FedprintError(f"keys {sorted(taken)} of a measurement would overwrite its numbers; rename them")
    values = {**measurement.keys, **{name: getattr(measurement, name) for name in NUMBERS}}
    if info := METRICS.get(measurement.metric):
        values["direction"] = "higher is better" if info.higher_is_better else "lower is better"
    return {column: values.get(column) for column in columns_of([values])}


def columns_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return :data:`COLUMNS` and then every other key of ``rows``, sorted."""
    extra = {key for row in rows for key in row} - set(COLUMNS)
    return [*COLUMNS, *sorted(extra)]


def write_measurements(path_jsonl: Path, path_csv: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write ``rows`` in their order to both files; a reader sees either the old file or the new one, never a part.

    Equal rows give equal bytes. Numbers that are not finite become null (JSON) or empty (CSV).
    """
    columns = columns_of(rows)
    plain = [{column: plain_value(row.get(column)) for column in columns} for row in rows]
    lines = "".join(json.dumps(row, allow_nan=False, ensure_ascii=False) + "\n" for row in plain)
    table = io.StringIO()
    writer = csv.DictWriter(table, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in plain)
    _replace(path_jsonl, lines)
    _replace(path_csv, table.getvalue())


def read_measurements(path_jsonl: Path) -> list[Row]:
    """Return the rows of a file by :func:`write_measurements`; FedprintError names a line that is no JSON object."""
    try:
        lines = Path(path_jsonl).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise FedprintError(f"no measurements at {path_jsonl}; run the evaluation first") from error
    except UnicodeDecodeError as error:
        raise FedprintError(f"{path_jsonl} is not text ({error.reason}); the file is damaged") from error
    return [_parsed(path_jsonl, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def plain_value(value: Any) -> Any:
    """Return ``value`` in JSON's types: numpy unwrapped, keys and containers too, non-finite numbers as None."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): plain_value(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def pool_seeds(rows: Sequence[Mapping[str, Any]], *, varying: Collection[str] = (), least: int = 2) -> list[Row]:
    """Return ``rows`` and, after them, one row of ``seed: "all"`` per condition that has ``least`` seeds or more.

    Rows belong together when they agree in everything but the seed, the numbers, and the extra keys in ``varying`` (a
    run id, say; None in the pooled row). The value and chance are means over the seeds. Each half width of the interval
    is the *larger* of two: the mean half width within a seed (users were sampled; the seeds share users, so averaging
    does not shrink it) and Student's t interval of the seeds' values (training differed). It is not the root of their
    squares, because the spread between seeds already contains part of the noise within a seed. The interval is clipped
    to the metric's range. A single seed keeps its numbers. ``n_questions`` is the sum, ``n_users`` the largest, and the
    key ``n_seeds`` is added. ``p_chance`` is the largest of the seeds' p-values, None unless every seed has one: it is
    small only where all seeds reject, and valid however they depend on one another, because no single one is larger.
    Pooled rows in the input are computed again.
    """
    single = [dict(row) for row in rows if row.get("seed") != POOLED]
    groups: dict[str, list[Row]] = {}
    for row in single:
        same = {key: plain_value(value) for key, value in row.items() if key not in {*_VARYING, *varying}}
        groups.setdefault(json.dumps(same, sort_keys=True), []).append(row)
    several = [group for group in groups.values() if len({row.get("seed") for row in group}) >= least]
    return single + [_pooled(group, varying) for group in several]


def _pooled(group: Sequence[Row], varying: Collection[str]) -> Row:
    if len({row["seed"] for row in group}) < len(group):
        raise FedprintError(f"two rows of {group[0]['metric']} have the same condition and seed; add the missing key")
    shared = {key: None if key in varying else item for key, item in group[0].items()}
    if len(group) == 1:
        return {**shared, "seed": POOLED, "n_seeds": 1}
    value, lo, hi = (np.array([_number(row[name]) for row in group]) for name in ("value", "lo", "hi"))
    between = student_half_width(value)
    mean = float(value.mean())
    info = METRICS.get(group[0]["metric"])
    low, high = (info.low, info.high) if info else (-math.inf, math.inf)
    exact = [float(p) for row in group if (p := row.get("p_chance")) is not None]
    chances = [row["chance"] for row in group if row.get("chance") is not None]
    return {
        **shared,
        "value": mean,
        "lo": max(mean - max(float((value - lo).mean()), between), low),
        "hi": min(mean + max(float((hi - value).mean()), between), high),
        "chance": float(np.mean(chances)) if chances else None,
        "n_questions": sum(int(row["n_questions"]) for row in group),
        "n_users": max(int(row["n_users"]) for row in group),
        "p_chance": max(exact) if len(exact) == len(group) else None,
        "seed": POOLED,
        "n_seeds": len(group),
    }


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _cell(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value


def _replace(path: Path, text: str) -> None:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    partial.write_text(text, encoding="utf-8", newline="")
    os.replace(partial, path)


def _parsed(path: Path, number: int, line: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FedprintError(f"{path}:{number} is not JSON ({error}); the file is damaged") from error
    if not isinstance(row, dict):
        raise FedprintError(f"{path}:{number} is not a JSON object; the file is damaged")
    return row
