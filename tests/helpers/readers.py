"""Every reader of files that people bring or that a crash may have left, with a sound folder for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import given_folder
import numpy as np
import pandas as pd
import recorded_folders
import store_cases
import yaml
from fuzzing import Reader
from safetensors.numpy import save_file

from fedprint.data.formats.describe import read_sidecar, validate, write_table
from fedprint.data.formats.files import jsonl_bytes, npz_bytes, parquet_bytes, read_columns, read_json, write_json
from fedprint.errors import FedprintError
from fedprint.evaluation.rows import read_measurements, write_measurements
from fedprint.federation.ledger import Entry, Ledger, read_ledger
from fedprint.kinds.base import Request
from fedprint.kinds.config_files import read_yaml
from fedprint.kinds.registry import kind_of
from fedprint.store.files import JOURNAL
from fedprint.store.index import read_truth
from fedprint.store.reader import UpdateStore
from fedprint.store.recorded.findings import RecordingRefused
from fedprint.store.recorded.validate import findings_of

ROOT = Path(__file__).parents[2]
COLUMNS = {
    "user": np.repeat(np.arange(3), 4),
    "label": np.tile(np.arange(2), 6),
    "time": np.arange(12.0),
}
TEXT = {"user": np.repeat(np.arange(3), 4), "text": np.array([f"word {i}" for i in range(12)], dtype=object)}
IMAGES = {"user": np.repeat(np.arange(3), 4), "images": np.zeros((12, 4, 4, 3), np.uint8), "label": np.arange(12) % 2}
HEADER = {"licence": "none", "title": "Data"}
ENTRY = Entry(round=0, q=0.25, sigma=1.5, sampling="poisson", adjacency="add-remove", rule="constant", clip=0.7)


def _file(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: _ignore((folder / name).write_bytes(content))


def _ignore(result: object) -> None:
    """Drop a result."""


def _ledger(folder: Path) -> None:
    ledger = Ledger(folder / "ledger", "run")
    for t in range(3):
        ledger.spend(Entry(**{**ENTRY.__dict__, "round": t}))


def _store(folder: Path) -> None:
    store_cases.run(folder, store_cases.LAYOUT)


def _read_store(folder: Path) -> None:
    store = UpdateStore.open(folder / "observed")
    _ignore((store.index, store.sent, store.matrix(), store.global_params(0), store.history()))
    _ignore(read_truth(folder / "truth"))


def _config(folder: Path) -> None:
    values = yaml.safe_load((ROOT / "configs" / "experiments" / "quickstart.yaml").read_text())
    (folder / "own.yaml").write_text(yaml.safe_dump(values))


def _read_config(folder: Path) -> None:
    path = folder / "own.yaml"
    values = read_yaml(path)
    kind_of(values).load(Request(root=ROOT, path=path, values=values, name="own"))


def _recorded(index: str = "index.csv", updates: str = "npz") -> Callable[[Path], None]:
    """Return what writes a small recorded folder: its index as ``index``, its updates in files that end so."""

    def make(folder: Path) -> None:
        recorded_folders.write_npz_folder(folder / "recorded", 8)
        here = folder / "recorded"
        table = pd.read_csv(here / "index.csv")
        if updates != "npz":
            table["file"] = [name.replace(".npz", f".{updates}") for name in table["file"]]
            _ignore([_as_written(path, updates) for path in sorted((here / "updates").iterdir())])
        (here / "index.csv").unlink()
        _WRITERS[Path(index).suffix](table, here / index)
        manifest = (here / "manifest.yaml").read_text().replace("index.csv", index)
        (here / "manifest.yaml").write_text(manifest.replace("format: npz", f"format: {updates}"))

    return make


def _as_written(path: Path, updates: str) -> None:
    arrays = dict(np.load(path))
    path.unlink()
    if updates == "npy":
        np.save(path.with_suffix(".npy"), np.concatenate([part.reshape(-1) for part in arrays.values()]))
    else:
        save_file(arrays, path.with_suffix(".safetensors"))


_WRITERS: Mapping[str, Callable[[pd.DataFrame, Path], None]] = {
    ".csv": lambda table, path: table.to_csv(path, index=False),
    ".jsonl": lambda table, path: table.to_json(path, orient="records", lines=True),
    ".parquet": lambda table, path: table.to_parquet(path),
}


def _read_recorded(folder: Path) -> None:
    """Read a recorded folder as an audit does. Its refusal lists findings, each of one line."""
    found = findings_of(folder / "recorded")
    if found:
        assert all("\n" not in str(finding) and finding.remedy for finding in found)
        raise FedprintError(str(found[0])) from RecordingRefused(folder, found)


def _of_recorded(damaged: str, index: str = "index.csv", updates: str = "npz") -> Reader:
    return Reader(make=_recorded(index, updates), read=_read_recorded, damaged=(f"recorded/{damaged}",))


STORED = (
    *(f"observed/{name}" for name in (JOURNAL, "layout.json", "complete.json", "index.parquet", "global.f32")),
    *(f"truth/{name}" for name in ("index.parquet", "complete.json")),
)

READERS: Mapping[str, Reader] = {
    "npz": Reader(
        make=_file("data.npz", npz_bytes(COLUMNS)),
        read=lambda folder: read_columns(folder / "data.npz"),
        damaged=("data.npz",),
    ),
    "jsonl": Reader(
        make=_file("data.jsonl.gz", jsonl_bytes(TEXT)),
        read=lambda folder: read_columns(folder / "data.jsonl.gz"),
        damaged=("data.jsonl.gz",),
    ),
    "parquet": Reader(
        make=_file("data.parquet", parquet_bytes(COLUMNS)),
        read=lambda folder: read_columns(folder / "data.parquet"),
        damaged=("data.parquet",),
    ),
    "sidecar": Reader(
        make=lambda folder: _ignore(write_table(folder / "own", IMAGES, HEADER)),
        read=lambda folder: (read_sidecar(folder / "own"), validate(folder / "own")),
        damaged=("own/own.json",),
    ),
    "json": Reader(
        make=lambda folder: write_json(folder / "x.json", {"a": [1, 2.5], "b": {"c": "d"}}),
        read=lambda folder: read_json(folder / "x.json"),
        damaged=("x.json",),
    ),
    "measurements": Reader(
        make=lambda folder: write_measurements(folder / "m.jsonl", folder / "m.csv", [{"metric": "ap", "value": 0.5}]),
        read=lambda folder: read_measurements(folder / "m.jsonl"),
        damaged=("m.jsonl",),
    ),
    "ledger": Reader(
        make=_ledger,
        read=lambda folder: read_ledger(folder / "ledger", "run"),
        damaged=("ledger",),
    ),
    "store": Reader(
        make=_store,
        read=_read_store,
        damaged=STORED,
    ),
    "recorded-manifest": _of_recorded("manifest.yaml"),
    "recorded-globals": Reader(
        make=lambda folder: _ignore(given_folder.write(folder / "recorded")),
        read=_read_recorded,
        damaged=("recorded/manifest.yaml", "recorded/globals/1.npz"),
    ),
    "recorded-index-csv": _of_recorded("index.csv"),
    "recorded-index-jsonl": _of_recorded("index.jsonl", index="index.jsonl"),
    "recorded-index-parquet": _of_recorded("index.parquet", index="index.parquet"),
    "recorded-truth": _of_recorded("truth.csv"),
    "recorded-npz": _of_recorded("updates/3.npz"),
    "recorded-npy": _of_recorded("updates/3.npy", updates="npy"),
    "recorded-safetensors": _of_recorded("updates/3.safetensors", updates="safetensors"),
    "configuration": Reader(make=_config, read=_read_config, damaged=("own.yaml",)),
}
