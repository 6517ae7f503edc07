"""The example plug-in as if it were installed: its package on the path, and the entry points of its pyproject.toml."""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path

from tiny_project import CHECKOUT

PLUGIN = CHECKOUT / "examples" / "plugin"


def installed_in(site: Path) -> dict[str, str]:
    """Copy the plug-in to a folder, as pip would install it, and return the environment of a process that finds it."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shutil.copytree(PLUGIN / "fedprint_example", site / "fedprint_example", dirs_exist_ok=True)
    info = site / f"fedprint_example-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items()) for group, points in groups
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return environment(site)


def environment(site: Path) -> dict[str, str]:
    """Return this process's environment with a folder of packages and this checkout first on Python's path."""
    paths = [str(site), str(CHECKOUT / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
