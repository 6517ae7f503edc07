"""How jobs failed, and what a report is called, is said in one way by every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_project import CHECKOUT, TINY, Project

from fedprint.errors import FedprintError
from fedprint.kinds.jobs import all_done, crashed, listed
from fedprint.kinds.registry import kind_of
from fedprint.kinds.requests import request_for
from fedprint.lab.runner import JobFailed


def failure(label: str, exit_code: int) -> JobFailed:
    text = f"{label}: stage attack: the disk is full (its output: work/logs/a.log)"
    return JobFailed(text, stage="attack", exit_code=exit_code, reason="the disk is full")


def test_an_experiment_that_needs_all_jobs_names_each_that_failed_and_how_to_go_on() -> None:
    with pytest.raises(FedprintError) as caught:
        all_done(["random-0", "iid-0"], [failure("random-0", 2), failure("iid-0", 1)])
    why = "stage attack: the disk is full (its output: work/logs/a.log)"
    hint = "(mend this and repeat the command: finished work is kept)"
    assert str(caught.value) == f"random-0: {why}; iid-0: {why} {hint}"
    assert caught.value.exit_code == 1, "a crash is worse than a refusal"


def test_a_crash_is_told_with_stage_and_output_and_a_refusal_is_a_result() -> None:
    found = crashed([("a", failure("a", 1)), ("b", failure("b", 2))])
    assert found == {"a": "stage attack: the disk is full (its output: work/logs/a.log)"}


def test_of_many_failures_the_first_five_are_shown_and_the_others_counted() -> None:
    assert "; and 2 more (" in listed({f"job {i}": "why" for i in range(7)})


# Titles ---------------------------------------------------------------------------------------------------------------

FOLDER = "data={name: folder, path: /somewhere/my_users}"


def title_of_report(root: Path, what: str, *assignments: str) -> str:
    """Return the title of what would be run."""
    asked = request_for(root, what, assignments=assignments)
    config: Any = kind_of(asked.values).load(asked)
    return str(config.title if hasattr(config, "title") else getattr(config, "config", config).report.title)


@pytest.mark.parametrize(
    ("what", "assignments", "title"),
    [
        ("quickstart", ["data.users=20", "federation.rounds=3"], "Photo albums (synthetic)"),
        ("quickstart", [FOLDER], "Folder my_users (settings of quickstart)"),
        ("quickstart", ["data={name: folder, path: mnist_writers}"], "Folder mnist_writers (settings of quickstart)"),
        ("quickstart", ["data={name: blog}"], "blog (settings of quickstart)"),
        ("quickstart", [FOLDER, "report.title=Mine"], "Mine"),
        ("albums-plane", ["data.users=20"], "Privacy-utility plane: photo albums"),
        ("albums-plane", [FOLDER], "Folder my_users (settings of albums-plane)"),
        ("studies/albums.yaml", [FOLDER, "trials=3"], "Folder my_users (settings of albums)"),
        ("spn-cifar10", ["data.test=100"], "Secret head against noise and sharing less: CIFAR-10"),
        ("spn-cifar10", ["data.name=own"], "own (settings of spn-cifar10)"),
        ("spn-clients", ["data.name=own"], "own (settings of spn-clients)"),
        ("client-dp-ablation", ["data.held_out=0.1"], "Client-level differential privacy, part by part"),
        ("client-dp", [FOLDER], "Folder my_users (settings of client-dp)"),
        ("client-dp", ["client-dp-100.data.held_out=0.1"], "Client-level differential privacy"),
    ],
)
def test_a_title_names_the_data_where_they_are_others_than_the_files(
    what: str, assignments: list[str], title: str
) -> None:
    path = str(CHECKOUT / "configs" / what) if what.endswith(".yaml") else what
    assert title_of_report(CHECKOUT, path, *assignments) == title


def test_the_same_name_elsewhere_is_another_folder(project: Project) -> None:
    project.write("own", {**TINY, "data": {"name": "folder", "path": "/here/users"}})
    assert title_of_report(project.root, "own", "data.users=9") == "Tiny albums"
    assert title_of_report(project.root, "own", "data.path=/there/users") == "Folder users (settings of own)"


def test_members_of_a_suite_are_called_by_their_data_too() -> None:
    asked = request_for(CHECKOUT, "client-dp", assignments=[FOLDER])
    members = yaml.safe_load(kind_of(asked.values).load(asked).text())["members"]
    assert {name: member["report"]["title"] for name, member in members.items()} == {
        name: f"Folder my_users (settings of {name})" for name in members
    }
