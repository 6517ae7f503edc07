"""Any bytes in any file of a recorded folder: findings, no other error, nothing written, little memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_folders import arrays, updates, write_npz_folder
from safetensors.numpy import save

from fedprint.store.recorded.arrays import opened
from fedprint.store.recorded.findings import Unreadable
from fedprint.store.recorded.validate import findings_of

SLACK = 64 << 20
"""Bytes beyond the size of a file that reading it may take: buffers and imports."""


def changed(rng: np.random.Generator, content: bytes) -> bytes:
    """Overwrite, cut, repeat and insert at random."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at, length = int(rng.integers(len(data) + 1)), int(rng.integers(1, 9))
        kind = rng.integers(4)
        if kind == 0:
            data[at : at + length] = rng.bytes(length)
        elif kind == 1:
            del data[at : at + length * 8]
        elif kind == 2:
            data[at:at] = data[at : at + length * 8]
        else:
            data[at:at] = rng.choice([b"\xff" * 8, b"9" * 30, b"[" * 99, b"\0", b"{", b'"'])
    return bytes(data)


def originals(folder: Path) -> dict[str, bytes]:
    both = arrays(updates()[0])
    np.savez_compressed(folder / "c.npz", **both)
    np.savez(folder / "s.npz", **both)
    np.save(folder / "m.npy", updates())
    return {path.name: path.read_bytes() for path in folder.iterdir()} | {"t.safetensors": save(both)}


def test_damaged_arrays_are_unreadable_or_read(tmp_path: Path) -> None:
    contents = originals(tmp_path)
    tracemalloc.start()
    for seed in range(800):
        rng = np.random.default_rng(seed)
        name = list(contents)[seed % len(contents)]
        path = tmp_path / name
        path.write_bytes(changed(rng, contents[name]))
        try:
            with opened(path) as file:
                for array in file.arrays:
                    for _ in file.pieces(array):
                        pass
        except Unreadable:
            continue
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < SLACK
    assert {path.name for path in tmp_path.iterdir()} == set(contents)


@pytest.mark.parametrize("name", ["manifest.yaml", "index.csv", "index.jsonl", "index.parquet", "truth.csv"])
def test_damaged_tables_are_findings_or_read(tmp_path: Path, name: str) -> None:
    folder = write_npz_folder(tmp_path / "r", 16)
    if name.startswith("index."):
        import pandas as pd

        frame = pd.read_csv(folder / "index.csv")
        frame["user"] = frame["user"].astype(object).where(frame["user"].notna(), None)
        rows = frame.to_dict("records")
        (folder / "index.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        frame.to_parquet(folder / "index.parquet")
        text = (folder / "manifest.yaml").read_text()
        (folder / "manifest.yaml").write_text(text.replace("index.csv", name))
    assert findings_of(folder) == ()
    content = (folder / name).read_bytes()
    for seed in range(40):
        (folder / name).write_bytes(changed(np.random.default_rng(seed), content))
        assert all(f.what and f.remedy for f in findings_of(folder))


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=200), name=st.sampled_from(["x.npz", "x.npy", "x.safetensors", "x.f32"]))
def test_any_bytes(content: bytes, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("f") / name
    path.write_bytes(content)
    try:
        with opened(path, 3) as file:
            assert file.arrays
    except Unreadable:
        return


def test_a_safetensors_header_that_declares_134_gib(tmp_path: Path) -> None:
    entry = {"dtype": "F64", "shape": [134 << 27], "data_offsets": [0, 134 << 30]}
    header = json.dumps({"x": entry}).encode()
    for content in (len(header).to_bytes(8, "little") + header, (134 << 30).to_bytes(8, "little") + b"{}"):
        (tmp_path / "x.safetensors").write_bytes(content)
        with pytest.raises(Unreadable, match="declares"), opened(tmp_path / "x.safetensors"):
            pass
