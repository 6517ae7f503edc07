"""The Python API, as ``fedprint.audit`` and so on (docs/python-api.md): for notebooks and scripts.

Nothing here needs DVC or a clone. Only :func:`run` needs a folder to work in, which it makes. Letters: n updates, q
questions, m users, d parameters.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedprint.data.formats.files import read_json
from fedprint.errors import FedprintError

if TYPE_CHECKING:
    import pandas as pd

    from fedprint.models.base import FedModule
    from fedprint.types import Scores

AUDIT = "audit.json"
WORK = "fedprint-work"
"""The default folder of :func:`run`."""


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """The result of an audit: ``summary`` is the content of audit.json, ``folder`` that of the report, if there is one.

    ``report["ap_over_chance"]`` is a number of the summary.
    """

    summary: Mapping[str, Any]
    folder: Path | None = None

    def __getitem__(self, key: str) -> Any:
        """Return a value of the summary. Raises KeyError that names those there are."""
        if key not in self.summary:
            raise KeyError(f"{key}; there are {', '.join(self.summary)}")
        return self.summary[key]

    @property
    def ap(self) -> float:
        """Average precision of the chosen attack on single updates."""
        return float(self["ap"])

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of :attr:`ap`."""
        return float(self["ap_lo"]), float(self["ap_hi"])

    @property
    def chance(self) -> float:
        """The expected AP of random scores."""
        return float(self["chance"])

    @property
    def page(self) -> Path | None:
        """The report's page."""
        return None if self.folder is None else self.folder / "index.html"


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report of an experiment: its ``folder``."""

    folder: Path

    @property
    def page(self) -> Path:
        """The report's page."""
        return self.folder / "index.html"

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """The content of summary.json."""
        summary: Mapping[str, Any] = read_json(self.folder / "summary.json")
        return summary

    @cached_property
    def measurements(self) -> pd.DataFrame:
        """One line for each number, with its interval, chance, n and unit (measurements.jsonl)."""
        import pandas as pd

        return pd.read_json(self.folder / "measurements.jsonl", lines=True)


def audit(
    folder: Path | str,
    *,
    out: Path | str | None = None,
    attacks: Sequence[str] | None = None,
    seed: int = 0,
    title: str | None = None,
    show_users: bool = False,
) -> AuditReport:
    """Audit recorded updates (docs/recorded-updates.md); write a report to ``out`` where it is given.

    ``attacks`` are names (default: all that can be run). Users are numbers in the report, unless ``show_users``. Raises
    FedprintError that lists all that is wrong with the folder.
    """
    from fedprint.records import run as records

    names = records.DEFAULT if attacks is None else tuple(attacks)
    with tempfile.TemporaryDirectory(prefix="fedprint-") as scratch:
        result = records.run(Path(folder), scratch=Path(scratch), attacks=names, seed=seed, title=title)
        if out is None:
            return AuditReport(summary=result.summary())
        from fedprint.reports.pages.records import write_records

        write_records(result, Path(out), show_users=show_users)
        return AuditReport(summary=read_json(Path(out) / AUDIT), folder=Path(out))


def attack(
    updates: ArrayLike,
    labels: ArrayLike,
    queries: ArrayLike,
    *,
    name: str = "ridge",
    layers: Mapping[str, int] | None = None,
    seed: int = 0,
    **settings: Any,
) -> Scores:
    """Return scores (q, m) of the users for the ``queries`` (q, d), given ``updates`` (n, d) of ``labels`` (n,).

    Column i is the i-th of ``np.unique(labels)``; higher is more likely. Nothing else is looked at: the labels of the
    queries are for you to compare with. ``name`` is that of an attack of the experiments, also of a plug-in, with its
    ``settings``. ``layers`` are the sizes of the layers in the order of the columns (default: one layer).

    An attack chooses its own settings on the given updates alone: half of each user's asks for the user, given the
    other half, and the other way round. Users with a single update take no part in that.

    Raises FedprintError for arrays that do not fit, fewer than two users, or where no user has two updates.
    """
    from fedprint.attacks.problem import Problem, Validation
    from fedprint.attacks.reidentification.reidentify import scores_of
    from fedprint.attacks.reidentification.workspace import Workspace
    from fedprint.attacks.updates import MemoryUpdates
    from fedprint.rng import torch_rng

    known, asked = _table("updates", updates), _table("queries", queries)
    users, codes = np.unique(np.asarray(labels), return_inverse=True)
    _check(known, asked, np.asarray(labels), len(users), layers)
    table = MemoryUpdates(sizes=dict(layers or {"update": known.shape[1]}), values=np.concatenate([known, asked]))
    fit, ask = np.arange(len(known)), np.arange(len(known), len(known) + len(asked))
    problem = Problem(updates=table, fit=fit, labels=codes.astype(np.int64), ask=ask, options=len(users))
    chosen, work = _attack_named(name, settings), Workspace()
    halves = tuple(
        Validation(problem=one, answers=answers) for one, answers in _halves(problem) if len(np.unique(one.labels)) > 1
    )
    if not halves:
        raise FedprintError("labels: fewer than two users have two updates, so no settings can be chosen; add updates")
    return scores_of(chosen, problem, work.settings(chosen, halves), work, torch_rng(seed, "attack", name))


