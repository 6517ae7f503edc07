"""Small recorded folders for tests: four users with a known and an anonymous device each, six rounds."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

USERS = ("ada", "bo", "cy", "dee")
SHAPES = {"fc.weight": (3, 2), "fc.bias": (2,)}
N, D = 48, 8
HEADER = ["file", "round", "device", "num_examples", "user"]


def updates() -> np.ndarray:
    return np.random.default_rng(7).normal(size=(N, D)).astype(np.float32)


def arrays(vector: np.ndarray) -> dict[str, np.ndarray]:
    return {"fc.weight": vector[:6].reshape(3, 2), "fc.bias": vector[6:]}


def index_rows(n: int = N) -> list[list[str]]:
    rows = []
    for position in range(n):
        user, known = position % 4, position % 8 < 4
        device = f"{'known' if known else 'anon'}{user}"
        rows.append([f"{position}.npz", str(position // 8), device, "5", USERS[user] if known else ""])
    return rows


def table(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write_npz_folder(folder: Path, n: int = N) -> Path:
    """One npz per update, a CSV index, a truth."""
    (folder / "updates").mkdir(parents=True)
    for position, vector in enumerate(updates()[:n]):
        np.savez(folder / "updates" / f"{position}.npz", **arrays(vector))
    (folder / "index.csv").write_text(table([HEADER, *index_rows(n)]))
    (folder / "truth.csv").write_text(table([["device", "user"], *([f"anon{k}", u] for k, u in enumerate(USERS))]))
    (folder / "manifest.yaml").write_text("format: npz\nupdates: updates\nindex: index.csv\ntruth: truth.csv\n")
    return folder


def write_matrix_folder(folder: Path, name: str = "updates.npy", sign: str = "local_minus_global") -> Path:
    """One matrix, whose rows are in the reverse of the index's order."""
    write_npz_folder(folder)
    matrix = updates()[::-1]
    if name.endswith(".npy"):
        np.save(folder / name, np.ascontiguousarray(matrix, dtype=np.float64))
    else:
        (folder / name).write_bytes(matrix.tobytes())
    rows = [[str(N - 1 - position), *row[1:]] for position, row in enumerate(index_rows())]
    (folder / "index.csv").write_text(table([["row", *HEADER[1:]], *rows]))
    (folder / "manifest.yaml").write_text(
        f"format: npy\nupdates: {name}\nindex: index.csv\ntruth: truth.csv\nsign: {sign}\n"
        "layers: {fc.weight: [3, 2], fc.bias: [2]}\n"
    )
    return folder
