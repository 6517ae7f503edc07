"""``fedprint run``: any experiment from its file to its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprint.cli.options import (
    Address,
    Assignments,
    DataDir,
    DryRun,
    Fast,
    Jobs,
    KeepUpdates,
    Name,
    Renew,
    What,
    Where,
    pool_of,
    request_of,
    use_data,
)
from fedprint.reports.console import show

if TYPE_CHECKING:
    from fedprint.kinds.base import Request

EPILOG = (
    "Examples: fedprint run quickstart | fedprint run mnist-writers --data-dir ~/data --set split.priors=[random] | "
    "fedprint run ~/own.yaml --fast --name own --dry-run"
)


def run(
    what: What,
    fast: Fast = False,
    assign: Assignments = None,
    name: Name = None,
    dry_run: DryRun = False,
    jobs: Jobs = None,
    keep: KeepUpdates = False,
    renew: Renew = False,
    pool: Where = "local",
    address: Address = None,
    data_dir: DataDir = None,
) -> None:
    """Run an experiment of any kind end to end and write its report to reports/<name>/.

    Finished work is kept: a repeated command resumes where it was stopped.
    """
    use_data(data_dir)
    given = request_of(what, fast, assign, name)
    run_request(given, dry_run=dry_run, jobs=jobs, keep=keep, renew=renew, pool=pool, address=address)


def run_request(
    request: Request, *, dry_run: bool, jobs: int | None, keep: bool, renew: bool, pool: str, address: str | None
) -> None:
    """Run and print the summary, also of the finished part where jobs failed; or print the costs."""
    from fedprint.cli.results.summary import show_summary

    if dry_run:
        show_costs(request, jobs, keep=keep)
        return
    with pool_of(pool, address) as open_pool:  # first: it imports while this process does
        from fedprint.kinds import driver
        from fedprint.kinds.versioned import named_by_data

        request = named_by_data(request)
        try:
            driver.run(request, jobs=jobs, keep=keep, renew=renew, pool=open_pool)
        except driver.SomeFailed:
            show_summary(request.root, request.name)
            raise
    show_summary(request.root, request.name)


def show_costs(request: Request, jobs: int | None, *, keep: bool) -> None:
    """Print the costs of a run that may ``keep`` its updates; nothing is written."""
    import shutil

    import psutil
    from rich.table import Table

    from fedprint.kinds.registry import kind_of
    from fedprint.lab.gpus import gpu_count
    from fedprint.lab.machine import cores

    kind = kind_of(request.values)
    device = "cuda" if request.hardware.gpus(gpu_count()) else "cpu"
    costs = kind.costs(kind.load(request), device)
    at_a_time = min(jobs or cores(), max(costs.jobs, 1))
    table = Table("what", "estimate", title=f"{request.name}: dry run, nothing written")
    rows = {
        "jobs": f"{costs.jobs}, {at_a_time} at a time",
        "time": f"{costs.seconds / 60 / at_a_time:.1f} min",
        "memory, at most": f"{costs.memory * at_a_time / 2**20:.0f} MiB",
        "disk, recorded updates": f"{costs.space(at_a_time, keep=keep) / 2**20:.0f} MiB",
        **costs.details,
    }
    for what, value in rows.items():
        table.add_row(what, value)
    show(table)
    machine = {"memory": psutil.virtual_memory().total, "disk": shutil.disk_usage(request.root).free}
    for text in [*costs.warnings, *costs.beyond(at_a_time, **machine, keep=keep)]:
        print(f"warning: {text}")
