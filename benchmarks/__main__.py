"""Measure what the code costs: ``make bench``, or ``python -m benchmarks`` in the environment.

A full run takes about an hour, replaces this machine's parts in benchmarks/results/ and writes benchmarks/RESULTS.md;
a run with --quick takes at most ten minutes, prints its tables and writes neither. Every part runs in a process of its
own; one that fails does not stop the others, and the program then ends with status 1. Finished parts of a run that was
stopped are kept in work/bench/, by commit, and not measured again; with uncommitted changes everything is measured.

Examples:
  make bench
  make bench ARGS="--quick --json bench.json"
  make bench ARGS="--only engine,store"
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.measuring import ROOT, say
from benchmarks.results import commit, keep, moment, part_text, this_machine, write_page

PARTS = {
    "engine": ("benchmarks.engine:measure", "executors beside a plain PyTorch loop: W1, W2, W3"),
    "models": ("benchmarks.engine:measure_models", "every shipped model: the executor of auto beside the loop"),
    "bounds": ("benchmarks.bounds:measure", "what products alone take of a round of W1, W2, W3"),
    "pfl": ("benchmarks.beside_peers:measure_pfl", "pfl 0.6 beside the same loop"),
    "flwr": ("benchmarks.beside_peers:measure_flwr", "Flower 1.41 beside the same loop"),
    "recording": ("benchmarks.recording:measure", "recording's share of training time, and memory by rounds"),
    "store": ("benchmarks.store:measure", "the update store beside a raw write and read"),
    "attacks": ("benchmarks.attacking:measure", "ridge, SVM and kNN by users"),
    "precision": (
        "benchmarks.precision:measure",
        "ridge's AP by federation.precision (needs MNIST's writers)",
    ),
    "inversion": ("benchmarks.inversion:measure", "gradient matching beside the serial reference (needs CIFAR-10)"),
    "networks": ("benchmarks.networks:measure", "AlexNet and VGG16 by FedAvg (needs a GPU and CIFAR-10)"),
    "auditing": ("benchmarks.auditing:measure", "an audit of recorded updates, from the files to the report"),
    "accounting": ("benchmarks.accounting:measure", "epsilon by every accountant"),
    "laboratory": ("benchmarks.laboratory:measure", "a stage in a fork, and the bootstrap over users"),
    "scaling": ("benchmarks.scaling:measure", "cost by cohort, parameters, updates, workers and users"),
    "writers": ("benchmarks.scaling:measure_writers", "the stages of a study by users (needs MNIST's writers)"),
}
"""By name: the function that measures (it takes ``quick`` and returns a Section), and what it measures."""

FINISHED = ROOT / "work" / "bench"
LIMIT_S, QUICK_LIMIT_S = 7200, 570
"""Seconds after which a run stops: the part that runs then, and those after it, have no result."""


def main(words: Sequence[str] | None = None) -> int:
    """Measure what was asked for; return the exit status."""
    listing = "\n".join(f"  {name:11} {what}" for name, (_, what) in PARTS.items())
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("make bench", description=f"{__doc__}\nparts:\n{listing}", formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="few rounds and small sizes")
    parser.add_argument("--only", metavar="PART[,PART]", help="these parts")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all results there too")
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)  # the child: a part and the file of its result
    given = parser.parse_args(words)
    if given.part:
        section = run_part(given.part[0], given.quick)
        Path(given.part[1]).write_text(json.dumps(section))
        return 0
    names = given.only.split(",") if given.only else list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"--only: unknown part '{unknown[0]}'; choose of {', '.join(PARTS)}")
    return benchmark(names, given.quick, given.json)


def run_part(name: str, quick: bool) -> dict[str, Any]:
    """Measure a part here and return its result as JSON's types."""
    module, _, function = PARTS[name][0].partition(":")
    # Before it is measured, because some parts keep this process to one core.
    before, began = {**moment(), "machine": this_machine()}, time.perf_counter()
    section = getattr(import_module(module), function)(quick)
    return {**before, "seconds": time.perf_counter() - began, **section.json()}


def benchmark(names: Sequence[str], quick: bool, path: Path | None) -> int:
    """Measure the parts one after another, each in a process of its own, and write the results."""
    now, end = commit(), time.monotonic() + (QUICK_LIMIT_S if quick else LIMIT_S)
    finished = FINISHED / f"{now}{'-quick' if quick else ''}"
    if now == "unknown" or now.endswith("-dirty"):
        shutil.rmtree(finished, ignore_errors=True)
    finished.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Any] = {}
    for name in names:
        file = finished / f"{name}.json"
        if file.exists():
            say(f"{name}: measured before")
            parts[name] = json.loads(file.read_text())
        else:
            say(f"{name}: {PARTS[name][1]}")
            parts[name] = in_process_of_its_own(name, quick, file, end - time.monotonic())
        if "error" in parts[name]:
            say(f"{name}: {parts[name]['error']}")
        elif quick:
            print(part_text(name, parts[name]), flush=True)
    if not quick:
        keep(parts)
        write_page()
    if path:
        path.write_text(json.dumps(summary(quick, parts), indent=1) + "\n")
    shutil.rmtree(finished, ignore_errors=True)
    failed = [name for name, part in parts.items() if "error" in part]
    say(f"failed: {', '.join(failed)}" if failed else "all parts measured")
    return 1 if failed else 0


def in_process_of_its_own(name: str, quick: bool, file: Path, limit: float) -> dict[str, Any]:
    """Measure a part within ``limit`` seconds, write its result to ``file`` and return it, or why there is none."""
    if limit <= 0:
        return {"error": "no time was left"}
    partial = file.with_suffix(".partial")
    command = [sys.executable, "-m", "benchmarks", "--part", name, str(partial), *(["--quick"] if quick else [])]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=sys.stderr, start_new_session=True) as child:
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            return {"error": f"stopped after {limit:.0f} s"}
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)  # with the processes that it started
    if status:
        return {"error": f"exit status {status}; its last words are above"}
    partial.replace(file)
    return dict(json.loads(file.read_text()))


def summary(quick: bool, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what --json writes: first the ratios to the plain loop by workload, then every part whole."""

    def column(part: str, name: str) -> dict[str, float]:
        return {c["row"]: c["value"] for c in parts.get(part, {}).get("cells", ()) if c["column"] == name}

    return {
        "ratio_to_plain_loop": column("engine", "auto"),
        "peers": {peer: ratios for peer in ("pfl", "flwr") if (ratios := column(peer, peer))},
        "slowest_model_to_plain_loop": max(column("models", "over the loop").values(), default=None),
        "recording_share": column("recording", "share of training"),
        "quick": quick,
        "parts": dict(parts),
    }


if __name__ == "__main__":
    sys.exit(main())
