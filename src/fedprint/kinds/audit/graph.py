"""The stages of an audit: the experiment's users and executor, and a training with canaries among its devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedprint.data.splits import Prior
from fedprint.kinds.audit.config import Audited
from fedprint.kinds.federation.graph import CHOOSE, FEDERATE, PREPARE
from fedprint.kinds.federation.jobs import canonical, job_of
from fedprint.lab.graph import Graph, Job, Stage, Work

STAGE = "canaries"

AUDIT = Graph(
    (
        PREPARE,
        CHOOSE,
        Stage(
            name=STAGE,
            run="fedprint.kinds.audit.stage:run",
            inputs=("prior", "private", "meta", "executor"),
            outputs=("audit",),
            settings=("model", "federation", "store", "defences", "threat.defended", "audit"),
            code=(*FEDERATE.code, "kinds/audit/stage.py", "kinds/audit/config.py", "kinds/audit/results.py", "audit"),
            files=True,
            connects=FEDERATE.connects,
        ),
    )
)


AUDIT_WORK = Work(path=f"{__name__}:AUDIT_WORK", graph=AUDIT, parse=Audited.model_validate, wanted=(STAGE,))


def audit_job(config: Audited, prior: Prior, seed: int, *, label: str, varies: Mapping[str, Any] | None = None) -> Job:
    """Return the job of one audit: named by what its numbers depend on and by nothing else."""
    return job_of(canonical(config, prior, seed), prior, seed, label=label, work=AUDIT_WORK, varies=varies)
