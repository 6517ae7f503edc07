"""A study of two strategies on the tiny experiment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from tiny_project import Project

from fedprint.kinds.requests import request_for
from fedprint.kinds.study.config import Study, load_study

STUDY: Mapping[str, Any] = {
    "report": {"title": "A study"},
    "experiment": "tiny",
    "with": {"federation": {"rounds": 4}},
    "ceiling": {"updates": 1, "times_chance": 5},
    "trials": 3,
    "seeds": [0, 1],
    "fresh_seeds": [10, 11],
    "strategies": [
        {"name": "noise", "defences": [{"name": "noise", "sigma": "$sigma"}],
         "space": {"sigma": {"low": 0.01, "high": 1, "log": True}}},
        {"name": "both", "defences": [{"name": "rand-aug", "alpha": "$alpha"}, {"name": "quantise", "bits": "$bits"}],
         "space": {"alpha": {"low": 0, "high": 2}, "bits": {"low": 1, "high": 8, "integer": True}}},
    ],
    "fast": {"trials": 2, "with": {"federation": {"rounds": 2}}},
}  # fmt: skip


def write_study(project: Project, name: str, values: Mapping[str, Any]) -> None:
    path = project.root / "configs" / "studies" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(dict(values)), encoding="utf-8")


def study_of(root: Path, name: str = "demo", **asked: Any) -> Study:
    """Resolve a study."""
    return load_study(request_for(root, name, folders=["studies"], **asked))
