"""The spn paper's conclusions judged on rows chosen by the test: each can hold, fail, stay undecided or untested."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedprint.evaluation.inversion.capability import calibration
from fedprint.evaluation.rows import Row
from fedprint.reports.claims.inversion import judge_inversion, sentences
from fedprint.reports.claims.verdict import Verdict
from fedprint.reports.figures.inversion import bands, searches
from fedprint.reports.numbers.inversion import InversionHead, Other, Trail
from fedprint.reports.tables.inversion import cap_table, published_cap
from fedprint.reports.tables.inversion_details import candidate_table, tracing_table

HEAD = InversionHead(
    name="test", title="Test", dataset="cifar10", adversaries=("naive", "adaptive"),
    attacks=(("gradient-matching", "dlnet", (1,)),), images=16, strengths={"dp": 2, "spn": 2}, fast=False,
    config_hash="0",
)  # fmt: skip


def row(metric: str, value: float, half: float = 0.05, **keys: Any) -> Row:
    place: Mapping[str, Any] = {
        "attack": "gradient-matching", "network": "dlnet", "attack_batch": 1, "adversary": "naive", "variant": "main",
        "matching": "assignment", "pixels": "raw", "labels": "gradient", "strength": 0.1, "chance": 0.5,
        "n_questions": 16, "n_users": 16, "n_seeds": 3,
    }  # fmt: skip
    return {**place, "metric": metric, "value": value, "lo": value - half, "hi": value + half, **keys}


def verdicts(rows: Sequence[Row], claim: str) -> dict[str, Verdict]:
    return {v.member: v for v in judge_inversion(HEAD, rows) if v.claim == claim}


def scores(spn: float, other: float, gap: tuple[float, float], adversary: str = "naive") -> list[Row]:
    found = [
        row("cap_reconstruction", value, defence=name, adversary=adversary, strength=None)
        for name, value in (("none", 0.1), ("dp", other), ("ppdl_0.3", other), ("spn", spn))
    ]
    ends = {"lo": gap[0], "hi": gap[1]}
    differences = [
        {**row("cap_difference", spn - other, defence="spn", adversary=adversary), **ends, "against": name}
        for name in ("dp", "ppdl_0.3")
    ]
    return [*found, *differences]


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        (scores(0.7, 0.5, (0.1, 0.3)), "holds"),
        (scores(0.7, 0.6, (-0.1, 0.3)), "undecided"),
        (scores(0.5, 0.6, (-0.2, -0.04)), "fails"),
        (scores(0.5, 0.6, (-0.2, 0.0)), "undecided"),
        ([], "untested"),
    ],
)
def test_spn_leads_only_when_the_paired_interval_says_so(rows: list[Row], state: str) -> None:
    assert verdicts(rows, "spn-reconstruction")["naive"].state == state


def test_each_adversary_is_judged_on_its_own_rows() -> None:
    rows = [*scores(0.7, 0.5, (0.1, 0.3)), *scores(0.2, 0.5, (-0.4, -0.2), "adaptive")]
    found = verdicts(rows, "spn-reconstruction")
    assert (found["naive"].state, found["adaptive"].state) == ("holds", "fails")
    cut = [{**one, "pixels": "clipped", "value": one["value"] - 0.1} for one in rows]
    said = " ".join(sentences(HEAD, [*rows, *cut], judge_inversion(HEAD, rows)))
    assert "fail against the adaptive one: spn leads CAP against reconstruction" in said
    assert "against every adversary" in said and " before " not in said


def test_the_verdict_says_what_is_recovered_without_a_defence_and_under_the_best() -> None:
    settings = {("none", 0.0): (1.0, 0.6), ("dp", 0.5): (0.0, 0.1), ("dp", 0.1): (0.25, 0.58), ("spn", 0.1): (0.5, 0.6)}
    rows = [
        row(metric, value, 0.0, defence=defence, strength=strength, **keys)
        for (defence, strength), values in settings.items()
        for metric, value, keys in zip(
            ("reconstruction_success", "accuracy"), values, ({"pixels": "clipped", "threshold": 0.2}, {}), strict=True
        )
    ]
    said = sentences(HEAD, rows, [])[:2]
    assert " ".join(said) == (
        "From the gradient of one image of cifar10 the naive adversary recovers 100 % [100, 100] of 16 images without "
        "a defence, at test accuracy 60 % [60, 60]. The defence that hides most images from the naive adversary, dp at "
        "strength 0.5, leaves 0 % [0, 0] recovered, at accuracy 10 % [10, 10]. Of those that keep 90 % of that "
        "accuracy, the best, dp at strength 0.1, leaves 25 % [25, 25] recovered, at accuracy 58 % [58, 58]."
    )


@pytest.mark.parametrize(
    ("recovered", "chance", "state"),
    [(0.0, 0.0, "holds"), (0.25, 0.003, "fails"), (0.25, 0.22, "undecided"), (0.25, 0.3, "holds")],
)
def test_images_recovered_in_the_green_region_refute_the_theorem_where_chance_recovers_fewer(
    recovered: float, chance: float, state: str
) -> None:
    rows = [
        row("reconstruction_success", 0.0, defence="dp", region="green", threshold=0.2, chance=0.0),
        row("reconstruction_success", recovered, defence="spn", region="green", threshold=0.2, chance=chance),
        row("reconstruction_success", 1.0, defence="spn", region="red", threshold=0.2, chance=0.0),
    ]
    found = verdicts(rows, "green-safe")["naive"]
    assert found.state == state
    assert ("25 %" in found.numbers) == (recovered > chance), "the number comes from the row"


@pytest.mark.parametrize(("spn", "state"), [(0.8, "holds"), (0.55, "undecided"), (0.4, "fails")])
def test_membership_rises_with_the_batch_when_every_mechanisms_does(spn: float, state: str) -> None:
    head = replace(HEAD, attacks=(("gradient-matching", "dlnet", (1, 4, 8)),))
    values = {"dp": (0.0, 0.9, 0.7), "spn": (0.5, 0.1, spn)}
    rows = [
        row("cap_membership", value, defence=name, attack_batch=batch, strength=None)
        for name, found in values.items()
        for batch, value in zip((1, 4, 8), found, strict=True)
    ]
    (found,) = [v for v in judge_inversion(head, rows) if (v.claim, v.member) == ("membership-batch", "naive")]
    assert found.state == state and "dp 0.00 [-0.05, 0.05] to 0.70" in found.numbers
    assert verdicts(rows, "membership-batch")["naive"].state == "untested", "one batch has nothing to rise"


@pytest.mark.parametrize(("value", "state"), [(1.0, "fails"), (0.5, "undecided"), (0.1, "holds")])
def test_spn_hides_labels_only_when_few_are_recovered_at_every_strength(value: float, state: str) -> None:
    rows = [
        row("label_accuracy", 0.1, defence="spn", strength=0.5),
        row("label_accuracy", value, defence="spn", strength=0.1),
    ]
    assert verdicts(rows, "labels-spn")["naive"].state == state


def test_accuracy_in_the_green_region_is_held_against_no_mechanism() -> None:
    accuracy: dict[str, Any] = {"adversary": None, "attack": None, "attack_batch": None, "matching": None}
    rows = [
        row("accuracy", 0.6, 0.01, defence="none", **accuracy),
        row("accuracy", 0.3, 0.01, defence="dp", strength=0.5, **accuracy),
        row("accuracy", 0.59, 0.01, defence="dp", strength=0.001, **accuracy),
        row("perturbation_ratio", 0.2, defence="dp", strength=0.5, adversary=None, attack=None),
        row("perturbation_ratio", 50.0, defence="dp", strength=0.001, adversary=None, attack=None),
    ]
    assert verdicts(rows, "green-costs")["naive"].state == "holds"
    rows[1] |= {"value": 0.55, "lo": 0.54, "hi": 0.56}
    assert verdicts(rows, "green-costs")["naive"].state == "fails"


def test_accuracies_are_not_compared_where_a_strength_diverged() -> None:
    rows = [row("accuracy", 0.6, 0.01, defence="none")]
    rows += [row("accuracy", 0.5, 0.01, defence="spn", strength=at) for at in (0.5, 0.1)]
    rows += [row("accuracy", 0.1, 0.01, defence="dp", strength=at) for at in (0.5, 0.1)]
    assert verdicts(rows, "spn-accuracy")["naive"].state == "holds"
    assert verdicts(rows[:-1], "spn-accuracy")["naive"].state == "untested"


def test_bits_are_ordered_by_their_number_on_the_same_images() -> None:
    def spn(bits: int, value: float, metric: str, **keys: Any) -> Row:
        params = json.dumps([{"name": "spn", "bits": bits, "alpha2": 0.1}])
        return row(metric, value, 0.02, defence="spn", defence_params=params, pixels="clipped", **keys)

    grid = spn(64, 0.5, "reconstruction_rmse")
    more = spn(128, 0.1, "rmse_difference", variant="128 bits")
    fewer = spn(32, -0.1, "rmse_difference", variant="32 bits")
    found = verdicts([grid, more, fewer], "more-bits")["naive"]
    assert found.state == "holds" and found.numbers.startswith(
        "32 bits: rMSE -0.10 [-0.12, -0.08] above that of 64 bits"
    )
    assert verdicts([grid, more, {**fewer, "hi": 0.01}], "more-bits")["naive"].state == "undecided"
    turned = spn(128, -0.1, "rmse_difference", variant="128 bits")
    assert verdicts([grid, turned], "more-bits")["naive"].state == "fails"
    assert verdicts([grid, {**more, "pixels": "raw"}], "more-bits")["naive"].state == "untested"


@pytest.mark.parametrize(
    ("value", "half", "state"),
    [(0.01, 0.03, "holds"), (0.01, 0.1, "undecided"), (0.2, 0.1, "fails"), (-0.2, 0.1, "fails")],
)
def test_two_kinds_of_noise_are_alike_within_a_margin_and_not_for_want_of_images(
    value: float, half: float, state: str
) -> None:
    keys: dict[str, Any] = {"defence": "dp", "variant": "laplace", "against": "dp"}
    rows = [
        row("cap_difference", value, half, pixels="clipped", **keys),
        row("cap_difference", 9.0, pixels="raw", **keys),
    ]
    found = verdicts(rows, "laplace")["naive"]
    assert found.state == state and "margin 0.05" in found.numbers


def test_the_papers_attacker_is_judged_on_its_own_rows_and_stands_beside_the_published_scores() -> None:
    other = Other(
        variant="deep-leakage", attack="gradient-matching", network="dlnet", batches=(1,), adversaries=("naive",)
    )
    head = replace(HEAD, attacks=(("gradient-matching", "dlnet", (1, 4)),), others=(other,))
    ours = [{**one, "attack_variant": "main"} for one in scores(0.2, 0.5, (-0.4, -0.2))]
    theirs = [{**one, "attack_variant": "deep-leakage"} for one in scores(0.7, 0.5, (0.1, 0.3))]
    fours = [{**one, "attack_batch": 4} for one in ours]
    found = {v.member: v.state for v in judge_inversion(head, [*ours, *theirs]) if v.claim == "spn-reconstruction"}
    assert found == {"naive": "fails", "adaptive": "untested", "naive, deep-leakage": "holds"}
    lines = {line.labels[1:]: line.cells for line in cap_table(head, [*ours, *theirs, *fours]).lines}
    one, four = (f"{batch} (16 images, 16 gradients)" for batch in (1, 4))
    papers = "gradient-matching (deep-leakage), dlnet", one
    assert lines[*papers, "published"] == ("", "0.57", "0.55", "0.57", "0.69", "")
    assert "0.70 [0.65, 0.75]" in lines[*papers, "naive"]
    assert ("gradient-matching, dlnet", one, "published") not in lines
    assert ("gradient-matching, dlnet", four, "published") in lines, "where the papers' attacker did not run"
    assert {v.member for v in judge_inversion(head, [*ours, *theirs]) if v.claim == "labels-spn"} == {
        "naive",
        "adaptive",
    }


def test_the_ppc_figure_has_three_regions() -> None:
    edge = calibration(1.0)
    found = bands([0.1, 1.0, 2.0, 3.0], [1.0, 0.6, 0.3, 0.1])
    assert found == [
        (0.0, edge, "green"), (edge, 1.5, "white"), (1.5, 2.5, "white"), (2.5, pytest.approx(3.15), "red"),
    ]  # fmt: skip
    assert bands([0.1], [0.5]) == [(0.0, edge, "green")]


def test_published_scores_stand_beside_ours_where_there_are_any() -> None:
    table = cap_table(HEAD, scores(0.7, 0.5, (0.1, 0.3)))
    ours, published = table.lines
    assert ours.labels == ("reconstruction", "gradient-matching, dlnet", "1 (16 images, 16 gradients)", "naive")
    assert published.labels == (*ours.labels[:3], "published") and table.grouped == 3
    assert ours.cells[4] == "0.70 [0.65, 0.75]" and published.cells[1:5] == ("0.57", "0.55", "0.57", "0.69")
    assert published_cap("fashion_mnist", "reconstruction", 1) == ()


@pytest.mark.parametrize("name", ["mnist", "mnist_writers", "cifar10", "cifar100", "svhn"])
def test_every_data_set_of_the_papers_has_its_published_scores(name: str) -> None:
    assert all(len(published_cap(name, score, 8)) == 4 for score in ("reconstruction", "membership", "tracing"))


def test_tracing_has_a_line_per_level_beside_the_published_one() -> None:
    """The papers do not say which they measured, and their distances are too large for ten participants."""
    found = [
        row("cap_tracing", value, defence="spn", strength=None, level=level, participants=10)
        for level, value in (("participant", 0.3), ("image", 0.4))
    ]
    lines = {(line.labels[0], line.labels[3]): line.cells for line in cap_table(HEAD, found).lines}
    scores_shown = ("tracing among 10 participants", "tracing to the image")
    assert set(lines) == {(score, who) for score in scores_shown for who in ("naive", "published")}
    assert all(lines[score, "published"][1:5] == ("0.42", "0.50", "0.54", "0.61") for score in scores_shown)
    assert "0.40 [0.35, 0.45]" in lines["tracing to the image", "naive"]


def test_readings_of_one_score_are_not_mixed() -> None:
    """Labels read from images, and errors of images that were cut, never decide what the papers' reading decides."""
    other = row("label_accuracy", 1.0, defence="spn", labels="image")
    assert verdicts([row("label_accuracy", 0.1, defence="spn"), other], "labels-spn")["naive"].state == "holds"
    cut = [{**one, "pixels": "clipped"} for one in scores(0.2, 0.5, (-0.4, -0.2))]
    both = [*scores(0.7, 0.5, (0.1, 0.3)), *cut]
    assert verdicts(both, "spn-reconstruction")["naive"].state == "holds"
    assert verdicts(both, "spn-reconstruction-cut")["naive"].state == "fails"
    lines = {(line.labels[0], line.labels[3]): line.cells for line in cap_table(HEAD, both).lines}
    assert "0.70 [0.65, 0.75]" in lines["reconstruction", "naive"]
    assert "0.20 [0.15, 0.25]" in lines["reconstruction, cut to [0, 1]", "naive"]
    assert ("reconstruction, cut to [0, 1]", "published") not in lines, "the papers do not cut"


