"""Files, names and commands of inversion experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_inversion import SMALL, expose_in, load, settings_at
from tiny_project import CHECKOUT, Project

from fedprint.errors import FedprintError
from fedprint.kinds.inversion.config import CandidatesConfig, InversionExperiment
from fedprint.kinds.inversion.jobs import parts_of
from fedprint.kinds.inversion.kind import InversionKind
from fedprint.kinds.inversion.results.collect import check_images
from fedprint.kinds.registry import kind_of
from fedprint.kinds.requests import request_for


def test_sections_have_digests_of_their_own(small: InversionExperiment) -> None:
    settings = settings_at(small, "spn")
    more = settings.model_copy(update={"victims": 3})
    assert settings.digest() == settings.model_copy().digest() != more.digest()
    assert settings.section_digest("network", "candidates.pairs") == more.section_digest("network", "candidates.pairs")
    assert settings.section_digest("victims") != more.section_digest("victims")


def test_fast_and_assignments_reach_the_file(small: InversionExperiment, project: Project) -> None:
    found = load(project.root, "small", fast=True, assignments=["images=6", "attacks.0.batches=[4]"])
    assert found.fast and found.config.training.rounds == 2 and found.config.images == 6
    assert found.config.attacks[0].batches == (4,) and found.config.victims_of(0, 4) == 2
    matching = found.config.attacks[0]
    assert [getattr(matching.attack_on(batch), "labels", None) for batch in (1, 4)] == ["row-sum", "counts"]
    assert found.digest() != small.digest()


def test_a_variant_may_have_fewer_victims_and_traces_among_fewer(project: Project) -> None:
    quick = matching(batches=[1, 2])
    project.write("some", {**SMALL, "victims": 3, "attacks": [quick, {**quick, "variant": "b", "victims": 2}]})
    config = load(project.root, "some").config
    assert [config.victims_of(attack, 2) for attack in (0, 1)] == [3, 2]
    assert [config.victims_of(attack, 1) for attack in (0, 1)] == [4, 4], "as many as there are images"
    assert [config.traced_among(attack) for attack in (0, 1)] == [3, 2], "headlines do not suffer from a variant"


def test_too_few_images_for_strangers_are_refused(small: InversionExperiment, tmp_path: Path) -> None:
    cell = settings_at(small, "none").model_copy(update={"candidates": CandidatesConfig(public=10, pairs=400)})
    with pytest.raises(
        FedprintError, match=r"data.train: 60 images, but 4 .* 100 are strangers and 10 are public; raise"
    ):
        expose_in(tmp_path, cell)


def matching(labels: str = "row-sum", **keys: Any) -> dict[str, Any]:
    return {"network": {"name": "dlnet"}, "attack": {"name": "gradient-matching", "labels": labels}, **keys}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"mechanisms": [SMALL["mechanisms"][1]]}, "add .defence: none"),
        ({"mechanisms": [{"defence": "none"}, {"defence": "none"}]}, "two are the same"),
        ({"mechanisms": [{"defence": "dp", "strengths": [1, 2]}]}, r"write \$strength"),
        ({"mechanisms": [{"defence": "noise"}]}, "mechanisms.0.defence"),
        ({"attacks": []}, "attacks: .*at least 1"),
        (
            {"attacks": [{"network": {"name": "mlp"}, "attack": {"name": "closed-form"}, "batches": [1, 2]}]},
            r"batches: closed-form .* got \[1, 2\]; write \[1\]",
        ),
        ({"attacks": [{"network": {"name": "dlnet"}, "attack": {"name": "closed-form"}}]}, "dlnet has not; choose mlp"),
        ({"attacks": [matching(labels="known")]}, "given no labels; choose row-sum or joint"),
        ({"attacks": [matching(labels="sign", batches=[1, 4])]}, r"sign is for one image, but batches are \[1, 4\]"),
        ({"attacks": [matching(labels="counts", network={"name": "dlnet", "activation": "tanh"})]}, "with tanh signs"),
        ({"attacks": [matching(), matching()]}, "has one twice; give it a variant"),
        ({"attacks": [matching(variant="deep-leakage")]}, "the first is variant 'deep-leakage'"),
        (
            {"attacks": [matching(), matching(variant="b", network={"name": "dlnet", "channels": 3})]},
            "of one name differ",
        ),
        (
            {"candidates": {"public": 50, "pairs": 40}},
            "data.train: 60 images, but 4 are attacked, 10 are strangers and 50 are public; raise",
        ),
        ({"attacks": [matching(victims=3)]}, "victims: headlines are of all victims' gradients .*; give it a variant"),
        (
            {"attacks": [matching(), matching(variant="b", victims=3, local={"steps": 1, "batch_size": 1, "lr": 1})]},
            "victims: updates of local steps are set beside the gradients of the same victims; leave it out",
        ),
        ({"image": 3}, "image: .*allowed keys: report, data, mechanisms"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(project: Project, changed: dict[str, Any], words: str) -> None:
    project.write("bad", {**SMALL, **changed})
    with pytest.raises(FedprintError, match=words) as caught:
        load(project.root, "bad")
    assert "\n" not in str(caught.value)


def test_too_few_images_in_the_folder_are_noticed_before_anything_runs(
    project: Project, blobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder has 80 training images, whatever the file asks for."""
    monkeypatch.setenv("FEDPRINT_DATA", str(blobs))
    project.write("few", {**SMALL, "data": {"name": "blobs", "train": 500}, "candidates": {"public": 70, "pairs": 40}})
    with pytest.raises(FedprintError, match=r"data.train: 80 images, but 4 are attacked, 10 are strangers"):
        check_images(load(project.root, "few"))


def test_the_experiments_of_the_spn_paper_have_its_grids() -> None:
    for name in ("spn-cifar10", "spn-cifar100", "spn-svhn", "spn-mnist", "spn-fashion-mnist"):
        assert kind_of(request_for(CHECKOUT, name).values).name == "inversion"
        for fast in (False, True):
            experiment = load(CHECKOUT, name, fast=fast)
            main = [m for m in experiment.config.mechanisms if m.variant == "main"]
            assert [m.defence for m in main] == ["none", "dp", "ppdl_0.05", "ppdl_0.3", "spn"]
            if not fast:
                few = name in ("spn-fashion-mnist", "spn-cifar10")  # to save hours
                assert [len(m.strengths) for m in main] == ([1, 3, 3, 3, 3] if few else [1, 5, 5, 5, 8])
                config = experiment.config
                assert config.attacks[0].batches == (1, 4, 8) and config.images == 16
                assert config.traced_among(0) == 10, "as the papers trace, in every batch"
                assert 10 * config.candidates.asked(8)[1] >= 2000, "an FPR of .1 % needs non-members"
                assert config.training.seeds == 3
                (priors,) = [one for one in config.attacks if one.variant == "cosine-tv"]
                assert priors.attack.distance == "cosine" and priors.attack.tv > 0
            papers = [one for one in experiment.config.attacks if one.variant == "deep-leakage"]
            assert len(papers) == 1 and (fast or papers[0].batches == (1, 4, 8))


def test_a_dry_run_counts_jobs_and_measures_a_little(small: InversionExperiment) -> None:
    assert len(parts_of(small)) == 12 + 2 * 17 - 3, "without a mechanism all adversaries are one"
    costs = InversionKind().costs(small, "cpu")
    assert costs.jobs == 43 and 10 < costs.seconds < 3600 and costs.memory > 2**29 and costs.disk > 10_000
    assert costs.details["federations"] == "12"
