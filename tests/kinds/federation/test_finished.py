"""What was run here is found again by its name and attacked again: experiments, and points of planes and studies."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_project import TINY, project_in

from fedprint.data.formats.files import read_json, write_json
from fedprint.errors import FedprintError
from fedprint.evaluation.rows import read_measurements
from fedprint.kinds import PRELOADED
from fedprint.kinds.federation.config import Experiment, check_experiment
from fedprint.kinds.federation.finished import open_finished
from fedprint.kinds.federation.jobs import job_of, point_job
from fedprint.kinds.federation.reattack import reattack
from fedprint.kinds.laboratory import jobs_json
from fedprint.lab.runner import JobFailed, Lab
from fedprint.lab.versions.cleaning import reported
from fedprint.lab.workers.pool import LocalPool

POINT = "noise 0.1 seed 0"


def experiment(**changes: Any) -> Experiment:
    small = {"federation": {**TINY["federation"], "rounds": 3, "central_epochs": 0}, "analyses": []}
    return check_experiment({"name": "tiny", **TINY, **small, "attacks": [{"name": "chance"}], **changes}, "test")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a project with the reports of an experiment and of a plane, whose one point is the same federation."""
    with project_in(tmp_path_factory.mktemp("finished")) as project:
        with LocalPool(PRELOADED) as pool, Lab(root=project.root, pool=pool, keep=True) as lab:
            whole = lab.one(job_of(experiment(), "random", 0, label="random-0"), title="tiny")
            point = lab.one(point_job(experiment(), "random", 0, label=POINT), title="plane")
        write_json(project.root / "reports" / "tiny" / "jobs.json", jobs_json([whole]))
        write_json(project.root / "reports" / "plane" / "jobs.json", jobs_json([point]))
        yield project.root


def test_an_experiment_and_a_point_are_found_as_they_were_run(home: Path) -> None:
    whole, point = open_finished(home, "tiny"), open_finished(home, f"plane/{POINT}")
    assert whole == open_finished(home, "tiny/random-0") and whole.config == experiment()
    assert (point.name, point.prior, point.seed) == (f"plane {POINT}", "random", 0)
    assert point.config.federation == whole.config.federation and point.config.seeds == (0,)
    assert point.outputs["observed"] == whole.outputs["observed"], "one federation for both"
    assert "embedding" in whole.outputs and "embedding" not in point.outputs


def test_what_reports_were_made_from_is_not_cleaned(home: Path) -> None:
    found = {path.parent.name for path in reported(home)}
    assert found >= {"prepare", "federate", "attack", "evaluate", "point"}


@pytest.mark.parametrize("asked", [True, False])
def test_a_point_is_attacked_again_by_other_attacks(
    home: Path, capsys: pytest.CaptureFixture[str], asked: bool
) -> None:
    questions = open_finished(home, f"plane/{POINT}").outputs["questions"]
    if not asked:
        shutil.rmtree(questions.parent)  # as those of a point that was finished before its updates were kept
    table, folder = reattack(f"plane/{POINT}", ["attacks=[{name: ridge, most_blocks: 1}]"], None)
    assert table.title == f"plane {POINT}" and folder.parent == home / "work" / "attacks"
    rows = read_measurements(folder / "evaluation" / "rows.jsonl")
    assert {row["attack"] for row in rows if row["metric"] == "ap"} == {"ridge"}
    assert {row["experiment"] for row in rows} == {"plane"}
    assert "attack 3/3" in capsys.readouterr().err, "its progress"


def test_a_stage_that_fails_again_is_named_with_its_log(home: Path) -> None:
    index = open_finished(home, "tiny").outputs["observed"] / "index.parquet"
    index.rename(home / index.name)
    with pytest.raises(JobFailed, match=r"^tiny random-0: stage attack: "):
        reattack("tiny", [], None)
    (home / index.name).rename(index)
    assert list((home / "work" / "logs" / "attack").glob("tiny-random-0.attack.log"))


def test_what_cannot_be_attacked_is_named_in_one_line(home: Path) -> None:
    with pytest.raises(FedprintError, match=f"plane: name one of its jobs, as plane/<job>; there are {POINT}$"):
        open_finished(home, "plane")
    with pytest.raises(FedprintError, match="other: no update store of a fedprint run"):
        open_finished(home, "other")
    jobs = read_json(home / "reports" / "plane" / "jobs.json")
    jobs[POINT]["work"] = "fedprint.kinds.audit.graph:AUDIT_WORK"
    write_json(home / "reports" / "audit" / "jobs.json", jobs)
    with pytest.raises(FedprintError, match=r"audit: .*trains no federation whose updates are recorded"):
        open_finished(home, "audit")
    jobs = read_json(home / "reports" / "plane" / "jobs.json")
    jobs[POINT]["keys"]["federate"] = "dropped"
    write_json(home / "reports" / "light" / "jobs.json", jobs)
    with pytest.raises(FedprintError, match="its updates were not kept; run it again with --keep-updates"):
        open_finished(home, f"light/{POINT}")
