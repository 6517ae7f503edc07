"""MLflow runs: one flat run per job, found again by its key, with its data, model, metrics and load of the machine.

Only the process that runs the stages writes here; the stages send it what to write (:class:`fedprint.lab.graph.Task`).
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedprint.errors import FedprintError, did_you_mean
from fedprint.lab.tracking.database import GROUP_TAG, create_database, database_lock, experiment_id, tracking_uri
from fedprint.lab.tracking.origin import canonical_key, origin_tags, param_texts, plain_name, tag_texts
from fedprint.lab.tracking.system_metrics import Sample, system_metrics

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, LoggedModel, Metric
    from mlflow.entities import Run as StoredRun

Point = tuple[str, float, int]
"""A metric's name (slashes make chart groups), value and step."""

KEY_TAG = "fedprint.key"
RESUMED_TAG = "fedprint.resumed"
FAILURE_TAG = "fedprint.failure"

METRICS_PER_CALL = 1000
PARAMS_PER_CALL = 100
RUNS_PER_CALL = 1000
LONGEST_DIGEST = 36
MODEL_FILES = (".safetensors", ".json")


@dataclass(frozen=True, kw_only=True)
class DataUse:
    """A data set as a run uses it: its name and its counts, nothing of its content.

    ``digest`` is cut to MLflow's 36 characters. ``context`` says what for (``training``, ``prior``, ``evaluation``).
    """

    name: str
    digest: str
    context: str = "training"
    counts: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def short_digest(self) -> str:
        """The digest as MLflow stores it."""
        return self.digest[:LONGEST_DIGEST]


@dataclass(frozen=True, kw_only=True)
class RunHead:
    """What is known of a run when it starts.

    ``key`` finds it again (tags ``fedprint.<k>``). ``group`` is the same text for all points of a plane and for all
    trials of a study. ``model`` names the network that the run trains, if any. Of data that are described later,
    ``expected`` is listed where the run ends before. ``description`` is Markdown.
    """

    experiment: str
    key: Mapping[str, str]
    name: str
    params: Mapping[str, object] = field(default_factory=dict)
    tags: Mapping[str, object] = field(default_factory=dict)
    data: Sequence[DataUse] = ()
    expected: Sequence[DataUse] = ()
    model: str = ""
    group: str = ""
    description: str = ""


