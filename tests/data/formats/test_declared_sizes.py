"""What a file or its sidecar declares is never believed before it is compared with what is there."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedprint.data.formats.describe import read_table, write_table
from fedprint.data.formats.files import read_arrays
from fedprint.types import FedprintError

HUGE = 134 << 27  # float64 numbers: 134 GiB


def write_bomb(path: Path, size: int | None = None) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }\n" % HUGE
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(80))
    if size is not None:
        content = path.read_bytes()
        end = content.rindex(b"PK\x01\x02")
        path.write_bytes(content[: end + 24] + size.to_bytes(4, "little") + content[end + 28 :])


@pytest.mark.parametrize("size", [None, 0xFFFFFFF0])
def test_an_array_of_134_gib_in_a_small_file_is_refused(tmp_path: Path, size: int | None) -> None:
    write_bomb(tmp_path / "x.npz", size)
    with pytest.raises(FedprintError, match="declares"):
        read_arrays(tmp_path / "x.npz")


@pytest.mark.parametrize(
    "spec",
    [{"shape": [HUGE], "dtype": "float64"}, {"shape": [4], "dtype": "V144000000000"}, {"shape": [4], "dtype": "f8,,("}],
)
def test_a_sidecar_of_134_gib_is_refused(tmp_path: Path, spec: dict[str, object]) -> None:
    folder = tmp_path / "d"
    columns = {"user": np.arange(4) % 2, "x": np.ones(4), "labels": np.arange(4) % 2}
    write_table(folder, columns, {"licence": "CC0"}, "npz")
    sidecar = json.loads((folder / "d.json").read_text())
    sidecar["arrays"]["x"] = spec
    (folder / "d.json").write_text(json.dumps(sidecar))
    with pytest.raises(FedprintError, match="'x'"):
        read_table(folder)


def test_a_label_of_billions_is_refused(tmp_path: Path) -> None:
    columns = {"user": np.arange(4) % 2, "x": np.ones(4), "labels": np.array([0, 1, 2, HUGE])}
    with pytest.raises(FedprintError, match=f"holds {HUGE}"):
        write_table(tmp_path / "d", columns, {"licence": "CC0"}, "npz")
