"""MLflow runs: one flat run per key, safe when several processes start at once.

The database is ``<root>/mlflow.db``, artifacts are below ``<root>/mlruns/``; :func:`ui_hint` says how to see them.
A run is found again by its key, so a killed and repeated stage continues its run instead of adding another. No global
state of MLflow is used: no tracking URI, no active run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from fedprint.types import FedprintError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

Point = tuple[str, float, int]
"""A metric's name (slashes make chart groups), value and step."""

METRICS_PER_CALL = 1000
PARAMS_PER_CALL = 100
LONGEST_VALUE = 500

KEY_TAG = "fedprint.key"
RESUMED_TAG = "fedprint.resumed"


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A handle on one MLflow run; every method takes the database's lock, so processes may share the database."""

    run_id: str
    root: Path
    client: MlflowClient
    resumed: bool
    _logged: dict[str, set[tuple[int, float]]] = field(default_factory=dict, repr=False)

    def log_metrics(self, batch: Sequence[Point]) -> None:
        """Write points, at most 1000 a call (170 ms each call, however few: collect first).

        Points that a resumed run already holds are skipped, so a repeated round does not show twice.
        """
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        with _database_lock(self.root):
            fresh = [Metric(name, value, now, step) for name, value, step in batch if self._is_new(name, value, step)]
            for start in range(0, len(fresh), METRICS_PER_CALL):
                self.client.log_batch(self.run_id, metrics=fresh[start : start + METRICS_PER_CALL])

    def log_params(self, params: Mapping[str, object]) -> None:
        """Write parameters as text; values beyond 500 characters are cut (store the whole as an artifact)."""
        from mlflow.entities import Param

        rows = [Param(name, shorten(value)) for name, value in params.items()]
        with _database_lock(self.root):
            for start in range(0, len(rows), PARAMS_PER_CALL):
                self.client.log_batch(self.run_id, params=rows[start : start + PARAMS_PER_CALL])

    def set_tags(self, tags: Mapping[str, object]) -> None:
        """Write tags, replacing those of the same name."""
        from mlflow.entities import RunTag

        with _database_lock(self.root):
            self.client.log_batch(self.run_id, tags=[RunTag(name, shorten(value)) for name, value in tags.items()])

    def log_artifacts(self, folder: Path, below: str | None = None) -> None:
        """Copy a folder's files to the run, under ``below`` when given, replacing files of the same name."""
        self.client.log_artifacts(self.run_id, str(folder), below)

    def _is_new(self, name: str, value: float, step: int) -> bool:
        if not self.resumed:
            return True
        if name not in self._logged:
            history = self.client.get_metric_history(self.run_id, name)
            self._logged[name] = {(point.step, point.value) for point in history}
        return (step, value) not in self._logged[name]


@contextmanager
def tracked_run(
    root: Path,
    experiment: str,
    key: Mapping[str, str],
    name: str,
    params: Mapping[str, object] | None = None,
    tags: Mapping[str, object] | None = None,
) -> Iterator[TrackedRun]:
    """Open the run of ``key`` (tags ``fedprint.<k>``), or create it, and close it with the status of the block.

    A run is reopened when it has the same key and no parameter with another value (MLflow forbids changing one);
    otherwise a new one starts. Leaving the block marks it FINISHED, an exception FAILED, Ctrl-C KILLED; a killed
    process leaves it RUNNING until its key is opened again. The commit and DVC's stage become tags by themselves.
    """
    texts = {parameter: shorten(value) for parameter, value in (params or {}).items()}
    client = create_database(root)
    with _database_lock(root):
        found = _find_run(client, _experiment_id(client, root, experiment), key, texts)
        handle = _reopen(client, root, found, name) if found else _create(client, root, experiment, key, name)
    handle.log_params(texts)
    handle.set_tags({**origin_tags(root), **(tags or {})})
    status = "FINISHED"
    try:
        yield handle
    except BaseException as error:
        status = "FAILED" if isinstance(error, Exception) else "KILLED"
        raise
    finally:
        with _database_lock(root):
            client.set_terminated(handle.run_id, status)


def log_report(
    root: Path,
    name: str,
    key: Mapping[str, str],
    folder: Path,
    *,
    points: Sequence[Point] = (),
    params: Mapping[str, object] | None = None,
    tags: Mapping[str, object] | None = None,
) -> None:
    """Log a report's ``folder`` and the ``points`` that a chart of reports compares, as a run of its own."""
    own = {**key, "part": "report"}
    with tracked_run(root, "fedprint reports", own, f"{name} report", params, tags) as run:
        run.log_metrics(points)
        run.log_artifacts(folder)


