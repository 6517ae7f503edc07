"""MLflow runs against a real database."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tiny_tracking import DATA, write_model

from fedprint.errors import FedprintError
from fedprint.lab.tracking.database import create_database, ui_hint
from fedprint.lab.tracking.origin import canonical_key, flat, git_commit, plain_name, shorten
from fedprint.lab.tracking.runs import FAILURE_TAG, RESUMED_TAG, Run, RunHead, is_finished, load_model, open_run
from fedprint.lab.tracking.views import VIEW_TAG, View, save_view

KEY = {"prior": "random", "seed": "0"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One database for the module: every test has an experiment of its own."""
    return tmp_path_factory.mktemp("project")


def _head(experiment: str, key: dict[str, str] | None = None, **own: object) -> RunHead:
    return RunHead(experiment=experiment, key=key or KEY, **{"name": "x", **own})  # type: ignore[arg-type]


def _status(run: Run) -> str:
    return str(run.client.get_run(run.run_id).info.status)


def _tags(run: Run) -> dict[str, str]:
    return dict(run.client.get_run(run.run_id).data.tags)


def _history(run: Run, name: str) -> list[tuple[int, float]]:
    return sorted((point.step, point.value) for point in run.client.get_metric_history(run.run_id, name))


def test_a_run_holds_what_was_logged_and_is_finished(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_STAGE", "federate@random-0")
    (tmp_path / "figure.svg").write_text("<svg/>")
    own = {
        "params": {"lr": 0.1, "long": "x" * 9000},
        "tags": {"store": "abc"},
        "group": "plane 1",
    }
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/fedprint", "run", "albums-plane"])
    monkeypatch.delenv("DVC_STAGE")
    with open_run(root, _head("command")) as run:
        assert _tags(run)["mlflow.source.name"] == "fedprint run albums-plane"
    monkeypatch.setenv("DVC_STAGE", "federate@random-0")
    with open_run(root, _head("holds", name="random 0", description="**Why**", **own)) as run:
        run.log_metrics([("train/loss", 1 / (step + 1), step) for step in range(2500)])
        run.log_params({f"p{i}": i for i in range(150)})
        run.log_artifacts(tmp_path, "figures")
        run.log_artifacts(tmp_path / "figure.svg")
        assert _status(run) == "RUNNING"
    found = run.client.get_run(run.run_id)
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "random 0"
    assert found.data.params["lr"] == "0.1"
    assert len(found.data.params["long"]) == 6000
    assert found.data.params["p149"] == "149"
    expected = {
        "fedprint.prior": "random",
        "fedprint.seed": "0",
        "fedprint.group": "plane 1",
        "store": "abc",
        "mlflow.note.content": "**Why**",
        "mlflow.source.name": "dvc repro",
        "mlflow.source.type": "LOCAL",
        "dvc.stage": "federate@random-0",
    }
    assert expected.items() <= found.data.tags.items()
    assert found.data.tags["mlflow.user"]
    assert RESUMED_TAG not in found.data.tags
    assert [step for step, _ in _history(run, "train/loss")] == list(range(2500))
    assert len(list((root / "mlruns").glob("holds/*/artifacts/figures/figure.svg"))) == 1
    assert len(list((root / "mlruns").glob("holds/*/artifacts/figure.svg"))) == 1


def test_what_a_stage_tells_is_written(root: Path) -> None:
    with open_run(root, _head("told")) as run:
        run.log_message({"metrics": [["loss", 1.0, 0]], "params": {"lr": 1}, "tags": {"device": "cpu"}})
        run.log_message({"progress": 0.5})
    found = run.client.get_run(run.run_id)
    assert (found.data.metrics["loss"], found.data.params["lr"], found.data.tags["device"]) == (1.0, "1", "cpu")


def test_data_sets_are_inputs_that_hold_counts_and_no_data(root: Path) -> None:
    with open_run(root, _head("data", data=[DATA])) as run:
        run.log_data([DATA])
    (found,) = run.client.get_run(run.run_id).inputs.dataset_inputs
    assert (found.dataset.name, found.dataset.digest) == (DATA.name, DATA.digest[:36])
    assert json.loads(found.dataset.profile) == DATA.counts
    assert found.tags[0].value == "training"


def test_the_model_is_one_and_comes_back_by_the_run(root: Path, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    with open_run(root, _head("model", data=[DATA])) as run:
        first = run.log_model(folder, "albums/global: 5 rounds", {"model.name": "cnn"})
        run.log_metrics([("attack/ap_update", 0.5, 3)], model=first, data=DATA)
        run.fail("the attack failed")
    (folder / "model.json").write_text('{"classes": 3}')
    with open_run(root, _head("model", data=[DATA])) as again:
        assert again.log_model(folder, "global model") == first
    found = again.client.get_run(again.run_id)
    assert [output.model_id for output in found.outputs.model_outputs] == [first]
    model = again.client.get_logged_model(first)
    assert (str(model.status), model.source_run_id) == ("READY", run.run_id)
    assert model.params == {"model.name": "cnn"}
    assert [(m.key, m.value, m.dataset_name, m.dataset_digest) for m in model.metrics] == [
        ("attack/ap_update", 0.5, "albums", DATA.digest[:36])
    ]
    place = load_model(root, run.run_id)
    assert json.loads((place / "model.json").read_text()) == {"classes": 3}
    assert load_file(place / "weights.safetensors")["head.weight"].shape == (2, 3)


def test_a_model_comes_back_by_the_name_of_its_run_and_by_the_label_of_its_job(tmp_path: Path) -> None:
    root, ids = tmp_path / "project", {}
    root.mkdir()
    for number, name in enumerate(("one random seed 7", "two random seed 7", "two random seed 8")):
        key = {"prior": "random", "seed": name[-1], "experiment": name.split()[0]}
        with open_run(root, _head("labels", key, name=name)) as run:
            folder = write_model(tmp_path / str(number))
            (folder / "model.json").write_text(json.dumps(number))
            run.log_model(folder, "cnn")
            ids[name] = run.run_id
    with open_run(root, _head("labels", {"group": "plane", "point": "noise 0.1 seed 0"}, name="plane x")) as run:
        run.log_model(write_model(tmp_path / "point"), "cnn")

    def found(named: str) -> int:
        return int(json.loads((load_model(root, named) / "model.json").read_text()))

    assert [found(name) for name in ids] == [0, 1, 2] == [found(run_id) for run_id in ids.values()]
    assert found("random-8") == 2
    assert load_model(root, "noise 0.1 seed 0").is_dir()
    with pytest.raises(FedprintError, match="several runs: one random seed 7, two random seed 7; give one"):
        found("random-7")
    with pytest.raises(FedprintError, match="did you mean 'two random seed 8'"):
        found("two random seed 9")


def test_what_is_told_of_a_model_in_training_is_linked_to_it_and_stands_once(root: Path, tmp_path: Path) -> None:
    head = _head("in training", model="cnn")
    with open_run(root, head) as run:
        run.log_message({"metrics": [["train/loss", 0.5, 0], ["train/loss", 0.25, 1]]})
        model = run.log_model(write_model(tmp_path), "cnn", {"dataset": "albums"})
        run.log_metrics([("train/loss", 0.25, 1), ("attack/ap_update", 0.5, 1)], model=model, data=DATA)
    assert _history(run, "train/loss") == [(0, 0.5), (1, 0.25)], "not twice"
    found = run.client.get_logged_model(model)
    assert {(m.key, m.step) for m in found.metrics} == {("train/loss", 0), ("train/loss", 1), ("attack/ap_update", 1)}
    assert (str(found.status), found.params) == ("READY", {"dataset": "albums"})
    assert is_finished(root, head) and not is_finished(root, _head("in training", {"prior": "iid"}))


def test_a_run_that_fails_before_its_data_are_read_names_them_and_its_model_has_failed(root: Path) -> None:
    head = _head("early", expected=[DATA], model="cnn")
    with open_run(root, head) as run:
        run.fail("the disk is full")
    assert not is_finished(root, head)
    (used,) = run.client.get_run(run.run_id).inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == (DATA.name, DATA.digest[:36])
    assert run.model_id is not None and str(run.client.get_logged_model(run.model_id).status) == "FAILED"


def test_a_model_that_a_killed_process_left_is_finished(root: Path, tmp_path: Path) -> None:
    with open_run(root, _head("half a model")) as run:
        experiment = run.client.get_run(run.run_id).info.experiment_id
        pending = run.client.create_logged_model(experiment, "m", run.run_id)
        assert run.log_model(write_model(tmp_path), "m") == pending.model_id
    assert load_model(root, run.run_id).is_dir()


def test_a_model_of_code_is_refused_and_a_run_without_one_is_named(root: Path, tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(b"")
    with (
        open_run(root, _head("no model")) as run,
        pytest.raises(FedprintError, match=r"safetensors and JSON alone.*model\.pkl"),
    ):
        run.log_model(tmp_path, "m")
    with pytest.raises(FedprintError, match="has no model"):
        load_model(root, run.run_id)
    with pytest.raises(FedprintError, match="holds no run 'f00'"):
        load_model(root, "f00")


def test_a_short_run_has_the_load_of_the_machine_and_its_repetition_goes_on_counting(root: Path) -> None:
    for _ in range(2):
        with open_run(root, _head("short")) as run:
            pass
    names = run.client.get_run(run.run_id).data.metrics
    assert {"system/cpu_utilization_percentage", "system/system_memory_usage_megabytes"} <= names.keys()
    assert [step for step, _ in _history(run, "system/system_memory_usage_percentage")] == [0, 1]


def test_a_long_run_is_sampled_on_the_way(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.02")
    with open_run(root, _head("long")) as run:
        threading.Event().wait(0.5)
        assert len(_history(run, "system/cpu_utilization_percentage")) >= 6
    steps = [step for step, _ in _history(run, "system/cpu_utilization_percentage")]
    assert steps == list(range(len(steps)))


def test_a_finished_run_of_the_same_key_goes_on_unresumed_and_repeats_no_point(root: Path) -> None:
    with open_run(root, _head("again", params={"lr": 0.1})) as first:
        first.log_metrics([("loss", 3.0, 0), ("loss", 2.0, 1), ("odd", math.nan, 0), ("odd", math.inf, 1)])
    turned = dict(reversed(KEY.items()))
    with open_run(root, _head("again", turned, params={"lr": 0.1, "new": 1})) as second:
        second.log_metrics([("loss", 2.0, 1), ("loss", 1.0, 2), ("odd", math.nan, 0), ("odd", math.inf, 1)])
    assert (second.run_id, second.known, second.resumed) == (first.run_id, True, False)
    assert _history(second, "loss") == [(0, 3.0), (1, 2.0), (2, 1.0)]
    assert len(_history(second, "odd")) == 2
    assert RESUMED_TAG not in _tags(second)


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
    def opened(key: dict[str, str], params: dict[str, float]) -> str:
        with open_run(root, _head("other", key, params=params), computes=False) as run:
            return run.run_id

    first, second = opened(KEY, {"lr": 0.1}), opened(key, params)
    assert second != first
    assert opened(key, params) == second


@pytest.mark.parametrize(("error", "status"), [(ValueError("no"), "FAILED"), (KeyboardInterrupt(), "KILLED")])
def test_an_exception_marks_the_run_and_its_repetition_is_resumed(
    root: Path, error: BaseException, status: str
) -> None:
    with pytest.raises(type(error)), open_run(root, _head(f"fails {status}")) as run:
        raise error
    assert _status(run) == status
    assert _tags(run).get(FAILURE_TAG) == ("ValueError: no" if status == "FAILED" else None)
    with open_run(root, _head(f"fails {status}")) as repeated:
        assert repeated.resumed
    assert (repeated.run_id, _status(repeated)) == (run.run_id, "FINISHED")
    assert FAILURE_TAG not in _tags(repeated)
    assert _tags(repeated)[RESUMED_TAG] == "1"


def test_a_run_whose_stage_failed_elsewhere_is_failed_or_killed(root: Path) -> None:
    with open_run(root, _head("stage fails")) as failed:
        failed.fail("attack: out of memory")
    with open_run(root, _head("stage is killed")) as killed:
        killed.kill()
    assert (_status(failed), _tags(failed)[FAILURE_TAG]) == ("FAILED", "attack: out of memory")
    assert _status(killed) == "KILLED"


WORKER = """
import sys, time
from pathlib import Path
from fedprint.lab.tracking.runs import RunHead, open_run
head = RunHead(experiment="crowd", key={"worker": sys.argv[2]}, name="worker " + sys.argv[2])
with open_run(Path(sys.argv[1]), head) as run:
    for step in range(3):
        run.log_metrics([("loss", float(step), step)])
    print("ready", flush=True)
    time.sleep(float(sys.argv[3]))
"""


def _worker(root: Path, name: str, seconds: float = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, str(root), name, str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _runs(root: Path, experiment: str) -> list[str]:
    client = create_database(root)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return [run.info.run_id for run in client.search_runs([found.experiment_id])]


@pytest.mark.slow
def test_four_processes_may_create_the_database_together(tmp_path: Path) -> None:
    workers = [_worker(tmp_path, str(i)) for i in range(4)]
    errors = [worker.communicate()[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0, 0], errors
    assert len(_runs(tmp_path, "crowd")) == 4


def test_threads_may_share_the_database(root: Path) -> None:
    def work(name: str) -> None:
        with open_run(root, _head("threads", {"thread": name})) as run:
            for step in range(5):
                run.log_metrics([("loss", float(step), step)])

    threads = [threading.Thread(target=work, args=(str(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client = create_database(root)
    found = [client.get_run(run) for run in _runs(root, "threads")]
    assert [run.info.status for run in found] == ["FINISHED"] * 4
    assert [run.data.metrics["loss"] for run in found] == [4.0] * 4


@pytest.mark.slow
def test_a_killed_process_leaves_a_run_that_its_repetition_finishes(root: Path) -> None:
    with _worker(root, "killed", 60) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        worker.send_signal(signal.SIGKILL)
    with open_run(root, _head("crowd", {"worker": "killed"})) as run:
        assert run.resumed
        run.log_metrics([("loss", float(step), step) for step in range(5)])
    assert _status(run) == "FINISHED"
    assert len(_history(run, "loss")) == 5


def test_an_experiment_deleted_on_the_page_comes_back(root: Path) -> None:
    with open_run(root, _head("deleted")) as run:
        pass
    run.client.delete_experiment(run.client.get_run(run.run_id).info.experiment_id)
    with open_run(root, _head("deleted")) as again:
        pass
    assert _status(again) == "FINISHED"


def test_the_hint_names_the_database_and_the_comparison_of_this_experiment(root: Path) -> None:
    with open_run(root, _head("hint"), computes=False) as run:
        experiment = run.client.get_experiment(run.client.get_run(run.run_id).info.experiment_id)
    command, link = ui_hint(root, "hint").splitlines()
    assert f"cd {root}" in command and "sqlite:///mlflow.db" in command
    assert f"#/experiments/{experiment.experiment_id}/runs?compareRunsMode=CHART&workflowType=machine_learning" in link
    assert "fedprint.group%60+%3D+%27plane+1%27" in ui_hint(root, "hint", "plane 1")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"


def test_a_view_is_saved_once_and_its_link_names_it(root: Path) -> None:
    view = View(experiment="views", group="plane 1", name="Plane", params=["alpha"], metrics=["attack/ap_update"])
    link = save_view(root, view)
    assert save_view(root, view) == link
    experiment = create_database(root).get_experiment_by_name("views")
    assert experiment is not None
    (tag,) = [tag for tag in experiment.tags if tag.startswith(VIEW_TAG)]
    assert link.endswith(f"viewStateShareKey={tag.removeprefix(VIEW_TAG)}")
    assert json.loads(experiment.tags[tag])["name"] == "Plane"


def test_a_broken_database_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 100)
    with pytest.raises(FedprintError, match=r"mlflow\.db cannot be opened") as caught:
        create_database(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_modules_do_not_import_mlflow_by_themselves() -> None:
    code = "import sys, fedprint.lab.tracking.runs, fedprint.lab.tracking.views; sys.exit('mlflow' in sys.modules)"
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


def test_values_are_cut_names_are_plain_and_keys_do_not_depend_on_order() -> None:
    assert shorten("x" * 500, 500) == "x" * 500
    assert shorten("x" * 501, 500) == "x" * 499 + "…"
    assert plain_name("attack/ap_über@5%: a+b") == "attack/ap_über_5_: a_b"
    long = [plain_name("analysis/" + "a" * 300 + end) for end in ("/ap", "/top1")]
    assert [len(name) for name in long] == [250, 250] and long[0] != long[1]
    assert canonical_key({"a": "1", "b": "2"}) == canonical_key({"b": "2", "a": "1"})
    assert canonical_key({"a": "1"}) != canonical_key({"a": "1", "b": "2"})


def test_nested_settings_are_flat_and_components_have_names_of_their_own() -> None:
    settings = {"data": {"clients": 3}, "seeds": [0, 1], "attacks": [{"name": "ridge"}, {"name": "mlp"}]}
    assert dict(flat(settings)) == {
        "data.clients": 3,
        "seeds": [0, 1],
        "attacks.0.name": "ridge",
        "attacks.1.name": "mlp",
    }
