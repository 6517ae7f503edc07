"""A federation that knows nothing of fedprint, in plain NumPy: it keeps what its server received.

Run: ``python examples/foreign_federation.py recorded`` (seconds). It writes a ``.npz`` file per update into
``recorded/updates``, a list of them (``index.csv``), and who owns which anonymous device (``truth.csv``). What
``fedprint audit`` needs beside these is a manifest of four lines (docs/auditing.md).
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

PEOPLE, ROUNDS, STEPS, LR = 20, 8, 5, 0.1
INPUTS, CLASSES, EXAMPLES = 30, 4, 40
Weights = dict[str, np.ndarray]


def train(w: Weights, x: np.ndarray, y: np.ndarray) -> Weights:
    """Return the weights after some steps of softmax regression on x (n, INPUTS) with one-hot y (n, CLASSES)."""
    weight, bias = w["weight"], w["bias"]
    for _ in range(STEPS):
        scores = x @ weight + bias
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        error = (p / p.sum(axis=1, keepdims=True) - y) / len(x)
        weight, bias = weight - LR * x.T @ error, bias - LR * error.sum(axis=0)
    return {"weight": weight, "bias": bias}


def main(folder: Path) -> None:
    """Train: every person has a device that the auditor knows and one that is anonymous."""
    rng = np.random.default_rng(0)
    taste = 1.5 * rng.normal(size=(PEOPLE, INPUTS))  # what is peculiar to each person's data
    truth = rng.normal(size=(INPUTS, CLASSES))
    devices = {}
    for name, k in zip(rng.permutation(2 * PEOPLE), range(2 * PEOPLE), strict=True):  # a name says nothing of its owner
        x = taste[k // 2] + rng.normal(size=(EXAMPLES + rng.integers(20), INPUTS))
        y = np.eye(CLASSES)[(x @ truth).argmax(axis=1)]
        devices[f"device-{name}"] = (f"person-{k // 2}", k % 2 == 0, x, y)

    (folder / "updates").mkdir(parents=True)
    w: Weights = {"weight": np.zeros((INPUTS, CLASSES)), "bias": np.zeros(CLASSES)}
    lines = []
    for t in range(ROUNDS):
        updates = {}
        for device, (person, known, x, y) in devices.items():
            trained = train(w, x, y)
            updates[device] = {name: trained[name] - w[name] for name in w}
            file = f"{t}-{device}.npz"
            np.savez(folder / "updates" / file, **updates[device])
            lines.append((file, t, device, len(x), person if known else ""))
        w = {name: w[name] + np.mean([update[name] for update in updates.values()], axis=0) for name in w}
    write(folder / "index.csv", ("file", "round", "device", "num_examples", "user"), lines)
    owners = [(device, person) for device, (person, known, _, _) in devices.items() if not known]
    write(folder / "truth.csv", ("device", "user"), owners)
    print(f"{len(lines)} updates of {len(devices)} devices in {folder}")


def write(path: Path, head: tuple[str, ...], lines: list[tuple]) -> None:
    """Write a CSV file."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *lines])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/foreign_federation.py FOLDER")
    main(Path(sys.argv[1]))
