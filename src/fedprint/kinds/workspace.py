"""Nested DVC workspaces: every experiment runs through the one ``dvc.yaml`` without changing a tracked file.

``work/experiments/<name>/`` (ignored by git) is a DVC repository of its own: it links to the project's dvc.yaml,
sources and configs, shares the project's cache and remotes, and has its own params.yaml and dvc.lock. A run is
:func:`run_experiment`, or its steps one by one under :func:`workspace_lock`: :func:`open_workspace`,
:func:`reproduce`, :func:`publish`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from fedprint.types import FedprintError

LINKED = ("dvc.yaml", ".dvcignore", "src")
"""What every workspace shares with the project. Never pyproject.toml: its absence tells a workspace from the root."""

MATRIX_FOLDERS = ("prepared", "updates", "overhead", "attack", "analysis", "evaluation")
"""Folders below artifacts/<experiment>/ that hold one folder ``<prior>-<seed>`` per item of the matrix."""

NO_FILES = "none"
"""The digest of an experiment whose settings name no file."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FAILURE = re.compile(r"failed to reproduce '(?P<stage>[^']+)'(?:.*exited with (?P<code>-?\d+))?", re.DOTALL)


class PipelineFailed(FedprintError):
    """``dvc repro`` failed; ``stage`` is None when DVC itself did, ``exit_code`` is the failed command's (1 to 255)."""

    def __init__(self, message: str, stage: str | None, exit_code: int) -> None:
        """Keep what a command line needs to end with the same code."""
        super().__init__(message)
        self.stage = stage
        self.exit_code = exit_code


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to run; it becomes the workspace's params.yaml.

    ``files_sha256`` is the digest of the files that settings name (:mod:`fedprint.kinds.named_files`).
    ``arguments`` are the command-line words that the resolve stage gets (``--fast``, ``--set``, ``a.b=c``).
    ``shareable=False`` says that the data are texts or pictures of real people, which must not leave by accident.
    ``settings`` is the content of the experiment's file where configs/experiments has none (a member of a suite), and
    ``report`` where the report goes below reports/ when that is not the experiment's name.
    """

    experiment: str
    priors: Sequence[str]
    seeds: Sequence[int]
    dataset_sha256: str
    files_sha256: str = NO_FILES
    arguments: Sequence[str] = ()
    shareable: bool = True
    settings: Mapping[str, Any] | None = None
    report: str | None = None

    @property
    def items(self) -> frozenset[str]:
        """The names of the matrix's items, as in ``attack@random-0`` and in folder names."""
        return frozenset(f"{prior}-{seed}" for prior in self.priors for seed in self.seeds)

    def as_params(self) -> dict[str, Any]:
        """Return the content of params.yaml."""
        return {
            "experiment": self.experiment,
            "arguments": shlex.join(self.arguments),
            "dataset_sha256": self.dataset_sha256,
            "files_sha256": self.files_sha256,
            "priors": list(self.priors),
            "seeds": list(self.seeds),
        }


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """An experiment's own DVC repository ``folder`` inside the project ``root``."""

    root: Path
    experiment: str
    published: str | None = None

    @property
    def folder(self) -> Path:
        """Where ``dvc repro``, ``dvc push`` and ``dvc pull`` of this experiment are run."""
        return experiments_folder(self.root) / self.experiment

    @property
    def artifacts(self) -> Path:
        """The stages' outputs except the report."""
        return self.folder / "artifacts" / self.experiment

    @property
    def report(self) -> Path:
        """The report before it is published."""
        return self.folder / "reports" / self.experiment


def find_root(start: Path | None = None) -> Path:
    """Return the project's root, also from inside a nested workspace.

    That is FEDPRINT_ROOT when set, else the nearest folder at or above ``start`` (default: the current one) that holds
    both pyproject.toml and dvc.yaml. Raises FedprintError when there is none.
    """
    named = os.environ.get("FEDPRINT_ROOT")
    if named:
        if _is_root(Path(named)):
            return Path(named).resolve()
        raise FedprintError(
            f"FEDPRINT_ROOT={named} holds no pyproject.toml and dvc.yaml: point it at the project, or unset it"
        )
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if _is_root(folder):
            return folder
    raise FedprintError(f"{here} is not inside a fedprint project: change into the clone, or set FEDPRINT_ROOT")


def experiments_folder(root: Path) -> Path:
    """Return where the nested workspaces live."""
    return root / "work" / "experiments"


