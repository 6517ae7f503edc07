"""Stages of an inversion experiment: what the adversary reads, and what it makes of it."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_inversion import expose_in, run_job, settings_at

from fedprint.attacks.inversion.objectives import Knowledge
from fedprint.defences.on_update import Noise, TopK
from fedprint.defences.secret_head import SecretHead
from fedprint.kinds.images import image_job
from fedprint.kinds.inversion.attack import (
    RECONSTRUCTED,
    SCORES,
    TRACED,
    knowledge_of,
    nearest,
    reconstruct,
    seek,
    trace,
)
from fedprint.kinds.inversion.config import (
    AttackConfig,
    InversionExperiment,
)
from fedprint.kinds.inversion.graph import ADAPTIVE_WORK, NAIVE_WORK
from fedprint.kinds.inversion.results.judge import judge
from fedprint.kinds.inversion.results.outcome import Outcome, read_outcome
from fedprint.kinds.inversion.victims import SETTING


def test_the_attack_runs_where_no_truth_exists(small: InversionExperiment, tmp_path: Path) -> None:
    cell = settings_at(small, "dp")
    quick = cell.attack.model_copy(update={"evaluations": 15})
    expose_in(tmp_path / "all", cell)
    for name in ("observed", "public", "candidates"):
        shutil.move(tmp_path / "all" / name, tmp_path / "seen" / name)
    shutil.rmtree(tmp_path / "all")
    seen = tmp_path / "seen"
    seek(seen / "observed", seen / "public", seen / "candidates", 4, seen / "scores", 0)
    assert load_file(seen / "scores" / SCORES)["scores"].shape == (4 + 10, 4)
    shutil.rmtree(seen / "candidates")
    reconstruct(quick, seen / "observed", seen / "public", seen / "adaptive", 0)
    shutil.rmtree(seen / "public")
    reconstruct(quick, seen / "observed", None, seen / "naive", 0)
    assert load_file(seen / "naive" / RECONSTRUCTED)["images"].shape == (4, 1, 1, 8, 8)


def test_nothing_the_adversary_reads_holds_an_image_or_a_label(small: InversionExperiment, tmp_path: Path) -> None:
    for defence in ("none", "spn"):
        cell = settings_at(small, defence, batch=2)
        folder = tmp_path / defence
        expose_in(folder, cell)
        truth = load_file(folder / "truth" / "images.safetensors")
        seen = b"".join(path.read_bytes() for name in ("observed", "public") for path in (folder / name).iterdir())
        for image in truth["x"].flatten(0, 1):
            assert image.numpy().tobytes() not in seen
        assert b"secret_head" not in seen and b"label" not in seen
    for step in (reconstruct, seek):
        assert "truth" not in inspect.signature(step).parameters
    assert "candidates" not in inspect.signature(reconstruct).parameters


def test_private_heads_stay_with_their_victims(small: InversionExperiment, tmp_path: Path) -> None:
    cell = settings_at(small, "spn")
    expose_in(tmp_path, cell)
    names = load_file(tmp_path / "observed" / "gradients.safetensors")
    assert not any("secret" in name for name in names) and "sent.head.weight" in names


def test_images_are_the_same_for_every_mechanism_and_first_in_every_batch(
    small: InversionExperiment, tmp_path: Path
) -> None:
    found = []
    for number, cell in enumerate(
        (settings_at(small, "none"), settings_at(small, "spn"), settings_at(small, "dp", batch=2))
    ):
        expose_in(tmp_path / str(number), cell)
        found.append(load_file(tmp_path / str(number) / "truth" / "images.safetensors"))
    for one in found[1:]:
        assert torch.equal(one["x"].flatten(0, 1), found[0]["x"].flatten(0, 1))
        assert torch.equal(one["y"].flatten(), found[0]["y"].flatten())


def test_tracing_is_judged_at_both_levels(tmp_path: Path) -> None:
    """Two victims with two images each; one reconstruction is swapped for another victim's image."""
    from safetensors.torch import save_file

    x = torch.rand(2, 2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([3, 0, 2, 1])
    for name in ("observed", "truth", "reconstructed", "scores", "queries"):
        (tmp_path / name).mkdir()
    (tmp_path / "observed" / SETTING).write_text('{"classes": 2}')
    y = torch.tensor([[0, 1], [1, 1]])
    truth = {"x": x, "y": y, "blind": x[0, 0].clone(), "order": order, "candidates": torch.tensor([4, 2, 0, 5, 3])}
    truth["asked"] = torch.zeros(0, 2)
    save_file(truth, tmp_path / "truth" / "images.safetensors")
    save_file({"x": x.flatten(0, 1)[order].contiguous()}, tmp_path / "queries" / "images.safetensors")
    found = torch.stack([torch.stack([x[0, 1], x[1, 0]]), torch.stack([x[1, 1], x[0, 0] * 0])])
    save_file({"images": found, "raw": 2 * found, "labels": y}, tmp_path / "reconstructed" / RECONSTRUCTED)
    scores = {"scores": torch.rand(5, 2), "lira": torch.zeros(0, 2), "loss": torch.rand(5, 2)}
    save_file(scores, tmp_path / "scores" / SCORES)
    trace(tmp_path / "reconstructed", tmp_path / "queries", tmp_path / "traced")
    assert (tmp_path / "traced" / TRACED).is_file()
    result = judge({name: tmp_path / name for name in ("observed", "truth", "reconstructed", "scores", "traced")}, (2,))
    # image (0, 1) and (1, 1) have their reconstruction; (1, 0)'s lies with victim 0; (0, 0) has none
    assert result.traced[2][[1, 2, 3]].tolist() == [1.0, 0.0, 1.0]
    assert result.traced_chance[2].tolist() == [0.5] * 4 and result.traced_chance[0].tolist() == [0.25] * 4
    assert result.by_matching["assignment/error"][[1, 3]].tolist() == [0.0, 0.0]
    assert result.by_matching["assignment/raw-error"].max() > 0.5
    assert result.candidates.owner.tolist() == [-1, 1, 0, -1, 1]
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


def test_a_job_gives_the_same_numbers_again(small: InversionExperiment, tmp_path: Path) -> None:
    settings = settings_at(small, "ppdl_0.3")
    quick = settings.model_copy(update={"attack": settings.attack.model_copy(update={"evaluations": 15})})
    found: dict[str, list[Outcome]] = {}
    for adversary, work in (("naive", NAIVE_WORK), ("adaptive", ADAPTIVE_WORK)):
        job = image_job(work, quick, quick.data, 0, adversary)
        ends = [run_job(job, tmp_path / adversary / again, shared=tmp_path) for again in ("one", "two")]
        first, second = (done.outputs["outcome"] for done in ends)
        assert {path.name for path in first.iterdir()} == {"outcome.npz", "outcome.json"}
        assert all(path.read_bytes() == (second / path.name).read_bytes() for path in first.iterdir())
        found[adversary] = [read_outcome(first), read_outcome(second)]
    for outcome, _ in found.values():
        grey = [np.linalg.norm(0.5 - x) / np.linalg.norm(x) for x in outcome.truth / 255]
        assert outcome.trajectory is not None
        evaluations, _ = outcome.trajectory
        assert outcome.judged.course.shape == (len(evaluations), 4)
        np.testing.assert_allclose(outcome.judged.course[0], grey, rtol=1e-4, err_msg="a search begins with grey")
    naive = found["naive"][0].judged
    np.testing.assert_allclose(naive.course[-1], naive.by_matching["assignment/error"], rtol=1e-6)


def test_who_does_not_know_the_mechanism_is_given_none_and_no_search_opens_candidates() -> None:
    for work, known in ((NAIVE_WORK, False), (ADAPTIVE_WORK, True)):
        stages = {stage.name: stage for stage in work.graph.stages}
        for name in ("invert", "seek"):
            assert ("public" in stages[name].inputs) is known
            assert not {"truth", "queries", "images"} & set(stages[name].inputs) and not stages[name].data
        assert "candidates" not in stages["invert"].inputs
        assert [name for name, stage in stages.items() if "truth" in stage.inputs] == ["judge"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("defence", "batch"), [("none", 1), ("dp", 1), ("spn", 2)])
def test_a_gpu_finds_what_the_processor_finds(
    small: InversionExperiment, tmp_path: Path, defence: str, batch: int
) -> None:
    cell, found = settings_at(small, defence, batch=batch), {}
    quick = cell.attack.model_copy(update={"evaluations": 5})
    expose_in(tmp_path, cell)
    for device in ("cuda", "cpu"):
        reconstruct(quick, tmp_path / "observed", tmp_path / "public", tmp_path / device, 0, device)
        found[device] = load_file(tmp_path / device / RECONSTRUCTED)
    assert torch.equal(found["cuda"]["labels"], found["cpu"]["labels"])
    torch.testing.assert_close(found["cuda"]["values"], found["cpu"]["values"], rtol=1e-2, atol=1e-4)


def test_signed_features_get_rules_that_do_not_add_them_up() -> None:
    signed = AttackConfig.model_validate(
        {"network": {"name": "dlnet", "activation": "tanh"}, "attack": {"name": "gradient-matching"}}
    )
    assert [getattr(signed.attack_on(batch), "labels", None) for batch in (1, 4)] == ["sign", "bias"]
