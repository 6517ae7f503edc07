"""Table models, the papers' rows and the wording of the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedprint.reports.numbers.evaluations import all_rows, final_rows, read_evaluations
from fedprint.reports.numbers.reference import comparable, published_row, published_utility, reference_table
from fedprint.reports.tables.federation import attack_tables, judged_checks, link_lines, utility_lines
from fedprint.reports.wording import Estimate, NoLink, number, verdict, verdict_beyond, verdict_pooled, with_unit
from fedprint.types import FedprintError

Write = Callable[..., list[Path]]
ALL = ("random", "chrono", "iid")

FOUND = Estimate(
    metric="ap", unit="fraction", value=0.836, lo=0.79, hi=0.88, chance=0.017, n_questions=1000, n_users=100
)


def test_verdict_names_precision_interval_guessing_users_and_prior():
    said = verdict("mnist_writers", "random", FOUND).replace("\u00a0", " ")
    assert said == (
        "An anonymous update of mnist_writers identifies its sender with average precision 83.6 % [79.0, 88.0]; random "
        "guessing gets 1.7 % (100 users, 1 seed, random prior; the attacker was chosen before any answer)."
    )


def test_a_verdict_says_what_another_attack_or_more_effort_would_find():
    most, gain = replace(FOUND, value=0.9), replace(FOUND, metric="ap_difference", value=0.03, lo=0.01, hi=0.05)
    said = verdict_beyond(FOUND, ("count", most), gain).replace("\u00a0", " ")
    assert said == (
        "Of all attacks count has the largest AP, 90.0 % [79.0, 88.0]: an upper estimate, picked after the fact. "
        "Twice the effort off line raised it by 3.0 % [1.0, 5.0], so it is a lower bound."
    )
    assert verdict_beyond(FOUND, ("ridge", FOUND), replace(gain, value=0.002)) == ""
    assert verdict_beyond(FOUND, None, None) == ""


def test_verdict_claims_nothing_when_the_interval_includes_chance():
    found = replace(FOUND, value=0.024, lo=0.011, hi=0.037)
    said = verdict("albums", "random", found).replace("\u00a0", " ")
    assert "was not shown to identify its sender: average precision 2.4 % [1.1, 3.7]; random guessing" in said
    assert "guessing gets 1.7 %; the interval includes that" in said
    assert "not shown to identify" in verdict_pooled(found)


def test_verdict_claims_nothing_when_clumped_updates_explain_the_excess():
    found = replace(FOUND, value=0.028, lo=0.02, hi=0.036)
    assert "albums identifies its sender" in verdict("albums", "iid", found)
    said = verdict("albums", "iid", found, NoLink(null_mean=0.027, p_high=0.4)).replace("\u00a0", " ")
    assert "was not shown to identify its sender" in said
    assert "get 2.7 % without any link (p = 0.4)" in said
    assert "albums identifies its sender" in verdict("albums", "iid", found, NoLink(null_mean=0.018, p_high=0.001))


def test_verdict_below_chance_points_to_a_defect():
    assert "defect of the bench" in verdict("albums", "random", replace(FOUND, value=0.005, lo=0.001, hi=0.009))


def test_verdict_without_a_number_or_interval_does_not_invent_one():
    assert "could not be measured" in verdict("albums", "random", replace(FOUND, value=None, lo=None, hi=None))
    assert "not shown to identify" in verdict("albums", "random", replace(FOUND, lo=None, hi=None))


def test_numbers_have_units_and_dashes():
    assert with_unit(0.716, "stars") == "0.716\u00a0stars"
    assert with_unit(48.6, "ratio") == "49×"
    assert number(4.44, "ratio") == "4.4"
    assert number(1.018, "ratio") == "1.02", "a utility of no defence's"
    assert number(None, "fraction") == "–"


@pytest.mark.parametrize("name", ["table1_datasets", "table2_utility", "table3_reidentification", "spn_cap"])
def test_reference_tables_are_in_the_package(name: str):
    assert len(reference_table(name)) >= 4


def test_unknown_reference_table_lists_the_known_ones():
    with pytest.raises(FedprintError, match="table3_reidentification"):
        reference_table("table9")


def test_published_values():
    row = published_row("blog", "random", "mlp")
    assert row is not None
    assert (row.ap, row.over_chance, row.top1, row.top5) == (52.9, 29.0, 50.1, 89.9)
    assert published_row("blog", "iid", "mlp") is None
    assert published_utility("blog", "chrono", "federated") == ("top5_accuracy", 27.83)
    assert comparable("mnist_writers") == ("pipa", "openimages")
    assert comparable("somebody's") == ()


def test_blog_has_the_papers_rows_beside_its_own(evaluations: Write):
    rows = all_rows(read_evaluations(evaluations(ALL, dataset="blog", metric="top5_accuracy")))
    random, chrono, control = attack_tables(rows)
    assert (random.prior, chrono.prior, control.prior) == ("random", "chrono", "iid")
    published = {line.attack: [row.ap if row else None for row in line.published] for line in chrono.lines}
    assert published == {"chance": [1.8], "knn": [29.5], "svm": [27.0], "mlp": [44.8], "mlp-tuned": [None],
                         "ridge": [None]}  # fmt: skip
    assert control.published == ()
    federated = utility_lines(rows)[0]
    assert federated.published == (("blog", "top5_accuracy", 28.02),)


def test_unknown_data_sets_have_no_published_columns(evaluations: Write):
    tables = attack_tables(all_rows(read_evaluations(evaluations(dataset="mine"))))
    assert all(table.published == () for table in tables)


def test_attack_table_marks_the_chosen_and_keeps_the_order(evaluations: Write):
    table = attack_tables(all_rows(read_evaluations(evaluations(selected="mlp-tuned"))))[0]
    assert [line.attack for line in table.lines] == ["chance", "knn", "svm", "mlp", "mlp-tuned", "ridge"]
    assert table.best is not None
    assert table.best.attack == "mlp-tuned"
    assert list(table.best.by_linkage) == ["update", "device"]
    assert table.chance == pytest.approx({"top1": 0.01, "top5": 0.05})


def test_final_rows_prefer_the_pooled_ones(evaluations: Write):
    rows = all_rows(read_evaluations(evaluations(priors=("random",), seeds=(0, 1))))
    assert {row["seed"] for row in final_rows(rows)} == {"all"}
    single = all_rows(read_evaluations(evaluations(priors=("chrono",))))
    assert {row["seed"] for row in final_rows(single)} == {0}


def test_checks_are_judged_over_all_priors_with_their_seeds_pooled(evaluations: Write):
    found = read_evaluations(evaluations(ALL, seeds=(0, 1)))
    judged, lines = judged_checks(found)
    assert len(lines) == len(judged.adjusted) == 3 * 6 * 2
    assert judged.passed
    leak = {"value": 0.2, "p_high": 1e-6, "p_low": 1.0, "null_mean": 0.02, "null_lo": 0.01, "null_hi": 0.03,
            "n_users": 100, "permutations": 9_999_999}  # fmt: skip
    judged, lines = judged_checks(read_evaluations(evaluations(ALL, checks={"ridge/update": leak})))
    assert not judged.passed
    assert [line.name for line in lines] == [f"{prior}/ridge/update" for prior in ("chrono", "iid", "random")]
    assert lines[0].adjusted == pytest.approx(3 * 2e-6)


def test_control_stands_first_beside_its_permutation_null(evaluations: Write):
    found = read_evaluations(evaluations(ALL))
    lines = link_lines(attack_tables(all_rows(found)), found)
    assert [(line.prior, line.linkage) for line in lines[:2]] == [("iid", "update"), ("iid", "device")]
    assert lines[0].null is not None
    assert lines[0].null.p_high == 0.41
