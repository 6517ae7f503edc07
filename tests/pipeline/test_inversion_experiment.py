"""An inversion experiment from its file to its report, on tiny images; and what the attack can and cannot see."""

from __future__ import annotations

import inspect
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_project import CHECKOUT, Project

from fedprint.attacks.inversion.objectives import Knowledge
from fedprint.data.describe import write_table
from fedprint.defences.on_update import Noise, TopK
from fedprint.defences.secret_head import SecretHead
from fedprint.evaluation.rows import Row
from fedprint.pipeline.cli import main
from fedprint.pipeline.config import load_experiment
from fedprint.pipeline.config_files import kind_named
from fedprint.pipeline.inversion import run
from fedprint.pipeline.inversion.attack import (
    FOUND,
    SCORES,
    TRACED,
    knowledge_of,
    nearest,
    reconstruct,
    seek,
    trace,
)
from fedprint.pipeline.inversion.cells import Exposure, attack_cell, cell_key, model_of, read_exposure
from fedprint.pipeline.inversion.config import (
    AttackConfig,
    CandidatesConfig,
    InversionExperiment,
    load_inversion,
)
from fedprint.pipeline.inversion.judge import judge
from fedprint.pipeline.inversion.networks import images_of
from fedprint.pipeline.inversion.rows import all_rows
from fedprint.pipeline.inversion.scene import Place, Results
from fedprint.pipeline.inversion.victims import ExposureCell, expose
from fedprint.types import FedprintError

SMALL: Mapping[str, Any] = {
    "report": {"title": "Tiny inversion"},
    "data": {"name": "blobs", "train": 60, "test": 40},
    "images": 4,
    "victims": 2,
    "participants": [2],
    "candidates": {"public": 10, "pairs": 40},
    "attacks": [
        {
            "network": {"name": "dlnet", "channels": 6, "bound": 0.5},
            "attack": {"name": "gradient-matching", "evaluations": 60},
            "batches": [1, 2],
        },
        {"network": {"name": "mlp", "hidden": 8, "activation": "sigmoid"}, "attack": {"name": "closed-form"}},
    ],
    "training": {"clients": 3, "rounds": 4, "batch_size": 8},
    "mechanisms": [
        {"defence": "none"},
        {"defence": "ppdl_0.3", "defences": [{"name": "top-k", "share": 0.3, "per_layer": True}]},
        {"defence": "spn", "defences": [{"name": "spn", "alpha2": "$strength", "bits": 8}], "strengths": [0.5]},
        {
            "defence": "spn",
            "variant": "16 bits",
            "defences": [{"name": "spn", "alpha2": "$strength", "bits": 16}],
            "strengths": [0.5],
        },
        {"defence": "dp", "defences": [{"name": "noise", "sigma": "$strength"}], "strengths": [0.5, 0.0001]},
    ],
    "fast": {"training": {"rounds": 2}},
}


