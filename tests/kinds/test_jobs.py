"""How jobs failed is said in one way: which job, which stage, why, where its output is, and how to go on."""

from __future__ import annotations

import pytest

from fedprint.errors import FedprintError
from fedprint.kinds.jobs import all_done, crashed, listed
from fedprint.lab.runner import JobFailed


def failure(label: str, exit_code: int) -> JobFailed:
    text = f"{label}: stage attack: the disk is full (its output: work/logs/a.log)"
    return JobFailed(text, stage="attack", exit_code=exit_code, reason="the disk is full")


def test_an_experiment_that_needs_all_jobs_names_each_that_failed_and_how_to_go_on() -> None:
    with pytest.raises(FedprintError) as caught:
        all_done(["random-0", "iid-0"], [failure("random-0", 2), failure("iid-0", 1)])
    why = "stage attack: the disk is full (its output: work/logs/a.log)"
    hint = "(mend this and repeat the command: what is finished is kept)"
    assert str(caught.value) == f"random-0: {why}; iid-0: {why} {hint}"
    assert caught.value.exit_code == 1, "a crash is worse than a refusal"


def test_a_crash_is_told_with_stage_and_output_and_a_refusal_is_a_result() -> None:
    found = crashed([("a", failure("a", 1)), ("b", failure("b", 2))])
    assert found == {"a": "stage attack: the disk is full (its output: work/logs/a.log)"}


def test_of_many_failures_the_first_five_are_shown_and_the_others_counted() -> None:
    assert "; and 2 more (" in listed({f"job {i}": "why" for i in range(7)})
