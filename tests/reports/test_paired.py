"""Paired differences: narrower than two intervals where users differ more than conditions do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from report_cases import write_evaluations

from fedprint.reports.claims.comparison import weigh
from fedprint.reports.claims.evidence import Evidence, larger
from fedprint.reports.claims.verdict import Finding
from fedprint.reports.numbers.evaluations import Evaluation, read_evaluations
from fedprint.reports.numbers.paired import paired_rows

USERS = 60


@pytest.fixture
def evaluations(tmp_path: Path) -> list[Evaluation]:
    """Return random and chrono of one seed; mlp is always 4 points above knn, and random 3 above chrono."""
    found = read_evaluations(write_evaluations(tmp_path, priors=("random", "chrono", "iid"), seeds=(0,)))
    rng = np.random.default_rng(0)
    base = rng.uniform(0.1, 0.8, USERS)
    noise = rng.normal(0, 0.02, (2, 3, USERS))
    return [
        replace(
            item,
            details={
                **item.details,
                "selected": "ridge",
                "adversary": "naive",
                "ap_by_user": {
                    "naive": {
                        attack: {
                            str(user): float(
                                base[user]
                                + gain
                                - 0.03 * (item.prior == "chrono")
                                + noise[int(item.prior == "chrono"), j, user]
                            )
                            for user in range(USERS)
                        }
                        for j, (attack, gain) in enumerate((("knn", 0.0), ("mlp", 0.04), ("ridge", 0.1)))
                    }
                },
            },
        )
        for item in found
    ]


def row(rows: list[dict[str, object]], **keys: object) -> dict[str, object]:
    (found,) = [r for r in rows if all(r.get(key) == value for key, value in keys.items())]
    return found


def test_attacks_of_one_prior_are_told_apart(evaluations: list[Evaluation]) -> None:
    found = row(paired_rows(evaluations), prior="random", versus_prior="random", attack="mlp", versus_attack="knn")
    assert found["value"] == pytest.approx(0.04, abs=0.01)
    assert 0 < float(str(found["lo"])) < float(str(found["value"])) < float(str(found["hi"])) < 0.08
    assert (found["n_users"], found["chance"]) == (USERS, 0.0)


def test_priors_are_compared_in_both_directions_and_never_with_the_control(evaluations: list[Evaluation]) -> None:
    rows = paired_rows(evaluations)
    there = row(rows, prior="random", versus_prior="chrono", attack="mlp")
    back = row(rows, prior="chrono", versus_prior="random", attack="mlp")
    assert float(str(there["lo"])) > 0 > float(str(back["hi"]))
    assert not [r for r in rows if "iid" in (r["prior"], r["versus_prior"]) and r["prior"] != r["versus_prior"]]


def test_users_with_questions_in_one_prior_only_are_left_out(evaluations: list[Evaluation]) -> None:
    details = evaluations[0].details
    fewer = {attack: dict(list(aps.items())[:40]) for attack, aps in details["ap_by_user"]["naive"].items()}
    some = [replace(evaluations[0], details={**details, "ap_by_user": {"naive": fewer}}), *evaluations[1:]]
    assert row(paired_rows(some), prior="random", versus_prior="chrono", attack="knn")["n_users"] == 40


def test_a_claim_uses_the_paired_difference(evaluations: list[Evaluation]) -> None:
    rows = paired_rows(evaluations)
    wide = {"metric": "ap", "unit": "fraction", "chance": 0.02, "prior": "random", "n_questions": 9, "n_users": 9}
    mlp = {**wide, "attack": "mlp", "value": 0.5, "lo": 0.4, "hi": 0.6}
    knn = {**wide, "attack": "knn", "value": 0.46, "lo": 0.36, "hi": 0.56}
    assert weighed(larger(mlp, knn, ("mlp", "knn"))) == (False, False)
    assert weighed(Evidence(rows).larger(mlp, knn, ("mlp", "knn"))) == (True, False)
    assert weighed(Evidence(rows).larger(knn, mlp, ("knn", "mlp"))) == (False, True)
    assert weighed(Evidence([]).larger(mlp, knn, ("mlp", "knn"))) == (False, False)
    paired, not_paired = (Evidence(known).larger(mlp, knn, ("a", "b")).numbers for known in (rows, []))
    assert not_paired.endswith("unpaired") and "unpaired" not in paired


def weighed(finding: Finding) -> tuple[bool, bool]:
    """Return whether the interval alone would hold or refute."""
    assert finding.test is not None
    weight = weigh(finding.test)
    return weight.holds < 0.025, weight.fails < 0.025


def test_evaluations_without_users_give_no_rows(tmp_path: Path) -> None:
    assert paired_rows(read_evaluations(write_evaluations(tmp_path, priors=("random",), seeds=(0,)))) == []
