"""What DVC keeps of an experiment, and how it comes back; nothing here runs a stage.

A commit of the project names data, configuration, updates and report of every published experiment: ``dvc.lock`` beside
its ``dvc.yaml`` holds their digests. The quickstart's is the root's, any other lies in ``experiments/<name>/``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from fedprint.errors import FedprintError

UPDATES = "updates.json"
"""In an experiment's folder: digests of updates that may not leave, and so are in no cache of DVC's."""

NO_REMOTE = "no remote is set: `dvc remote add --default NAME URL` (docs/versions.md)"

_RESULT = re.compile(r"\d+ files? (?:fetched|added|modified|deleted).*|Everything is up to date\.")


def link_tree(source: Path, target: Path) -> None:
    """Make ``target`` the same file or folder as ``source``, as hard links where the disk allows, else as a copy.

    What was at ``target`` is replaced; links inside are copied as links. No byte is stored twice, also after DVC has
    taken ``target`` into its cache (``cache.type`` begins with hardlink). Do not write into either: both would change.
    """
    incoming = target.with_name(f".{target.name}.incoming")
    _remove(incoming)
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, incoming, symlinks=True, copy_function=_link)
    else:
        _link(str(source), str(incoming))
    _remove(target)
    incoming.rename(target)


def record(root: Path, experiment: str, content: str | None = None) -> None:
    """Let DVC hash and keep the outputs of an experiment that lie there, and write its lock; nothing is run or staged.

    ``content`` is what its dvc.yaml says from now on (None: as it is). Raises FedprintError, and leaves dvc.yaml as it
    was, when an output is missing.
    """
    path = dvc_file(root, experiment)
    before = path.read_text(encoding="utf-8") if path.is_file() else None
    if content is not None:
        path.write_text(content, encoding="utf-8")
    try:
        _dvc(root, "commit", "--force", str(path.relative_to(root)))
    except FedprintError:
        # Without a lock it would make every `dvc pull` of the project fail.
        if before is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(before, encoding="utf-8")
        raise


def dvc_file(root: Path, experiment: str) -> Path:
    """Return where an experiment's DVC stages are declared: its own dvc.yaml, or the root's."""
    return root / "dvc.yaml" if experiment == root_experiment(root) else root / "experiments" / experiment / "dvc.yaml"


def root_experiment(root: Path) -> str | None:
    """Return the experiment of the root's dvc.yaml."""
    path = root / "dvc.yaml"
    named = yaml.safe_load(path.read_text(encoding="utf-8")).get("params") if path.is_file() else None
    return Path(named[0]).parent.name if named else None


def recorded(root: Path) -> tuple[str, ...]:
    """Return the names of all experiments that DVC has a lock of."""
    published = sorted(path.parent.name for path in (root / "experiments").glob("*/dvc.lock"))
    first = root_experiment(root) if (root / "dvc.lock").is_file() else None
    return tuple(dict.fromkeys([*([first] if first else []), *published]))


def track(root: Path, path: Path, *, push: bool) -> Path:
    """Take a file or folder of the project into DVC's cache; return the ``.dvc`` file, which git is to hold.

    Without ``push`` no ``dvc push`` ever uploads it; a fresh clone can then not pull it.
    """
    name = str(path.relative_to(root))
    pointer = path.with_name(f"{path.name}.dvc")
    _dvc(root, "add", name)
    content = yaml.safe_load(pointer.read_text(encoding="utf-8"))
    for out in content["outs"]:
        out.pop("push", None)
        out.update({} if push else {"push": False})
    pointer.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return pointer


def pull(root: Path, experiments: Sequence[str] = ()) -> str:
    """Bring what the locks name (of all experiments, or of some) from the default remote; return one line about it.

    The line says what came, what the remote lacks, or that no remote is set. Raises FedprintError for an experiment
    without a lock, and when DVC fails otherwise.
    """
    done = _start(root, "pull", "--allow-missing", *[_locked(root, name) for name in experiments])
    if done.returncode:
        raise FedprintError(f"dvc pull failed: {_reason(done)}")
    alone = "no default remote set" in done.stderr
    missing = _missing(root, experiments) if alone or "Missing cache files" in done.stderr else []
    if alone and missing:
        return NO_REMOTE
    came = [line.strip() for line in done.stdout.splitlines() if _RESULT.fullmatch(line.strip())]
    if not missing:
        return came[-1].rstrip(".") if came else "Everything is up to date"
    fetched = [line for line in came if "fetched" in line][-1:]
    return "; ".join([*fetched, f"the remote lacks {_summed(missing)}"])


