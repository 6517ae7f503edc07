"""Attacks on updates of several local steps: what is sent, what the server knows, and what comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file
from tiny_inversion import SMALL, expose_in, load, ran, settings_at, where
from tiny_project import Project

from fedprint.attacks.inversion.matching import GradientMatching
from fedprint.attacks.inversion.objectives import Knowledge
from fedprint.errors import FedprintError
from fedprint.kinds.inversion.attack import RECONSTRUCTED, observed_victims, reconstruct
from fedprint.kinds.inversion.config import InversionExperiment, LocalSgd
from fedprint.kinds.inversion.page import publish
from fedprint.kinds.inversion.results.rows import all_rows
from fedprint.kinds.inversion.settings import ExposureSettings
from fedprint.reports.numbers.inversion import MAIN, of_variant
from fedprint.reports.tables.inversion_details import ablation_table

Secret = Literal["ignore", "fit"]
KNOWN = Knowledge(secret_head=True)
LOCAL = LocalSgd(steps=3, batch_size=1, lr=0.2)
MATCHING = SMALL["attacks"][0]
VARIANT = {**MATCHING, "batches": [1], "variant": "local-steps", "local": LOCAL.model_dump(), "adversaries": ["naive"],
           "mechanisms": ["none"]}  # fmt: skip


def errors(folder: Path, name: str) -> torch.Tensor:
    truth = load_file(folder / "truth" / "images.safetensors")["x"]
    images = load_file(folder / name / RECONSTRUCTED)["images"]
    return (images - truth).flatten(2).norm(dim=2) / truth.flatten(2).norm(dim=2)


def after(cell: ExposureSettings, local: LocalSgd | None, **changes: Any) -> ExposureSettings:
    return cell.model_copy(update={"local": local, **changes})


def test_an_image_comes_back_from_an_update_of_several_steps_and_not_when_it_is_read_as_a_gradient(
    small: InversionExperiment, tmp_path: Path
) -> None:
    expose_in(tmp_path, after(settings_at(small, "none"), LOCAL, victims=2))
    attack, setting = GradientMatching(evaluations=200), tmp_path / "observed" / "setting.json"
    reconstruct(attack, tmp_path / "observed", None, tmp_path / "unrolled", 0)
    told = json.loads(setting.read_text())
    assert told["local"] == {"steps": 3, "batch_size": 1, "lr": 0.2}
    setting.write_text(json.dumps({**told, "local": None}))
    reconstruct(attack, tmp_path / "observed", None, tmp_path / "as-gradient", 0)
    unrolled, single = errors(tmp_path, "unrolled"), errors(tmp_path, "as-gradient")
    assert float(unrolled.max()) < 0.1
    assert float(single.min()) > 3 * float(unrolled.max())


def test_a_single_step_on_all_images_sends_their_gradient(small: InversionExperiment, tmp_path: Path) -> None:
    for defence in ("none", "spn", "ppdl_0.3", "dp"):
        cell = settings_at(small, defence, batch=2)
        sent = []
        for name, local in (("gradient", None), ("step", LocalSgd(steps=1, batch_size=2, lr=0.5))):
            expose_in(tmp_path / defence / name, after(cell, local))
            sent.append(load_file(tmp_path / defence / name / "observed" / "gradients.safetensors"))
        assert all(torch.allclose(sent[0][key], sent[1][key], rtol=1e-3, atol=1e-5) for key in sent[0])


def test_each_victim_shuffles_and_the_adversary_assumes_an_order(small: InversionExperiment, tmp_path: Path) -> None:
    cell = after(settings_at(small, "none", batch=2), LocalSgd(steps=3, batch_size=1, lr=0.5))
    expose_in(tmp_path, cell)
    victims = observed_victims(tmp_path / "observed")
    assert victims.steps is not None and victims.steps.batches == ((0,), (1,), (0,)) and victims.steps.lr == 0.5
    told = (tmp_path / "observed" / "setting.json").read_text()
    assert "order" not in told and "batches" not in told and "seed" not in told


@pytest.mark.parametrize("defence", ["ppdl_0.3", "dp", "spn"])
def test_every_mechanism_acts_on_updates(small: InversionExperiment, tmp_path: Path, defence: str) -> None:
    expose_in(tmp_path, after(settings_at(small, defence), LOCAL, victims=1))
    quick = GradientMatching(evaluations=5)
    reconstruct(quick, tmp_path / "observed", tmp_path / "public", tmp_path / "adaptive", 0)
    assert load_file(tmp_path / "adaptive" / RECONSTRUCTED)["images"].isfinite().all()
    told = json.loads((tmp_path / "truth" / "perturbation.json").read_text())
    assert all(one["ratio"] is not None for one in told["victims"])


def test_a_private_head_that_trains_along_is_fitted_step_by_step(small: InversionExperiment, tmp_path: Path) -> None:
    expose_in(tmp_path, after(settings_at(small, "spn"), LocalSgd(steps=2, batch_size=1, lr=0.2), victims=2))
    victims, truth = observed_victims(tmp_path / "observed"), load_file(tmp_path / "truth" / "images.safetensors")["x"]
    ways: tuple[Secret, ...] = ("ignore", "fit")
    found = [GradientMatching(evaluations=200, secret=secret).run(victims, KNOWN, seed=0).images for secret in ways]
    ignored, fitted = ((images - truth).flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1) for images in found)
    assert float(fitted.mean()) < 0.7 * float(ignored.mean()), (fitted, ignored)


def test_rows_of_updates_stand_apart_from_those_of_gradients(
    project: Project, blobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPRINT_DATA", str(blobs))
    quick = {"name": "gradient-matching", "evaluations": 10}
    attacks = [{**one, "attack": quick, "batches": [1]} for one in (MATCHING, VARIANT)]
    project.write("updates", {**SMALL, "attacks": attacks, "mechanisms": SMALL["mechanisms"][:2]})
    results = ran(load(project.root, "updates"), project.root / "stages")
    rows = all_rows(results)
    theirs = where(rows, local_steps=3)
    assert {row["defence"] for row in theirs} == {"none"}, "the mechanisms that the variant names"
    assert not any(row.get("selected") for row in theirs)
    assert {row["attack_variant"] for row in theirs} == {"local-steps", None}
    assert not where(of_variant(rows, MAIN), local_steps=3)
    (lead,) = where(theirs, metric="cap_difference", against="gradient", defence="none", pixels="clipped")
    caps = where(rows, metric="cap_reconstruction", defence="none", pixels="clipped", matching="assignment")
    of = {row["attack_variant"]: row["value"] for row in caps if row["adversary"] == "naive"}
    assert lead["value"] == pytest.approx(of["local-steps"] - of["main"])
    (line,) = ablation_table(rows).lines
    assert line.labels[0] == "gradient-matching, 3 local steps"
    assert line.cells[2].startswith(f"{lead['value']:.3f}")
    folder = project.root / "reports" / "updates"
    publish(results, rows, folder)
    assert "local-steps" in (folder / "index.html").read_text()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"variant": "main"},
            "local: headlines are of all victims' gradients under every mechanism; give it a variant",
        ),
        ({"variant": "main", "local": None}, "mechanisms: headlines are of all victims' gradients"),
        ({"batches": [4]}, "local: 3 steps of 1 reach 3 of 4 images; raise local.steps or local.batch_size"),
        ({"mechanisms": ["ppdl_0.05"]}, r"'gradient-matching \(local-steps\)' is to attack \['ppdl_0.05'\]; the grid"),
        ({"local": {"steps": 2}}, "local.batch_size"),
        (
            {"network": SMALL["attacks"][1]["network"], "attack": {"name": "closed-form"}},
            "local: closed-form solves single gradients; choose gradient-matching",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(project: Project, changed: dict[str, Any], words: str) -> None:
    project.write("bad", {**SMALL, "attacks": [*SMALL["attacks"], {**VARIANT, **changed}]})
    with pytest.raises(FedprintError, match=words) as caught:
        load(project.root, "bad")
    assert "\n" not in str(caught.value)
