"""Cells of an inversion experiment: what the adversary reads, and what it makes of it."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_inversion import of_cell

from fedprint.attacks.inversion.objectives import Knowledge
from fedprint.defences.on_update import Noise, TopK
from fedprint.defences.secret_head import SecretHead
from fedprint.kinds.inversion import attack
from fedprint.kinds.inversion.attack import (
    FOUND,
    SCORES,
    TRACED,
    knowledge_of,
    nearest,
    reconstruct,
    seek,
    trace,
)
from fedprint.kinds.inversion.cells import Exposure, attack_cell, read_exposure
from fedprint.kinds.inversion.config import (
    AttackConfig,
    InversionExperiment,
)
from fedprint.kinds.inversion.judge import judge
from fedprint.kinds.inversion.victims import expose


def test_the_attack_runs_where_no_truth_exists(small: InversionExperiment, tmp_path: Path) -> None:
    cell = of_cell(small, "dp")
    quick = cell.attack.model_copy(update={"evaluations": 15})
    expose(cell, tmp_path / "all")
    for name in ("observed", "public", "candidates"):
        shutil.move(tmp_path / "all" / name, tmp_path / "seen" / name)
    shutil.rmtree(tmp_path / "all")
    seen = tmp_path / "seen"
    seek(seen / "observed", seen / "public", seen / "candidates", 4, seen / "adaptive", 0)
    assert load_file(seen / "adaptive" / SCORES)["scores"].shape == (4 + 10, 4)
    shutil.rmtree(seen / "candidates")
    reconstruct(quick, seen / "observed", seen / "public", seen / "adaptive", 0)
    shutil.rmtree(seen / "public")
    reconstruct(quick, seen / "observed", None, seen / "naive", 0)
    assert load_file(seen / "naive" / FOUND)["images"].shape == (4, 1, 1, 8, 8)


def test_nothing_the_adversary_reads_holds_an_image_or_a_label(small: InversionExperiment, tmp_path: Path) -> None:
    for defence in ("none", "spn"):
        cell = of_cell(small, defence, batch=2)
        folder = tmp_path / defence
        expose(cell, folder)
        truth = load_file(folder / "truth" / "images.safetensors")
        seen = b"".join(path.read_bytes() for name in ("observed", "public") for path in (folder / name).iterdir())
        for image in truth["x"].flatten(0, 1):
            assert image.numpy().tobytes() not in seen
        assert b"secret_head" not in seen and b"label" not in seen
    for step in (reconstruct, seek):
        assert "truth" not in inspect.signature(step).parameters
    assert "candidates" not in inspect.signature(reconstruct).parameters


def test_private_heads_stay_with_their_victims(small: InversionExperiment, tmp_path: Path) -> None:
    cell = of_cell(small, "spn")
    expose(cell, tmp_path)
    names = load_file(tmp_path / "observed" / "gradients.safetensors")
    assert not any("secret" in name for name in names) and "sent.head.weight" in names


def test_images_are_the_same_for_every_mechanism_and_first_in_every_batch(
    small: InversionExperiment, tmp_path: Path
) -> None:
    found = []
    for number, cell in enumerate((of_cell(small, "none"), of_cell(small, "spn"), of_cell(small, "dp", batch=2))):
        expose(cell, tmp_path / str(number))
        found.append(load_file(tmp_path / str(number) / "truth" / "images.safetensors"))
    for one in found[1:]:
        assert torch.equal(one["x"].flatten(0, 1), found[0]["x"].flatten(0, 1))
        assert torch.equal(one["y"].flatten(), found[0]["y"].flatten())


def test_tracing_is_judged_at_both_levels(tmp_path: Path) -> None:
    """Two victims with two images each; one reconstruction is swapped for another victim's image."""
    from safetensors.torch import save_file

    x = torch.rand(2, 2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([3, 0, 2, 1])
    for name in ("truth", "found", "queries"):
        (tmp_path / name).mkdir()
    y = torch.tensor([[0, 1], [1, 1]])
    truth = {"x": x, "y": y, "blind": x[0, 0].clone(), "order": order, "sought": torch.tensor([4, 2, 0, 5, 3])}
    truth["asked"] = torch.zeros(0, 2)
    save_file(truth, tmp_path / "truth" / "images.safetensors")
    save_file({"x": x.flatten(0, 1)[order].contiguous()}, tmp_path / "queries" / "images.safetensors")
    found = torch.stack([torch.stack([x[0, 1], x[1, 0]]), torch.stack([x[1, 1], x[0, 0] * 0])])
    save_file({"images": found, "raw": 2 * found, "labels": y}, tmp_path / "found" / FOUND)
    scores = {"scores": torch.rand(5, 2), "lira": torch.zeros(0, 2), "loss": torch.rand(5, 2)}
    save_file(scores, tmp_path / "found" / SCORES)
    trace(tmp_path / "found", tmp_path / "queries", tmp_path / "traced")
    assert (tmp_path / "traced" / TRACED).is_file()
    result = judge(tmp_path / "truth", tmp_path / "found", tmp_path / "traced", (2,), 2)
    # image (0, 1) and (1, 1) have their reconstruction; (1, 0)'s lies with victim 0; (0, 0) has none
    assert result.traced[2][[1, 2, 3]].tolist() == [1.0, 0.0, 1.0]
    assert result.traced_chance[2].tolist() == [0.5] * 4 and result.traced_chance[0].tolist() == [0.25] * 4
    assert result.by_matching["assignment/error"][[1, 3]].tolist() == [0.0, 0.0]
    assert result.by_matching["assignment/raw-error"].max() > 0.5
    assert result.sought.own.tolist() == [-1, 1, 0, -1, 1]
    assert result.blind["index/labels"].tolist() == [0.5] * 4
    assert result.blind["assignment/labels"] == pytest.approx([0.75, 0.75, 0.5, 0.5]), "either guess may hit a label"


def test_the_nearest_image_is_the_nearest_in_mean_square() -> None:
    images = torch.rand(5, 1, 3, 3, generator=torch.Generator().manual_seed(0))
    assert nearest(images[[3, 1]] + 0.01, images).tolist() == [3, 1]


def test_the_adaptive_adversary_knows_noise_and_mask() -> None:
    assert knowledge_of(()) == Knowledge()
    both = knowledge_of((Noise(sigma=0.3), TopK(share=0.05, per_layer=True)))
    assert both.masked and both.sigma == pytest.approx(0.3)
    assert not knowledge_of((TopK(share=1.0),)).masked
    assert knowledge_of((SecretHead(),)).secret_head


def test_a_cell_gives_the_same_numbers_again(small: InversionExperiment, tmp_path: Path) -> None:
    found: list[Exposure] = []
    for name in ("one", "two"):
        cell = of_cell(small, "ppdl_0.3")
        quick = cell.attack.model_copy(update={"evaluations": 15})
        attack_cell(cell.model_copy(update={"attack": quick}), tmp_path / name)
        found.append(read_exposure(tmp_path / name))
        assert {path.name for path in (tmp_path / name).iterdir()} == {"outcome.npz", "outcome.json"}
    grey = [np.linalg.norm(0.5 - x) / np.linalg.norm(x) for x in found[0].pictures["truth"] / 255]
    for adversary, judged in found[0].judged.items():
        evaluations, _ = found[0].trajectories[adversary]
        assert judged.course.shape == (len(evaluations), 4)
        np.testing.assert_allclose(judged.course[0], grey, rtol=1e-4, err_msg="the first image of a search is grey")
        for key, array in judged.by_matching.items():
            np.testing.assert_array_equal(array, found[1].judged[adversary].by_matching[key])
    naive = found[0].judged["naive"]
    np.testing.assert_allclose(naive.course[-1], naive.by_matching["assignment/error"], rtol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("defence", "batch"), [("none", 1), ("dp", 1), ("spn", 2)])
def test_a_gpu_finds_what_the_processor_finds(
    small: InversionExperiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defence: str, batch: int
) -> None:
    cell, found = of_cell(small, defence, batch=batch), {}
    quick = cell.attack.model_copy(update={"evaluations": 5})
    expose(cell, tmp_path)
    for device in ("cuda", "cpu"):
        monkeypatch.setattr(attack, "best_device", lambda device=device: device)
        reconstruct(quick, tmp_path / "observed", tmp_path / "public", tmp_path / device, 0)
        found[device] = load_file(tmp_path / device / FOUND)
    assert torch.equal(found["cuda"]["labels"], found["cpu"]["labels"])
    torch.testing.assert_close(found["cuda"]["values"], found["cpu"]["values"], rtol=1e-2, atol=1e-4)


def test_signed_features_get_rules_that_do_not_add_them_up() -> None:
    signed = AttackConfig.model_validate(
        {"network": {"name": "dlnet", "activation": "tanh"}, "attack": {"name": "gradient-matching"}}
    )
    assert [getattr(signed.attack_on(batch), "labels", None) for batch in (1, 4)] == ["sign", "bias"]