@dataclass(kw_only=True)
class Run:
    """An open MLflow run; every method takes the database's lock, so threads and processes may share the database."""

    run_id: str
    root: Path
    client: MlflowClient
    known: bool
    """Whether the run existed before: what it holds is not written twice."""
    resumed: bool
    """Whether it existed and had not finished."""
    model_id: str | None = None
    """The model that is being trained, to which metrics of stages belong."""
    ends: Literal["FINISHED", "FAILED", "KILLED"] = "FINISHED"
    _logged: dict[str, set[tuple[int, str]]] = field(default_factory=dict, repr=False)

    def log_message(self, message: Mapping[str, Any]) -> None:
        """Write a message of a stage: ``metrics`` (lists of name, value, step), ``params`` and ``tags`` (mappings)."""
        if metrics := message.get("metrics"):
            self.log_metrics([(name, value, step) for name, value, step in metrics], model=self.model_id)
        if params := message.get("params"):
            self.log_params(params)
        if tags := message.get("tags"):
            self.set_tags(tags)

    def log_metrics(self, points: Sequence[Point], *, model: str | None = None, data: DataUse | None = None) -> None:
        """Write points, at most 1000 a call (each call takes long, however few: collect first).

        ``model`` is an id that :meth:`log_model` returned: the points show on the model's page too. ``data`` is the
        data set that they were measured on. Points that the run already holds are skipped, so that a repeated round
        does not show twice.
        """
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        of = {"model_id": model}
        if data is not None:
            of |= {"dataset_name": data.name, "dataset_digest": data.short_digest}
        with database_lock(self.root):
            named = [(plain_name(name), float(value), int(step)) for name, value, step in points]
            fresh = [point for point in named if self._is_new(*point)]
            self._write([Metric(name, value, now, step, **of) for name, value, step in fresh])

    def log_params(self, params: Mapping[str, object]) -> None:
        """Write parameters as text, whole up to MLflow's limit of 6000 characters."""
        from mlflow.entities import Param

        rows = [Param(name, text) for name, text in param_texts(params).items()]
        with database_lock(self.root):
            for start in range(0, len(rows), PARAMS_PER_CALL):
                self.client.log_batch(self.run_id, params=rows[start : start + PARAMS_PER_CALL])

    def set_tags(self, tags: Mapping[str, object]) -> None:
        """Write tags, replacing those of the same name."""
        from mlflow.entities import RunTag

        rows = [RunTag(name, text) for name, text in tag_texts(tags).items()]
        with database_lock(self.root):
            for start in range(0, len(rows), PARAMS_PER_CALL):
                self.client.log_batch(self.run_id, tags=rows[start : start + PARAMS_PER_CALL])

    def log_data(self, data: Sequence[DataUse]) -> None:
        """List data sets among the run's inputs; one that is listed already stays once."""
        with database_lock(self.root):
            self.client.log_inputs(self.run_id, [_dataset_input(use) for use in data])

    def log_artifacts(self, path: Path, below: str | None = None) -> None:
        """Copy a file, or what is in a folder, to the run, replacing files of the same name."""
        copy = self.client.log_artifacts if path.is_dir() else self.client.log_artifact
        copy(self.run_id, str(path), below)

    def log_model(self, folder: Path, name: str, params: Mapping[str, object] | None = None) -> str:
        """Make what is in ``folder`` the run's one model, and return its id for :meth:`log_metrics`.

        It is among the run's outputs and on MLflow's page of models. A run that has a model keeps it: only its files
        are replaced. Raises FedprintError for a file that is neither safetensors nor JSON, because others may run code.
        """
        from mlflow.entities import LoggedModelOutput

        if wrong := [file.name for file in folder.rglob("*") if file.is_file() and file.suffix not in MODEL_FILES]:
            raise FedprintError(f"a logged model holds safetensors and JSON alone, and {folder} has {wrong[0]}")
        with database_lock(self.root):
            model = self._model() or self._new_model(name)
            if missing := {k: v for k, v in param_texts(params or {}).items() if k not in model.params}:
                self.client.log_model_params(model.model_id, missing)
            self.client.log_model_artifacts(model.model_id, str(folder))
            self.client.finalize_logged_model(model.model_id, "READY")
            if model.model_id not in _outputs(self.client, self.run_id):
                self.client.log_outputs(self.run_id, [LoggedModelOutput(model.model_id, step=0)])
        return str(model.model_id)

    def expect_model(self, name: str) -> None:
        """Begin the run's one model, which waits for its files; MLflow calls it failed where they never come."""
        with database_lock(self.root):
            self.model_id = str((self._model() or self._new_model(name)).model_id)

    def give_up_model(self) -> None:
        """Call the model failed unless its files came."""
        if self.model_id and self.client.get_logged_model(self.model_id).status == "PENDING":
            self.client.finalize_logged_model(self.model_id, "FAILED")

    def fail(self, reason: str) -> None:
        """End as FAILED, with the reason as a tag, although no exception leaves the block."""
        self.ends = "FAILED"
        self.set_tags({FAILURE_TAG: reason})

    def kill(self) -> None:
        """End as KILLED, although no Ctrl-C reaches the block."""
        self.ends = "KILLED"

    def _model(self) -> LoggedModel | None:
        """Return the model of the run, also one that a killed process left unfinished."""
        experiment = self.client.get_run(self.run_id).info.experiment_id
        models = self.client.search_logged_models([experiment], f"source_run_id = '{self.run_id}'", max_results=1)
        return models[0] if models else None

    def _new_model(self, name: str) -> LoggedModel:
        run = self.client.get_run(self.run_id)
        name = re.sub(r"[/:.%\"']", "-", name)  # what MLflow does not take in a model's name
        tags = {tag: text for tag, text in run.data.tags.items() if tag.startswith(("mlflow.user", "mlflow.source."))}
        return self.client.create_logged_model(run.info.experiment_id, name, self.run_id, tags=tags)

    def _write(self, metrics: Sequence[Metric]) -> None:
        for start in range(0, len(metrics), METRICS_PER_CALL):
            self.client.log_batch(self.run_id, metrics=metrics[start : start + METRICS_PER_CALL])

    def _write_samples(self, samples: Sequence[Sample]) -> None:
        from mlflow.entities import Metric

        with database_lock(self.root):
            self._write([Metric(name, v, now, step) for now, step, values in samples for name, v in values.items()])

    def _is_new(self, name: str, value: float, step: int) -> bool:
        """Return whether the run does not hold a point yet, and take it as held from now on."""
        if name not in self._logged:
            history = self.client.get_metric_history(self.run_id, name) if self.known else ()
            self._logged[name] = {(point.step, _stored(point.value)) for point in history}
        held, point = self._logged[name], (step, _stored(value))
        new = point not in held
        held.add(point)
        return new