def _summed(outputs: Sequence[str]) -> str:
    """Return outputs in a few words: several of one experiment by their number."""
    of: dict[str, list[str]] = {}
    for path in outputs:
        of.setdefault(Path(path).parts[1], []).append(path)
    return ", ".join(paths[0] if len(paths) == 1 else f"{len(paths)} outputs of {name}" for name, paths in of.items())


def write_digests(root: Path, experiment: str) -> Path | None:
    """Write the digests of ``experiments/<name>/updates`` to updates.json, for updates that may not leave.

    Returns None, and removes an old one, when there are no updates.
    """
    folder = root / "experiments" / experiment
    files = sorted(path for path in (folder / "updates").rglob("*") if path.is_file())
    if not files:
        (folder / UPDATES).unlink(missing_ok=True)
        return None
    digests = {str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in files}
    (folder / UPDATES).write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    return folder / UPDATES


# Cleaning -------------------------------------------------------------------------------------------------------------


def unused_objects(root: Path) -> list[Path]:
    """Return the files of DVC's cache that no lock or pointer of the present checkout names."""
    lines = _dvc(root, "gc", "--workspace", "--force", "--dry").splitlines()
    return [Path(line.removeprefix("Removing ")) for line in lines if line.startswith("Removing ")]


def collect_garbage(root: Path) -> None:
    """Delete :func:`unused_objects`. What older commits name can still be pulled if it was pushed."""
    _dvc(root, "gc", "--workspace", "--force")


def freed_bytes(paths: Iterable[Path]) -> int:
    """Return what deleting ``paths`` frees: a hard-linked file counts once, and only when its last name goes."""
    files = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path])]
    stats = [file.lstat() for file in files if not file.is_dir() or file.is_symlink()]
    names = Counter((stat.st_dev, stat.st_ino) for stat in stats)
    sizes = {(stat.st_dev, stat.st_ino): (stat.st_nlink, stat.st_size) for stat in stats}
    return sum(size for inode, (links, size) in sizes.items() if names[inode] >= links)


def refuse_while_dvc_runs(root: Path) -> None:
    """Raise FedprintError when DVC's own record names a living process, as during a bare ``dvc repro``."""
    path = root / ".dvc" / "tmp" / "rwlock"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    for pid in {int(digits) for digits in re.findall(r'"pid": (\d+)', text)}:
        if _is_alive(pid):
            raise FedprintError(f"process {pid} runs DVC in {root}: wait for it, or stop it, before cleaning")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# DVC ------------------------------------------------------------------------------------------------------------------


def _dvc(root: Path, *words: str) -> str:
    """Run DVC and return its standard output. Raises FedprintError with its last line of errors."""
    done = _start(root, *words)
    if done.returncode:
        raise FedprintError(f"dvc {words[0]} failed: {_reason(done)}")
    return done.stdout


def _start(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # DVC waits only three seconds for its own lock: two runs that end together would fail.
    lock = root / "work" / "locks" / "dvc.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    # Stages are started as `python`. Not resolved: a virtual environment's python is a link in the folder that matters.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    command = [sys.executable, "-m", "dvc", *words]
    with FileLock(lock):
        return subprocess.run(
            command, cwd=root, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or [f"exit code {done.returncode}"])[-1]


def _locked(root: Path, experiment: str) -> str:
    if experiment not in recorded(root):
        known = ", ".join(recorded(root)) or "none"
        raise FedprintError(f"no lock of '{experiment}' to pull by (recorded: {known}): `fedprint run {experiment}`")
    return str(dvc_file(root, experiment).relative_to(root))


def _missing(root: Path, experiments: Sequence[str]) -> list[str]:
    """Return the outputs (of some experiments) whose content is not in DVC's cache."""
    status: dict[str, Any] = json.loads(_dvc(root, "data", "status", "--json"))
    paths = [path.rstrip("/") for path in status.get("not_in_cache", [])]
    return [path for path in paths if not experiments or Path(path).parts[1] in experiments]


def _link(source: str, target: str) -> None:
    if Path(source).is_symlink():
        shutil.copy2(source, target, follow_symlinks=False)
        return
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without hard links
        shutil.copy2(source, target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
