"""The files that DVC parses and git holds are those that configs/ and the declaration of the stages give."""

from __future__ import annotations

from pathlib import Path

from tiny_project import CHECKOUT

from fedprint.kinds.config_files import read_yaml
from fedprint.kinds.federation.config import load_experiment
from fedprint.kinds.requests import request_for
from fedprint.kinds.versioned import QUICKSTART, pipeline_of
from fedprint.lab.versions.dvc_yaml import dvc_yaml, params_yaml

REMEDY = "python -m fedprint.kinds.versioned writes it"


def test_the_committed_pipeline_is_the_declared_one() -> None:
    config = load_experiment(request_for(CHECKOUT, QUICKSTART))
    pipeline = pipeline_of(config)
    _equal("dvc.yaml", dvc_yaml(pipeline))
    _equal("params.yaml", params_yaml(CHECKOUT, pipeline.configs, config.split.priors, config.seeds))
    _equal(f"experiments/{QUICKSTART}/config.yaml", config.text())


def test_every_lock_has_its_declaration_and_its_numbers_in_git() -> None:
    for lock in (CHECKOUT / "experiments").glob("*/dvc.lock"):
        names = {path.name for path in lock.parent.iterdir()}
        assert {"dvc.yaml", "config.yaml", "metrics.json", "measurements.jsonl", "published.json"} <= names, lock.parent


def test_confirmation_differs_from_development_by_its_users_alone() -> None:
    here, there = (
        read_yaml(CHECKOUT / "configs" / "experiments" / f"mnist-writers-linked{ending}.yaml")
        for ending in ("-confirmation", "")
    )
    assert here.pop("beside") == "mnist-writers-linked" and here["with"]["data"].pop("skip") == 100
    assert {**here, "report": None} == {**there, "report": None}


def _equal(name: str, expected: str) -> None:
    assert (Path(CHECKOUT) / name).read_text(encoding="utf-8") == expected, f"{name} is another: {REMEDY}"
