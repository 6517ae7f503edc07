"""``fedprint audit``: does the code keep the epsilon that is accounted for? Of a mechanism, or of an experiment."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from itertools import count as numbers_from
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from fedprint.accounting.accountants import accountant_named
from fedprint.accounting.budget import Budget
from fedprint.accounting.design import Epsilon
from fedprint.accounting.events import Sampling
from fedprint.audit.run import Audit, Setting, audit
from fedprint.data.files import read_json, write_json
from fedprint.data.locate import data_root
from fedprint.data.prepared import load_meta, load_users
from fedprint.data.splits import Prior
from fedprint.defences.on_update import DpFedAvg
from fedprint.evaluation.metrics import METRICS
from fedprint.evaluation.rows import Row, to_row
from fedprint.federation.backends import make_backend
from fedprint.federation.cohorts import FederationPlan
from fedprint.federation.privacy import budget_accountant, private_defence
from fedprint.kinds.federation import build
from fedprint.kinds.federation.config import Experiment
from fedprint.kinds.named_files import files_sha256
from fedprint.kinds.plane.point_keys import canonical, source_digest
from fedprint.kinds.plane.points import points_folder
from fedprint.types import FedprintError, LocalTraining, Measurement

if TYPE_CHECKING:
    from rich.table import Table


Q_ERROR = 0.02
"""By how much of itself a cohort of canaries may miss the mechanism's sampling rate: more is another mechanism."""


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """``cohort`` of ``clients`` in each of ``rounds``, noise ``sigma`` times the clipping norm on their sum."""

    clients: int
    cohort: int
    rounds: int
    sigma: float
    sampling: Sampling = "poisson"
    clip: float = 1.0


def audit_mechanism(mechanism: Mechanism, setting: Setting) -> Audit:
    """Audit the aggregation alone: every client is a canary, at the mechanism's sampling rate, and nobody has data.

    Raises FedprintError for numbers that make no mechanism, and where so few canaries miss the rate.
    """
    m = mechanism
    _check(m, setting)
    plan = FederationPlan(
        rounds=m.rounds,
        cohort=_cohort_of_canaries(m, setting.canaries),
        training=LocalTraining(epochs=1, batch_size=1, lr=1.0),
        seed=setting.seed,
        sampling=m.sampling,
    )
    return audit(
        devices=(),
        backend=None,
        initial={"weight": torch.zeros(setting.canaries, dtype=torch.float64)},
        plan=plan,
        defence=DpFedAvg(clip=m.clip, z=m.sigma),
        accountant=accountant_named("prv" if m.sampling == "poisson" else "rdp-wor"),
        setting=setting,
    )


def _cohort_of_canaries(m: Mechanism, canaries: int) -> int:
    """Return how many of the ``canaries`` a round takes, so that q is the mechanism's."""
    q = m.cohort / m.clients

    def cohort(count: int) -> int:
        return max(1, round(q * count))

    def close(count: int) -> bool:
        return abs(cohort(count) / count - q) <= Q_ERROR * q

    if not close(canaries):
        raise FedprintError(
            f"--canaries {canaries}: a cohort of {cohort(canaries)} samples at q = {cohort(canaries) / canaries:.4g}, "
            f"--cohort {m.cohort} of --clients {m.clients} at q = {q:.4g}; raise --canaries to "
            f"{next(filter(close, numbers_from(canaries)))}"
        )
    return cohort(canaries)


def audit_experiment(config: Experiment, prior: Prior, setting: Setting) -> Audit:
    """Train the experiment once more with canaries among its devices. The audit's seed is that of the experiment.

    Raises FedprintError where it has no dp-fedavg, has other defences besides, or not everybody is clipped.
    """
    check_setting(setting)
    defence = auditable(config)
    with TemporaryDirectory() as folder:
        from fedprint.kinds.federation.stages import prepare

        job = Job(config=config, prior=prior, seed=setting.seed, paths=Paths(base=Path(folder), item="audit"))
        prepare.run(job)
        return _audit_job(job, defence, setting)


