"""MLflow runs against a real database."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedprint.tracking.runs import (
    RESUMED_TAG,
    TrackedRun,
    canonical_key,
    create_database,
    git_commit,
    shorten,
    tracked_run,
    ui_hint,
)
from fedprint.types import FedprintError

KEY = {"prior": "random", "seed": "0"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One database for the module: every test has an experiment of its own."""
    return tmp_path_factory.mktemp("project")


def _status(run: TrackedRun) -> str:
    return str(run.client.get_run(run.run_id).info.status)


def _runs(root: Path, experiment: str) -> list[str]:
    client = create_database(root)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return [run.info.run_id for run in client.search_runs([found.experiment_id])]


def test_a_run_holds_what_was_logged_and_is_finished(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_STAGE", "federate@random-0")
    (tmp_path / "figure.svg").write_text("<svg/>")
    with tracked_run(root, "holds", KEY, "random 0", {"lr": 0.1, "long": "x" * 9000}, {"store": "abc"}) as run:
        run.log_metrics([("train/loss", 1 / (step + 1), step) for step in range(2500)])
        run.log_params({f"p{i}": i for i in range(150)})
        run.log_artifacts(tmp_path, "figures")
        assert _status(run) == "RUNNING"
    found = run.client.get_run(run.run_id)
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "random 0"
    assert found.data.params["lr"] == "0.1"
    assert len(found.data.params["long"]) == 500
    assert found.data.params["p149"] == "149"
    assert {"fedprint.prior": "random", "fedprint.seed": "0", "store": "abc"}.items() <= found.data.tags.items()
    assert found.data.tags["dvc.stage"] == "federate@random-0"
    history = run.client.get_metric_history(run.run_id, "train/loss")
    assert sorted(point.step for point in history) == list(range(2500))
    assert len(list((root / "mlruns").glob("*/*/artifacts/figures/figure.svg"))) == 1


def test_the_same_key_continues_its_run_and_repeats_no_point(root: Path) -> None:
    with tracked_run(root, "again", KEY, "first", {"lr": 0.1}) as first:
        first.log_metrics([("loss", 3.0, 0), ("loss", 2.0, 1), ("odd", math.nan, 0)])
    with tracked_run(root, "again", dict(reversed(KEY.items())), "second", {"lr": 0.1, "new": 1}) as second:
        second.log_metrics([("loss", 2.0, 1), ("loss", 1.0, 2), ("odd", math.nan, 0)])
    assert second.run_id == first.run_id
    assert second.resumed
    points = [(point.step, point.value) for point in second.client.get_metric_history(first.run_id, "loss")]
    assert sorted(points) == [(0, 3.0), (1, 2.0), (2, 1.0)]
    assert second.client.get_run(first.run_id).data.tags[RESUMED_TAG] == "1"


@pytest.mark.parametrize(
    ("key", "params"),
    [
        ({"prior": "random"}, {"lr": 0.1}),
        ({**KEY, "config": "abc"}, {"lr": 0.1}),
        ({"prior": "o'clock \\' OR 1=1", "seed": "0"}, {"lr": 0.1}),
        (KEY, {"lr": 0.2}),
    ],
)
def test_another_key_or_another_parameter_is_another_run(
    root: Path, key: dict[str, str], params: dict[str, float]
) -> None:
    with tracked_run(root, "other", KEY, "first", {"lr": 0.1}) as first:
        pass
    with tracked_run(root, "other", key, "second", params) as second:
        pass
    assert second.run_id != first.run_id
    with tracked_run(root, "other", key, "third", params) as third:
        pass
    assert third.run_id == second.run_id


@pytest.mark.parametrize(("error", "status"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED")])
def test_an_exception_marks_the_run_and_goes_on(root: Path, error: type[BaseException], status: str) -> None:
    with pytest.raises(error), tracked_run(root, "fails", KEY, "x") as run:
        raise error
    assert _status(run) == status
    with tracked_run(root, "fails", KEY, "x") as repeated:
        pass
    assert (repeated.run_id, _status(repeated)) == (run.run_id, "FINISHED")


WORKER = """
import sys, time
from pathlib import Path
from fedprint.tracking.runs import tracked_run
with tracked_run(Path(sys.argv[1]), "crowd", {"worker": sys.argv[2]}, "worker " + sys.argv[2]) as run:
    for step in range(3):
        run.log_metrics([("loss", float(step), step)])
    print("ready", flush=True)
    time.sleep(float(sys.argv[3]))
"""


def _worker(root: Path, name: str, seconds: float = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, str(root), name, str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_four_processes_may_create_the_database_together(tmp_path: Path) -> None:
    workers = [_worker(tmp_path, str(i)) for i in range(4)]
    errors = [worker.communicate()[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0, 0], errors
    assert len(_runs(tmp_path, "crowd")) == 4


def test_a_killed_process_leaves_a_run_that_its_repetition_finishes(root: Path) -> None:
    with _worker(root, "killed", 60) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        worker.send_signal(signal.SIGKILL)
    with tracked_run(root, "crowd", {"worker": "killed"}, "worker killed") as run:
        assert run.resumed
        run.log_metrics([("loss", float(step), step) for step in range(5)])
    assert _status(run) == "FINISHED"
    assert len(run.client.get_metric_history(run.run_id, "loss")) == 5


def test_an_experiment_deleted_on_the_page_comes_back(root: Path) -> None:
    with tracked_run(root, "deleted", KEY, "x") as run:
        pass
    run.client.delete_experiment(run.client.get_run(run.run_id).info.experiment_id)
    with tracked_run(root, "deleted", KEY, "x") as again:
        pass
    assert _status(again) == "FINISHED"


def test_the_hint_names_the_database_and_the_comparison_of_this_experiment(root: Path) -> None:
    with tracked_run(root, "hint", KEY, "x") as run:
        number = run.client.get_run(run.run_id).info.experiment_id
    hint = ui_hint(root, "hint")
    assert f"cd {root}" in hint
    assert "sqlite:///mlflow.db" in hint
    assert f"#/experiments/{number}/runs?compareRunsMode=CHART" in hint


def test_a_broken_database_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 100)
    with pytest.raises(FedprintError, match=r"mlflow\.db cannot be opened") as caught:
        create_database(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_module_does_not_import_mlflow_by_itself() -> None:
    code = "import sys, fedprint.tracking.runs; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_commit_says_when_files_differ_and_is_unknown_without_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_commit(tmp_path) == "unknown"
    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-qm", "a")
    git("tag", "v1")
    assert git_commit(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "a").write_text("2")
    assert git_commit(tmp_path) == git("rev-parse", "HEAD") + "-dirty"


def test_values_are_cut_and_keys_do_not_depend_on_order() -> None:
    assert shorten("x" * 500) == "x" * 500
    assert shorten("x" * 501) == "x" * 499 + "…"
    assert canonical_key({"a": "1", "b": "2"}) == canonical_key({"b": "2", "a": "1"})
    assert canonical_key({"a": "1"}) != canonical_key({"a": "1", "b": "2"})
