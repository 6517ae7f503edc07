"""One tiny albums experiment in a project of its own, without DVC and MLflow."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from fedprint.kinds.federation.config import Experiment
    from fedprint.lab.graph import Task

CHECKOUT = Path(__file__).parents[2]
TINY: Mapping[str, Any] = {
    "report": {"title": "Tiny albums"},
    "data": {"name": "albums", "users": 8, "images": 30, "background_users": 8, "bias": 1.0},
    "split": {"priors": ["random"]},
    "model": {"name": "cnn", "channels": [4, 8], "hidden": 16, "centred": True},
    "federation": {"rounds": 8, "fraction": 0.5, "lr": 0.3, "backend": "sequential", "central_epochs": 1},
    "attacks": [{"name": "chance"}, {"name": "knn", "k": 3, "layers": ["head"]}, {"name": "ridge", "most_blocks": 1}],
    "analyses": [{"name": "training-updates", "most": 4}],
    "selection": {"shadow_rounds": 4},
    "evaluation": {"resamples": 200, "permutations": 199, "round_bins": 3},
}
"""A run of seconds in which users are nevertheless recognisable."""


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project in a folder of its own with this checkout's configs; stages run in this process, without a lab."""

    root: Path

    def write(self, name: str, values: Mapping[str, Any]) -> None:
        """Write configs/experiments/<name>.yaml."""
        path = self.root / "configs" / "experiments" / f"{name}.yaml"
        path.write_text(yaml.safe_dump(dict(values)), encoding="utf-8")

    def task(self, name: str, prior: str = "random", seed: int = 0) -> Task:
        """Resolve an experiment and return one prior and seed of it, with its outputs below stages/<name>/."""
        config = resolved(self.root, name)
        return task_of(config, prior, seed, self.root / "stages" / name / f"{prior}-{seed}")

    def run(self, name: str, values: Mapping[str, Any], *, until: str = "evaluate") -> Task:
        """Write an experiment, and run its stages ``until`` one of them."""
        self.write(name, values)
        task = self.task(name)
        run_stages(task, until=until)
        return task


def resolved(root: Path, name: str, *, fast: bool = False, assignments: Sequence[str] = ()) -> Experiment:
    """Return an experiment by its name or file."""
    from fedprint.kinds.federation.config import load_experiment
    from fedprint.kinds.requests import request_for

    return load_experiment(request_for(root, name, fast=fast, assignments=assignments))


def task_of(config: Experiment, prior: str, seed: int, folder: Path) -> Task:
    """Return a task that may open all outputs of a federation's stages, each in a folder of its name."""
    from fedprint.kinds.federation.graph import FEDERATION
    from fedprint.lab.graph import Task

    places = {output: folder / output for stage in FEDERATION.stages for output in stage.outputs}
    scratch = folder / ".scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return Task(
        config=config, prior=prior, seed=seed, item=f"{prior}-{seed}", paths=places, scratch=scratch, key="test"
    )


def run_stages(task: Task, *, first: str = "prepare", until: str = "evaluate") -> None:
    """Run the stages of a federation in this process, from ``first`` ``until`` one of them; outputs are made anew."""
    from fedprint.kinds.federation.graph import FEDERATION

    names = [stage.name for stage in FEDERATION.stages]
    for stage in FEDERATION.stages[names.index(first) : names.index(until) + 1]:
        for folder in (task.scratch, *map(task.at, stage.outputs)):
            shutil.rmtree(folder, ignore_errors=True)
        task.scratch.mkdir()
        stage.function()(task)


def copy_of(task: Task, folder: Path) -> Task:
    """Return the task with its outputs copied to another folder, to change them."""
    source = task.scratch.parent
    shutil.copytree(source, folder)
    places = {name: folder / path.relative_to(source) for name, path in task.paths.items()}
    return replace(task, paths=places, scratch=folder / task.scratch.name)


def make_project(root: Path) -> Project:
    """Create a project in an existing folder."""
    shutil.copytree(CHECKOUT / "configs", root / "configs")
    shutil.copy(CHECKOUT / "dvc.yaml", root / "dvc.yaml")
    (root / "pyproject.toml").touch()
    return Project(root=root)


@contextmanager
def project_in(root: Path) -> Iterator[Project]:
    """Create a project in an existing folder, which is the current directory meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPRINT_ROOT", str(root))
        patch.chdir(root)
        yield make_project(root)