def test_images_in_hand_have_a_table_and_a_sentence_of_their_own() -> None:
    found: dict[str, Any] = {"attack": "alignment", "adversary": "adaptive", "matching": None, "others": 1264}
    rows = [
        row("example_membership_auc", 0.9, defence="dp", members=16, **found),
        row("example_membership_tpr", 0.4, defence="dp", fpr=0.001, fpr_bound=0.003, **{**found, "chance": 0.002}),
        row("tracing_accuracy", 0.8, defence="dp", level="participant", participants=2, **found),
        row("tracing_accuracy", 0.5, defence="dp", level="participant", participants=16, **found),
    ]
    drawn = {**found, "pairs": "drawn", "others": 24}
    few = [
        row("example_membership_auc", 0.97, defence="dp", members=24, **{**drawn, "attack": "lira"}),
        row("example_membership_tpr", 0.9, defence="dp", fpr_bound=0.14, **{**drawn, "attack": "lira", "chance": 0.04}),
    ]
    rows += [*few, *({**one, "attack": "alignment", "value": 0.93} for one in few)]
    line, lira, same = candidate_table(rows).lines
    assert line.cells[:5] == ("0.900 [0.850, 0.950]", "40 % [35, 45]", "0.2 %", "0.3 %", "50 % [45, 55]")
    assert line.cells[-1] == "16 in, 1264 not; 16 gradients"
    assert lira.labels[-1] == "lira (drawn)" and lira.cells[1:5] == ("90 % [85, 95]", "4.0 %", "14.0 %", "–")
    assert same.labels[-1] == "alignment (drawn)" and same.cells[0].startswith("0.930")
    assert len(tracing_table(HEAD, rows).lines) == 2
    assert any(
        "AUC of 0.90 [0.85, 0.95] under the best defence, dp at strength 0.1" in text
        for text in sentences(HEAD, rows, [])
    )


def test_searches_are_drawn_where_there_was_one() -> None:
    def trail(defence: str, adversary: str) -> Trail:
        return Trail(
            attack="gradient-matching", batch=1, adversary=adversary, defence=defence, strength=0.1,
            evaluations=np.array([1, 2, 5]), values=np.array([[1.0, 2.0], [0.5, 0.1], [0.0, 0.01]], np.float32),
            errors=np.array([[0.6, 0.6], [0.2, 0.3], [0.9, 0.8] if defence == "dp" else [0.1, 0.1]]),
        )  # fmt: skip

    place = ("gradient-matching", "dlnet", 1)
    trails = [trail(defence, adversary) for defence in ("none", "dp") for adversary in HEAD.adversaries]
    drawing = searches(HEAD, trails, place)
    assert drawing is not None and drawing.name == "searches"
    assert [one.strays for one in trails] == [False, False, True, True]
    assert "naive: in 1 of 2 settings the median error ends over 0.05 above its lowest" in drawing.caption
    assert searches(HEAD, trails, ("closed-form", "mlp", 1)) is None