@contextmanager
def workspace_lock(root: Path, experiment: str) -> Iterator[None]:
    """Hold the experiment for this process; raises FedprintError at once when another process has it.

    The operating system frees the lock when its holder ends, however it ends.
    """
    path = root / "work" / "locks" / f"{_checked_name(experiment)}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path, timeout=0):
            yield
    except Timeout:
        raise FedprintError(
            f"experiment '{experiment}' is running in another process: wait for it, or stop it"
        ) from None


def open_workspace(root: Path, request: Request) -> Workspace:
    """Create the experiment's workspace, or bring an existing one up to date, and return it.

    Outputs of priors and seeds no longer asked for are dropped (the cache keeps them); everything else stays, so that
    DVC re-runs only what changed. Data that are not shareable get no default remote: a bare ``dvc push`` fails instead
    of uploading them. Raises FedprintError for an unknown experiment, an empty matrix, or an impossible folder name.
    """
    _check(root, request)
    workspace = Workspace(root=root.resolve(), experiment=request.experiment, published=request.report)
    workspace.folder.mkdir(parents=True, exist_ok=True)
    for name in LINKED:
        _link(workspace.folder / name, workspace.root / name)
    _bring_configs(workspace, request.settings)
    _write_dvc_config(workspace, request.shareable)
    text = yaml.safe_dump(request.as_params(), sort_keys=False)
    (workspace.folder / "params.yaml").write_text(text, encoding="utf-8")
    _drop_stale(workspace.artifacts, request.items)
    return workspace


def reproduce(workspace: Workspace, env: Mapping[str, str] | None = None, log: Path | None = None) -> None:
    """Run ``dvc repro`` in the workspace with live output, or output to a file; ``env`` is added to the environment.

    Stages find the interpreter that runs this function as ``python`` and the project in FEDPRINT_ROOT. Raises
    :class:`PipelineFailed` with the failed stage and its exit code; finished stages stay finished.
    """
    command = [sys.executable, "-m", "dvc", "repro"]
    environment = stage_environment(workspace.root, env or {})
    if log is None:
        code, errors = _run_live(command, workspace.folder, environment)
    else:
        code, errors = _run_logged(command, workspace.folder, environment, log)
    if code:
        raise _failure(workspace.experiment, code, errors)


def publish(workspace: Workspace) -> Path:
    """Replace the published report (``<root>/reports/<experiment>``) by the workspace's and return it.

    Readers see the old report or the new one, never a mixture. It is a copy: editing it cannot damage the cache.
    Raises FedprintError when the workspace has no report.
    """
    if not workspace.report.is_dir():
        raise FedprintError(
            f"experiment '{workspace.experiment}' has no report yet: make experiment NAME={workspace.experiment}"
        )
    final = workspace.root / "reports" / (workspace.published or workspace.experiment)
    incoming, outgoing = (final.with_name(f".{final.name}.{state}") for state in ("new", "old"))
    for leftover in (incoming, outgoing):
        shutil.rmtree(leftover, ignore_errors=True)
    # copyfile, not copy2: files that come out of DVC's cache are read-only.
    shutil.copytree(workspace.report, incoming, copy_function=shutil.copyfile)
    if final.exists():
        final.rename(outgoing)
    incoming.rename(final)
    shutil.rmtree(outgoing, ignore_errors=True)
    return final


def run_experiment(root: Path, request: Request, env: Mapping[str, str] | None = None, log: Path | None = None) -> Path:
    """Open, reproduce and publish an experiment under its lock; return the published report's folder."""
    _check(root, request)
    with workspace_lock(root, request.experiment):
        workspace = open_workspace(root, request)
        reproduce(workspace, env, log)
        return publish(workspace)


