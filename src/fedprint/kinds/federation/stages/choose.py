"""Stage choose: the executor that trains clients, by a short trial where the configuration names none."""

from __future__ import annotations

import sys

import torch

from fedprint.data.formats.files import write_json
from fedprint.federation.backends import fastest, trial
from fedprint.federation.vectorised import default_block
from fedprint.kinds.federation.plan import load_trainees
from fedprint.lab.graph import Task
from fedprint.types import ClientJob


def run(task: Task) -> None:
    """Write the executor's name. Executors agree up to rounding, not to the bit, so a job keeps its first one."""
    torch.set_num_threads(1)
    name = task.config.federation.backend
    if name == "auto":
        trainees = load_trainees(task.config, task.device)
        devices = trainees.devices[: default_block(task.device, trainees.model)]
        jobs = [ClientJob(device_id=d.device_id, examples=d.examples, seed=0) for d in devices]
        seconds = trial(trainees.model, jobs, trainees.params, task.config.federation.local_training())
        name = fastest(seconds)
        shown = ", ".join(f"{candidate} {1000 * s:.1f} ms" for candidate, s in seconds.items())
        print(f"executor: {name} (per client: {shown})", file=sys.stderr, flush=True)
    write_json(task.at("executor") / "executor.json", {"backend": name})
