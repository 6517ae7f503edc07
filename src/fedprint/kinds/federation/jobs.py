"""The jobs of a federation: one for each prior and seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedprint.data.formats.locate import data_root, located
from fedprint.data.splits import Prior
from fedprint.kinds.federation.config import Experiment, ReportConfig
from fedprint.kinds.federation.graph import FEDERATION_WORK, POINT_WORK
from fedprint.kinds.federation.named_files import data_paths, files_sha256, named_files
from fedprint.lab.graph import Job, Work


def jobs_of(config: Experiment) -> list[Job]:
    """Return one job for each prior and seed, seed by seed, so that a stopped run has whole tables."""
    return [
        job_of(config, prior, seed, label=f"{prior}-{seed}") for seed in config.seeds for prior in config.split.priors
    ]


def job_of(
    config: Experiment,
    prior: Prior,
    seed: int,
    *,
    label: str,
    work: Work = FEDERATION_WORK,
    varies: Mapping[str, Any] | None = None,
) -> Job:
    """Return one job. Raises FedprintError when the data are missing."""
    root = data_root(None)
    return Job(
        work=work,
        config=config,
        prior=prior,
        seed=seed,
        data=config.data.fingerprint(root),
        data_at=data_paths(config.data),
        files=files_sha256(config),
        files_at=tuple(str(located(path)) for path in named_files(config)),
        label=label,
        varies=varies or {},
    )


def point_job(
    config: Experiment, prior: Prior, seed: int, *, label: str, varies: Mapping[str, Any] | None = None
) -> Job:
    """Return the job of a point of a plane or of a trial: named by what its numbers depend on and by nothing else."""
    return job_of(canonical(config, prior, seed), prior, seed, label=label, work=POINT_WORK, varies=varies)


def canonical(config: Experiment, prior: Prior, seed: int) -> Experiment:
    """Return the configuration of one point: settings that do not change its numbers have one fixed value."""
    return config.model_copy(
        update={
            "name": "point",
            "report": ReportConfig(title="point"),
            "fast": False,
            "seeds": (seed,),
            "split": config.split.model_copy(update={"priors": (prior,)}),
        }
    )
