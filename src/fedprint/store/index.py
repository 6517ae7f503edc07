"""The tables of an update store: records of each round are checked when written and stored as Parquet at the end."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from fedprint.store.files import REPAIR, digest, replace
from fedprint.types import FedprintError, Observation, Truth

INDEX = "index.parquet"
COMPLETE = "complete.json"

OBSERVED_SCHEMA = pa.schema(
    {
        "obs_id": pa.int64(),
        "round": pa.int64(),
        "role": pa.string(),
        "num_examples": pa.int64(),
        "pseudonym": pa.string(),
        "user_id": pa.int64(),
    }
)
TRUTH_SCHEMA = pa.schema({"obs_id": pa.int64(), "user_id": pa.int64(), "device_id": pa.string()})


def columns(records: Sequence[Observation] | Sequence[Truth], schema: pa.Schema) -> dict[str, list[Any]]:
    """Return the records of one round as columns of ``schema``, in order, without the round."""
    return {name: [getattr(record, name) for record in records] for name in schema.names if name != "round"}


def table(rounds: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return one table of the journal bodies of all rounds, rows in round and slot order."""
    parts: dict[str, list[Any]] = {name: [] for name in schema.names}
    for body in rounds:
        rows = len(body["index"]["obs_id"])
        for name, part in parts.items():
            part.extend([body["round"]] * rows if name == "round" else body["index"][name])
    return pa.table(parts, schema=schema)


def frame(rows: pa.Table) -> pd.DataFrame:
    """Return a table as a data frame; user_id is nullable (Int64)."""
    data: pd.DataFrame = rows.to_pandas()
    return data.assign(user_id=pd.array(rows["user_id"].to_pylist(), dtype="Int64"))


def mark_complete(folder: Path, rows: pa.Table, checksum: str) -> None:
    """Write ``index.parquet``, then ``complete.json`` with the digests of index and store, unless that exists.

    Equal rows give equal bytes (same pyarrow).
    """
    if (folder / COMPLETE).exists():
        return
    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd", store_schema=False)
    replace(folder / INDEX, sink.getvalue())
    marks = {"checksum": checksum, "index": digest([sink.getvalue()])}
    replace(folder / COMPLETE, (json.dumps(marks) + "\n").encode())


def read_complete(folder: Path) -> dict[str, str] | None:
    """Return the digests that :func:`mark_complete` wrote, None before that; FedprintError when damaged."""
    path = folder / COMPLETE
    if not path.exists():
        return None
    try:
        marks = json.loads(path.read_bytes())
        return {name: str(marks[name]) for name in ("checksum", "index")}
    except (ValueError, KeyError, TypeError):
        raise FedprintError(f"{path}: damaged; {REPAIR}") from None


def check_index(folder: Path, expected: str) -> bytes:
    """Return the bytes of ``index.parquet``. Raises FedprintError when their digest is not ``expected``."""
    path = folder / INDEX
    data = path.read_bytes() if path.exists() else b""
    if digest([data]) != expected:
        raise FedprintError(f"{path}: {'damaged (checksum differs)' if data else 'missing or empty'}; {REPAIR}")
    return data


def read_truth(folder: Path | str) -> pd.DataFrame:
    """Return who sent each observation: obs_id, user_id, device_id. For evaluation only.

    Reads the folder ``truth/`` of a finished store; raises FedprintError when it is unfinished or damaged.
    """
    marks = read_complete(Path(folder))
    if marks is None:
        raise FedprintError(f"{folder}: holds no finished truth; resume the run that writes it")
    data: pd.DataFrame = pq.read_table(io.BytesIO(check_index(Path(folder), marks["index"]))).to_pandas()
    return data


def check_records(round: int, observations: Sequence[Observation], truths: Sequence[Truth], cohort: int) -> None:
    """Raise FedprintError unless the records of a round fit each other and identify no anonymous user."""
    if len(observations) > cohort:
        raise FedprintError(f"round {round}: {len(observations)} observations for {cohort} slots; raise the cohort")
    users = {truth.obs_id: truth.user_id for truth in truths}
    if len({o.obs_id for o in observations}) < len(observations) or len(truths) != len(observations):
        raise FedprintError(f"round {round}: obs_ids repeat or lack a truth; give one truth per observation")
    for o in observations:
        if o.round != round or o.obs_id not in users:
            raise FedprintError(f"round {round}: obs_id {o.obs_id} is of round {o.round} or has no truth; match them")
        if o.user_id != (users[o.obs_id] if o.role == "prior" else None):
            raise FedprintError(f"round {round}: obs_id {o.obs_id} ({o.role}) has a wrong user_id; only prior has one")


def finite_metrics(round: int, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics as plain floats; FedprintError for one that is not finite."""
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise FedprintError(f"round {round}: metric {name}={value} is not finite; leave it out")
    return {name: float(value) for name, value in metrics.items()}
