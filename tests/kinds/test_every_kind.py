"""What is promised of every kind of experiment, checked for each that the registry names: a new one cannot forget.

A kind without an example here fails: give it one of seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc_project import dvc, git
from mlflow import MlflowClient
from tiny_inversion import SMALL, write_blobs
from tiny_project import CHECKOUT, TINY, Project
from tiny_study import STUDY

from fedprint.data.formats.files import read_json
from fedprint.errors import FedprintError
from fedprint.kinds import driver, registry
from fedprint.kinds.base import Findings, Kind
from fedprint.kinds.config_files import read_yaml
from fedprint.kinds.laboratory import lab_in, laboratory
from fedprint.kinds.registry import BUILT_IN, kind_of
from fedprint.kinds.requests import request_for
from fedprint.lab.runner import Lab
from fedprint.lab.tracking.database import tracking_uri
from fedprint.lab.workers.pool import ServerPool

_NOISE = {"name": "noise", "defences": [{"name": "noise", "sigma": "$strength"}], "strengths": [0.1]}
EXAMPLES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "federation": ("experiments", TINY),
    "plane": ("experiments", {"report": {"title": "p"}, "experiment": "tiny", "seeds": [0], "strategies": [_NOISE]}),
    "study": ("studies", {**STUDY, "trials": 2, "seeds": [0], "fresh_seeds": [10],
                          "strategies": STUDY["strategies"][:1]}),
    "suite": ("experiments", {"report": {"title": "s"}, "members": [{"experiment": "tiny"}]}),
    "inversion": ("experiments", {**SMALL, "mechanisms": SMALL["mechanisms"][:2], "attacks": SMALL["attacks"][1:]}),
    "clients": ("experiments", {
        "report": {"title": "c"},
        "data": {"name": "blobs", "train": 60, "test": 40},
        "network": {"name": "mlp", "hidden": 8},
        "training": {"rounds": 2},
        "partitions": [{"name": "iid"}],
        "clients": [2],
        "methods": [{"name": "fedavg"}],
    }),
    "audit": ("experiments", {
        "report": {"title": "a"},
        "experiment": "tiny",
        "with": {"defences": [{"name": "dp-fedavg", "clip": 0.01, "z": 1.0, "budget": {"delta": 1e-2}}],
                 "federation": {"rounds": 2}},
        "canaries": 20,
    }),
}  # fmt: skip
"""Kind -> the folder below configs/ and a file of seconds."""

OTHER = "vectorised:2"
_WITH_BACKEND: Mapping[str, Mapping[str, Any]] = {
    "federation": {"federation": {**TINY["federation"], "backend": OTHER}},
    "clients": {"training": {**EXAMPLES["clients"][1]["training"], "backend": OTHER}},
}

kinds = pytest.mark.parametrize("kind", registry.kinds(), ids=lambda kind: kind.name)


@pytest.fixture
def home(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with an example of each kind, and data."""
    write_blobs(tmp_path / "data")
    monkeypatch.setenv("FEDPRINT_DATA", str(tmp_path / "data"))
    project.write("tiny", TINY)
    for kind, (folder, values) in EXAMPLES.items():
        path = project.root / "configs" / folder / f"a-{kind}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(json.loads(json.dumps(values))), encoding="utf-8")
    return project


@kinds
def test_every_kind_has_an_example_and_is_found_by_its_file(kind: Kind[Any]) -> None:
    _, values = EXAMPLES[kind.name]
    assert kind_of(values).name == kind.name


@kinds
def test_stages_that_attack_open_no_truth(kind: Kind[Any], home: Project) -> None:
    asked = request_for(home.root, f"a-{kind.name}")
    for job in kind.jobs(kind.load(asked)):
        for stage in job.work.graph.stages:
            if stage.name in {"attack", "analyse", "invert", "naive", "adaptive", "seek", "reconstruct", "trace"}:
                assert not {"truth", "answers", "private", "test"} & set(stage.inputs), stage.name
                assert not stage.data, f"{stage.name} could open the victims' data at their source"


@kinds
def test_jobs_train_on_the_configured_backend(kind: Kind[Any], home: Project) -> None:
    """No kind may compute with another backend than the configuration says, as planes and client sweeps once did."""
    path = home.root / "configs" / EXAMPLES[kind.name][0] / f"a-{kind.name}.yaml"
    values = read_yaml(path)
    told = {**values, **_WITH_BACKEND.get(kind.name, {})}
    path.write_text(yaml.safe_dump(json.loads(json.dumps(told))), encoding="utf-8")
    home.write("tiny", {**TINY, "federation": {**TINY["federation"], "backend": OTHER}})
    config = kind.load(request_for(home.root, f"a-{kind.name}"))
    with laboratory(home.root, kind, config, jobs=2) as lab:
        for job in kind.jobs(config):
            trains = [stage for stage in job.work.graph.stages if stage.name in ("federate", "canaries", "train")]
            if kind.name == "inversion":
                continue  # its federations send single gradients, which no backend trains
            assert all("executor" in stage.inputs for stage in trains) and trains, job.label
            done = lab_in(home.root, lab.pool, tracker=None).one(job, title="chosen", want=["choose"])
            assert read_json(done.outputs["executor"] / "executor.json") == {"backend": OTHER}, job.label