@contextmanager
def open_run(root: Path, head: RunHead, *, computes: bool = True) -> Iterator[Run]:
    """Open the run of the head's key, or create it, and close it with the status of the block.

    A run goes on when it has the same key and no parameter with another value (MLflow forbids changing one); otherwise
    a new one starts. The tag ``fedprint.resumed`` counts how often it went on without having finished. Leaving the
    block marks it FINISHED, or as :meth:`Run.fail` and :meth:`Run.kill` say; an exception FAILED, Ctrl-C KILLED; a
    killed process leaves it RUNNING until its key is opened again. A run that ``computes`` has the load of the machine,
    and a model that waits for its files.
    """
    client = create_database(root)
    with database_lock(root):
        number = experiment_id(client, root, head.experiment)
        stored = _find_run(client, number, head)
        run = _reopen(client, root, stored, head) if stored else _create(client, root, number, head)
    status: str = "FAILED"
    try:
        run.log_params(head.params)
        if head.data:
            run.log_data(head.data)
        if computes:
            if head.model:
                run.expect_model(head.model)
            with system_metrics(run.run_id, tracking_uri(root), run.known, run._write_samples):
                yield run
        else:
            yield run
        status = run.ends
    except BaseException as error:
        if not isinstance(error, Exception):
            status = "KILLED"
        elif run.ends == "FINISHED":
            run.fail(f"{type(error).__name__}: {error}")
        raise
    finally:
        if status != "FINISHED" and head.expected:
            run.log_data(head.expected)
        with database_lock(root):
            if status != "FINISHED":
                run.give_up_model()
            client.set_terminated(run.run_id, status)


def is_finished(root: Path, head: RunHead) -> bool:
    """Return whether there is a finished run of the head's key and parameters."""
    client = create_database(root)
    with database_lock(root):
        stored = _find_run(client, experiment_id(client, root, head.experiment), head)
    return stored is not None and stored.info.status == "FINISHED"


def load_model(root: Path, run: str) -> Path:
    """Return the folder with the weights and the JSON of a run's model.

    ``run`` is its id, its name on MLflow's page, or the label of its job (``random-0``). Of several runs of one name
    the newest is taken. Raises FedprintError where there is none, or where runs of several names have the label.
    """
    from mlflow.artifacts import download_artifacts

    client = create_database(root)
    models = _outputs(client, _id_of(client, root, run))
    if not models:
        raise FedprintError(f"run '{run}' has no model: it did not get as far, or is one of a report")
    location = client.get_logged_model(models[0]).artifact_location
    return Path(download_artifacts(artifact_uri=location, tracking_uri=tracking_uri(root)))