def create_database(root: Path) -> MlflowClient:
    """Create ``<root>/mlflow.db`` unless it exists, and return a client of it; safe in several processes at once."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import DatabaseError

    # MLflow creates and migrates the tables in the client's constructor; two at once break the database for good.
    with _database_lock(root):
        try:
            return MlflowClient(tracking_uri=tracking_uri(root))
        except (MlflowException, DatabaseError) as error:
            reason = str(error).strip().splitlines()[0]
            raise FedprintError(
                f"{root / 'mlflow.db'} cannot be opened ({reason}): move it away to start afresh"
            ) from error


def tracking_uri(root: Path) -> str:
    """Return the address of the project's MLflow database."""
    return f"sqlite:///{root.resolve() / 'mlflow.db'}"


def ui_hint(root: Path, experiment: str) -> str:
    """Return the command that starts MLflow's page and the link that compares the experiment's runs."""
    client = create_database(root)
    with _database_lock(root):
        number = _experiment_id(client, root, experiment)
    command = f"cd {root.resolve()} && MLFLOW_DISABLE_TELEMETRY=true .venv/bin/mlflow ui --backend-store-uri sqlite:///mlflow.db"
    page = f"http://127.0.0.1:5000/#/experiments/{number}/runs?compareRunsMode=CHART&workflowType=machine_learning"
    return f"{command}\n{page}"


def origin_tags(root: Path) -> dict[str, str]:
    """Return where a run comes from: the git commit (``-dirty`` when files differ from it) and DVC's stage and root."""
    tags = {"mlflow.source.git.commit": git_commit(root)}
    for variable, tag in (("DVC_STAGE", "dvc.stage"), ("DVC_ROOT", "dvc.root")):
        if variable in os.environ:
            tags[tag] = os.environ[variable]
    return tags


def git_commit(root: Path) -> str:
    """Return the commit of the working tree, with ``-dirty`` when tracked files differ; ``unknown`` without git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def shorten(value: object) -> str:
    """Return a value as text of at most 500 characters, the last one an ellipsis when it was cut."""
    text = str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def canonical_key(key: Mapping[str, str]) -> str:
    """Return the text by which a run is found again: equal for equal keys only, in any order."""
    return json.dumps({name: str(value) for name, value in key.items()}, sort_keys=True)


def _database_lock(root: Path) -> FileLock:
    """Return the lock of the database; the same object for a path, so that one process may take it twice."""
    folder = root.resolve() / "work" / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / "mlflow.lock", is_singleton=True)


def _experiment_id(client: MlflowClient, root: Path, name: str) -> str:
    """Return the experiment's id; created, or restored when it was deleted on MLflow's page."""
    found = client.get_experiment_by_name(name)
    if found is None:
        return str(client.create_experiment(name, artifact_location=(root.resolve() / "mlruns" / name).as_uri()))
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def _find_run(client: MlflowClient, experiment_id: str, key: Mapping[str, str], texts: Mapping[str, str]) -> Run | None:
    """Return the latest run of the key that can take these parameters."""
    quoted = canonical_key(key).replace("'", "\\u0027")
    runs: Sequence[Run] = client.search_runs([experiment_id], f"tags.`{KEY_TAG}` = '{quoted}'", max_results=50)
    for run in runs:
        if all(run.data.params.get(name, text) == text for name, text in texts.items()):
            return run
    return None


def _create(client: MlflowClient, root: Path, experiment: str, key: Mapping[str, str], name: str) -> TrackedRun:
    tags = {f"fedprint.{part}": str(value) for part, value in key.items()}
    tags[KEY_TAG] = canonical_key(key).replace("'", "\\u0027")
    run = client.create_run(_experiment_id(client, root, experiment), run_name=name, tags=tags)
    return TrackedRun(run_id=run.info.run_id, root=root, client=client, resumed=False)


def _reopen(client: MlflowClient, root: Path, run: Run, name: str) -> TrackedRun:
    """Set a run going again; the tag counts how often that happened."""
    run_id = run.info.run_id
    client.update_run(run_id, status="RUNNING", name=name)
    client.set_tag(run_id, RESUMED_TAG, str(int(run.data.tags.get(RESUMED_TAG, "0")) + 1))
    return TrackedRun(run_id=run_id, root=root, client=client, resumed=True)


if __name__ == "__main__":
    create_database(Path(sys.argv[1]))
