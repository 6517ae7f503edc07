"""``fedprint audit-dp``: whether an accounted epsilon holds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fedprint.cli.options import (
    Assignments,
    Clients,
    Cohort,
    DataDir,
    DryRun,
    Fast,
    Jobs,
    Json,
    Name,
    Renew,
    Rounds,
    Sampling,
    use_data,
)
from fedprint.errors import FedprintError
from fedprint.reports.console import show

if TYPE_CHECKING:
    from fedprint.audit.run import Audit
    from fedprint.kinds.audit.mechanism import Options
    from fedprint.kinds.base import Request

EPILOG = (
    "Examples: fedprint audit-dp --clients 1000 --cohort 220 --rounds 54 --sigma 1.252 --delta 1e-5 | "
    "fedprint audit-dp client-dp-100 --canaries 200 --json | fedprint audit-dp client-dp-100-strict --runs 5"
)


def audit_dp(
    experiment: Annotated[
        Optional[str],
        typer.Argument(
            help="Experiment with dp-fedavg, trained once more with canaries among its devices; or an audit's file."
        ),
    ] = None,
    clients: Clients = None,
    cohort: Cohort = None,
    rounds: Rounds = None,
    sigma: Annotated[Optional[float], typer.Option("--sigma", help="Noise on the sum over the clipping norm.")] = None,
    delta: Annotated[
        Optional[float], typer.Option("--delta", help="Delta of both epsilons (default: the experiment's budget).")
    ] = None,
    sampling: Sampling = None,
    bands: Annotated[
        Optional[int],
        typer.Option("--bands", min=1, help="Rounds between which the noise is correlated (default: 1)."),
    ] = None,
    canaries: Annotated[
        Optional[int],
        typer.Option("--canaries", min=10, help="How many; more give a tighter bound and take longer (default: 1000)."),
    ] = None,
    confidence: Annotated[
        Optional[float],
        typer.Option("--confidence", help="Probability that the bound is not above the truth (default: .95)."),
    ] = None,
    seed: Annotated[
        Optional[int], typer.Option("--seed", help="Seed of coins, canaries and training (default: 0).")
    ] = None,
    runs: Annotated[
        Optional[int],
        typer.Option("--runs", min=1, help="Independent runs at consecutive seeds, which bound best together."),
    ] = None,
    as_json: Json = False,
    fast: Fast = False,
    assign: Assignments = None,
    name: Name = None,
    dry_run: DryRun = False,
    jobs: Jobs = None,
    renew: Renew = False,
    data_dir: DataDir = None,
) -> None:
    """Bound epsilon from below: canary clients join by the toss of a coin, and the released models show which did.

    It runs the code of real federations. The exit code is 1 when the bound exceeds the accounted epsilon.
    """
    from fedprint.audit.run import bound_of_runs
    from fedprint.kinds.audit import results
    from fedprint.kinds.audit.mechanism import Options, check_named
    from fedprint.reports.pages.budget import sampling_named

    use_data(data_dir)
    options = Options(
        clients=clients, cohort=cohort, rounds=rounds, sigma=sigma, delta=delta,
        sampling=None if sampling is None else sampling_named(sampling), bands=bands,
    )  # fmt: skip
    if experiment is None:
        if fast or assign or name or dry_run or renew:
            raise FedprintError(
                "audit-dp: --fast, --set, --name, --dry-run, --renew need an experiment; name one, or leave them out"
            )
        given = {"canaries": canaries, "confidence": confidence}
        audits = [_of_mechanism(options, {**given, "seed": one}) for one in _seeds(seed, runs) or (0,)]
    else:
        from fedprint.kinds.audit.config import audit_of
        from fedprint.lab.project import find_root

        check_named(experiment, options)
        asked = {"canaries": canaries, "confidence": confidence, "delta": delta, "seeds": _seeds(seed, runs)}
        request = audit_of(find_root(), experiment, asked, fast=fast, assignments=assign or (), name=name)
        if dry_run:
            from fedprint.cli.run import show_costs

            show_costs(request, jobs, keep=False)
            return
        audits = _of_experiment(request, jobs=jobs, renew=renew)
    if as_json:
        print(results.as_json(audits))
    else:
        for one in audits:
            show(results.table(one, f"audit of {experiment or 'the aggregation alone'}"))
        if (together := bound_of_runs(audits)) is not None:
            print(
                f"All {len(audits)} runs together: epsilon is at least {together:.3f} if only the noise may be less "
                f"(confidence {100 * audits[0].confidence:g} %); {audits[0].accounted.value:.3f} is accounted for."
            )
    if not all(one.holds for one in audits):
        raise typer.Exit(1)


def was_meant(words: Sequence[str]) -> bool:
    """Return whether the ``words`` after `fedprint audit` are meant for this command, which had that name before.

    To be removed with the hint in main.py: the old spelling works for one release.
    """
    known = ("--clients", "--cohort", "--canaries", "--runs", "--dry-run", "--renew", "--set")
    if any(word.partition("=")[0] in known for word in words):
        return True
    first = next((word for word in words if not word.startswith("-")), "")
    return bool(first) and not Path(first).is_dir() and (first.endswith(".yaml") or _is_experiment(first))


def _is_experiment(name: str) -> bool:
    from fedprint.lab.project import find_root

    try:
        return (find_root() / "configs" / "experiments" / f"{name}.yaml").is_file()
    except FedprintError:  # outside of any project
        return False


def _seeds(first: int | None, runs: int | None) -> tuple[int, ...] | None:
    """Return the seeds asked for, None where nothing was."""
    return None if first is None and runs is None else tuple(range(first or 0, (first or 0) + (runs or 1)))


def _of_mechanism(options: Options, given: Mapping[str, Any]) -> Audit:
    from fedprint.audit.run import Setting
    from fedprint.kinds.audit.mechanism import audit_mechanism, mechanism_of

    mechanism, delta = mechanism_of(options)
    setting = Setting(delta=delta, **{key: value for key, value in given.items() if value is not None})
    return audit_mechanism(mechanism, setting)


def _of_experiment(request: Request, *, jobs: int | None, renew: bool) -> list[Audit]:
    """Run the audit as any experiment is run, and return the audits of its report, one for each seed."""
    from fedprint.data.formats.files import read_json
    from fedprint.kinds import driver
    from fedprint.kinds.audit.results import audit_from
    from fedprint.kinds.versioned import named_by_data

    request = named_by_data(request)
    # Progress must not mix with the output of --json. An audit that does not hold is reported with all the others.
    with redirect_stdout(sys.stderr), suppress(driver.SomeFailed):
        driver.run(request, jobs=jobs, renew=renew)
    reported = read_json(request.root / "reports" / request.name / "summary.json")["audits"]
    return [audit_from({key: each[key] for key in each if key not in ("holds", "verdict")}) for each in reported]
