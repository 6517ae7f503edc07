"""Freeing disk space: what no report needs goes, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from fedprint.kinds.plane.point_pool import in_use
from fedprint.kinds.workspace import experiments_folder, stage_environment, workspace_lock
from fedprint.types import FedprintError


def reported(root: Path) -> frozenset[str]:
    """Return the names of the experiments that have a published report, a suite's members as ``suite.member``."""
    pages = [*(root / "reports").glob("[!.]*/index.html"), *(root / "reports").glob("[!.]*/[!.]*/index.html")]
    return frozenset(".".join(page.parent.relative_to(root / "reports").parts) for page in pages)


def clean(root: Path, keep: Collection[str], *, dry_run: bool = False) -> int:
    """Remove what no experiment of ``keep`` needs, and return the bytes this frees (would free, when ``dry_run``).

    Goes: workspaces and outputs of other experiments, checkpoints of killed runs (work/checkpoints), what points were
    computed from (work/points/stages), and cached objects that neither the project's present state nor a kept workspace
    refers to. Stays: reports, MLflow, finished points and studies, what dvc.lock and params.yaml of the project name.
    Raises FedprintError when an experiment, a sweep or a study is running.
    """
    root = root.resolve()
    workspaces = sorted(path.parent for path in experiments_folder(root).glob("*/.dvc"))
    with ExitStack() as held:
        for folder in workspaces:
            held.enter_context(workspace_lock(root, folder.name))
        _refuse_while_dvc_runs([root, *workspaces])
        if in_use(root):
            raise FedprintError("a sweep or a study is running: wait for it, or stop it, before cleaning")
        kept = [folder for folder in workspaces if folder.name in keep]
        doomed = _doomed_folders(root, keep)
        objects = _unused_objects(root, kept)
        freed = _freed_bytes([*doomed, *objects])
        if not dry_run:
            for folder in doomed:
                shutil.rmtree(folder)
            _collect_garbage(root, kept, dry_run=False)
    return freed


def _refuse_while_dvc_runs(folders: Sequence[Path]) -> None:
    """Raise FedprintError when DVC's own record names a living process, as during a bare ``dvc repro``."""
    for folder in folders:
        path = folder / ".dvc" / "tmp" / "rwlock"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        for pid in {int(found) for found in re.findall(r'"pid": (\d+)', text)}:
            if _is_alive(pid):
                raise FedprintError(f"process {pid} runs DVC in {folder}: wait for it, or stop it, before cleaning")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _doomed_folders(root: Path, keep: Collection[str]) -> list[Path]:
    """Return the folders that :func:`clean` deletes outright."""
    resumable = list((root / "work" / "checkpoints").glob("*/"))
    others = [path for path in experiments_folder(root).glob("*/") if path.name not in keep]
    present = _settings(root / "params.yaml").get("experiment")
    stale = [path for path in (root / "artifacts").glob("*/") if path.name not in keep and path.name != present]
    shared = [path for path in (root / "work" / "points" / "stages").glob("*/") if path.name != ".locks"]
    return [*resumable, *others, *stale, *shared]


def _unused_objects(root: Path, kept: Sequence[Path]) -> list[Path]:
    """Return the cache files that ``dvc gc`` would remove."""
    lines = _collect_garbage(root, kept, dry_run=True).splitlines()
    return [Path(line.removeprefix("Removing ")) for line in lines if line.startswith("Removing ")]


def _collect_garbage(root: Path, kept: Sequence[Path], *, dry_run: bool) -> str:
    """Run ``dvc gc`` for the project and its kept workspaces, which share one cache; return its output."""
    command = [sys.executable, "-m", "dvc", "gc", "--workspace", "--force", *(["--dry"] if dry_run else [])]
    if kept:
        command += ["--projects", *map(str, kept)]
    done = subprocess.run(
        command, cwd=root, env=stage_environment(root, {}), capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise FedprintError(f"dvc gc failed, nothing was collected: {reason}")
    return done.stdout


def _freed_bytes(paths: Sequence[Path]) -> int:
    """Return what deleting ``paths`` frees: a hard-linked file counts once, and only when its last name goes."""
    files = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path])]
    stats = [file.lstat() for file in files if not file.is_dir() or file.is_symlink()]
    names = Counter((stat.st_dev, stat.st_ino) for stat in stats)
    sizes = {(stat.st_dev, stat.st_ino): (stat.st_nlink, stat.st_size) for stat in stats}
    return sum(size for inode, (links, size) in sizes.items() if names[inode] >= links)


def _settings(path: Path) -> dict[str, Any]:
    """Return a YAML mapping, empty when there is no such file."""
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.is_file() else {}
