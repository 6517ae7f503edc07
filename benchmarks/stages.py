"""A federation's stages one by one in this process, without a lab: for benchmarks that measure single stages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedprint.kinds.federation.config import load_experiment
from fedprint.kinds.federation.graph import FEDERATION
from fedprint.kinds.requests import request_for
from fedprint.lab.graph import Task

ROOT = Path(__file__).parents[1]
STAGES = tuple(stage.name for stage in FEDERATION.stages)


def task_of(base: Path, experiment: str, assignments: Sequence[str]) -> Task:
    """Resolve an experiment for one prior and seed, with all outputs below ``base``, each under its name."""
    config = load_experiment(request_for(ROOT, experiment, assignments=assignments))
    paths = {output: base / output for stage in FEDERATION.stages for output in stage.outputs}
    scratch = base / ".scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return Task(config=config, prior="random", seed=0, item="random-0", paths=paths, scratch=scratch, key="benchmark")


def run_stage(stage: str, task: Task) -> None:
    """Run a stage."""
    FEDERATION.stage(stage).function()(task)
