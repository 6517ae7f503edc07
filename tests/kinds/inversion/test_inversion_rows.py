"""What a finished inversion experiment says: rows, scores, pages."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_inversion import where

from fedprint.evaluation.rows import Row
from fedprint.kinds.images import read_model
from fedprint.kinds.inversion.jobs import Cell, Training, accuracy_settings, images_of, parts_of
from fedprint.kinds.inversion.results.outcome import Exposure
from fedprint.kinds.inversion.results.rows import all_rows
from fedprint.kinds.inversion.results.scene import Results
from fedprint.kinds.inversion.utility import trained_model


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
    found = where(rows, metric="cap_difference", defence="spn", variant="main")
    assert found
    for row in found:
        place = {key: row[key] for key in ("attack", "attack_batch", "adversary", "pixels", "matching")}
        (own,) = where(rows, metric="cap_reconstruction", defence="spn", variant="main", **place)
        (other,) = where(rows, metric="cap_reconstruction", defence=row["against"], variant="main", **place)
        assert row["strengths"] == own["strengths"] == 1 and row["variant"] == "main"
        assert row["value"] == pytest.approx(own["value"] - other["value"])


def test_an_ablation_is_set_against_its_mechanism_image_by_image(finished: tuple[Results, list[Row], Path]) -> None:
    results, rows, _ = finished
    names = [(s.defence, s.variant) for s in results.experiment.settings]
    one, other = (names.index(("spn", variant)) for variant in ("16 bits", "main"))
    place = {"variant": "16 bits", "adversary": "adaptive", "attack": "gradient-matching", "pixels": "clipped"}
    (row,) = where(rows, metric="rmse_difference", **place)
    errors = [
        results.exposures[Cell(attack=0, setting=i, batch=1)].judged["adaptive"].by_matching["assignment/error"]
        for i in (one, other)
    ]
    assert row["value"] == pytest.approx((errors[0] - errors[1]).mean()) and row["against"] == "spn"
    assert row["lo"] <= row["value"] <= row["hi"] and row["strength"] == 0.5 and row["n_questions"] == 4
    (cap,) = where(rows, metric="cap_difference", **place)
    caps = [
        where(rows, metric="cap_reconstruction", defence="spn", matching="assignment", **{**place, "variant": variant})
        for variant in ("16 bits", "main")
    ]
    own, main = (next(r for r in found if r["attack_batch"] == 1) for found in caps)
    assert cap["value"] == pytest.approx(own["value"] - main["value"])


def test_every_batch_is_traced_among_as_many_participants(finished: tuple[Results, list[Row], Path]) -> None:
    results, rows, _ = finished
    assert results.experiment.config.traced_among(0) == 2, "batches of 2 have two victims, batches of 1 have four"
    caps = where(rows, metric="cap_tracing", level="participant", attack="gradient-matching")
    assert {(row["attack_batch"], row["participants"]) for row in caps} == {(1, 2), (2, 2)}
    for batch in (1, 2):
        (row,) = where(caps, defence="none", attack_batch=batch, adversary="naive")
        assert row["chance"] == pytest.approx(results.accuracy(0, 0).value / 2), "a blind adversary's is the same"
    alone = where(rows, metric="tracing_accuracy", attack="gradient-matching", level="participant", attack_batch=1)
    assert {row["participants"] for row in alone} == {2, 4}


def test_a_strength_of_zero_perturbs_nothing_and_has_no_ratio(finished: tuple[Results, list[Row], Path]) -> None:
    results, _, _ = finished
    silent = [i for i, s in enumerate(results.experiment.settings) if (s.defence, s.strength) == ("dp", 0.0001)]
    untouched = {
        place: Exposure(
            outcomes={
                name: replace(found, perturbation=[{"ratio": None, "layers": {}}] * len(found.perturbation))
                for name, found in one.outcomes.items()
            }
        )
        for place, one in results.exposures.items()
        if place.setting in silent
    }
    rows = all_rows(replace(results, exposures={**results.exposures, **untouched}))
    ratios = [row for row in where(rows, metric="perturbation_ratio", defence="dp") if not row.get("region")]
    assert ratios and {row["strength"] for row in ratios} == {0.5}
    regions = where(rows, metric="reconstruction_rmse", defence="dp", pixels="raw", matching="assignment")
    assert {row.get("region") for row in regions} & {"white", "red"}, "images without a perturbation have a region"
    assert all(math.isfinite(row["value"]) for row in where(rows, metric="perturbation_ratio"))


def test_a_setting_that_failed_leaves_the_rest(finished: tuple[Results, list[Row], Path]) -> None:
    results, _, _ = finished
    diverged = next(i for i, s in enumerate(results.experiment.settings) if (s.defence, s.strength) == ("dp", 0.5))
    hits = {key: found for key, found in results.hits.items() if key[1] != diverged}
    gone = Cell(attack=1, setting=diverged, batch=1)
    exposures = {place: one for place, one in results.exposures.items() if place != gone}
    rows = all_rows(replace(results, hits=hits, exposures=exposures))
    assert {row["strength"] for row in where(rows, metric="accuracy", defence="dp")} == {0.0001}
    assert not where(rows, metric="cap_reconstruction", defence="dp"), "no mean over a part of the grid"
    assert where(rows, metric="cap_reconstruction", defence="spn") and where(
        rows, metric="label_accuracy", strength=0.5
    )
    assert where(rows, metric="reconstruction_rmse", defence="dp", attack="closed-form", strength=None)


def test_blind_labels_have_the_chance_of_their_matching(finished: tuple[Results, list[Row], Path]) -> None:
    results, rows, _ = finished
    place = {"metric": "label_accuracy", "labels": "gradient", "attack_batch": 2, "adversary": "naive"}
    by_index, by_set = (where(rows, matching=name, **place) for name in ("index", "assignment"))
    assert len(by_index) == len(by_set) == 5
    assert all(row["chance"] == pytest.approx(1 / 3) for row in by_index)
    blind = results.exposures[Cell(attack=0, setting=0, batch=2)].judged["naive"].blind["assignment/labels"]
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
    for name in ("alignment", "loss"):
        found = where(rows, metric="example_membership_auc", attack=name)
        assert len(found) == 2 * (6 + 5 + 6), "one row per place and adversary"
    (loss,) = where(rows, metric="example_membership_tpr", defence="none", **{**place, "attack": "loss"})
    assert (loss["members"], loss["others"], loss["fpr"]) == (4, 52, 0.001)


def test_labels_are_read_from_images_too(
    finished: tuple[Results, list[Row], Path], blobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, rows, root = finished
    monkeypatch.setenv("FEDPRINT_ROOT", str(root))
    monkeypatch.setenv("FEDPRINT_DATA", str(blobs))
    place = {"metric": "label_accuracy", "labels": "image", "defence": "none", "attack": "closed-form"}
    (row,) = where(rows, adversary="naive", **place)
    exposure = results.exposures[Cell(attack=1, setting=0, batch=1)]
    images = torch.from_numpy(exposure.any.truth).float() / 255
    number = parts_of(results.experiment).index(Training(attack=1, setting=0, run=0))
    settings = accuracy_settings(results.experiment, 1, 0)
    params = read_model(root / "stages" / str(number) / "model")
    model = trained_model(settings, params, images_of(settings.data, settings.seed))
    with torch.no_grad():
        right = model.scores(images).argmax(1).numpy() == exposure.any.labels
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
    assert summary["inversion"] == "small" and "images without a defence, at test accuracy" in summary["verdict"][0]
    assert any("fail against every adversary" in text for text in summary["verdict"])


def test_the_summary_names_every_attack(finished: tuple[Results, list[Row], Path]) -> None:
    from fedprint.reports.pages.terminal import summary_table

    table = summary_table(finished[2] / "reports" / "small")
    assert table.row_count == 2 * 2 + 2


def test_a_score_before_no_gradient_is_the_chance_of_a_cap_row(finished: tuple[Results, list[Row], Path]) -> None:
    results, rows, _ = finished
    place = Cell(attack=0, setting=0, batch=1)
    blind = results.exposures[place].judged["naive"].blind["error"].mean()
    accuracy = results.accuracy(0, 0).value
    (row,) = where(
        rows, metric="cap_reconstruction", defence="none", attack="gradient-matching", attack_batch=1,
        adversary="naive", matching="index", pixels="raw",
    )  # fmt: skip
    assert math.isclose(row["chance"], accuracy * blind)


def test_every_victim_counts_as_a_seed_and_an_accuracy_has_its_federations(
    finished: tuple[Results, list[Row], Path],
) -> None:
    results, rows, _ = finished
    federations = results.experiment.config.training.seeds
    assert {row["n_seeds"] for row in where(rows, metric="accuracy")} == {federations}
    errors = where(rows, metric="reconstruction_rmse")
    assert max(row["n_seeds"] for row in errors) > 1
    assert all(row["n_seeds"] == row["n_users"] for row in errors)
    assert {row["n_seeds"] for row in where(rows, metric="label_accuracy", labels="image")} == {1}
    caps = where(rows, metric="cap_reconstruction")
    assert caps and all(row["n_seeds"] == min(row["n_users"], federations) for row in caps)
