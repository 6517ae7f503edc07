"""What a manifest gives beside the updates is checked against them: the network, and the models by round."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from given_folder import SHAPES, WIDTH, model, parts, write

from fedprint.store.recorded.findings import RecordingRefused
from fedprint.store.recorded.recording import open_recording
from fedprint.store.recorded.validate import findings_of


def test_the_models_of_all_rounds_are_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "r")
    assert findings_of(folder) == ()
    received = open_recording(folder, tmp_path / "scratch").global_model(1)
    assert received is not None and list(received) == list(SHAPES)
    for name, part in parts(model(1)).items():
        assert np.array_equal(received[name], part)


def test_the_models_may_be_rows_of_one_file(tmp_path: Path) -> None:
    folder = write(tmp_path / "r", globals="models.npz")
    np.savez(folder / "models.npz", **{n: np.stack([parts(model(k))[n] for k in (0, 1)]) for n in SHAPES})
    assert findings_of(folder) == ()
    received = open_recording(folder, tmp_path / "scratch").global_model(1)
    assert received is not None and np.array_equal(received["head.bias"], parts(model(1))["head.bias"])


def test_no_globals_are_no_model(tmp_path: Path) -> None:
    folder = write(tmp_path / "r", globals=None)
    assert findings_of(folder) == () and open_recording(folder, tmp_path / "scratch").global_model(0) is None


def replaced(number: int, **arrays: np.ndarray) -> Callable[[Path], object]:
    return lambda folder: np.savez(folder / "globals" / f"{number}.npz", **{**parts(model(number)), **arrays})


def bomb(folder: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }\n" % (134 << 27)
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(folder / "globals" / "1.npz", "w") as archive:
        archive.writestr("fc1.weight.npy", content)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "globals" / "1.npz").unlink(), "globals: '1.npz' is missing"),
        (lambda folder: (folder / "globals" / "0.npz").write_bytes(b"no zip"), "globals/0.npz: cannot be read"),
        (bomb, "globals/1.npz: array 'fc1.weight' declares"),
        (replaced(1, **{"head.bias": np.array([1, np.nan])}), "array 'head.bias' has 1 NaN or infinite numbers"),
        (replaced(0, **{"head.bias": np.ones(3)}), "array 'head.bias' has shape (3,) instead of (2,)"),
        (replaced(0, x=np.ones(3)), "array 'x' is not in the updates"),
    ],
)
def test_damaged_globals_are_named(tmp_path: Path, damage: Callable[[Path], object], said: str) -> None:
    folder = write(tmp_path / "r")
    damage(folder)
    found = findings_of(folder)
    assert any(said in str(one) for one in found) and all(one.remedy for one in found)
    with pytest.raises(RecordingRefused):
        open_recording(folder, tmp_path / "scratch")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"model": {"name": "mpl"}}, "manifest.yaml: model is"),
        ({"model": {"name": "mlp", "hidden": 0}}, "model.hidden is '0'"),
        ({"model": {"name": "mlp", "hiden": 3}}, "model.hiden is"),
        ({"model": {"name": "mlp", "hidden": 4}}, "'fc1.weight' has shape (4, 4) in model and (3, 4) in updates"),
        ({"model": {"name": "mlp", "hidden": 10**30}}, "model.hidden is"),
        ({"model": {"name": "cnn"}, "input": [1, 8, 8]}, "model has 'conv1.weight', updates have not"),
        ({"model": {"name": "cnn"}, "input": [4]}, "model cannot be built for input [4]"),
        ({"model": {"name": "lm"}}, "model is 'lm', which takes no images"),
        ({"model": {"name": "mobilenet", "weights": "/etc/passwd"}}, "model.weights is given"),
        ({"input": None}, "model is given, but not input"),
        ({"input": [0, 2]}, "input is [0, 2]"),
        ({"model": "model.pt"}, "model is 'model.pt'"),
        ({"globals": "index.csv"}, "index.csv: is not of format npz"),
        ({"globals": "../globals"}, "globals: path '../globals' leaves the folder"),
        ({"gradients": {"lr": 0}}, "gradients.lr is '0'"),
        ({"gradients": {"rate": 1}}, "unknown key 'gradients.rate'"),
        ({"prior_data": "users.npz"}, "drop it: an audit trains nothing"),
    ],
)
def test_a_manifest_that_does_not_fit_is_named(tmp_path: Path, more: dict[str, object], said: str) -> None:
    found = [str(one) for one in findings_of(write(tmp_path / "r", **more))]
    assert any(said in one for one in found), found


def test_all_problems_are_listed_at_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "r", model={"name": "mlp", "hidden": 4})
    (folder / "globals" / "0.npz").unlink()
    replaced(1, **{"head.bias": np.array([1, np.inf])})(folder)
    np.savez(folder / "updates" / "3.npz", **parts(np.full(WIDTH, np.nan)))
    text = "\n".join(map(str, findings_of(folder)))
    for word in ("in model and", "'0.npz' is missing", "globals/1.npz: array 'head.bias'", "updates/3.npz' has"):
        assert word in text, text
