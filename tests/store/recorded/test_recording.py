from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_folders import (
    HEADER,
    SHAPES,
    USERS,
    N,
    arrays,
    index_rows,
    table,
    updates,
    write_matrix_folder,
    write_npz_folder,
)
from safetensors.numpy import save_file
from store_cases import KEPT, LAYOUT, ROUNDS, observations, run

from fedprint.store.recorded.findings import RecordingRefused
from fedprint.store.recorded.manifest import read_manifest
from fedprint.store.recorded.recording import open_recording
from fedprint.store.recorded.truth import read_recorded_truth, truth_findings
from fedprint.store.recorded.validate import findings_of


def opened(folder: Path):
    assert findings_of(folder) == ()
    return open_recording(folder, folder.parent / "scratch", truth_findings(folder))


def test_npz_files_come_out_as_one_table(tmp_path: Path) -> None:
    recording = opened(write_npz_folder(tmp_path / "r"))
    assert recording.shapes == SHAPES
    assert np.array_equal(recording.matrix(), updates())
    assert np.array_equal(recording.matrix(["fc.bias"], rows=np.array([5, 2])), updates()[[5, 2], 6:])
    assert np.array_equal(np.concatenate(list(recording.blocks(columns=3)), axis=1), updates())
    assert list(recording.index.columns) == ["round", "device", "num_examples", "user"]
    assert recording.index["user"][:6].tolist() == [*USERS, None, None]
    assert recording.sent.history.shape == (N, 6) and recording.sent.history.all()


@pytest.mark.parametrize("name", ["updates.npy", "updates.f32"])
def test_a_matrix_is_read_in_place_in_the_order_of_the_index(tmp_path: Path, name: str) -> None:
    recording = opened(write_matrix_folder(tmp_path / "r", name))
    assert np.array_equal(recording.matrix(), updates())
    assert np.array_equal(recording.matrix(["fc"]), updates())
    assert not list((tmp_path / "scratch").glob("*.f32"))


def test_the_sign_is_always_local_minus_global(tmp_path: Path) -> None:
    recording = opened(write_matrix_folder(tmp_path / "r", sign="global_minus_local"))
    assert np.array_equal(recording.matrix(), -updates())


@pytest.mark.parametrize("kind", ["npz", "safetensors", "npy"])
def test_a_file_per_round(tmp_path: Path, kind: str) -> None:
    folder = write_npz_folder(tmp_path / "r")
    for number, block in enumerate(updates().reshape(6, 8, 8)):
        path = folder / "updates" / f"{number}.{kind}"
        stacked = {name: np.stack([arrays(row)[name] for row in block]) for name in SHAPES}
        if kind == "npz":
            np.savez_compressed(path, **stacked)
        elif kind == "safetensors":
            save_file(stacked, path)
        else:
            np.save(path, block)
    rows = [[f"{p // 8}.{kind}", str(p % 8), *row[1:]] for p, row in enumerate(index_rows())]
    (folder / "index.csv").write_text(table([["file", "row", *HEADER[1:]], *rows]))
    layers = "layers: {fc.weight: [3, 2], fc.bias: [2]}\n" if kind == "npy" else ""
    (folder / "manifest.yaml").write_text(
        f"format: {kind}\nupdates: updates\nindex: index.csv\ntruth: truth.csv\n{layers}"
    )
    recording = opened(folder)
    order = [recording.columns()[name] for name in SHAPES]
    assert np.array_equal(np.concatenate([recording.matrix()[:, part] for part in order], axis=1), updates())


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_the_other_kinds_of_index(tmp_path: Path, ending: str) -> None:
    folder = write_npz_folder(tmp_path / "r")
    frame = pd.DataFrame(index_rows(), columns=HEADER).astype({"round": int, "num_examples": int})
    frame["user"] = frame["user"].replace("", None)
    if ending == "jsonl":
        (folder / "index.jsonl").write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")))
    else:
        frame.to_parquet(folder / "index.parquet")
    text = (folder / "manifest.yaml").read_text()
    (folder / "manifest.yaml").write_text(text.replace("index.csv", f"index.{ending}"))
    assert np.array_equal(opened(folder).matrix(), updates())


def test_columns_first_arrays_and_other_types(tmp_path: Path) -> None:
    folder = write_npz_folder(tmp_path / "r")
    for position, vector in enumerate(updates()):
        both = arrays(vector)
        np.savez(
            folder / "updates" / f"{position}.npz",
            **{"fc.weight": np.asfortranarray(both["fc.weight"]), "fc.bias": both["fc.bias"].astype(">f8")},
        )
    assert np.array_equal(opened(folder).matrix(), updates())


def test_a_second_audit_of_unchanged_files_copies_nothing(tmp_path: Path) -> None:
    folder, scratch = write_npz_folder(tmp_path / "r"), tmp_path / "scratch"
    opened(folder)
    (copy,) = scratch.iterdir()
    before = copy.stat().st_mtime_ns
    opened(folder)
    assert [path.stat().st_mtime_ns for path in scratch.iterdir()] == [before]
    np.savez(folder / "updates" / "3.npz", **arrays(np.full(8, 2, np.float32)))
    assert opened(folder).matrix()[3].tolist() == [2] * 8


def test_it_opens_without_the_truth(tmp_path: Path) -> None:
    folder = write_npz_folder(tmp_path / "r")
    (folder / "truth.csv").unlink()
    recording = open_recording(folder, tmp_path / "scratch")
    assert len(recording.index) == N
    assert "truth.csv" in str(findings_of(folder)[0])
    with pytest.raises(RecordingRefused, match=r"truth\.csv"):
        read_recorded_truth(folder, recording.manifest)


def test_the_truth_names_devices(tmp_path: Path) -> None:
    folder = write_npz_folder(tmp_path / "r")
    truth = read_recorded_truth(folder, read_manifest(folder)[0])
    assert truth.to_dict("list") == {"device": ["anon0", "anon1", "anon2", "anon3"], "user": list(USERS)}


def test_a_store_of_fedprint_is_a_recording_too(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    run(folder / "store", LAYOUT)
    (folder / "manifest.yaml").write_text("format: fedprint\nupdates: store/observed\ntruth: store/truth\n")
    recording = opened(folder)
    assert recording.layers == KEPT and len(recording.index) == sum(len(observations(t)) for t in range(ROUNDS))
    assert recording.matrix(rows=np.array([2])).shape == (1, 750)
    truth = read_recorded_truth(folder, recording.manifest)
    assert set(truth["device"]) <= set(recording.index["device"][recording.index["user"].isna()])


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_what_is_written_is_what_is_read(data, tmp_path_factory) -> None:
    """Any shapes, types and orders of up to three layers."""
    folder = write_npz_folder(tmp_path_factory.mktemp("h") / "r")
    shapes = data.draw(st.lists(st.lists(st.integers(1, 4), max_size=3), min_size=1, max_size=3))
    dtype = data.draw(st.sampled_from(["<f4", ">f4", "<f8", "<f2"]))
    compressed = data.draw(st.booleans())
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    expected = []
    for position in range(N):
        values = {f"a/{k}.b": rng.normal(size=shape).astype(dtype) for k, shape in enumerate(shapes)}
        (np.savez_compressed if compressed else np.savez)(folder / "updates" / f"{position}.npz", **values)
        expected.append(np.concatenate([v.astype(np.float32).reshape(-1) for v in values.values()]))
    problems = [f for f in findings_of(folder) if "equal those" not in f.what]
    assert problems == []
    if findings_of(folder) == ():
        assert np.array_equal(open_recording(folder, folder.parent / "s").matrix(), np.stack(expected))
