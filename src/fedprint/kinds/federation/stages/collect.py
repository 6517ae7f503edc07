"""Stage collect: what a point is judged by, in one folder, before the updates are dropped."""

from __future__ import annotations

import shutil

from fedprint.lab.graph import Task


def run(task: Task) -> None:
    """Copy every input into the folder, under its name."""
    for name, path in task.paths.items():
        if name != "collected":
            shutil.copytree(path, task.at("collected") / name)
