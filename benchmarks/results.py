"""Results of the benchmark: a JSON file per machine in ``results/``, and RESULTS.md and plots made of them all."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.measuring import ROOT, Curve, Section, short

FOLDER = ROOT / "benchmarks" / "results"
PAGE = ROOT / "benchmarks" / "RESULTS.md"
HEAD = """# Benchmark results

Written by `make bench` from `results/*.json`, a file per machine; do not edit it. Square brackets hold 95 % intervals.
Engines that are compared take turns in one process. Every part names its date, commit and the machine's load.
"""


def this_machine() -> dict[str, Any]:
    """Return what the numbers depend on: the processor and its cores, memory, GPU, and the versions."""
    import numpy as np
    import psutil
    import torch

    from fedprint.lab.machine import machine

    return {
        "machine": machine(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def moment() -> dict[str, Any]:
    """Return the date, the commit ("-dirty" where files differ from it) and the load of the last minute."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "commit": commit(),
        "load": round(os.getloadavg()[0], 1),
    }


def commit() -> str:
    """Return the commit's short name; "unknown" without git."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return run.stdout.strip() or "unknown"


def file_of(known: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Return a machine's file: it is named by the processor, the cores and the GPU."""
    name = f"{known['machine']} {known['gpu'] or ''}".lower()
    return folder / f"{re.sub(r'[^a-z0-9]+', '-', name).strip('-')}.json"


def keep(parts: Mapping[str, Any], folder: Path = FOLDER) -> None:
    """Write results to the files of their machines: they replace parts of the same name; parts that failed do not."""
    folder.mkdir(exist_ok=True)
    for name, part in parts.items():
        if "error" in part:
            continue
        path = file_of(part["machine"], folder)
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**before, name: part}, indent=1) + "\n")


def write_page(folder: Path = FOLDER, page: Path = PAGE) -> None:
    """Write the page and the plots from the files of all machines."""
    texts = [HEAD]
    for path in sorted(folder.glob("*.json")):
        parts = json.loads(path.read_text())
        known = next(iter(parts.values()))["machine"]
        texts.append(f"## {', '.join(filter(None, (known['machine'] + ' cores', known['gpu'])))}\n")
        for name, part in parts.items():
            plot = folder / f"{path.stem}-{name}.svg"
            texts.append(part_text(name, part, plot.relative_to(page.parent) if draw(part, plot) else None))
    page.write_text("\n".join(texts))


def part_text(name: str, part: Mapping[str, Any], plot: Path | None = None) -> str:
    """Return a part as Markdown: its heading, tables, notes and plot."""
    known = part["machine"]
    numpy = f", numpy {known['numpy']}" if known["numpy"] else ""
    versions = f"Python {known['python']}, torch {known['torch']}{numpy}, {known['memory_gib']} GiB"
    took = None if part["seconds"] is None else round(part["seconds"])
    stamp = {"": part["date"], "commit ": part["commit"], "load ": part["load"], "seconds ": took}
    when = ", ".join(f"{word}{value}" for word, value in stamp.items() if value is not None) + f"; {versions}"
    section = Section.of(part)
    blocks = [f"### {name}\n\n{when}.\n", *([table(section)] if section.cells else [])]
    blocks += [curve_table(section.curves)] if section.curves else []
    blocks += [f"![{name}]({plot})\n"] if plot else []
    return "\n".join((*blocks, *(f"{note}\n" for note in section.notes)))


def table(section: Section) -> str:
    """Return the cells as a Markdown table, rows and columns in the order in which they first occur."""
    columns = list(dict.fromkeys(cell.column for cell in section.cells))
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for row in dict.fromkeys(cell.row for cell in section.cells):
        texts = {cell.column: cell.text() for cell in section.cells if cell.row == row}
        lines.append(f"| {row} | " + " | ".join(texts.get(column, "") for column in columns) + " |")
    return "\n".join(lines) + "\n"


def curve_table(curves: tuple[Curve, ...]) -> str:
    """Return a line per curve: the costs at all sizes, and the exponent."""
    lines = ["| cost | of | by size | exponent |", "|---|---|---|---|"]
    for one in curves:
        costs = ", ".join(f"{size:,.0f}: {short(cost)}" for size, cost in zip(one.sizes, one.costs, strict=True))
        interval = "" if one.lo is None or one.hi is None else f" [{one.lo:.2f}, {one.hi:.2f}]"
        exponent = "" if one.exponent is None else f"{one.exponent:.2f}{interval}"
        lines.append(f"| {one.title}, {one.cost} | {one.size} | {costs} | {exponent} |")
    return "\n".join(lines) + "\n"


def draw(part: Mapping[str, Any], path: Path) -> bool:
    """Draw a part's curves, one panel per kind of size, both axes logarithmic; return whether there are any."""
    curves = [one for one in Section.of(part).curves if len(one.sizes) > 1]
    path.unlink(missing_ok=True)
    if not curves:
        return False
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "benchmarks"  # the same curves give the same file
    from matplotlib import pyplot

    kinds = list(dict.fromkeys(one.size for one in curves))
    figure, panels = pyplot.subplots(1, len(kinds), figsize=(4.2 * len(kinds), 3.6), squeeze=False)
    for panel, kind in zip(panels[0], kinds, strict=True):
        for one in (one for one in curves if one.size == kind):
            panel.loglog(one.sizes, one.costs, "o-", label=f"{one.title}, {one.cost}: {one.exponent:.2f}")
        panel.set_xlabel(kind)
        panel.legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return True
