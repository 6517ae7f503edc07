"""The attack stage, run as every stage is run, cannot open the truth: not even by its absolute path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_project import TINY, project_in, resolved
from trespass_cases import CHEATING, HIDDEN, SNOOPING, openers

from fedprint.kinds.federation.graph import FEDERATION, FEDERATION_WORK
from fedprint.kinds.federation.jobs import job_of
from fedprint.lab.graph import Work
from fedprint.lab.runner import Done, JobFailed, Lab
from fedprint.lab.workers.pool import LocalPool


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with project_in(tmp_path_factory.mktemp("confined")) as project, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        project.write("tiny", {**TINY, "attacks": [{"name": "chance"}]})
        with LocalPool(["fedprint.kinds.preload", "trespass_cases"]) as pool, Lab(root=project.root, pool=pool) as lab:
            yield lab


def attacked(lab: Lab, work: Work) -> Done:
    config = resolved(lab.root, "tiny")
    return lab.one(job_of(config, "random", 0, label="random-0", work=work), title="tiny", want=["ask", "attack"])


def test_the_declaration_is_that_of_the_real_stage() -> None:
    for work in (SNOOPING, CHEATING):
        ours, real = work.graph.stage("attack"), FEDERATION.stage("attack")
        assert ours.inputs == (*real.inputs, "questions"), "beside the answers, which it may not open"
        assert (ours.outputs, ours.data, ours.files) == (real.outputs, real.data, real.files)


def test_no_library_opens_what_is_not_declared(lab: Lab) -> None:
    done = attacked(lab, SNOOPING)
    found = json.loads((done.outputs["attack"] / "found.json").read_text())
    assert found.pop("own") == ["opened"] * 4, "the ways to open work on what is declared"
    assert found.keys() == {f"{name} by {how}" for name in HIDDEN for how in (*openers(), "listing")}
    refused = ("Trespass: stage 'attack' opened", "PermissionError")
    assert {what: said for what, said in found.items() if not said.startswith(refused)} == {}
    assert (done.outputs["answers"] / "updates.npz").is_file(), "it was there to be opened"


def test_an_attack_that_opens_the_truth_fails_and_says_so(lab: Lab) -> None:
    with pytest.raises(JobFailed, match=r"random-0: stage attack: .*truth/index\.parquet") as failed:
        attacked(lab, CHEATING)
    assert failed.value.stage == "attack" and failed.value.exit_code == 1
    assert "is not among its inputs and outputs" in str(failed.value)


def test_the_real_attack_runs_under_the_same_guard(lab: Lab) -> None:
    done = attacked(lab, FEDERATION_WORK)
    assert (done.outputs["attack"] / "naive" / "scores.npz").is_file()
