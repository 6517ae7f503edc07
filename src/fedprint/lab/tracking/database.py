"""The project's MLflow database: created once, written under one lock, opened on the page that compares runs.

The database is ``<root>/mlflow.db``, artifacts and models are below ``<root>/mlruns/``. Where MLflow's own variable
``MLFLOW_TRACKING_URI`` names a server, runs and artifacts are there instead (docs/postgresql.md). No other global state
of MLflow is used: no active run.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from filelock import FileLock

from fedprint.errors import FedprintError

if TYPE_CHECKING:
    from mlflow import MlflowClient

GROUP_TAG = "fedprint.group"
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
"""MLflow's own word for machine learning; without it the page offers traces and judges of language models."""
PAGE = "http://127.0.0.1:5000"
SERVER = "MLFLOW_TRACKING_URI"
"""MLflow's variable for the address of a server. Credentials are in its other ones, and never in an address here."""


def server() -> str | None:
    """Return the address of the team's server, None where runs are in the project's own database.

    Raises FedprintError for an address that is none of a server, or that holds a password: it would be logged.
    """
    address = os.environ.get(SERVER, "").rstrip("/")
    if not address:
        return None
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FedprintError(f"{SERVER} is no http(s) address: give that of an MLflow server, or unset it")
    if parts.username or parts.password:
        raise FedprintError(f"{SERVER} holds a user name: give it in MLFLOW_TRACKING_USERNAME and _PASSWORD")
    return address


def create_database(root: Path) -> MlflowClient:
    """Create ``<root>/mlflow.db`` unless it exists, and return a client of it; safe in several processes at once.

    Where there is a :func:`server`, the client is of that.
    """
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import DatabaseError

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)  # their steps are no news to a user
    if address := server():
        return _reached(MlflowClient(tracking_uri=address), address)
    # MLflow creates and migrates the tables in the client's constructor; two at once, or a kill, break it for good.
    with database_lock(root):
        try:
            if not (file := root.resolve() / "mlflow.db").is_file():
                partial = file.with_name(".mlflow.db.new")
                partial.unlink(missing_ok=True)
                MlflowClient(tracking_uri=f"sqlite:///{partial}")
                partial.rename(file)
            return MlflowClient(tracking_uri=tracking_uri(root))
        except (MlflowException, DatabaseError) as error:
            reason = str(error).strip().splitlines()[0]
            raise FedprintError(
                f"{root / 'mlflow.db'} cannot be opened ({reason}): move it away to start afresh"
            ) from error


def _reached(client: MlflowClient, address: str) -> MlflowClient:
    from mlflow.exceptions import MlflowException

    try:
        client.search_experiments(max_results=1)
    except MlflowException as error:
        reason = str(error).strip().splitlines()[0][:200]
        raise FedprintError(f"{SERVER}={address} does not answer ({reason}): start it, or unset {SERVER}") from error
    return client


def tracking_uri(root: Path) -> str:
    """Return the address of the server, or of the project's MLflow database."""
    return server() or f"sqlite:///{root.resolve() / 'mlflow.db'}"


def database_lock(root: Path) -> FileLock:
    """Return the lock of the database; the same object for a path, so that one thread may take it twice."""
    folder = root.resolve() / "work" / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / "mlflow.lock", is_singleton=True)


def experiment_id(client: MlflowClient, root: Path, name: str) -> str:
    """Return the experiment's id; created, or restored when it was deleted on MLflow's page. Call under the lock."""
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        location = None if server() else (root.resolve() / "mlruns" / name).as_uri()  # a server knows its own place
        return str(client.create_experiment(name, artifact_location=location, tags=EXPERIMENT_TAGS))
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return str(experiment.experiment_id)


def ui_hint(root: Path, experiment: str, group: str | None = None, view: str | None = None) -> str:
    """Return the command that starts MLflow's page and the link that compares the experiment's runs, or a group's.

    A saved ``view`` (its key) shows its own runs and charts.
    """
    client = create_database(root)
    with database_lock(root):
        number = experiment_id(client, root, experiment)
    query = {} if group is None else {"searchFilter": f"tags.`{GROUP_TAG}` = '{group}'"}
    query = query if view is None else {"viewStateShareKey": view}
    link = page_link(number, server() or PAGE, **query)
    return link if server() else f"{ui_command(root)}\n{link}"


def ui_command(root: Path) -> str:
    """Return the command that starts MLflow's page."""
    return f"cd {root.resolve()} && MLFLOW_DISABLE_TELEMETRY=true .venv/bin/mlflow ui --backend-store-uri sqlite:///mlflow.db"


def page_link(number: str, page: str = PAGE, **query: str) -> str:
    """Return the address of the charts of experiment ``number``.

    The page opens in its mode for language models unless the link, or the user's last choice, says otherwise.
    """
    mode = {"compareRunsMode": "CHART", "workflowType": "machine_learning"}
    return f"{page}/#/experiments/{number}/runs?{urlencode(mode | query)}"


if __name__ == "__main__":
    create_database(Path(sys.argv[1]))