def run(
    experiment: str | Path | Mapping[str, Any],
    *,
    folder: Path | str = WORK,
    name: str | None = None,
    fast: bool = False,
    settings: Sequence[str] = (),
    jobs: int | None = None,
) -> Report:
    """Run an experiment and return its report, below ``folder``, which is made where it is missing.

    ``experiment`` is a name that is shipped (``quickstart``), a file, or the settings themselves, which then need a
    ``name``. ``settings`` are assignments such as ``federation.rounds=20``; ``fast`` is the file's short form. Finished
    work is kept there: a repeated call resumes.

    Raises FedprintError for settings that do not fit, and where a job failed.
    """
    from fedprint.kinds import driver
    from fedprint.kinds.config_files import as_yaml
    from fedprint.kinds.requests import request_for
    from fedprint.lab.project import checked_name, is_project, make_project

    root = Path(folder).resolve()
    if not is_project(root):
        make_project(root)
    if isinstance(experiment, Mapping):
        if name is None:
            raise FedprintError("settings without a file need a name: run({...}, name='mine')")
        path = root / "own" / f"{checked_name(name)}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(as_yaml(experiment), encoding="utf-8")
        experiment = path
    request = request_for(root, str(experiment), fast=fast, assignments=settings, name=name)
    return Report(folder=driver.run(request, jobs=jobs))


def load_report(folder: Path | str) -> Report | AuditReport:
    """Return the report in a folder, of an experiment or of an audit. Raises FedprintError where there is none."""
    path = Path(folder)
    if (path / AUDIT).is_file():
        return AuditReport(summary=read_json(path / AUDIT), folder=path)
    if (path / "summary.json").is_file():
        return Report(folder=path)
    raise FedprintError(f"{path} holds no report: neither {AUDIT} nor summary.json; give the folder of its index.html")


def load_model(folder: Path | str, run: str | None = None) -> FedModule:
    """Return a trained global model, ready to evaluate.

    ``folder`` holds model.json and weights.safetensors. With ``run`` it is the folder that :func:`run` worked in, or a
    project, and MLflow's run there logged the model: its id, its name (``quickstart random seed 0``), or the label of
    its job (``random-0``) where it is the only one. Raises FedprintError where there is none.
    """
    from fedprint.kinds.federation.building import model

    if run is not None:
        return model.model_of_run(Path(folder).resolve(), run)
    if not (Path(folder) / model.DESCRIPTION).is_file():
        raise FedprintError(f"{folder} holds no {model.DESCRIPTION}: give a model's folder, or MLflow's run too")
    return model.read_model(Path(folder))


def _attack_named(name: str, settings: Mapping[str, Any]) -> Any:
    """Return an attack of the registry. Raises FedprintError for an unknown name or setting."""
    from pydantic import TypeAdapter, ValidationError

    from fedprint.kinds.components import Attack

    try:
        return TypeAdapter(Attack).validate_python({"name": name, **settings})
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"][1:])
        raise FedprintError(f"attack '{name}': {where}{first['msg']}") from None


def _table(what: str, values: ArrayLike) -> Any:
    table = np.asarray(values, dtype=np.float32)
    if table.ndim != 2 or not table.size:
        raise FedprintError(f"{what}: has shape {table.shape}; give one row for each update, (n, d)")
    if not np.isfinite(table).all():
        row = int(np.flatnonzero(~np.isfinite(table).all(1))[0])
        raise FedprintError(f"{what}: row {row} holds a number that is not finite; leave it out")
    return table


def _check(known: Any, asked: Any, labels: Any, users: int, layers: Mapping[str, int] | None) -> None:
    if known.shape[1] != asked.shape[1]:
        raise FedprintError(f"updates have {known.shape[1]} columns, queries {asked.shape[1]}; give the same layers")
    if labels.shape != (len(known),):
        raise FedprintError(f"labels: has shape {labels.shape}; give one user for each of the {len(known)} updates")
    if users < 2:
        raise FedprintError("labels: name fewer than two users, so there is nobody to tell apart")
    if layers is not None and sum(layers.values()) != known.shape[1]:
        raise FedprintError(f"layers: sizes add up to {sum(layers.values())}, updates have {known.shape[1]} columns")


def _halves(problem: Any) -> Any:
    """Yield two problems with their answers: every other update of each user asks for the user, given the others."""
    turn = np.zeros(len(problem.fit), dtype=np.int64)
    for user in range(problem.options):
        rows = np.flatnonzero(problem.labels == user)
        turn[rows] = np.arange(len(rows)) % 2
    several = np.bincount(problem.labels, minlength=problem.options) > 1
    column = np.cumsum(several) - 1  # users with one update are no options here
    for half in (0, 1):
        fit, ask = (np.flatnonzero((turn == part) & several[problem.labels]) for part in (half, 1 - half))
        labels, answers = column[problem.labels[fit]], column[problem.labels[ask]]
        yield replace(problem, fit=fit, labels=labels, ask=ask, options=int(several.sum())), answers
