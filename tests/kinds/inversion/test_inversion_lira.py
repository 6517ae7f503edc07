"""Membership of examples by likelihood ratios: whom it asks about, what it finds, and who knows the mechanism."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score
from tiny_inversion import SMALL, expose_in, load, ran, settings_at, where
from tiny_project import Project

from fedprint.attacks.inversion.victims import Victims
from fedprint.errors import FedprintError
from fedprint.kinds.inversion.attack import SCORES, client_of, observed_victims, read_mechanism, seek
from fedprint.kinds.inversion.config import CandidatesConfig, InversionExperiment
from fedprint.kinds.inversion.page import publish
from fedprint.kinds.inversion.results.judge import owners_of
from fedprint.kinds.inversion.results.rows import all_rows
from fedprint.kinds.inversion.settings import ExposureSettings
from fedprint.rng import torch_rng
from fedprint.types import Params

ASKED = {"public": 12, "pairs": 48, "lira": 8, "shadows": 6}
QUICK = {"name": "gradient-matching", "evaluations": 10}


def exposed(small: InversionExperiment, defence: str, folder: Path, **changes: Any) -> Path:
    """Expose six gradients of three images each, in which eight strangers and all members are asked about."""
    few = {"batch": 3, "victims": 6, "candidates": CandidatesConfig.model_validate(ASKED)}
    cell: ExposureSettings = settings_at(small, defence, batch=2).model_copy(update={**few, **changes})
    expose_in(folder, cell)
    return folder


def scores(folder: Path, adversary: str, seed: int = 0) -> dict[str, torch.Tensor]:
    public = folder / "public" if adversary == "adaptive" else None
    seek(folder / "observed", public, folder / "candidates", 6, folder / adversary, seed)
    return load_file(folder / adversary / SCORES)


def members(folder: Path) -> np.ndarray:
    truth = load_file(folder / "truth" / "images.safetensors")
    searched = truth["asked"].shape[1]
    own = owners_of(truth["candidates"].numpy(), searched, truth["y"].shape[1])
    return own[truth["asked"].numpy()] == np.arange(searched)


def sent_by(folder: Path, victims: Victims, public: bool) -> Params:
    client = client_of(victims, read_mechanism(folder / "public") if public else ())
    x, y = torch.rand(3, *victims.shape, generator=torch_rng(0)), torch.tensor([0, 1, 2])
    return {name: rows[0] for name, rows in client(victims.params, x[None], y[None], [torch_rng(1)]).items()}


@pytest.mark.parametrize(("defence", "adversary"), [("none", "naive"), ("ppdl_0.3", "adaptive"), ("spn", "adaptive")])
def test_members_are_found_above_chance(
    small: InversionExperiment, tmp_path: Path, defence: str, adversary: str
) -> None:
    found, truth = scores(exposed(small, defence, tmp_path), adversary), members(tmp_path)
    assert found["lira"].shape == truth.shape == (3 + 8, 6) and (truth.sum(0) == 3).all()
    assert found["loss"].shape == found["scores"].shape == (6 * 3 + 8, 6), "the loss is asked of every pair"
    assert roc_auc_score(truth.ravel(), found["lira"].numpy().ravel()) > 0.75
    turned = roc_auc_score(truth.ravel(), found["lira"].roll(1, 1).flip(0).numpy().ravel())
    assert turned < 0.7, "held against the truth of others there is nothing to find"


def test_candidates_are_looked_for_in_the_first_gradients(small: InversionExperiment, tmp_path: Path) -> None:
    candidates = CandidatesConfig.model_validate({**ASKED, "gradients": 4})
    folder = exposed(small, "none", tmp_path, candidates=candidates)
    found, truth = scores(folder, "naive"), members(folder)
    strangers = candidates.strangers(6)
    assert strangers == -(-candidates.pairs // 4), "as many pairs as without a limit"
    assert found["scores"].shape == found["loss"].shape == (4 * 3 + strangers, 4)
    assert found["lira"].shape == truth.shape and (truth.sum(0) == 3).all()
    assert roc_auc_score(truth.ravel(), found["lira"].numpy().ravel()) > 0.75
    assert len(load_file(folder / "observed" / "gradients.safetensors")["sent.head.weight"]) == 6, "all are sent"


def test_the_naive_adversary_ignores_the_mechanism_and_the_adaptive_one_follows_what_is_published(
    small: InversionExperiment, tmp_path: Path
) -> None:
    folder = exposed(small, "dp", tmp_path)
    naive, adaptive = (scores(folder, name)["lira"] for name in ("naive", "adaptive"))
    assert not torch.equal(naive, adaptive)
    told = folder / "public" / "mechanism.json"
    told.write_text(json.dumps([{**one, "sigma": 0.1} for one in json.loads(told.read_text())]))
    assert not torch.equal(adaptive, scores(folder, "adaptive")["lira"]), "it believes what is published, not the truth"
    shutil.rmtree(folder / "public")
    shutil.rmtree(folder / "truth")
    assert torch.equal(naive, scores(folder, "naive")["lira"])


def test_shadows_of_the_adaptive_adversary_are_defended_as_the_mechanism_says(
    small: InversionExperiment, tmp_path: Path
) -> None:
    for defence in ("ppdl_0.3", "spn", "dp"):
        folder = exposed(small, defence, tmp_path / defence)
        victim = observed_victims(folder / "observed").of_one_model(0)
        plain, known = (sent_by(folder, victim, public) for public in (False, True))
        apart = {name: not torch.allclose(plain[name], known[name]) for name in plain}
        if defence == "spn":
            assert not apart["head.weight"] and apart["conv1.weight"], "a secret head leaves the public one alone"
        if defence == "ppdl_0.3":
            sent = {name: int((tensor != 0).sum()) for name, tensor in known.items()}
            assert all(sent[name] <= max(1, round(0.3 * tensor.numel())) for name, tensor in plain.items())
        if defence == "dp":
            noise = torch.cat([(known[name] - plain[name]).flatten() for name in plain])
            assert float(noise.std()) == pytest.approx(0.5, rel=0.1)


def test_rows_of_the_drawn_pairs_stand_beside_those_of_all(
    project: Project, blobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPRINT_DATA", str(blobs))
    main = {**SMALL["attacks"][0], "attack": QUICK, "batches": [2]}
    attacks = [main, {**main, "variant": "again", "adversaries": ["naive"]}]
    candidates = {**ASKED, "lira": 1, "lira_strangers": 5, "pairs": 10, "shadows": 2}
    project.write("asked", {**SMALL, "attacks": attacks, "mechanisms": SMALL["mechanisms"][:2],
                            "candidates": candidates, "training": {**SMALL["training"], "seeds": 2}})  # fmt: skip
    results = ran(load(project.root, "asked"), project.root / "stages")
    assert {place.attack: one.judged["naive"].candidates.asked.size for place, one in results.exposures.items()} == {
        0: 2 * (1 + 5),
        1: 0,
    }, "another attack on the same gradients asks nothing again"
    rows = all_rows(results)
    assert results.hits[0, 0].shape == (2, 40) and (results.hits[0, 0][0] != results.hits[0, 0][1]).any()
    (accuracy,) = where(rows, metric="accuracy", defence="none")
    assert (accuracy["runs"], accuracy["n_questions"]) == (2, 40)
    assert accuracy["value"] == pytest.approx(results.hits[0, 0].mean())
    drawn = where(rows, pairs="drawn", metric="example_membership_tpr")
    assert {row["attack"] for row in drawn} == {"alignment", "lira", "loss"}
    assert {row["adversary"] for row in drawn} == {"naive", "adaptive"} and len(drawn) == 3 * 2 * 2
    for row in drawn:
        assert (row["members"], row["others"], row["chance"]) == (2, 10, 1 / 11) and row["fpr_bound"] > 0.2
    (all_pairs,) = where(rows, metric="example_membership_auc", attack="alignment", pairs=None, defence="none",
                         adversary="naive")  # fmt: skip
    assert all_pairs["members"] == 4 and all_pairs["others"] == 2 * 9 - 4
    (loss,) = where(rows, metric="example_membership_auc", attack="loss", pairs=None, defence="none",
                    adversary="naive")  # fmt: skip
    assert (loss["members"], loss["others"]) == (4, 14) and loss["value"] != all_pairs["value"]
    folder = project.root / "reports" / "asked"
    publish(results, rows, folder)
    assert "lira (drawn)" in (folder / "tables" / "sought.csv").read_text()


def test_single_images_may_be_left_out() -> None:
    some = CandidatesConfig(lira=5, lira_batches=(8,))
    assert [some.asked(batch) for batch in (1, 8)] == [(0, 0), (5, 5)]
    assert CandidatesConfig(lira=5, lira_strangers=9).asked(1) == (5, 9)


@pytest.mark.parametrize(
    ("candidates", "words"),
    [
        ({"public": 10, "pairs": 40, "lira": 11}, "candidates.lira: 11 strangers, but there are 10; raise cand"),
        ({"public": 3, "pairs": 40, "lira": 2}, "candidates.public: 3, but lira takes 4 for batches of 2; raise it"),
    ],
)
def test_too_few_to_ask_are_refused(project: Project, candidates: dict[str, int], words: str) -> None:
    project.write("bad", {**SMALL, "candidates": candidates})
    with pytest.raises(FedprintError, match=words):
        load(project.root, "bad")
