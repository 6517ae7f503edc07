"""The files that DVC reads, written from what stages declare: dvc.yaml, params.yaml and experiments/<name>/dvc.yaml.

Their dependency lists are the threat model in DVC's words. Nothing here starts DVC (repository.py does).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedprint.errors import FedprintError
from fedprint.lab.graph import Graph, Stage

ITEM = "${item.prior}-${item.seed}"
CONFIGURED = "configured"
"""The tiny output of the stage ``configuration``, on which all others wait."""

_HEADER = "# Written by fedprint from the stages' declaration; a test fails when it differs. Do not edit.\n"
DATA = "data.json"
"""In an experiment's folder: name, digest and counts of the data sets that it used."""
_COMMITTED = {"cache": False}
"""In git, not in DVC's cache."""


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A file or folder below ``experiments/<name>/plots`` as ``dvc plots`` draws it."""

    file: str
    template: str
    x: str
    y: str
    title: str

    def as_out(self, experiment: str) -> dict[str, Any]:
        """Return its entry among a stage's plots."""
        shown = {"template": self.template, "x": self.x, "y": self.y, "title": self.title}
        return {f"experiments/{experiment}/plots/{self.file}": {**_COMMITTED, **shown}}


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A graph as DVC stages, once per prior and seed of params.yaml.

    ``data`` names the data sets, of which ``datasets/<name>.yaml`` are the manifests; as in the cache's keys, every
    stage depends on them. ``configs`` are the files that the configuration was resolved from. ``reported`` are the
    outputs that the report reads: those of all jobs lie in one folder. ``unversioned`` outputs differ between equal
    runs (times): DVC never sees them, and no stage may read them. ``report_code`` is code of the report, as of a stage.
    """

    experiment: str
    graph: Graph
    data: tuple[str, ...]
    configs: tuple[str, ...]
    reported: tuple[str, ...]
    unversioned: tuple[str, ...] = ()
    report_code: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    client: str

    def path(self, output: str, item: str = ITEM) -> str:
        """Return the path of a job's output below the root."""
        parts = (output, item) if output in self.reported else (item, output)
        return "/".join((self.folder, *parts))

    @property
    def folder(self) -> str:
        """The path of the experiment below the root."""
        return f"experiments/{self.experiment}"


@dataclass(frozen=True, kw_only=True)
class Published:
    """An experiment that one command makes, as one frozen DVC stage.

    ``data`` names those of its data sets of which ``datasets/<name>.yaml`` are the manifests; ``data.json`` has the
    digests of all. ``updates`` says that experiments/<name>/updates is there and may leave this machine, ``report``
    that the report may. ``reads`` names other experiments whose measurements it shows.
    """

    experiment: str
    command: str
    data: tuple[str, ...] = ()
    updates: bool = False
    report: bool = True
    plots: tuple[Plot, ...] = ()
    reads: tuple[str, ...] = ()


def dvc_yaml(pipeline: Pipeline) -> str:
    """Return the content of dvc.yaml. Raises FedprintError when a stage opens an unversioned output."""
    stages = {"configuration": _configuration(pipeline)}
    stages |= {stage.name: _matrix_stage(pipeline, stage) for stage in pipeline.graph.stages}
    stages["report"] = _report(pipeline)
    data = [_dataset(name) for name in pipeline.data]
    return _dumped({"datasets": data, "stages": stages, "params": [f"{pipeline.folder}/config.yaml"]})


def lock_data(root: Path, pipeline: Pipeline) -> None:
    """Write the digests of the manifests into dvc.lock, where DVC looks for them; nothing else in it changes."""
    path = root / "dvc.lock"
    lock = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {"schema": "2.0"}
    data = [{**_dataset(name), "rev_lock": _manifest(root, name)["sha256"]} for name in pipeline.data]
    if lock.get("datasets") != data:
        content = {"schema": lock.pop("schema"), **lock, "datasets": data}
        path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def published_yaml(published: Published) -> str:
    """Return the content of ``experiments/<name>/dvc.yaml``."""
    folder = f"experiments/{published.experiment}"
    read = [f"experiments/{name}/measurements.jsonl" for name in published.reads]
    stage = {
        "desc": f"frozen: `{published.command} --renew` makes and records it anew",
        "cmd": published.command,
        "wdir": "../..",
        "frozen": True,
        "deps": [f"{folder}/config.yaml", f"{folder}/{DATA}", *map(manifest_file, published.data), *read],
        **_results(published.experiment, published.plots, published.updates, published.report),
    }
    return _dumped({"stages": {"run": stage}, "params": ["config.yaml"]})


