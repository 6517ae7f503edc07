"""A federation's stages one by one, each in a new process, without a lab: what single stages cost."""

from __future__ import annotations

import io
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measuring import ROOT, in_child, peak_mib
from fedprint.kinds.federation.config import load_experiment
from fedprint.kinds.federation.graph import FEDERATION
from fedprint.kinds.requests import request_for
from fedprint.lab.graph import Task
from fedprint.types import FedprintError

STAGES = tuple(stage.name for stage in FEDERATION.stages)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one stage took: seconds on the clock and of the processor, peak memory in MiB, seconds of its parts."""

    wall: float
    cpu: float
    peak: float
    parts: dict[str, float] = field(default_factory=dict)


def task_of(base: Path, experiment: str, assignments: Sequence[str]) -> Task:
    """Resolve an experiment for one prior and seed, with all outputs below ``base``, each under its name."""
    config = load_experiment(request_for(ROOT, experiment, assignments=assignments))
    paths = {output: base / output for stage in FEDERATION.stages for output in stage.outputs}
    scratch = base / ".scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return Task(config=config, prior="random", seed=0, item="random-0", paths=paths, scratch=scratch, key="benchmark")


def run_stage(stage: str, base: Path, experiment: str, assignments: Sequence[str]) -> Cost:
    """Run a stage in a new process and return its cost; raises FedprintError where it fails."""
    began = time.perf_counter()
    try:
        said = in_child("benchmarks.stages", stage, str(base), experiment, *assignments)
    except subprocess.CalledProcessError as error:
        raise FedprintError(f"stage {stage} of {experiment} failed: exit status {error.returncode}") from error
    return Cost(wall=time.perf_counter() - began, **json.loads(said.splitlines()[-1]))


def store_mib(base: Path) -> float:
    """Return the size of the updates as the server sees them."""
    return sum(path.stat().st_size for path in (base / "observed").rglob("*") if path.is_file()) / 2**20


if __name__ == "__main__":  # the child: it runs a stage and prints its cost
    name, where, chosen, *words = sys.argv[1:]
    with redirect_stderr(io.StringIO()) as said:
        FEDERATION.stage(name).function()(task_of(Path(where), chosen, words))
    used = resource.getrusage(resource.RUSAGE_SELF)
    attacks = re.findall(r"^([a-z-]+): ([0-9.]+) s$", said.getvalue(), re.MULTILINE)
    parts = {attack: float(seconds) for attack, seconds in attacks}
    print(json.dumps({"cpu": used.ru_utime + used.ru_stime, "peak": peak_mib(), "parts": parts}), flush=True)