@kinds
def test_every_kind_trains_on_the_configured_hardware(
    kind: Kind[Any], home: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.root / "configs" / EXAMPLES[kind.name][0] / f"a-{kind.name}.yaml"
    path.write_text(f"accelerator: gpu\ndevices: 2\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
    asked, nobody = request_for(home.root, f"a-{kind.name}"), ServerPool(home.root / "nobody")
    monkeypatch.setattr("fedprint.kinds.laboratory.gpu_count", lambda: 1)
    with pytest.raises(FedprintError, match="accelerator: gpu, devices: 2: there are 1 GPUs"):
        driver.run(asked, pool=nobody)
    monkeypatch.setattr("fedprint.kinds.laboratory.gpu_count", lambda: 3)
    for assigned, count in (((), 2), (("accelerator=cpu", "devices=null"), 0)):
        request = request_for(home.root, f"a-{kind.name}", assignments=assigned)
        labs: list[Lab] = []
        monkeypatch.setattr(type(kind), "carry_out", lambda self, config, lab, out, labs=labs: _end(labs, lab))
        with pytest.raises(FedprintError, match="seen"):
            driver.run(request, pool=nobody)
        assert [(lab.device, lab.gpus.count) for lab in labs] == [("cuda" if count else "cpu", count)]


def _end(labs: list[Lab], lab: Lab) -> Findings:
    labs.append(lab)
    raise FedprintError("seen")


@pytest.mark.slow
@kinds
def test_a_kind_runs_through_the_lab_and_is_tracked_and_versioned(
    kind: Kind[Any], home: Project, versioned: Path
) -> None:
    root = versioned
    asked = request_for(root, f"a-{kind.name}")
    folder = driver.run(asked, jobs=2)
    assert (folder / "measurements.jsonl").stat().st_size
    assert json.loads((folder / "jobs.json").read_text()), "which results the report was made from"
    _check_tracking(root, kind, asked.name)
    kept = {"config.yaml", "dvc.lock", "dvc.yaml", "measurements.jsonl", "metrics.json"}
    assert kept <= {path.name for path in (root / "experiments" / asked.name).iterdir()}
    assert not git(root, "diff", "--cached", "--name-only"), "running stages nothing in git"
    git(root, "add", "-A")
    driver.run(asked, jobs=1, renew=True)
    assert not git(root, "diff", "--name-only"), "a second run leaves equal files"
    assert "up to date" in dvc(root, "status").stdout


@pytest.mark.slow
@kinds
def test_results_do_not_depend_on_the_cache(kind: Kind[Any], home: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request_for(home.root, f"a-{kind.name}", name="one")
    config = kind.load(asked)
    with laboratory(home.root, kind, config, jobs=2) as lab:
        jobs = list(kind.jobs(config))[:1]
        first = lab.run(jobs, title="first")
        again = lab_in(home.root, lab.pool, tracker=None)
        assert isinstance(again, Lab)
        assert [one.known for one in again.run(jobs, title="again")] == [True] * len(first)  # type: ignore[union-attr]


def _check_tracking(root: Path, kind: Kind[Any], name: str) -> None:
    client = MlflowClient(tracking_uri=tracking_uri(root))
    experiments = [each.experiment_id for each in client.search_experiments()]
    runs = client.search_runs(experiments, f"tags.`fedprint.group` = '{name}'")
    reports = [run for run in runs if run.data.tags.get("fedprint.part") == "report"]
    jobs = [run for run in runs if run not in reports]
    assert len(reports) == 1 and jobs, "a run for the report and one for each job"
    for run in runs:
        assert run.info.status == "FINISHED"
        assert run.inputs.dataset_inputs, f"{run.info.run_name}: data set"
        assert run.data.tags["mlflow.user"] and run.data.tags["mlflow.source.name"]
    for run in jobs:
        assert len(run.data.params) > 10, f"{run.info.run_name}: the whole configuration"
        numbers = {metric for metric in run.data.metrics if not metric.startswith("system/")}
        assert numbers, run.info.run_name
        if "fedprint.trial" not in run.data.tags:  # a trial computes nothing itself: its points do
            assert any(metric.startswith("system/") for metric in run.data.metrics), "load of the machine"
    if kind.name != "audit":  # an audit trains a model for its canaries and keeps none
        assert any(run.outputs and run.outputs.model_outputs for run in jobs), "a trained model"
        curves = [client.get_metric_history(run.info.run_id, "train/loss") for run in jobs]
        assert max(map(len, curves)) > 1, "metrics by round"
    assert client.list_artifacts(reports[0].info.run_id)


def test_our_kinds_have_the_names_and_marks_by_which_they_are_found() -> None:
    assert tuple((kind.name, kind.mark) for kind in registry.kinds())[: len(BUILT_IN)] == BUILT_IN


def test_a_command_imports_the_kind_of_its_file_alone_and_nothing_that_trains() -> None:
    code = (
        "import sys; from fedprint.kinds.registry import kind_of; kind_of({});"
        "print([name for name in ('lightning', 'mlflow', 'fedprint.kinds.inversion.kind') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


def test_shipped_files_are_each_of_one_kind() -> None:
    for path in [*(CHECKOUT / "configs").glob("*/*.yaml")]:
        values = read_yaml(path)
        marked = [kind.name for kind in registry.kinds() if kind.mark is not None and kind.mark in values]
        assert len(marked) <= 1 or kind_of(values).name == "study", path