def auditable(config: Experiment) -> DpFedAvg:
    """Return the mechanism of an experiment that can be audited; FedprintError for others."""
    defence = private_defence(config.defences)
    if defence is None:
        raise FedprintError(f"audit: '{config.name}' has no dp-fedavg; --set 'defences=[{{name: dp-fedavg, z: 1}}]'")
    if config.threat.defended != "everyone":
        raise FedprintError("audit: devices of one role are not clipped; --set threat.defended=everyone")
    if others := [other.name for other in config.defences if other is not defence]:
        raise FedprintError(
            f"audit: '{config.name}' also has {', '.join(others)}, which canaries do not go through; audit it with "
            "dp-fedavg alone"
        )
    return defence


def _audit_job(job: Job, defence: DpFedAvg, setting: Setting) -> Audit:
    config, seed = job.config, build.federation_seed(job.seed)
    dtype = build.DTYPES[config.federation.dtype]
    meta = load_meta(job.paths.prepared)
    prior, private = (
        build.ready(load_users(job.paths.prepared / name), dtype, model=config.model) for name in ("prior", "private")
    )
    absent = build.absent_users(private, config.federation.absent, seed)
    devices = build.make_devices(prior, private, absent)
    model = build.build_model(config, meta, prior, seed)
    # noise of its own: an audit trains what a run of this seed has trained, with canaries
    plan = build.make_plan(config, len(devices), seed, f"audit-{build.store_identity(config, meta)}-{job.prior}")
    budget = defence.budget or Budget(delta=setting.delta)
    return audit(
        devices=devices,
        backend=make_backend("sequential", model),
        initial=build.parameters_of(model),
        plan=plan,
        defence=defence,
        accountant=budget_accountant(budget, plan.sampling),
        setting=setting,
    )


def cached_audit(config: Experiment, prior: Prior, setting: Setting) -> Audit:
    """Return :func:`audit_experiment` of settings, data and code that were audited before, or do it now."""
    own = canonical(config, prior, setting.seed).model_copy(update={"attacks": (), "analyses": ()})
    parts = [own.digest(), prior, asdict(setting), own.data.fingerprint(data_root(None)), files_sha256(own)]
    parts.append(source_digest(("src/fedprint",)))
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    path = points_folder() / "audits" / f"{key}.json"
    if not path.is_file():
        write_json(path, _plain(audit_experiment(own, prior, setting)))
    return _audit_of(read_json(path))


def audit_row(config: Experiment, prior: Prior, seed: int, found: Audit) -> Row:
    """Return the audit as a measurement row: a bound, so without an interval; questions are guesses on canaries."""
    from fedprint.kinds.federation.stages.evaluate import condition

    job = Job(config=config, prior=prior, seed=seed, paths=Paths(base=Path(), item="audit"))
    told = found.accounted
    keys = {
        **condition(job), "analysis": "audit", "view": "central", "delta": told.delta, "rounds": found.rounds,
        "confidence": found.confidence, "accounted": told.value, "accountant": told.accountant,
    }  # fmt: skip
    bound = Measurement(
        metric="epsilon_lower", unit=METRICS["epsilon_lower"].unit, value=found.bound, lo=found.bound, hi=found.bound,
        chance=0.0, n_questions=found.guesses, n_users=found.canaries, keys=keys,
    )  # fmt: skip
    return to_row(bound)


def _plain(found: Audit) -> dict[str, Any]:
    values = asdict(found)
    finite = math.isfinite(found.accounted.value)
    return {**values, "accounted": {**values["accounted"], "value": found.accounted.value if finite else None}}


def _audit_of(values: dict[str, Any]) -> Audit:
    told = values["accounted"]
    value = math.inf if told["value"] is None else told["value"]
    accounted = Epsilon(**{**told, "value": value, "not_covered": tuple(told["not_covered"])})
    return Audit(**{**values, "q": tuple(values["q"]), "accounted": accounted})


def as_json(found: Audit) -> str:
    """Return the audit as JSON; a null epsilon is infinite."""
    return json.dumps({**_plain(found), "holds": found.holds}, indent=1, allow_nan=False)


