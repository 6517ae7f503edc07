"""``python -m fedprint.pipeline.stages STAGE EXPERIMENT [PRIOR SEED]``: what dvc.yaml runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fedprint.pipeline.allocator import keep_freed_memory
from fedprint.pipeline.config import dump_yaml, load_experiment
from fedprint.pipeline.stages.paths import artifacts, open_job
from fedprint.types import FedprintError


def resolve(experiment: str, arguments: Sequence[str]) -> None:
    """Write the resolved configuration."""
    fast, assignments = parse_arguments(arguments)
    config = load_experiment(Path(), experiment, fast=fast, assignments=assignments)
    target = artifacts(experiment) / "config.yaml"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(dump_yaml(config), encoding="utf-8")


def parse_arguments(arguments: Sequence[str]) -> tuple[bool, list[str]]:
    """Split ``--fast --set a.b=c ...`` into the flag and the assignments."""
    rest = [word for word in arguments if word != "--fast"]
    if len(rest) % 2 or any(word != "--set" for word in rest[::2]):
        raise FedprintError(f"arguments '{' '.join(arguments)}': only --fast and --set KEY=VALUE are known")
    return "--fast" in arguments, rest[1::2]


def run_stage(stage: str, experiment: str, prior: str, seed: int) -> None:
    """Run one stage of one item of the matrix; imports are late because each stage needs other libraries."""
    job = open_job(experiment, prior, seed)
    if stage == "prepare":
        from fedprint.pipeline.stages import prepare

        prepare.run(job)
    elif stage == "federate":
        from fedprint.pipeline.stages import federate
        from fedprint.pipeline.stages.tracking import job_run

        with job_run(job) as tracked:
            federate.run(job, tracked)
    elif stage == "attack":
        from fedprint.pipeline.stages import attack

        attack.run(job)
    elif stage == "ask":
        from fedprint.pipeline.stages import ask

        ask.run(job)
    elif stage == "analyse":
        from fedprint.pipeline.stages import analyse

        analyse.run(job)
    elif stage == "evaluate":
        from fedprint.pipeline.stages import evaluate
        from fedprint.pipeline.stages.tracking import job_run, log_evaluation

        rows = evaluate.run(job)
        with job_run(job) as tracked:
            log_evaluation(tracked, job, rows)
    else:
        raise FedprintError(
            f"unknown stage '{stage}'; choose of resolve, prepare, federate, ask, attack, analyse, evaluate, report"
        )


def run_report(experiment: str) -> None:
    """Write the report and log it."""
    from fedprint.pipeline.config import read_resolved
    from fedprint.pipeline.stages import report
    from fedprint.pipeline.stages.tracking import log_report

    config = read_resolved(artifacts(experiment) / "config.yaml")
    summary = report.run(config)
    log_report(config, Path("reports") / experiment, report.headline(summary))


def main(words: Sequence[str]) -> int:
    """Dispatch; a FedprintError is one line on standard error and exit code 2."""
    try:
        match list(words):
            case ["resolve", experiment, *arguments]:
                resolve(experiment, arguments)
            case ["report", experiment]:
                run_report(experiment)
            case [stage, experiment, prior, seed]:
                run_stage(stage, experiment, prior, int(seed))
            case _:
                raise FedprintError("usage: python -m fedprint.pipeline.stages STAGE EXPERIMENT [PRIOR SEED]")
    except FedprintError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    keep_freed_memory()
    sys.exit(main(sys.argv[1:]))
