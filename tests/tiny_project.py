"""One tiny albums experiment in a project of its own, without DVC and MLflow."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from fedprint.pipeline.stages.paths import Job

CHECKOUT = Path(__file__).parents[1]
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
    """A project in a folder of its own with this checkout's configs; its stages run here, without DVC and MLflow."""

    root: Path

    def write(self, name: str, values: Mapping[str, Any]) -> None:
        """Write configs/experiments/<name>.yaml."""
        path = self.root / "configs" / "experiments" / f"{name}.yaml"
        path.write_text(yaml.safe_dump(dict(values)), encoding="utf-8")

    def job(self, name: str, prior: str = "random", seed: int = 0) -> Job:
        """Resolve an experiment as the first stage does, and open one item of its matrix."""
        from fedprint.pipeline.config import dump_yaml, load_experiment
        from fedprint.pipeline.stages.paths import Job, Paths

        config = load_experiment(self.root, name)
        base = self.root / "artifacts" / name
        base.mkdir(parents=True, exist_ok=True)
        (base / "config.yaml").write_text(dump_yaml(config), encoding="utf-8")
        found = next(p for p in config.split.priors if p == prior)
        return Job(config=config, prior=found, seed=seed, paths=Paths(base=base, item=f"{prior}-{seed}"))

    def run(self, name: str, values: Mapping[str, Any], *, until: str = "evaluate") -> Job:
        """Write an experiment, and run its stages ``until`` one of them."""
        self.write(name, values)
        found = self.job(name)
        run_job(found, until=until)
        return found


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


def run_job(job: Job, *, until: str = "evaluate") -> None:
    """Run every stage but the report, ``until`` one of them."""
    from fedprint.pipeline.stages import analyse, ask, attack, evaluate, federate, prepare

    stages = {"prepare": prepare, "federate": federate, "ask": ask, "attack": attack, "analyse": analyse}
    for name, stage in {**stages, "evaluate": evaluate}.items():
        stage.run(job)
        if name == until:
            return
