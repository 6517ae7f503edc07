"""The result of an audit: as JSON, as a row of measurements, in words."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedprint.accounting.design import Epsilon
from fedprint.audit.bound import epsilon_lower_bound
from fedprint.audit.run import Audit
from fedprint.data.splits import Prior
from fedprint.evaluation.metrics import METRICS
from fedprint.evaluation.rows import Row, to_row
from fedprint.kinds.federation.conditions import condition_of
from fedprint.kinds.federation.config import Experiment
from fedprint.types import Measurement

if TYPE_CHECKING:
    from rich.table import Table

FILE = "audit.json"
"""Where the stage's output has it."""


def audit_row(config: Experiment, prior: Prior, seed: int, audit: Audit) -> Row:
    """Return the audit as a measurement row: a bound has no interval, and questions are guesses on canaries."""
    accounted = audit.accounted
    keys = {
        **condition_of(config, prior, seed), "analysis": "audit", "view": "central", "delta": accounted.delta,
        "rounds": audit.rounds, "confidence": audit.confidence, "accounted": accounted.value,
        "accountant": accounted.accountant,
    }  # fmt: skip
    bound = Measurement(
        metric="epsilon_lower", unit=METRICS["epsilon_lower"].unit, value=audit.bound, lo=audit.bound, hi=audit.bound,
        chance=0.0, n_questions=audit.guesses, n_users=audit.canaries, keys=keys,
    )  # fmt: skip
    return to_row(bound)


def as_values(audit: Audit) -> dict[str, Any]:
    """Return the audit as JSON's types; an epsilon of None is infinite."""
    values = asdict(audit)
    finite = math.isfinite(audit.accounted.value)
    return {**values, "accounted": {**values["accounted"], "value": audit.accounted.value if finite else None}}


def audit_from(values: Mapping[str, Any]) -> Audit:
    """Return the audit of :func:`as_values`."""
    epsilon = values["accounted"]
    value = math.inf if epsilon["value"] is None else epsilon["value"]
    accounted = Epsilon(**{**epsilon, "value": value, "not_covered": tuple(epsilon["not_covered"])})
    claimed = tuple((q, sigma, sampling, times) for q, sigma, sampling, times in values["claimed"])
    return Audit(**{**values, "q": tuple(values["q"]), "accounted": accounted, "claimed": claimed})


def as_json(audits: Sequence[Audit]) -> str:
    """Return an audit as JSON, several as a list; a null epsilon is infinite."""
    values = [{**as_values(one), "holds": one.holds} for one in audits]
    return json.dumps(values[0] if len(values) == 1 else values, indent=1, allow_nan=False)


def table(audit: Audit, title: str) -> Table:
    """Return the bound beside the accounted epsilon."""
    from rich.table import Table

    accounted = audit.accounted
    out = Table("what", "number", title=title, caption=verdict(audit))
    by = f"{accounted.accountant}, {accounted.sampling}, {accounted.adjacency}"
    rows = {
        f"epsilon, at least (confidence {100 * audit.confidence:g} %)": f"{audit.bound:.3f}",
        "... if only the noise may be less": "no curve known" if audit.tight is None else f"{audit.tight:.3f}",
        "epsilon accounted for": f"{accounted.value:.3f} at delta {accounted.delta:g} ({by})",
        "not covered by it": "; ".join(accounted.not_covered),
        "rounds": f"{audit.rounds}",
        "sampling rate q": " to ".join(dict.fromkeys(f"{q:.4g}" for q in audit.q)),
        "canaries (with a coin that says yes)": f"{audit.canaries} ({audit.included})",
        "guesses, right ones": f"{audit.guesses}, {audit.correct}",
    }
    for what, number in rows.items():
        out.add_row(what, number)
    return out


def verdict(audit: Audit) -> str:
    """Return what the bound says about the accounted epsilon."""
    if audit.holds:
        return (
            "The released models give no sign against the accounted epsilon. An audit cannot prove it: with so many "
            f"guesses its bound is at most {_most(audit):.1f}."
        )
    return "BROKEN: the released models show more than the accounted epsilon allows; the mechanism has a fault."


def _most(audit: Audit) -> float:
    counts = {"canaries": audit.canaries, "guesses": audit.guesses, "correct": audit.guesses}
    return epsilon_lower_bound(audit.accounted.delta, audit.confidence, **counts)