def stage_environment(root: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which DVC and the stages of ``root`` run."""
    # Not resolved: a virtual environment's python is a link, and its folder is what matters.
    binaries = str(Path(sys.executable).parent)
    path = os.pathsep.join([binaries, os.environ.get("PATH", os.defpath)])
    return {**os.environ, "FEDPRINT_ROOT": str(root), "PATH": path, **extra}


def _is_root(folder: Path) -> bool:
    return (folder / "pyproject.toml").is_file() and (folder / "dvc.yaml").is_file()


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise FedprintError(f"'{name}' is no name for an experiment or a prior: use letters, digits, '-', '_' and '.'")
    return name


def _check(root: Path, request: Request) -> None:
    folder = root / "configs" / "experiments"
    name = _checked_name(request.experiment)
    if request.settings is None and not (folder / f"{name}.yaml").is_file():
        known = ", ".join(sorted(path.stem for path in folder.glob("*.yaml"))) or "none yet"
        raise FedprintError(
            f"unknown experiment '{name}' (known: {known}): write configs/experiments/{name}.yaml to add it"
        )
    for what, values in (("priors", request.priors), ("seeds", request.seeds)):
        if not values or len(set(values)) != len(values):
            raise FedprintError(f"{what}={list(values)}: give at least one, each of them once")
    for prior in request.priors:
        _checked_name(prior)


def _link(link: Path, target: Path) -> None:
    """Make ``link`` point to ``target``; absolute, and renewed at every opening, so that a moved project works."""
    if link.is_symlink() and Path(os.readlink(link)) == target:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _bring_configs(workspace: Workspace, settings: Mapping[str, Any] | None) -> None:
    """Link to the project's configs, or write a folder that holds one experiment beside the project's defaults."""
    configs = workspace.folder / "configs"
    if settings is None:
        _link(configs, workspace.root / "configs")
        return
    if configs.is_symlink():
        configs.unlink()  # else the file below would land in the project
    (configs / "experiments").mkdir(parents=True, exist_ok=True)
    _link(configs / "defaults.yaml", workspace.root / "configs" / "defaults.yaml")
    text = yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True)
    (configs / "experiments" / f"{workspace.experiment}.yaml").write_text(text, encoding="utf-8")


def _write_dvc_config(workspace: Workspace, shareable: bool) -> None:
    """Write the workspace's DVC settings: the project's, with paths that hold from here, and the shared cache."""
    from dvc.config import Config, merge

    folder = workspace.folder / ".dvc"
    folder.mkdir(exist_ok=True)
    for name in ("config", "config.local"):
        (folder / name).write_text("", encoding="utf-8")
    project = Config(str(workspace.root / ".dvc"))
    # All in config.local: the project's own may hold credentials. load_one resolves relative paths (remotes, cache).
    with Config(str(folder)).edit("local") as settings:
        for level in ("repo", "local"):
            merge(settings, project.load_one(level))
        settings["cache"].setdefault("dir", str(workspace.root / ".dvc" / "cache"))
        settings["core"]["no_scm"] = True
        settings["core"].pop("autostage", None)
        if not shareable:
            settings["core"].pop("remote", None)


def _drop_stale(artifacts: Path, wanted: Collection[str]) -> None:
    """Delete the matrix folders that are not ``wanted``: the report depends on their common parent."""
    for kind in MATRIX_FOLDERS:
        for folder in (artifacts / kind).glob("*/"):
            if folder.name not in wanted:
                shutil.rmtree(folder)


def _run_live(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> tuple[int, str]:
    """Run a command; return its exit code and the end of its standard error, which is shown as it comes.

    Standard output is inherited, so that a stage on a terminal knows that it is on one.
    """
    errors = b""
    with subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            while chunk := os.read(process.stderr.fileno(), 1 << 16):
                sys.stderr.write(chunk.decode(errors="replace"))
                sys.stderr.flush()
                errors = (errors + chunk)[-(1 << 16) :]
        except KeyboardInterrupt:
            # Ctrl-C reaches the stage as well: let DVC close its files before we go.
            process.wait()
            raise
    return process.returncode, errors.decode(errors="replace")


def _run_logged(command: Sequence[str], folder: Path, env: Mapping[str, str], log: Path) -> tuple[int, str]:
    """Run a command with all output in a file; return its exit code and the file's end."""
    with log.open("wb") as sink:
        code = subprocess.run(
            command, cwd=folder, env=env, stdout=sink, stderr=subprocess.STDOUT, check=False
        ).returncode
    return code, log.read_bytes()[-(1 << 16) :].decode(errors="replace")


def _failure(experiment: str, code: int, errors: str) -> PipelineFailed:
    """Say which stage failed, from the end of DVC's standard error."""
    match = _FAILURE.search(errors)
    if match is None:
        lines = [line.removeprefix("ERROR: ") for line in errors.splitlines() if line.startswith("ERROR: ")]
        reason = lines[-1] if lines else f"exit code {code}"
        return PipelineFailed(f"dvc repro of '{experiment}' failed: {reason}", None, _shell_code(code))
    stage, exit_code = match["stage"], _shell_code(int(match["code"] or code))
    message = (
        f"stage '{stage}' of '{experiment}' failed with exit code {exit_code}, its reason is above: "
        "mend it and repeat the command (finished stages are kept)"
    )
    return PipelineFailed(message, stage, exit_code)


def _shell_code(code: int) -> int:
    """Return what a shell reports: 128 + n for a process ended by signal n."""
    return 128 - code if code < 0 else code
