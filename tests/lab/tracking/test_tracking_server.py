"""Runs on a team's server: PostgreSQL keeps them, a shared folder the artifacts, and no password is written down."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow_page import mlflow_server

from fedprint.errors import FedprintError
from fedprint.lab.tracking.database import SERVER, create_database, server, ui_hint
from fedprint.lab.tracking.runs import RunHead, load_model, open_run

HEAD = RunHead(experiment="team", key={"job": "one"}, name="one", params={"rounds": 3}, model="cnn")


@pytest.mark.slow
def test_runs_models_and_artifacts_are_on_the_server(
    postgresql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    share, model = tmp_path / "share", tmp_path / "model"
    model.mkdir()
    (model / "model.json").write_text("{}")
    with mlflow_server(tmp_path, postgresql, "--artifacts-destination", str(share)) as address:
        monkeypatch.setenv(SERVER, address)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "not-to-be-seen")
        with open_run(tmp_path, HEAD, computes=False) as run:
            run.log_metrics([("loss", 0.5, 1)])
            run.log_artifacts(model, "kept")
            run.log_model(model, "cnn")
        stored = MlflowClient(tracking_uri=address).get_run(run.run_id)
        assert stored.info.status == "FINISHED"
        assert stored.data.metrics == {"loss": 0.5}
        assert (load_model(tmp_path, run.run_id) / "model.json").is_file()
        with open_run(tmp_path, HEAD, computes=False) as again:
            assert again.known
        assert again.run_id == run.run_id
        assert ui_hint(tmp_path, "team").startswith(f"{address}/#/experiments/")
    assert list(share.rglob("kept/model.json"))
    assert not (tmp_path / "mlflow.db").exists()
    assert not (tmp_path / "mlruns").exists()
    written = capsys.readouterr()
    assert "not-to-be-seen" not in written.out + written.err + (tmp_path / "page.log").read_text()


@pytest.mark.parametrize("address", ["file:///tmp/x", "nowhere", "https://me:secret@team.example", "https://"])
def test_another_address_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv(SERVER, address)
    with pytest.raises(FedprintError, match=SERVER) as refused:
        server()
    assert "secret" not in str(refused.value)


def test_a_server_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVER, "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(FedprintError, match="does not answer"):
        create_database(tmp_path)


def test_without_one_the_projects_own_database_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVER, "")
    create_database(tmp_path)
    assert (tmp_path / "mlflow.db").is_file()
