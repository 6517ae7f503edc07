"""Attackers beside that of headlines, settings that fail, and what the truth says of each layer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_inversion import SMALL, expose_in, load, ran, settings_at, where
from tiny_project import make_project

from fedprint.attacks.inversion.closed_form import ClosedForm, Rows
from fedprint.defences.on_update import Noise
from fedprint.errors import FedprintError
from fedprint.evaluation.rows import Row
from fedprint.kinds.inversion.attack import RECONSTRUCTED, reconstruct
from fedprint.kinds.inversion.config import InversionExperiment
from fedprint.kinds.inversion.jobs import Cell, parts_of
from fedprint.kinds.inversion.page import layers_of, publish
from fedprint.kinds.inversion.results.collect import results_of
from fedprint.kinds.inversion.results.rows import all_rows
from fedprint.kinds.inversion.results.scene import Results
from fedprint.kinds.inversion.victims import LEVELS, Sent, distributions

MATCHING, CLOSED = SMALL["attacks"]
DIVERGED = "training diverged in round 3: the gradient of client-1 is not finite; lower training.lr"
PAPERS = {
    **MATCHING,
    "variant": "deep-leakage",
    "batches": [1],
    "adversaries": ["naive"],
    "attack": {"name": "gradient-matching", "evaluations": 20, "start": "pattern", "labels": "joint", "history": 100},
}


FAILING = {"accuracy, dlnet, dp 0.5": FedprintError(DIVERGED)}


@pytest.fixture(scope="module")
def beside(blobs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, list[Row], Path]:
    """The papers' attacker beside ours, and a federation that diverges."""
    root = tmp_path_factory.mktemp("variants")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPRINT_ROOT", str(root))
        patch.setenv("FEDPRINT_DATA", str(blobs))
        quick = {**MATCHING, "batches": [1], "attack": {"name": "gradient-matching", "evaluations": 20}}
        make_project(root).write("beside", {**SMALL, "attacks": [quick, PAPERS]})
        results = ran(load(root, "beside"), root / "stages", FAILING)
        rows = all_rows(results)
        publish(results, rows, root / "reports" / "beside")
    return results, rows, root / "reports" / "beside"


def test_another_attacker_has_rows_of_its_own(beside: tuple[Results, list[Row], Path]) -> None:
    results, rows, _ = beside
    theirs = where(rows, attack_variant="deep-leakage", metric="cap_reconstruction")
    assert {row["adversary"] for row in theirs} == {"naive"} and {row["variant"] for row in theirs} == {"main"}
    assert not any(row.get("selected") for row in theirs)
    ours = where(rows, attack_variant="main", metric="cap_reconstruction")
    assert {row["adversary"] for row in ours} == {"naive", "adaptive"}
    assert {row["variant"] for row in ours} == {"main", "16 bits"}
    (one,), (other,) = (
        where(found, defence="spn", variant="main", matching="index", pixels="raw", adversary="naive")
        for found in (ours, theirs)
    )
    assert one["value"] != other["value"]
    assert len(where(rows, metric="perturbation_ratio", defence="spn", variant="main", layers=None, region=None)) == 1
    assert {row["attack_variant"] for row in where(rows, attack="alignment")} == {None}
    assert len({place.attack for place in results.exposures}) == 2


def test_a_federation_that_diverges_is_named_and_loses_nothing_else(beside: tuple[Results, list[Row], Path]) -> None:
    results, rows, folder = beside
    assert results.failures == {"accuracy, dlnet, dp 0.5": DIVERGED}
    page = (folder / "index.html").read_text()
    assert "Missing: accuracy, dlnet, dp 0.5." in page and DIVERGED in page
    assert json.loads((folder / "summary.json").read_text())["failures"] == results.failures
    assert not where(rows, metric="cap_reconstruction", defence="dp")
    assert where(rows, metric="reconstruction_rmse", defence="dp", strength=0.5)
    assert "gradient-matching (deep-leakage), dlnet" in page


def test_a_report_needs_what_has_no_mechanism(small: InversionExperiment) -> None:
    with pytest.raises(FedprintError, match="no memory"):
        results_of(small, dict.fromkeys(parts_of(small), FedprintError("no memory")))


def test_the_layers_are_told_by_their_quantiles() -> None:
    clean = {"a": torch.linspace(0, 1, 101), "head": torch.ones(3)}
    victims = [Sent(params={}, clean=clean, sent={"a": 3 * clean["a"], "head": clean["head"]})] * 2
    found = distributions(victims)
    assert set(found) == {"a"}, "layers without a perturbation are left out"
    np.testing.assert_allclose(found["a"]["gradient"], LEVELS, atol=0.01)
    np.testing.assert_allclose(found["a"]["added"], 2 * np.array(LEVELS), atol=0.02)


def test_what_is_told_of_layers_belongs_to_the_truth(small: InversionExperiment, tmp_path: Path) -> None:
    expose_in(tmp_path, settings_at(small, "spn"))
    told = json.loads((tmp_path / "truth" / "perturbation.json").read_text())["layers"]
    assert "conv1.weight" in told and "conv1.bias" in told and not any(name.startswith("head") for name in told)
    assert {path.name for path in (tmp_path / "observed").iterdir()} == {"gradients.safetensors", "setting.json"}
    assert {path.name for path in (tmp_path / "public").iterdir()} == {"mechanism.json"}


def test_figures_show_the_secret_heads_layers(beside: tuple[Results, list[Row], Path]) -> None:
    results, _, folder = beside
    layers = layers_of(results)
    assert layers is not None and layers.strength == 0.5 and layers.gradients == 4
    place = Cell(attack=0, setting=2, batch=1)
    assert layers.quantiles == results.exposures[place].any.layers
    assert (folder / "figures" / "layers.png").is_file()


def test_the_naive_closed_form_solves_over_all_rows(small: InversionExperiment, tmp_path: Path) -> None:
    """Least squares need no knowledge of a mechanism; the best row alone is worse under noise."""
    errors = {}
    cell = settings_at(small, "dp", attack=1).model_copy(update={"defences": (Noise(sigma=0.001),)})
    expose_in(tmp_path, cell)
    truth = load_file(tmp_path / "truth" / "images.safetensors")["x"]
    ways: tuple[Rows, ...] = ("least-squares", "best")
    for rows in ways:
        reconstruct(ClosedForm(rows=rows), tmp_path / "observed", None, tmp_path / rows, 0)
        raw = load_file(tmp_path / rows / RECONSTRUCTED)["raw"]
        errors[rows] = float(((raw - truth).flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)).mean())
    assert errors["least-squares"] < 0.9 * errors["best"]