def table(found: Audit, title: str) -> Table:
    """Return what was seen beside what is promised."""
    from rich.table import Table

    told = found.accounted
    out = Table("what", "number", title=title, caption=verdict(found))
    promise = f"{told.value:.3f} at delta {told.delta:g} ({told.accountant}, {told.sampling}, {told.adjacency})"
    rows = {
        f"epsilon, at least (confidence {100 * found.confidence:g} %)": f"{found.bound:.3f}",
        "epsilon accounted for": promise,
        "not covered by it": "; ".join(told.not_covered),
        "rounds": f"{found.rounds}",
        "sampling rate q": " to ".join(dict.fromkeys(f"{q:.4g}" for q in found.q)),
        "canaries (with a coin that says yes)": f"{found.canaries} ({found.included})",
        "guesses, right ones": f"{found.guesses}, {found.correct}",
    }
    for what, number in rows.items():
        out.add_row(what, number)
    return out


def verdict(found: Audit) -> str:
    """Say what the two numbers mean for each other."""
    if found.holds:
        return (
            "The released models give no sign against the accounted epsilon. An audit cannot prove it, and reaches at "
            f"most {_most(found):.1f} with so many guesses."
        )
    return "BROKEN: the released models tell more than the accounted epsilon allows; the mechanism has a fault."


def _most(found: Audit) -> float:
    from fedprint.audit.bound import epsilon_lower_bound

    counts = {"canaries": found.canaries, "guesses": found.guesses, "correct": found.guesses}
    return epsilon_lower_bound(found.accounted.delta, found.confidence, **counts)


def _check(m: Mechanism, setting: Setting) -> None:
    if not 1 <= m.cohort <= m.clients:
        raise FedprintError(f"--cohort {m.cohort} of --clients {m.clients}; choose 1 to {m.clients}")
    if not (m.sigma > 0 and math.isfinite(m.sigma)):
        raise FedprintError(f"--sigma {m.sigma} is no noise; choose more than 0")
    check_setting(setting)


def check_setting(setting: Setting) -> None:
    """Raise FedprintError for a delta or a confidence that is no probability."""
    for name, value in (("delta", setting.delta), ("confidence", setting.confidence)):
        if not 0 < value < 1:
            raise FedprintError(f"--{name} {value} is no probability; choose between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line says of a mechanism, None where nothing was said."""

    clients: int | None
    cohort: int | None
    rounds: int | None
    sigma: float | None
    delta: float | None
    sampling: Sampling | None


def check_named(experiment: str, asked: Asked) -> None:
    """Raise FedprintError for numbers of a mechanism beside an experiment, which has its own."""
    numbers = ("clients", "cohort", "rounds", "sigma", "sampling")
    if said := [f"--{name}" for name in numbers if getattr(asked, name) is not None]:
        raise FedprintError(
            f"audit: '{experiment}' has numbers of its own; leave out {', '.join(said)}, or change the experiment with "
            "--set, as in --set federation.rounds=8"
        )


def mechanism_of(asked: Asked) -> tuple[Mechanism, float]:
    """Return the mechanism, Poisson sampled unless said otherwise, and delta. FedprintError names what is missing."""
    needed = {name: getattr(asked, name) for name in ("clients", "cohort", "rounds", "sigma", "delta")}
    missing = [f"--{name}" for name, value in needed.items() if value is None]
    if missing:
        raise FedprintError(f"audit: give {', '.join(missing)}, or the name of an experiment with dp-fedavg")
    delta = needed.pop("delta")
    return Mechanism(**needed, sampling=asked.sampling or "poisson"), delta


def delta_of(asked: float | None, config: Experiment) -> float:
    """Return the delta that was ``asked`` for, or that of the experiment's budget where nothing was said."""
    if asked is not None:
        return asked
    budget = auditable(config).budget
    if budget is None:
        raise FedprintError(f"audit: '{config.name}' has no budget.delta; give --delta")
    return budget.delta
