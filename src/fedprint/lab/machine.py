"""The machine that jobs run on: how many cores there are, and what kind it is."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> str:
    """Return what kind of machine this is: its processor and how many cores it has.

    Not its name: a container that is started again has another one, and is as fast as before.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{platform.machine()} {model or platform.processor()} {cores()}"