def _id_of(client: MlflowClient, root: Path, run: str) -> str:
    known = list(_all_runs(client))
    if any(one.info.run_id == run for one in known):
        return run
    found = [one for one in known if run in _called(one)]
    names = sorted({str(one.info.run_name) for one in found})
    if len(names) > 1:
        raise FedprintError(f"'{run}' is the label of several runs: {', '.join(names)}; give one of these names")
    if not found:
        close = did_you_mean(run, {str(one.info.run_name) for one in known})
        where = f"{tracking_uri(root)} holds no run '{run}'"
        raise FedprintError(f"{where}; {close}copy its id or its name from MLflow's page")
    return str(next((one for one in found if _outputs(client, one.info.run_id)), found[0]).info.run_id)


def _called(run: StoredRun) -> set[str]:
    """Return the name of a run and the label of its job."""
    tags = {name.removeprefix("fedprint."): value for name, value in run.data.tags.items()}
    label = tags.get("point", f"{tags.get('prior')}-{tags.get('seed')}")
    return {str(run.info.run_name), label}


def _all_runs(client: MlflowClient) -> Iterator[StoredRun]:
    """Yield every run, the newest first."""
    places, token = [one.experiment_id for one in client.search_experiments()], None
    while True:
        page = client.search_runs(places, max_results=RUNS_PER_CALL, order_by=["start_time DESC"], page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _outputs(client: MlflowClient, run_id: str) -> list[str]:
    """Return the ids of the run's models."""
    outputs = client.get_run(run_id).outputs
    return [model.model_id for model in outputs.model_outputs] if outputs else []


def _stored(value: float) -> str:
    """Return a value so that equal is what MLflow stores alike: infinity is its largest number there."""
    return repr(math.copysign(sys.float_info.max, value) if math.isinf(value) else float(value))


def _dataset_input(use: DataUse) -> DatasetInput:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    counts = dict(use.counts)
    dataset = Dataset(
        use.name, use.short_digest, "fedprint", json.dumps({"name": use.name}), profile=json.dumps(counts)
    )
    return DatasetInput(dataset, [InputTag("mlflow.data.context", use.context)])


def _quoted_key(head: RunHead) -> str:
    return canonical_key(head.key).replace("'", "\\u0027")


def _find_run(client: MlflowClient, number: str, head: RunHead) -> StoredRun | None:
    """Return the latest run of the key that can take these parameters."""
    texts = param_texts(head.params)
    runs: Sequence[StoredRun] = client.search_runs(
        [number], f"tags.`{KEY_TAG}` = '{_quoted_key(head)}'", max_results=50
    )
    for run in runs:
        if all(run.data.params.get(name, text) == text for name, text in texts.items()):
            return run
    return None


def _create(client: MlflowClient, root: Path, number: str, head: RunHead) -> Run:
    tags = tag_texts({f"fedprint.{part}": value for part, value in head.key.items()})
    tags |= {KEY_TAG: _quoted_key(head), **_head_tags(root, head)}
    run = client.create_run(number, run_name=head.name, tags=tags)
    return Run(run_id=run.info.run_id, root=root, client=client, known=False, resumed=False)


def _reopen(client: MlflowClient, root: Path, stored: StoredRun, head: RunHead) -> Run:
    """Set a run going again; one that had not finished is resumed."""
    resumed = stored.info.status != "FINISHED"
    run = Run(run_id=stored.info.run_id, root=root, client=client, known=True, resumed=resumed)
    client.update_run(run.run_id, status="RUNNING", name=head.name)
    tags = _head_tags(root, head)
    if resumed:
        tags[RESUMED_TAG] = str(int(stored.data.tags.get(RESUMED_TAG, "0")) + 1)
    run.set_tags(tags)
    if FAILURE_TAG in stored.data.tags:
        client.delete_tag(run.run_id, FAILURE_TAG)
    return run


def _head_tags(root: Path, head: RunHead) -> dict[str, str]:
    about = {GROUP_TAG: head.group, "mlflow.note.content": head.description}
    given = {name: text for name, text in about.items() if text} | dict(head.tags)
    return origin_tags(root) | tag_texts(given)
