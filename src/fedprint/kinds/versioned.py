"""Experiments under version control: the files that DVC and git keep, and the stages of a bare ``dvc repro``.

A run of a shipped experiment leaves ``experiments/<name>/``: configuration, measurements, metrics and plots for git,
digests of report and updates for DVC. Variants and files from elsewhere leave a report alone.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from fedprint.data.catalogue.manifest import add_embedded, names_these, read_manifest
from fedprint.data.formats.files import read_json, write_json
from fedprint.data.prepared import load_meta
from fedprint.data.sources.registry import folder_names, label_of
from fedprint.data.sources.texts import joint_sha256
from fedprint.kinds.base import Findings, Kind, Request, Resolved
from fedprint.kinds.federation.config import Experiment, check_experiment, load_experiment
from fedprint.kinds.federation.declared import FILE, part_of
from fedprint.kinds.federation.graph import FEDERATION
from fedprint.kinds.federation.jobs import jobs_of
from fedprint.kinds.federation.kind import PLOTS, FederationKind, findings_of
from fedprint.kinds.laboratory import Tracker, conclude, lab_in
from fedprint.kinds.registry import kind_of
from fedprint.kinds.requests import is_unchanged, request_for
from fedprint.lab.graph import Job, Stage
from fedprint.lab.keys import digest_of, source_digest
from fedprint.lab.project import find_root
from fedprint.lab.runner import Done, Lab
from fedprint.lab.versions import repository as versions
from fedprint.lab.versions.dvc_yaml import (
    CONFIGURED,
    DATA,
    Pipeline,
    Published,
    check_configuration,
    dvc_yaml,
    lock_data,
    manifest_file,
    params_yaml,
    published_yaml,
)
from fedprint.lab.workers.pool import ServerPool
from fedprint.plugins import plug_in_digests
from fedprint.reports.claims.verdict import CLAIMS
from fedprint.rng import seed_for
from fedprint.types import FedprintError

QUICKSTART = "quickstart"
REMEDY = f"fedprint run {QUICKSTART}"
_PAGE = ("reports", "evaluation")


def pipeline_of(config: Experiment) -> Pipeline:
    """Return the quickstart as DVC sees it."""
    return Pipeline(
        experiment=config.name,
        graph=FEDERATION,
        data=(label_of(config.data),),
        configs=("configs/defaults.yaml", f"configs/experiments/{config.name}.yaml", FILE),
        reported=("evaluation",),
        unversioned=("overhead",),
        report_code=_PAGE,
        plots=PLOTS,
        client="python -m fedprint.cli.stage",
    )


def is_shipped(request: Request) -> bool:
    """Return whether a file of the project is to run as it is, on data that git knows: versioned where there is DVC."""
    return (request.root / ".dvc").is_dir() and is_unchanged(request) and unknown_data(request) is None


def named_by_data(request: Request) -> Request:
    """Return the request; the name of a file of the project on data unknown to git ends with their digest.

    So the report of the published data stays. Raises FedprintError where data are missing.
    """
    digest = unknown_data(request) if is_unchanged(request) else None
    return replace(request, name=f"{request.name}-data-{digest[:8]}") if digest else request


def unknown_data(request: Request) -> str | None:
    """Return the digest of data whose content differs from the manifest of their name; None without any."""
    kind = kind_of(request.values)
    by_digest = {job.data: job.config for job in kind.jobs(kind.load(request))}
    return next((digest for digest, config in by_digest.items() if not _is_known(request.root, config, digest)), None)


def _is_known(root: Path, config: Any, digest: str) -> bool:
    """Return whether git names these data, or has no manifest of them, as of generated data."""
    names = folder_names(config.data)
    if not names or not all((root / manifest_file(name)).is_file() for name in names):
        return True
    return joint_sha256([read_manifest(root, name).sha256 for name in names]) == digest


def fingerprint(kind: Kind[Any], jobs: Sequence[Job], config: Resolved) -> str:
    """Return a hash of configuration, data, files and code: whether a published experiment is still the same."""
    work = [
        [
            job.label, job.data, job.files,
            [[stage.name, source_digest(stage.code)] for stage in job.work.graph.stages],
        ]
        for job in jobs
    ]  # fmt: skip
    beside: list[object] = [source_digest(kind.code)] if kind.code else []
    beside += [digest for job in jobs for digest in plug_in_digests(job.config)]
    return digest_of([config.digest(), work, *beside])


def is_published(request: Request, kind: Kind[Any], config: Resolved) -> bool:
    """Return whether the experiment was published with this configuration, data and code, and its page is here."""
    path = request.root / "experiments" / request.name / "published.json"
    page = request.root / "reports" / request.name / "index.html"
    return (
        page.is_file()
        and path.is_file()
        and read_json(path)["fingerprint"] == fingerprint(kind, kind.jobs(config), config)
    )


def publish(request: Request, kind: Kind[Any], config: Any, findings: Findings) -> None:
    """Write the files that git and DVC keep of a finished experiment, and let DVC record them."""
    root, name = request.root, config.name
    folder = root / "experiments" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(config.text(), encoding="utf-8")
    write_tracked(root, name, findings)
    if name == QUICKSTART:
        record_quickstart(root, config, findings)
    else:
        _record(request, kind, config, findings)
    # Last: an experiment that DVC could not record does not count as published.
    known = {"fingerprint": fingerprint(kind, kind.jobs(config), config), "users": findings.users}
    write_json(folder / "published.json", known)


def _record(request: Request, kind: Kind[Any], config: Any, findings: Findings) -> None:
    root, name = request.root, config.name
    folder = root / "experiments" / name
    kept = _keep_updates(folder, findings.done)
    shareable = kind.shareable(config)
    if not shareable:
        versions.write_digests(root, name)
    uses = [{"name": use.name, "digest": use.digest, "counts": dict(use.counts)} for use in findings.data]
    write_json(folder / DATA, {"data": uses})
    known = [use.name for use in findings.data if names_these(root, use.name, use.digest)]
    published = Published(
        experiment=name,
        command=f"fedprint {'tune' if request.path.parent.name == 'studies' else 'run'} {request.path.stem}",
        data=tuple(known),
        updates=kept and shareable,
        report=shareable or not findings.shows_data,
        plots=tuple(drawn.plot for drawn in findings.plots),
        reads=tuple(findings.reads),
    )
    versions.record(root, name, published_yaml(published))


def write_tracked(root: Path, name: str, findings: Findings) -> None:
    """Write metrics, measurements, verdicts and plots: no times, so that equal runs leave equal files."""
    folder, report = root / "experiments" / name, root / "reports" / name
    write_json(folder / "metrics.json", findings.metrics)
    shutil.copyfile(report / "measurements.jsonl", folder / "measurements.jsonl")
    if (report / CLAIMS).is_file():  # some pages judge none
        shutil.copyfile(report / CLAIMS, folder / CLAIMS)
    for drawn in findings.plots:
        _write_csv(folder / "plots" / drawn.plot.file, drawn.rows)


def record_quickstart(root: Path, config: Experiment, findings: Findings) -> None:
    """Link the outputs of all stages to their paths in DVC, write its files, and let it record them."""
    pipeline = pipeline_of(config)
    for done in findings.done:
        link_outputs(root, pipeline, done.job, done.outputs)
    drop_others([root / pipeline.path("evaluation", done.job.item) for done in findings.done])
    (root / pipeline.folder / CONFIGURED).write_text("yes\n", encoding="utf-8")
    write_pipeline(root, config, pipeline)
    if not all(names_these(root, use.name, use.digest) for use in findings.data):
        add_embedded(root, config.data.load(None, seed_for(config.seeds[0], "data")))
    lock_data(root, pipeline)
    versions.record(root, config.name, dvc_yaml(pipeline))


def write_pipeline(root: Path, config: Experiment, pipeline: Pipeline) -> None:
    """Write the files that DVC parses."""
    params = params_yaml(root, pipeline.configs, config.split.priors, config.seeds)
    (root / "params.yaml").write_text(params, encoding="utf-8")
    (root / "dvc.yaml").write_text(dvc_yaml(pipeline), encoding="utf-8")


def link_outputs(root: Path, pipeline: Pipeline, job: Job, outputs: Mapping[str, Path]) -> None:
    """Link the outputs of a job to their paths in the project."""
    for output, path in outputs.items():
        if output not in pipeline.unversioned:
            versions.link_tree(path, root / pipeline.path(output, job.item))


def drop_others(folders: Sequence[Path]) -> None:
    """Remove all folders beside these: results of priors and seeds that are no longer configured."""
    for other in set(folders[0].parent.iterdir()) - set(folders):
        shutil.rmtree(other)


def run_stage(call: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None]) -> None:
    """Run one stage of the root's dvc.yaml, as ``python -m fedprint.cli.stage`` asks for it.

    The stage's result comes from the cache if it is there. Otherwise it is computed there or, where DVC brought inputs
    that the cache lacks, from the files in the project.
    """
    root, stage, name = Path(call["root"]), call["stage"], call["experiment"]
    asked = request_for(root, name)
    if stage == "configuration":
        check_configuration(root, name, pipeline_of(load_experiment(asked)).configs, REMEDY)
        return
    values = yaml.safe_load((root / "experiments" / name / "config.yaml").read_text(encoding="utf-8"))
    params = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    values |= {"seeds": params["seeds"], "split": {**values["split"], "priors": params["priors"]}}
    config = check_experiment(values, f"experiments/{name}/config.yaml")
    kind, pipeline = FederationKind(), pipeline_of(config)
    if not kind.shareable(config):
        raise FedprintError(
            f"{label_of(config.data)} does not say `samples: shareable`, and outputs of these stages can be pushed: "
            f"`fedprint run {name} --set data=...` keeps them here"
        )
    pool = ServerPool(Path(call["address"]))
    if stage == "report":
        evaluations = [root / pipeline.path("evaluation", job.item) for job in jobs_of(config)]
        drop_others(evaluations)
        with lab_in(root, pool, tracker=None, jobs=1, keep=True, hardware=asked.hardware) as lab:
            done = [lab.one(job, title=name, want=()) for job in jobs_of(config)]
            users = part_of(root, config.data)
            findings = findings_of(config, evaluations, root / "reports" / name, users, done)
        write_tracked(root, name, findings)
        conclude(root, kind, config, findings, root / "reports" / name)
        return
    job = next((one for one in jobs_of(config) if one.item == f"{call['prior']}-{call['seed']}"), None)
    if job is None:
        raise FedprintError(f"{call['prior']}-{call['seed']} is not among the priors and seeds of params.yaml")
    with Tracker(root=root, kind=kind, config=config) as tracker:
        lab = lab_in(root, pool, tracker=tracker, jobs=1, keep=True, hardware=asked.hardware)
        outputs = _compute(lab, tracker, pipeline, job, FEDERATION.stage(stage))
    link_outputs(root, pipeline, job, outputs)
    if stage == "prepare":
        check_data(root, label_of(config.data), load_meta(outputs["meta"]).sha256)


def _compute(lab: Lab, tracker: Tracker, pipeline: Pipeline, job: Job, stage: Stage) -> Mapping[str, Path]:
    """Return the outputs of a stage: from the cache, computed there, or computed from files that DVC brought.

    The cache keeps all outputs for later stages; on the disk they are the same files as in the project.
    """
    paths = {
        output: lab.root / pipeline.path(output, job.item) for each in job.work.graph.stages for output in each.outputs
    }
    brought = all(paths[each].exists() for each in stage.inputs) and stage.inputs
    with lab:
        if lab.knows(job, stage.name) or not brought:
            done = lab.one(job, title=pipeline.experiment, want=[stage.name])
            return {output: done.outputs[output] for output in stage.outputs}
        outputs = lab.run_on(job, [stage], paths, title=pipeline.experiment)
    if stage is job.work.graph.stages[-1] and (watch := tracker.watch(job, computes=True)) is not None:
        there = {output: path for output, path in paths.items() if path.exists()}
        watch.done(Done(job=job, outputs={**there, **outputs}, keys={}, known=False))
    return outputs


def check_data(root: Path, name: str, sha256: str) -> None:
    """Raise FedprintError where ``datasets/<name>.yaml``, and so the lock, names other data than those in use."""
    if not names_these(root, name, sha256):
        raise FedprintError(
            f"{manifest_file(name)} names other data than these ({sha256[:12]}): run `{REMEDY} --renew`"
        )


def _keep_updates(folder: Path, done: Sequence[Done]) -> bool:
    """Link the updates that jobs kept below ``folder``; return whether there are any."""
    shutil.rmtree(folder / "updates", ignore_errors=True)
    kept = {one.job.label: one.outputs["observed"] for one in done if "observed" in one.outputs}
    for label, observed in kept.items():
        versions.link_tree(observed, folder / "updates" / label / "observed")
    return bool(kept)


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Write the files of the quickstart that DVC parses, as they follow from configs/ and the stages' declaration."""
    root = find_root()
    config = load_experiment(request_for(root, QUICKSTART))
    folder = root / "experiments" / QUICKSTART
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(config.text(), encoding="utf-8")
    write_pipeline(root, config, pipeline_of(config))


if __name__ == "__main__":
    main()