def write_blobs(folder: Path, side: int = 8) -> None:
    """Smooth grey images of three classes, each bright in a corner of its own."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 120)
    rows, columns = np.mgrid[0:side, 0:side] / (side - 1)
    centres = np.array([[0.2, 0.2], [0.8, 0.2], [0.5, 0.8]])[labels] + 0.08 * rng.normal(size=(120, 2))
    distance = (rows - centres[:, :1, None]) ** 2 + (columns - centres[:, 1:, None]) ** 2
    images = np.clip(40 + 200 * np.exp(-6 * distance) + 8 * rng.normal(size=distance.shape), 0, 255)
    columns_of = {
        "images": images.astype(np.uint8),
        "labels": labels.astype(np.uint8),
        "split": (np.arange(120) >= 80).astype(np.uint8),
    }
    write_table(folder / "blobs", columns_of, {"licence": "CC0"})


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_blobs(folder)
    return folder


@pytest.fixture
def small(project: Project, blobs: Path, monkeypatch: pytest.MonkeyPatch) -> InversionExperiment:
    monkeypatch.setenv("FEDPRINT_DATA", str(blobs))
    images_of.cache_clear()
    project.write("small", SMALL)
    return load_inversion(project.root, "small")


def in_this_process(work: Any, requests: Any, *, jobs: int, title: str) -> list[Any]:
    return [work(request) for request in requests]


def of_cell(experiment: InversionExperiment, defence: str, batch: int = 1, attack: int = 0) -> ExposureCell:
    setting = next(i for i, s in enumerate(experiment.settings) if s.defence == defence)
    return run.exposure_cell(experiment, Place(attack=attack, setting=setting, batch=batch))


@pytest.fixture(scope="module")
def finished(blobs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, list[Row], Path]:
    """The whole experiment, run once."""
    from tiny_project import make_project

    root = tmp_path_factory.mktemp("inversion")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPRINT_ROOT", str(root))
        patch.setenv("FEDPRINT_DATA", str(blobs))
        patch.setattr(run, "run_all", in_this_process)
        images_of.cache_clear()
        make_project(root).write("small", SMALL)
        results = run.run_cells(load_inversion(root, "small"))
        rows = all_rows(results)
        run.publish(results, rows, root / "reports" / "small")
    return results, rows, root


def where(rows: list[Row], **keys: Any) -> list[Row]:
    return [row for row in rows if all(row.get(key) == value for key, value in keys.items())]


def test_the_rows_have_the_papers_scores_with_intervals_and_chance(finished: tuple[Results, list[Row], Path]) -> None:
    _, rows, _ = finished
    scores = ("cap_reconstruction", "cap_membership", "cap_tracing")
    for metric in ("reconstruction_success", "reconstruction_rmse", "label_accuracy", "tracing_accuracy", *scores):
        found = where(rows, metric=metric, region=None)
        assert {row["defence"] for row in found} == {"none", "dp", "ppdl_0.3", "spn"}
        own = {"alignment"} if metric == "tracing_accuracy" else set()
        assert {row["attack"] for row in found} == {"gradient-matching", "closed-form", *own}
        assert {row["adversary"] for row in found} == {"naive", "adaptive"}
        for row in found:
            assert row["lo"] <= row["value"] <= row["hi"] and row["chance"] is not None and row["n_questions"] >= 4
            assert row["attack_batch"] in (1, 2) and row["network"] in ("dlnet", "mlp")
    assert {row["threshold"] for row in where(rows, metric="reconstruction_success", region=None)} == {0.1, 0.2}
    assert len(where(rows, metric="accuracy")) == 2 * 6
    layers = {row["layers"] for row in where(rows, metric="gradient_cosine", network="dlnet")}
    assert "conv1.weight" in layers and not any(name.startswith("head") for name in layers)


def test_cap_is_accuracy_times_distance_of_the_rows(finished: tuple[Results, list[Row], Path]) -> None:
    _, rows, _ = finished
    place = {"defence": "dp", "variant": "main", "network": "dlnet"}
    here = {**place, "attack_batch": 2, "adversary": "adaptive", "matching": "assignment"}
    accuracy = {row["strength"]: row["value"] for row in where(rows, metric="accuracy", **place)}
    for metric, score, key, values in (
        ("reconstruction_rmse", "cap_reconstruction", "pixels", ("raw", "clipped")),
        ("label_accuracy", "cap_membership", "labels", ("gradient", "image")),
    ):
        for reading in values:
            found = where(rows, metric=metric, region=None, **{key: reading}, **here)
            distance = {r["strength"]: r["value"] if key == "pixels" else 1 - r["value"] for r in found}
            assert len(distance) == len(found) == 2
            expected = sum(accuracy[m] * distance[m] for m in distance) / 2
            (row,) = where(rows, metric=score, **{key: reading}, **here)
            assert row["value"] == pytest.approx(expected) and row["strengths"] == 2


def test_raw_errors_are_never_smaller_than_those_of_images_cut_to_their_range(
    finished: tuple[Results, list[Row], Path],
) -> None:
    results, rows, _ = finished
    differ = 0
    for exposure in results.exposures.values():
        for judged in exposure.judged.values():
            for matching in ("index", "assignment"):
                raw, cut = (judged.by_matching[f"{matching}/{name}"] for name in ("raw-error", "error"))
                assert (raw >= cut - 1e-6).all()
                differ += int((raw > cut + 1e-6).sum())
    assert differ, "under noise pixels leave [0, 1]"
    for metric in ("reconstruction_rmse", "cap_reconstruction", "cap_difference"):
        found = where(rows, metric=metric, matching="assignment", region=None)
        assert {row["pixels"] for row in found} == {"raw", "clipped"}
        assert all(math.isfinite(row[end]) for row in found for end in ("lo", "hi"))
    assert {r["pixels"] for r in where(rows, metric="cap_reconstruction", selected=True)} == {"clipped"}


def test_a_lead_has_the_strengths_of_spn_and_not_of_the_last_mechanism(
    finished: tuple[Results, list[Row], Path],
) -> None:
    _, rows, _ = finished
    found = where(rows, metric="cap_difference")
    assert found
    for row in found:
        place = {key: row[key] for key in ("attack", "attack_batch", "adversary", "pixels", "matching")}
        (own,) = where(rows, metric="cap_reconstruction", defence="spn", variant="main", **place)
        (other,) = where(rows, metric="cap_reconstruction", defence=row["against"], variant="main", **place)
        assert row["strengths"] == own["strengths"] == 1 and row["variant"] == "main"
        assert row["value"] == pytest.approx(own["value"] - other["value"])


def test_blind_labels_have_the_chance_of_their_matching(finished: tuple[Results, list[Row], Path]) -> None:
    results, rows, _ = finished
    place = {"metric": "label_accuracy", "labels": "gradient", "attack_batch": 2, "adversary": "naive"}
    by_index, by_set = (where(rows, matching=name, **place) for name in ("index", "assignment"))
    assert len(by_index) == len(by_set) == 5
    assert all(row["chance"] == pytest.approx(1 / 3) for row in by_index)
    blind = results.exposures[Place(attack=0, setting=0, batch=2)].judged["naive"].blind["assignment/labels"]
    assert all(row["chance"] == pytest.approx(blind.mean()) for row in by_set)
    (row,) = where(
        rows, metric="cap_membership", labels="gradient", matching="index", defence="none", attack_batch=2,
        adversary="naive",
    )  # fmt: skip
    assert row["chance"] == pytest.approx(results.accuracy(0, 0).value * 2 / 3)


def test_images_in_hand_are_found_without_a_reconstruction(finished: tuple[Results, list[Row], Path]) -> None:
    _, rows, _ = finished
    place = {"attack": "alignment", "network": "dlnet", "attack_batch": 1, "adversary": "adaptive", "variant": "main"}
    (auc,) = where(rows, metric="example_membership_auc", defence="none", **place)
    (tpr,) = where(rows, metric="example_membership_tpr", defence="none", **place)
    assert auc["value"] == 1.0 and auc["chance"] == 0.5 and auc["lo"] < 1.0
    assert tpr["value"] == 1.0 and tpr["fpr"] == 0.001 and 0 < tpr["chance"] < 0.05
    assert (auc["members"], auc["others"]) == (4, 4 * 10 + 4 * 3) and auc["n_users"] == 4
    noisy = {r["strength"]: r["value"] for r in where(rows, metric="example_membership_auc", defence="dp", **place)}
    assert noisy[0.5] < noisy[0.0001]
    traced = where(rows, metric="tracing_accuracy", defence="none", **place)
    assert {row["participants"] for row in traced} == {2, 4} and {row["value"] for row in traced} == {1.0}
    assert {row["chance"] for row in traced} == {0.5, 0.25}
    assert len(where(rows, metric="example_membership_auc")) == 2 * (6 + 5 + 6), "one row per place and adversary"


def test_labels_are_read_from_images_too(
    finished: tuple[Results, list[Row], Path], blobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, rows, root = finished
    monkeypatch.setenv("FEDPRINT_ROOT", str(root))
    monkeypatch.setenv("FEDPRINT_DATA", str(blobs))
    place = {"metric": "label_accuracy", "labels": "image", "defence": "none", "attack": "closed-form"}
    (row,) = where(rows, adversary="naive", **place)
    exposure = results.exposures[Place(attack=1, setting=0, batch=1)]
    images = torch.from_numpy(exposure.pictures["truth"]).float() / 255
    model = model_of(run.utility_cell(results.experiment, 1, 0))
    with torch.no_grad():
        right = model.scores(images).argmax(1).numpy() == exposure.labels
    assert row["value"] == pytest.approx(right.mean()), "perfect reconstructions are read as the true images are"
    assert row["matching"] == "assignment" and row["chance"] is not None


def test_without_a_mechanism_images_are_recovered_and_traced(finished: tuple[Results, list[Row], Path]) -> None:
    _, rows, _ = finished
    place = {"defence": "none", "adversary": "naive", "attack_batch": 1}
    error = {"metric": "reconstruction_rmse", "matching": "index", **place}
    (closed,) = where(rows, attack="closed-form", pixels="raw", **error)
    assert closed["value"] < 1e-3
    (matched,) = where(rows, attack="gradient-matching", pixels="clipped", **error)
    assert matched["value"] < 0.5 * matched["chance"]
    traced = where(rows, metric="tracing_accuracy", attack="closed-form", **place)
    assert {row["value"] for row in traced} == {1.0} and {row["level"] for row in traced} == {"image", "participant"}


def test_a_secret_head_does_not_hide_from_a_first_layer_that_is_fully_connected(
    finished: tuple[Results, list[Row], Path],
) -> None:
    """Its gradient is still a multiple of the input, whatever the loss (papers.md 4.2)."""
    _, rows, _ = finished
    place = {"defence": "spn", "attack": "closed-form", "matching": "index", "variant": "main"}
    for row in where(rows, metric="reconstruction_rmse", **place):
        if row.get("region") is None:
            assert row["value"] < 1e-3


def test_large_noise_costs_and_protects_more_than_little(finished: tuple[Results, list[Row], Path]) -> None:
    results, rows, _ = finished
    place = {"defence": "dp", "attack": "closed-form", "adversary": "naive", "matching": "index", "pixels": "raw"}
    error = {r["strength"]: r["value"] for r in where(rows, metric="reconstruction_rmse", **place)}
    assert error[0.5] > 3 * error[0.0001]
    ratio = {p.setting: exposure.ratios for p, exposure in results.exposures.items() if (p.attack, p.batch) == (0, 1)}
    assert (ratio[4] < ratio[5]).all() and np.isinf(ratio[0]).all()


def test_the_report_is_whole_and_reads_its_words_from_the_rows(finished: tuple[Results, list[Row], Path]) -> None:
    _, rows, root = finished
    folder = root / "reports" / "small"
    page = (folder / "index.html").read_text()
    for file in ("measurements.csv", "claims.csv", "tables/cap.csv", "tables/sought.csv", "tables/labels-image.csv",
                 "figures/ppc-batch-1.svg", "figures/tracing.png", "figures/searches.png"):  # fmt: skip
        assert (folder / file).is_file(), file
    assert any((folder / "figures").glob("regions-batch-*.png"))
    (row,) = where(
        rows, metric="cap_reconstruction", defence="spn", variant="main", attack="gradient-matching", attack_batch=1,
        adversary="adaptive", matching="assignment", pixels="raw",
    )  # fmt: skip
    assert f"{row['value']:.2f} [{row['lo']:.2f}, {row['hi']:.2f}]" in page
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["inversion"] == "small" and any("Fail before every adversary" in text for text in summary["verdict"])


def test_the_summary_names_every_attack(finished: tuple[Results, list[Row], Path]) -> None:
    from fedprint.reports.terminal import summary_table

    table = summary_table(finished[2] / "reports" / "small")
    assert table.row_count == 2 * 2 + 2


def test_the_attack_runs_where_no_truth_exists(small: InversionExperiment, tmp_path: Path) -> None:
    cell = of_cell(small, "dp")
    quick = cell.attack.model_copy(update={"evaluations": 15})
    expose(cell, tmp_path / "all")
    for name in ("observed", "public", "candidates"):
        shutil.move(tmp_path / "all" / name, tmp_path / "seen" / name)
    shutil.rmtree(tmp_path / "all")
    seen = tmp_path / "seen"
    seek(seen / "observed", seen / "public", seen / "candidates", seen / "adaptive")
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
    save_file(truth, tmp_path / "truth" / "images.safetensors")
    save_file({"x": x.flatten(0, 1)[order].contiguous()}, tmp_path / "queries" / "images.safetensors")
    found = torch.stack([torch.stack([x[0, 1], x[1, 0]]), torch.stack([x[1, 1], x[0, 0] * 0])])
    save_file({"images": found, "raw": 2 * found, "labels": y}, tmp_path / "found" / FOUND)
    save_file({"scores": torch.rand(5, 2)}, tmp_path / "found" / SCORES)
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
    for adversary, judged in found[0].judged.items():
        for key, array in judged.by_matching.items():
            np.testing.assert_array_equal(array, found[1].judged[adversary].by_matching[key])


def test_a_cells_name_changes_with_its_settings_only(small: InversionExperiment) -> None:
    cell = of_cell(small, "spn")
    assert cell_key(cell) == cell_key(cell.model_copy()) != cell_key(cell.model_copy(update={"victims": 3}))


def test_fast_and_assignments_reach_the_file(small: InversionExperiment, project: Project) -> None:
    found = load_inversion(project.root, "small", fast=True, assignments=["images=6", "attacks.0.batches=[4]"])
    assert found.fast and found.config.training.rounds == 2 and found.config.images == 6
    assert found.config.attacks[0].batches == (4,) and found.config.victims_of(4) == 2
    matching = found.config.attacks[0]
    assert [getattr(matching.attack_on(batch), "labels", None) for batch in (1, 4)] == ["row-sum", "counts"]
    assert found.digest() != small.digest()


def test_signed_features_get_rules_that_do_not_add_them_up() -> None:
    attack = AttackConfig.model_validate(
        {"network": {"name": "dlnet", "activation": "tanh"}, "attack": {"name": "gradient-matching"}}
    )
    assert [getattr(attack.attack_on(batch), "labels", None) for batch in (1, 4)] == ["sign", "bias"]


def test_too_few_images_for_strangers_are_refused(small: InversionExperiment, tmp_path: Path) -> None:
    cell = of_cell(small, "none").model_copy(update={"candidates": CandidatesConfig(public=10, pairs=400)})
    with pytest.raises(
        FedprintError, match=r"data.train: 60 images, but 4 .* 100 are strangers and 10 are public; raise"
    ):
        expose(cell, tmp_path)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"mechanisms": [SMALL["mechanisms"][1]]}, "add .defence: none"),
        ({"mechanisms": [{"defence": "none"}, {"defence": "none"}]}, "two are the same"),
        ({"mechanisms": [{"defence": "dp", "strengths": [1, 2]}]}, r"write \$strength"),
        ({"mechanisms": [{"defence": "noise"}]}, "mechanisms.0.defence"),
        ({"attacks": []}, "attacks: .*at least 1"),
        ({"image": 3}, "image: .*allowed keys: report, data, mechanisms"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(project: Project, changed: dict[str, Any], words: str) -> None:
    project.write("bad", {**SMALL, **changed})
    with pytest.raises(FedprintError, match=words) as caught:
        load_inversion(project.root, "bad")
    assert "\n" not in str(caught.value)


def test_the_experiments_of_the_spn_paper_have_its_grids() -> None:
    for name in ("spn-cifar10", "spn-mnist", "spn-fashion-mnist"):
        assert kind_named(CHECKOUT, name) == "inversion"
        for fast in (False, True):
            experiment = load_inversion(CHECKOUT, name, fast=fast)
            main = [m for m in experiment.config.mechanisms if m.variant == "main"]
            assert [m.defence for m in main] == ["none", "dp", "ppdl_0.05", "ppdl_0.3", "spn"]
            if not fast:
                assert [len(m.strengths) for m in main] == [1, 5, 5, 5, 8]
                assert experiment.config.attacks[0].batches == (1, 4, 8) and experiment.config.images == 16
        with pytest.raises(FedprintError, match="attacks gradients"):
            load_experiment(CHECKOUT, name)


def test_the_command_line_knows_the_kind(
    small: InversionExperiment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, shown in (
        (["config", "small"], f"# config hash {small.digest()}"),
        (["run", "small", "--dry-run"], "small: 12 federations and 17 sets of attacked gradients"),
    ):
        monkeypatch.setattr("sys.argv", ["fedprint", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code and shown in capsys.readouterr().out


def test_a_score_before_no_gradient_is_the_chance_of_a_cap_row(finished: tuple[Results, list[Row], Path]) -> None:
    results, rows, _ = finished
    place = Place(attack=0, setting=0, batch=1)
    blind = results.exposures[place].judged["naive"].blind["error"].mean()
    accuracy = results.accuracy(0, 0).value
    (row,) = where(
        rows, metric="cap_reconstruction", defence="none", attack="gradient-matching", attack_batch=1,
        adversary="naive", matching="index", pixels="raw",
    )  # fmt: skip
    assert math.isclose(row["chance"], accuracy * blind)