def params_yaml(root: Path, configs: Sequence[str], priors: Sequence[str], seeds: Sequence[int]) -> str:
    """Return the content of params.yaml: the jobs of the pipeline, and what its configuration was resolved from."""
    values = {"priors": [*priors], "seeds": [*seeds], "configs_sha256": configs_sha256(root, configs)}
    return "# The jobs of bare `dvc repro`, and what their configuration was resolved from.\n" + yaml.safe_dump(
        values, sort_keys=False, default_flow_style=None
    )


def configs_sha256(root: Path, configs: Sequence[str]) -> str:
    """Return a hash of the files that a configuration is resolved from."""
    digests = "".join(hashlib.sha256((root / each).read_bytes()).hexdigest() for each in configs)
    return hashlib.sha256(digests.encode()).hexdigest()


def check_configuration(root: Path, experiment: str, configs: Sequence[str], remedy: str) -> None:
    """Write the stage's output. Raises FedprintError when ``configs`` changed since the configuration was resolved."""
    known = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))["configs_sha256"]
    folder = root / "experiments" / experiment
    if configs_sha256(root, configs) != known:
        raise FedprintError(
            f"{' or '.join(configs)} changed since experiments/{experiment}/config.yaml was resolved: run `{remedy}`"
        )
    folder.mkdir(parents=True, exist_ok=True)
    # The same whatever is in the files: comments must not make every stage stale.
    (folder / CONFIGURED).write_text("yes\n", encoding="utf-8")


def _configuration(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "desc": "fails when the resolved configuration is older than configs/",
        "cmd": f"{pipeline.client} configuration {pipeline.experiment}",
        "params": ["configs_sha256"],
        "deps": list(pipeline.configs),
        "outs": [f"{pipeline.folder}/{CONFIGURED}"],
    }


def _matrix_stage(pipeline: Pipeline, stage: Stage) -> dict[str, Any]:
    if hidden := set(stage.inputs) & set(pipeline.unversioned):
        raise FedprintError(f"stage '{stage.name}' opens {sorted(hidden)}, which differ between equal runs")
    config = f"{pipeline.folder}/config.yaml"
    inputs = [pipeline.path(each) for each in stage.inputs] or [f"{pipeline.folder}/{CONFIGURED}"]
    whole = [config] if stage.settings is None else []
    return {
        "matrix": {"prior": "${priors}", "seed": "${seeds}"},
        "cmd": f"{pipeline.client} {stage.name} {pipeline.experiment} ${{item.prior}} ${{item.seed}}",
        **({"params": [{config: list(stage.settings)}]} if stage.settings else {}),
        "deps": [*_data(pipeline), *_sources(stage.code), *whole, *inputs],
        "outs": [pipeline.path(each) for each in stage.outputs if each not in pipeline.unversioned],
    }


def _report(pipeline: Pipeline) -> dict[str, Any]:
    reported = [f"{pipeline.folder}/{output}" for output in pipeline.reported]
    return {
        "cmd": f"{pipeline.client} report {pipeline.experiment}",
        "params": ["priors", "seeds"],
        "deps": [*_data(pipeline), *_sources(pipeline.report_code), f"{pipeline.folder}/config.yaml", *reported],
        **_results(pipeline.experiment, pipeline.plots),
    }


def _data(pipeline: Pipeline) -> list[str]:
    # First, and of every stage: DVC's run cache leaves such a stage alone. Otherwise a dry run would hash outputs that
    # do not exist yet, and fail (github.com/treeverse/dvc/issues/9818). Our own cache does the run cache's work.
    return [f"ds://{name}" for name in pipeline.data]


def _dataset(name: str) -> dict[str, str]:
    return {"name": name, "url": ".", "type": "dvc", "path": manifest_file(name)}


def manifest_file(name: str) -> str:
    """Return the path of the manifest of a data set below the root."""
    return f"datasets/{name}.yaml"


def _manifest(root: Path, name: str) -> dict[str, Any]:
    path = root / manifest_file(name)
    if not path.is_file():
        raise FedprintError(f"{manifest_file(name)} does not exist: `fedprint data add` writes it")
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def _sources(code: Sequence[str]) -> list[str]:
    return [f"src/fedprint/{source}" for source in code]


def _results(experiment: str, plots: Sequence[Plot], updates: bool = False, report: bool = True) -> dict[str, Any]:
    """Return the outputs of an experiment: what DVC keeps, and what is in git beside the lock."""
    folder = f"experiments/{experiment}"
    kept = [*([f"reports/{experiment}"] if report else []), *([f"{folder}/updates"] if updates else [])]
    drawn = [plot.as_out(experiment) for plot in plots]
    return {
        "outs": [*kept, {f"{folder}/measurements.jsonl": dict(_COMMITTED)}],
        "metrics": [{f"{folder}/metrics.json": dict(_COMMITTED)}],
        **({"plots": drawn} if drawn else {}),
    }


def _dumped(value: Mapping[str, Any]) -> str:
    return _HEADER + yaml.safe_dump(dict(value), sort_keys=False, width=120)
