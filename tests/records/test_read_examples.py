"""What is read from an update in closed form is what the device trained on, and nothing else is claimed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from recorded_folder import write_recording

from fedprint.cli.main import main
from fedprint.records.examples import ReadExamples, first_layer, needed_rows
from fedprint.records.run import Result, run
from fedprint.reports.pages.records import write_records

INPUTS, HIDDEN, CLASSES, USERS, ROUNDS = 64, 64, 10, 12, 3
BODY = {"fc1.weight": (HIDDEN, INPUTS), "fc1.bias": (HIDDEN,)}


def update(x: np.ndarray, y: np.ndarray, *, steps: int, rng: np.random.Generator, classes: int = CLASSES) -> np.ndarray:
    """Return what a device sends after local steps of SGD on all its examples, of a network drawn anew."""
    shapes = [(HIDDEN, INPUTS), (HIDDEN,), (classes, HIDDEN), (classes,)]
    start = [torch.tensor(rng.uniform(-0.2, 0.2, shape), dtype=torch.float32) for shape in shapes]
    w = [p.clone().requires_grad_() for p in start]
    inputs, labels = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    for _ in range(steps):
        scores = torch.relu(inputs @ w[0].T + w[1]) @ w[2].T + w[3]
        gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(scores, labels), w)
        w = [(p - 0.1 * g).detach().requires_grad_() for p, g in zip(w, gradients, strict=True)]
    return np.concatenate([(p - q).detach().numpy().ravel() for p, q in zip(w, start, strict=True)])


def recorded(
    folder: Path, each: int, *, steps: int = 1, noise: float = 0.0, classes: int = CLASSES, same_label: bool = False
) -> np.ndarray:
    """Write the updates of devices with ``each`` examples and return all true examples (n, d)."""
    rng = np.random.default_rng(0)
    write_recording(folder, users=[f"person-{u}" for u in range(USERS)], rounds=ROUNDS, counts=[each] * USERS)
    truth, values = [], []
    for _ in range(2 * USERS * ROUNDS):
        x = rng.uniform(size=(each, INPUTS))
        y = np.full(each, 1) if same_label else rng.integers(classes, size=each)
        truth.append(x)
        sent = update(x, y, steps=steps, rng=rng, classes=classes)
        values.append(sent + noise * np.abs(sent).mean() * rng.normal(size=sent.shape))
    np.save(folder / "updates.npy", np.array(values, dtype=np.float32))
    manifest = yaml.safe_load((folder / "manifest.yaml").read_text())
    shapes = {**BODY, "head.weight": (classes, HIDDEN), "head.bias": (classes,)}
    manifest |= {"layers": {name: list(shape) for name, shape in shapes.items()}, "input": [1, 8, 8]}
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    return np.concatenate(truth)


def audited(folder: Path, each: int, **options: Any) -> tuple[Result, np.ndarray]:
    """Return the audit of :func:`recorded` updates, and all true examples (n, d)."""
    truth = recorded(folder, each, **options)
    return run(folder, scratch=folder.parent / "scratch", attacks=("ridge",)), truth


def errors(found: ReadExamples, truth: np.ndarray) -> np.ndarray:
    """Return the relative distance of each example that was read from the nearest true one."""
    apart = np.linalg.norm(found.inputs[:, None] - truth[None], axis=2)
    return apart.min(1) / np.linalg.norm(truth, axis=1).mean()


@pytest.mark.parametrize("steps", [1, 5])
def test_the_example_of_an_update_is_read(tmp_path: Path, steps: int) -> None:
    result, truth = audited(tmp_path / "r", 1, steps=steps)
    found = result.examples
    assert isinstance(found, ReadExamples) and found.of_one == found.of_one_read == found.updates == USERS * ROUNDS
    assert len(found.inputs) == 8 and errors(found, truth).max() < 0.01 and found.labels == found.updates
    summary = result.summary()
    assert summary["examples_read"] == 1 and summary["examples"]["examples"] == found.updates
    assert any("Examples themselves: 36 were read" in text for text in result.verdict.leaks)


def test_examples_of_small_batches_are_read_where_rows_agree_and_no_mean_is(tmp_path: Path) -> None:
    result, truth = audited(tmp_path / "r", 2)
    found = result.examples
    assert isinstance(found, ReadExamples) and found.of_one == 0 and found.needed == 4 and found.labels is None
    assert found.share > 0.9 and found.counts.max() == 2 and errors(found, truth).max() < 0.01


@pytest.mark.parametrize(("limit", "layers", "code"), [("0.9", True, 3), ("1", True, 0), ("1", False, 2)])
def test_a_gate_may_be_on_the_share_of_updates_that_show_an_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, layers: bool, code: int
) -> None:
    recorded(tmp_path / "r", 1)
    manifest = yaml.safe_load((tmp_path / "r" / "manifest.yaml").read_text())
    if not layers:  # so that nothing can be read
        del manifest["layers"]
    (tmp_path / "r" / "manifest.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    gate = ["--attacks", "ridge", "--fail-above", f"examples_read={limit}"]
    monkeypatch.setattr(sys, "argv", ["fedprint", "audit", str(tmp_path / "r"), "--out", str(tmp_path / "out"), *gate])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code


@pytest.mark.parametrize(
    "more", [{"each": 32}, {"each": 32, "steps": 3}, {"each": 1, "noise": 1.0}, {"each": 2, "noise": 0.1}]
)
def test_many_examples_and_noise_hide_them(tmp_path: Path, more: dict[str, Any]) -> None:
    result, _ = audited(tmp_path / "r", **more)
    found = result.examples
    assert isinstance(found, ReadExamples) and found.counts.sum() == 0 and not len(found.inputs)
    assert not any("Examples" in text for text in result.verdict.leaks)


def test_nothing_is_claimed_that_is_no_example(tmp_path: Path) -> None:
    result, truth = audited(tmp_path / "same", 3, same_label=True)  # moves most rows by nearly equal shares
    assert isinstance(result.examples, ReadExamples) and result.examples.counts.sum() > 0
    assert errors(result.examples, truth).max() < 0.01
    result, _ = audited(tmp_path / "two", 3, classes=2)  # two classes: rows agree on means
    assert isinstance(result.examples, ReadExamples) and result.examples.needed is None
    assert result.examples.counts.sum() == 0


def test_layers_that_do_not_show_their_input() -> None:
    assert "not name their layers" in str(first_layer({"update": (9,)}))
    assert "not fully connected" in str(first_layer({"conv1.weight": (4, 1, 3, 3), "conv1.bias": (4,)}))
    assert "reads 5 numbers" in str(first_layer({"a.weight": (7, 5), "a.bias": (7,)}, 6))
    kernel = first_layer({"dense/kernel": (5, 7), "dense/bias": (7,)})
    assert not isinstance(kernel, str) and kernel.turned and (kernel.rows, kernel.inputs) == (7, 5)
    assert needed_rows({"a.weight": (7, 5), "a.bias": (7,), "b.weight": (1, 7)}, kernel)[0] is None


def test_examples_are_on_the_page_with_show_users_only(tmp_path: Path) -> None:
    result, _ = audited(tmp_path / "r", 1)
    for show in (False, True):
        write_records(result, tmp_path / "out", show_users=show)
        assert (tmp_path / "out" / "figures" / "examples.png").exists() is show
    page = (tmp_path / "out" / "index.html").read_text()
    assert "Examples that updates show" in page and "36 were read from 36 of 36 updates" in page
