"""Claims of the papers: each holds, fails, is undecided or stays untested by the numbers alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
from analysis_report_cases import all_analyses, analysis_row

from fedprint.evaluation.rows import Row
from fedprint.reports.claims.evidence import above, larger, unpaired
from fedprint.reports.claims.federation import CLAIMS, judge_claims
from fedprint.reports.claims.verdict import STATES, verdict_rows
from fedprint.reports.numbers.order import strongest

State = str


def main_row(attack: str | None, value: float, **keys: Any) -> Row:
    """Return a row of the main tables."""
    row = analysis_row("", value, attack=attack, **{"metric": "ap", "half": 0.03, **keys})
    return {**row, "analysis": None, "selected": keys.get("selected", False)}


def utility(metric: str) -> Row:
    """Return a utility row, by which a claim knows the kind of data."""
    return {**main_row(None, 0.5, metric=metric), "training": "federated", "linkage": None, "selected": None}


def paper_attacks(metric: str, values: dict[str, float], **keys: Any) -> list[Row]:
    return [main_row(attack, value, metric=metric, **keys) for attack, value in values.items()]


def layers(values: dict[str, float]) -> list[Row]:
    return [
        analysis_row("layers", value, layer=layer, depth=depth, parameters=10)
        for depth, (layer, value) in enumerate(values.items(), 1)
    ]


def opened(metric: str, few: float, every: float, half: float = 0.03) -> list[Row]:
    ends = ((0.25, few), (1.0, every))
    keys = {"metric": metric, "half": half, "attack": "open-strong", "world": "open"}
    return [analysis_row("open-world", value, seen_share=share, split=0, **keys) for share, value in ends]


def raw(example: float, update: float, many: float) -> list[Row]:
    sets = [analysis_row("data-space", value, space="data", set_size=n) for n, value in ((1, example), (64, many))]
    return [*sets, analysis_row("data-space", update, space="update")]


def prior_rows(random: float, chrono: float, **keys: Any) -> list[Row]:
    return [main_row("ridge", value, prior=prior, selected=True, **keys) for prior, value in
            (("random", random), ("chrono", chrono))]  # fmt: skip


def epoch_rows(near: float, far: float) -> list[Row]:
    return [
        analysis_row("epochs", near if i == j else far, train_bin=i, test_bin=j, half=0.01)
        for i in range(4) for j in range(4)
    ]  # fmt: skip


def gain_rows(target: str, value: float) -> list[Row]:
    keys = {"metric": "mtl_gain", "half": 0.01, "attack": "mlp", "heads": "mtl", "users": "known"}
    return [analysis_row("attributes", value, target=target, attribute="age", **keys)]


def unseen(value: float) -> list[Row]:
    keys = {"metric": "matching_ap", "attack": "match-strong", "world": "open", "split": 0}
    return [analysis_row("open-world", value, seen_share=0.0, subset="all", **keys),
            analysis_row("open-world", value, seen_share=0.5, subset="unseen", **keys)]  # fmt: skip


def moved(metric: str, value: float, **keys: Any) -> list[Row]:
    return [analysis_row("diversity", value, metric=metric, half=0.5, attack=None, linkage=None, **keys)]


def standardised(mlp: float, knn: float) -> list[Row]:
    return paper_attacks("ap", {"mlp-std": mlp, "knn-std": knn})


STARS, WORDS = utility("mae"), utility("top5_accuracy")
TRIO = {"mlp": 0.8, "svm": 0.5, "knn": 0.4}
HOLDS: dict[str, list[Row]] = {
    "prior-order": prior_rows(0.8, 0.5),
    "prior-order-paper": [
        row for prior, less in (("random", 0.0), ("chrono", 0.2))
        for row in paper_attacks("ap", {name: value - less for name, value in TRIO.items()}, prior=prior)
    ],
    "iid-chance": [main_row("ridge", 0.02, prior="iid", selected=True, half=0.005)],
    "one-example": [analysis_row("prior-examples", 0.2, prior_examples=1)],
    "one-update": [analysis_row("training-updates", 0.2, training_updates=1)],
    "mlp-over-knn": paper_attacks("ap", TRIO),
    "mlp-over-knn-standardised": standardised(0.7, 0.4),
    "mlp-leads-top5": paper_attacks("top5", TRIO),
    "mlp-leads-ap": paper_attacks("ap", TRIO),
    "svm-leads-ap": [STARS, *paper_attacks("ap", {"svm": 0.8, "mlp": 0.5, "knn": 0.4})],
    "svm-leads-top1": paper_attacks("top1", {"svm": 0.8, "mlp": 0.5, "knn": 0.4}),
    "every-layer": layers({"conv1": 0.2, "head": 0.4}),
    "later-layers": layers({"conv1": 0.2, "conv2": 0.3, "fc1": 0.6, "head": 0.4}),
    "lstm-layer": [WORDS, *layers({"embedding": 0.2, "lstm": 0.6, "head": 0.4})],
    "embedding-layer": [STARS, *layers({"embedding": 0.6, "lstm": 0.2, "head": 0.1})],
    "epochs": epoch_rows(0.8, 0.75),
    "matching": [analysis_row("matching", 0.9, metric="matching_ap", attack="siamese")],
    "matching-unseen": unseen(0.8),
    "open-world": opened("ap", 0.9, 0.6) + opened("ap_over_chance", 5, 40, half=2),
    "mtl-attribute": gain_rows("attribute", 0.03),
    "mtl-identity": gain_rows("user", 0.03),
    "update-over-example": raw(0.1, 0.3, 0.9),
    "sets-over-update": raw(0.1, 0.3, 0.9),
    "clients-variance-rises": moved("between_clients_variance_change", 1.3),
    "update-scale-falls": moved("update_scale_change", -2.0),
}  # fmt: skip
FAILS: dict[str, list[Row]] = {
    "prior-order": prior_rows(0.5, 0.8),
    "prior-order-paper": [
        row for prior, less in (("random", 0.2), ("chrono", 0.0))
        for row in paper_attacks("ap", {name: value - less for name, value in TRIO.items()}, prior=prior)
    ],
    "iid-chance": [main_row("ridge", 0.3, prior="iid", selected=True)],
    "one-example": [analysis_row("prior-examples", 0.01, prior_examples=1, half=0.003)],
    "one-update": [analysis_row("training-updates", 0.01, training_updates=1, half=0.003)],
    "mlp-over-knn": paper_attacks("ap", {"mlp": 0.1, "svm": 0.5, "knn": 0.4}),
    "mlp-over-knn-standardised": standardised(0.2, 0.4),
    "mlp-leads-top5": paper_attacks("top5", {"mlp": 0.45, "svm": 0.6, "knn": 0.3}),
    "mlp-leads-ap": paper_attacks("ap", {"mlp": 0.45, "svm": 0.6, "knn": 0.3}),
    "svm-leads-ap": [STARS, *paper_attacks("ap", TRIO)],
    "svm-leads-top1": paper_attacks("top1", TRIO),
    "every-layer": [{**row, "hi": row["value"] + 0.003} for row in layers({"conv1": 0.01, "head": 0.4})],
    "later-layers": layers({"conv1": 0.7, "conv2": 0.3, "fc1": 0.6, "head": 0.4}),
    "lstm-layer": [WORDS, *layers({"embedding": 0.7, "lstm": 0.6, "head": 0.4})],
    "embedding-layer": [STARS, *layers({"embedding": 0.1, "lstm": 0.2, "head": 0.1})],
    "epochs": epoch_rows(0.8, 0.4),
    "matching": [analysis_row("matching", 0.45, metric="matching_ap", attack="siamese")],
    "matching-unseen": unseen(0.45),
    "open-world": opened("ap", 0.6, 0.9) + opened("ap_over_chance", 5, 40, half=2),
    "mtl-attribute": gain_rows("attribute", -0.03),
    "mtl-identity": gain_rows("user", -0.03),
    "update-over-example": raw(0.5, 0.3, 0.9),
    "sets-over-update": raw(0.1, 0.3, 0.2),
    "clients-variance-rises": moved("between_clients_variance_change", -1.3),
    "update-scale-falls": moved("update_scale_change", 1.2),
}  # fmt: skip
UNDECIDED: dict[str, list[Row]] = {
    "prior-order": prior_rows(0.52, 0.5),
    "iid-chance": [main_row("ridge", 0.028, prior="iid", selected=True, half=0.01)],
    "one-example": [analysis_row("prior-examples", 0.03, prior_examples=1)],
    "mlp-over-knn": paper_attacks("ap", {"mlp": 0.42, "knn": 0.4}),
    "later-layers": layers({"conv1": 0.58, "conv2": 0.3, "fc1": 0.6, "head": 0.4}),
    "open-world": opened("ap", 0.61, 0.6) + opened("ap_over_chance", 5, 40, half=2),
    "mtl-identity": gain_rows("user", 0.005),
    "mtl-attribute": gain_rows("attribute", -0.005),
    "every-layer": layers({"conv1": 0.01, "head": 0.4}),
    "matching": [analysis_row("matching", 0.49, metric="matching_ap", attack="siamese")],
    "update-over-example": raw(0.29, 0.3, 0.9),
    "clients-variance-rises": moved("between_clients_variance_change", 0.3),
    "update-scale-falls": moved("update_scale_change", -0.3),
}


def state_of(claim: str, rows: list[Row]) -> State:
    return next(verdict.state for verdict in judge_claims({"m": of_seeds(rows, 3)}) if verdict.claim == claim)


def of_seeds(rows: list[Row], seeds: int) -> list[Row]:
    return [{**row, "n_seeds": seeds} for row in rows]


def test_every_claim_is_tried_both_ways() -> None:
    names = {claim.name for claim in CLAIMS}
    assert len(names) == len(CLAIMS)
    assert set(HOLDS) == set(FAILS) == names


@pytest.mark.parametrize("claim", HOLDS)
def test_a_claim_holds_when_the_numbers_say_so_with_their_intervals(claim: str) -> None:
    assert state_of(claim, HOLDS[claim]) == "holds"


@pytest.mark.parametrize("claim", FAILS)
def test_a_claim_fails_when_the_order_is_another(claim: str) -> None:
    assert state_of(claim, FAILS[claim]) == "fails"


@pytest.mark.parametrize("claim", UNDECIDED)
def test_a_claim_is_undecided_within_the_intervals_on_either_side(claim: str) -> None:
    assert state_of(claim, UNDECIDED[claim]) == "undecided"


def test_nothing_measured_is_nothing_tested() -> None:
    assert {verdict.state for verdict in judge_claims({"m": [main_row("ridge", 0.5, selected=True)]})} == {"untested"}
    assert {verdict.result for verdict in judge_claims({"m": []})} == {STATES["untested"]}


@pytest.mark.parametrize(
    ("claim", "rows"),
    [
        ("svm-leads-ap", HOLDS["svm-leads-ap"][1:]),
        ("mlp-leads-ap", [STARS, *HOLDS["mlp-leads-ap"]]),
        ("svm-leads-top1", [WORDS, *HOLDS["svm-leads-top1"]]),
        ("lstm-layer", HOLDS["lstm-layer"][1:]),
        ("later-layers", [WORDS, *HOLDS["later-layers"]]),
        ("mlp-leads-top5", HOLDS["mlp-leads-top5"][:2]),
        ("clients-variance-rises", moved("between_clients_variance_change", 1.3, defence="dp-fedavg")),
    ],
)
def test_a_claim_about_other_data_or_with_a_missing_side_is_not_tested(claim: str, rows: list[Row]) -> None:
    assert state_of(claim, rows) == "untested"


def test_one_failing_prior_is_not_hidden_by_another() -> None:
    rows = [analysis_row("prior-examples", value, prior_examples=1, prior=prior, half=0.003) for prior, value in
            (("random", 0.5), ("chrono", 0.01))]  # fmt: skip
    assert state_of("one-example", rows) == "fails"


def test_the_standardised_network_stands_in_where_the_published_one_did_not_run() -> None:
    better = [{**row, "attack": "mlp-std"} for row in HOLDS["mtl-identity"]]
    assert state_of("mtl-identity", better) == "holds"
    assert state_of("mtl-identity", [*better, *FAILS["mtl-identity"]]) == "fails"


def test_the_photoset_prior_stands_for_chrono_where_there_is_no_time() -> None:
    rows = [{**row, "prior": "photoset" if row["prior"] == "chrono" else "random"} for row in HOLDS["prior-order"]]
    assert state_of("prior-order", rows) == "holds"


def test_the_attack_is_chosen_by_name_and_not_by_result() -> None:
    rows = [analysis_row("prior-examples", 0.9, attack="knn"), analysis_row("prior-examples", 0.1, attack="ridge")]
    assert [row["attack"] for row in strongest(rows)] == ["ridge"]
    assert [row["attack"] for row in strongest([*rows, analysis_row("x", 0.0, attack="open-strong")])] == [
        "open-strong"
    ]
    assert strongest([]) == []


def test_the_interval_of_a_difference_follows_from_both_sides() -> None:
    a, b = main_row("a", 0.6, half=0.03), {**main_row("b", 0.5, half=0.04), "n_users": 40, "n_seeds": 5}
    gap = unpaired(a, b)
    assert [gap[key] for key in ("value", "lo", "hi")] == pytest.approx([0.1, 0.05, 0.15])
    assert (gap["n_users"], gap["n_seeds"]) == (40, 1), "the fewest of both"
    assert unpaired(a, b, 0.5)["lo"] == pytest.approx(0.35 - math.hypot(0.03, 0.02))
    said = larger(a, b, ("a", "b")).numbers.replace("\u00a0", " ")
    assert said == "a 60.0 % [57.0, 63.0], b 50.0 % [46.0, 54.0], difference 10.0 % [5.0, 15.0], unpaired"


def test_verdicts_say_which_data_which_numbers_and_how_many_users_and_seeds() -> None:
    rows = of_seeds(HOLDS["mlp-over-knn"], 3)
    found = {row["claim"]: row for row in verdict_rows(judge_claims({"writers": rows}))}
    row = found["mlp-over-knn"]
    assert (row["member"], row["dataset"], row["result"]) == ("writers", "mnist_writers", "holds")
    assert "80.0" in row["numbers"] and "[77.0, 83.0]" in row["numbers"]
    assert (row["n_users"], row["n_seeds"]) == (100, 3) and row["p"] < 0.001
    assert found["matching"]["n_users"] is None


@pytest.mark.parametrize(("seeds", "words"), [(1, "1 seed"), (2, "2 seeds")])
def test_a_verdict_needs_three_seeds_and_shows_its_numbers_without(seeds: int, words: str) -> None:
    rows = of_seeds(HOLDS["matching"], seeds)
    found = {verdict.claim: verdict for verdict in judge_claims({"m": rows})}["matching"]
    assert (found.state, found.result) == ("undecided", f"undecided ({words}; a verdict needs 3)")
    assert "90.0" in found.numbers and found.p is None and found.basis == f"n 100, {words}"


def test_all_reports_of_a_table_are_corrected_together() -> None:
    rows = of_seeds([analysis_row("prior-examples", 0.05, prior_examples=1, half=0.025)], 3)  # p = .02

    def p_of(reports: int) -> float | None:
        verdicts = judge_claims({str(report): rows for report in range(reports)})
        return next(verdict.p for verdict in verdicts if verdict.claim == "one-example")

    alone = p_of(1)
    assert alone == pytest.approx(0.0193, abs=0.001)
    assert p_of(3) == pytest.approx(3 * alone)
    one, many = (judge_claims({str(n): rows for n in range(size)})[3].state for size in (1, 3))
    assert (one, many) == ("holds", "undecided")


def test_above_chance_is_decided_by_the_permutation_test_where_there_is_one() -> None:
    (row,) = HOLDS["one-example"]
    assert state_of("one-example", [{**row, "p_chance": 1e-4}]) == "holds"
    assert state_of("one-example", [{**row, "p_chance": 0.2}]) == "undecided", "clumps explain the excess"
    assert state_of("one-example", [{**row, "p_chance": None}]) == "holds", "by the interval"
    (row,) = UNDECIDED["one-example"]
    assert state_of("one-example", [{**row, "p_chance": 1e-4}]) == "holds"
    assert "p without a link 0.0001" in above({**row, "p_chance": 1e-4}, "x").numbers
    assert above({**row, "p_chance": 1e-4}, "x", 0.2) == above(row, "x", 0.2), "a limit is not chance"


def test_the_synthetic_report_with_every_analysis_leaves_little_untested() -> None:
    states = {verdict.claim: verdict.state for verdict in judge_claims({"m": all_analyses()})}
    measured = {"one-example", "one-update", "every-layer", "later-layers", "epochs", "matching", "matching-unseen",
                "open-world", "mtl-attribute", "mtl-identity", "update-over-example", "sets-over-update"}  # fmt: skip
    assert {name for name, state in states.items() if state != "untested"} == measured
