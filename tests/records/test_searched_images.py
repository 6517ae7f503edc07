"""Images are found where updates are gradients of a known model, and none are claimed where they are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from recorded_folder import write_recording

from fedprint.attacks.inversion.simulate import mean_loss
from fedprint.models.components import DlNet
from fedprint.models.networks import build_network
from fedprint.records.run import Result, run
from fedprint.records.search import SearchedExamples

USERS, ROUNDS, CLASSES, SHAPE, LR = 4, 2, 4, (1, 8, 8), 0.1


def audited(folder: Path, *, local: float = 1.0, each: int = 1) -> tuple[Result, np.ndarray]:
    """Return the audit of single gradients, and the true images; ``local`` scales the models that are named."""
    rng = np.random.default_rng(0)
    counts = [each] * USERS
    write_recording(folder, users=[f"person-{u}" for u in range(USERS)], rounds=ROUNDS, counts=counts)
    model = build_network(DlNet(), SHAPE, CLASSES, False)
    loss = mean_loss(model, multi_label=False)
    truth, values = [], []
    (folder / "globals").mkdir()
    for number in range(ROUNDS):
        model.reset(torch.Generator().manual_seed(number))
        received = {name: p.detach() for name, p in model.public_parameters().items()}
        flat = np.concatenate([p.numpy().ravel() for p in received.values()])
        np.save(folder / "globals" / f"{number}.npy", local * flat)
        for _ in range(2 * USERS):
            x, y = rng.uniform(size=(each, *SHAPE)).astype(np.float32), rng.permutation(CLASSES)[:each]
            target = torch.nn.functional.one_hot(torch.tensor(y), CLASSES).float()
            gradient = torch.func.grad(loss)(received, torch.from_numpy(x), target)
            values.append(-LR * np.concatenate([g.numpy().ravel() for g in gradient.values()]))
            truth.append(x)
    np.save(folder / "updates.npy", np.array(values, dtype=np.float32))
    manifest = yaml.safe_load((folder / "manifest.yaml").read_text())
    layers = {name: list(p.shape) for name, p in received.items()}
    manifest |= {"layers": layers, "input": list(SHAPE), "model": {"name": "dlnet"}, "globals": "globals"}
    manifest["gradients"] = {"lr": LR}
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    return run(folder, scratch=folder.parent / "scratch", attacks=("ridge",)), np.concatenate(truth)


@pytest.mark.parametrize(("each", "least"), [(1, 3), (2, 1)])
def test_images_of_gradients_are_found(tmp_path: Path, each: int, least: int) -> None:
    result, truth = audited(tmp_path / "r", each=each)
    found = result.searched
    assert isinstance(found, SearchedExamples) and found.of == (each,) * 4 and found.recovered >= least
    assert len(found.images) == each * found.recovered
    apart = np.linalg.norm((found.images[:, None] - truth[None]).reshape(len(found.images), len(truth), -1), axis=2)
    assert (apart.min(1) < 0.1 * np.linalg.norm(truth[0])).all()
    assert result.summary()["searched"]["updates_recovered"] == found.recovered
    assert any("search" in text for text in result.verdict.leaks)


def test_nothing_is_found_where_the_models_are_others(tmp_path: Path) -> None:
    result, _ = audited(tmp_path / "r", local=-1.0)
    assert isinstance(result.searched, SearchedExamples) and result.searched.recovered == 0
    assert not any("search" in text for text in result.verdict.leaks)


def test_without_a_model_nothing_is_searched(tmp_path: Path) -> None:
    result = run(write_recording(tmp_path / "r"), scratch=tmp_path / "scratch", attacks=("ridge",))
    assert "needs `model`" in str(result.searched) and "needs `model`" in str(result.summary()["searched"])
