"""How any experiment is run: resolve, jobs through the lab, report, tracking, versions."""

from __future__ import annotations

from pathlib import Path

from fedprint.kinds.base import Request
from fedprint.kinds.jobs import listed
from fedprint.kinds.laboratory import conclude, laboratory
from fedprint.kinds.registry import kind_of
from fedprint.kinds.versioned import is_published, is_shipped, publish
from fedprint.lab.project import writing
from fedprint.lab.workers.pool import Pool
from fedprint.types import FedprintError


class SomeFailed(FedprintError):
    """Some jobs failed; the others' results and the report are written."""

    exit_code = 1


def run(
    request: Request, *, jobs: int | None = None, keep: bool = False, renew: bool = False, pool: Pool | None = None
) -> Path:
    """Run an experiment of any kind; return the folder of its report.

    ``jobs`` run at a time (default: one per core), in an open ``pool`` or one of their own. A published experiment
    whose configuration, data and code are the same is done, unless it is to ``renew``. Raises FedprintError where
    nothing could be reported, and :class:`SomeFailed` where a part is missing, which is then not published.
    """
    kind = kind_of(request.values)
    config = kind.load(request)
    folder: Path = request.root / "reports" / config.name
    if is_shipped(request) and not (renew or keep) and is_published(request, kind, config):
        print(f"{config.name} is published with this configuration, data and code; --renew computes it again")
        return folder
    with (
        writing(request.root, config.name),
        laboratory(request.root, kind, config, jobs=jobs, keep=keep, pool=pool, hardware=request.hardware) as lab,
    ):
        findings = kind.carry_out(config, lab, folder)
        conclude(request.root, kind, config, findings, folder)
        done = {one.job.label for one in findings.done}  # an audit that breaks is done too
        if is_shipped(request) and findings.failures.keys() <= done:
            publish(request, kind, config, findings)
    if findings.failures:
        count = f"{len(findings.failures)} of {len(done | findings.failures.keys())} jobs of '{config.name}'"
        raise SomeFailed(f"{count} failed: {listed(findings.failures)}")
    return folder
