"""The cost of an experiment as users grow: seconds and peak memory of each part, on real writers.

Run: ``FEDPRINT_DATA=... OMP_NUM_THREADS=1 python benchmarks/scale.py [USERS ...]`` (default 145 290 580; the last is
the experiment writers-scale, about half an hour). Every stage runs in a new process, without DVC and MLflow; parts of
the attack are timed by the stage itself. The last lines give the exponent e of cost ~ users^e between the two largest.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from stages import STAGES, run_stage, task_of


def run_here(stage: str, base: Path, users: int) -> None:
    """Run in the child: one stage, and its peak memory in MiB at the end."""
    run_stage(stage, task_of(base, "writers-scale", [f"data.users={users}"]))
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    print(f"peak {peak:.0f} MiB", file=sys.stderr)


def measure(base: Path, users: int) -> dict[str, float]:
    """Return seconds of each part, peak memory of each stage, and the size of the store."""
    costs: dict[str, float] = {}
    for stage in STAGES:
        command = [sys.executable, __file__, "--stage", stage, str(base), str(users)]
        started = time.perf_counter()
        run = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if run.returncode:
            raise SystemExit(f"{stage} failed at {users} users:\n{run.stderr[-3000:]}")
        costs[f"{stage} s"] = time.perf_counter() - started
        costs[f"{stage} MiB"] = float(re.findall(r"peak (\d+) MiB", run.stderr)[-1])
        if stage == "attack":
            parts = re.findall(r"^([a-z-]+): ([0-9.]+) s$", run.stderr, re.MULTILINE)
            costs |= {f"  {name} s": float(seconds) for name, seconds in parts}
        print(f"{users} users: {stage} {costs[f'{stage} s']:.0f} s, {costs[f'{stage} MiB']:.0f} MiB", flush=True)
    observed = base / "observed"
    costs["store MiB"] = sum(path.stat().st_size for path in observed.rglob("*") if path.is_file()) / 2**20
    costs["total s"] = sum(costs[f"{stage} s"] for stage in STAGES)
    return costs


def table(results: Mapping[int, Mapping[str, float]]) -> str:
    """Return a Markdown table, a column per size and the growth between the two largest."""
    sizes = sorted(results)
    last = results[sizes[-1]]
    lines = ["| part | " + " | ".join(f"{size} users" for size in sizes) + " | users^e |"]
    lines.append("|---" * (len(sizes) + 2) + "|")
    for part in last:
        numbers = [results[size].get(part, math.nan) for size in sizes]
        exponent = "-"
        if len(sizes) > 1 and min(numbers[-2:]) > 0:
            exponent = f"{math.log(numbers[-1] / numbers[-2]) / math.log(sizes[-1] / sizes[-2]):.1f}"
        lines.append(f"| {part} | " + " | ".join(f"{number:.1f}" for number in numbers) + f" | {exponent} |")
    return "\n".join(lines)


def main(words: Sequence[str]) -> None:
    """Print the table."""
    if words[:1] == ["--stage"]:
        run_here(words[1], Path(words[2]), int(words[3]))
        return
    results = {}
    for users in [int(word) for word in words] or [145, 290, 580]:
        folder = Path(tempfile.mkdtemp(prefix="fedprint-scale-"))
        try:
            results[users] = measure(folder / "artifacts", users)
        finally:
            shutil.rmtree(folder)
    print(table(results))


if __name__ == "__main__":
    main(sys.argv[1:])
