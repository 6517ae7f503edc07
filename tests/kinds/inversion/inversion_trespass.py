"""Adversaries whose stages have the declaration of the real ones, and open what that does not allow."""

from __future__ import annotations

import json
from dataclasses import replace

from safetensors.torch import load_file

from fedprint.kinds.inversion.graph import ADAPTIVE, NAIVE, NAIVE_WORK
from fedprint.lab.graph import Graph, Task, Work

HIDDEN = ("truth/images.safetensors", "queries/images.safetensors", "candidates/images.safetensors")
MECHANISM = "public/mechanism.json"


def snoop(task: Task) -> None:
    """Try to open what lies beside the input, and write what was said to it."""
    beside = task.at("observed").resolve().parent
    found = {}
    for name in (*HIDDEN, MECHANISM):
        ways = {"open": lambda path: path.read_bytes(), "safetensors": load_file}
        for how, opener in ways.items():
            try:
                opener(beside / name)
                found[f"{name} by {how}"] = "opened"
            except Exception as error:
                found[f"{name} by {how}"] = f"{type(error).__name__}: {error}"
    task.at("reconstructed").mkdir()
    (task.at("reconstructed") / "found.json").write_text(json.dumps(found))


def cheat(task: Task) -> None:
    """Open the truth by its absolute path."""
    (task.at("observed").resolve().parent / HIDDEN[0]).read_bytes()


def _work(name: str, of: Graph, run: str, also: str) -> Work:
    """Return a job with another search; ``also`` is code that gives it a key of its own."""
    stages = {stage.name: stage for stage in of.stages}
    stage = replace(stages["invert"], run=f"{__name__}:{run}", code=(*stages["invert"].code, also))
    graph = Graph((stages["draw"], stages["expose"], stage))
    return Work(path=f"{__name__}:{name}", graph=graph, parse=NAIVE_WORK.parse)


NAIVE_SNOOPING = _work("NAIVE_SNOOPING", NAIVE, "snoop", "errors.py")
ADAPTIVE_SNOOPING = _work("ADAPTIVE_SNOOPING", ADAPTIVE, "snoop", "errors.py")
CHEATING = _work("CHEATING", NAIVE, "cheat", "component.py")
