"""What an audit found: as JSON, as a row of measurements, in words."""

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
from fedprint.kinds.federation.config import Experiment
from fedprint.kinds.federation.stages.evaluate import condition_of
from fedprint.types import Measurement

if TYPE_CHECKING:
    from rich.table import Table


def audit_row(config: Experiment, prior: Prior, seed: int, found: Audit) -> Row:
    """Return the audit as a measurement row: a bound, so without an interval; questions are guesses on canaries."""
    told = found.accounted
    keys = {
        **condition_of(config, prior, seed), "analysis": "audit", "view": "central", "delta": told.delta,
        "rounds": found.rounds, "confidence": found.confidence, "accounted": told.value, "accountant": told.accountant,
    }  # fmt: skip
    bound = Measurement(
        metric="epsilon_lower", unit=METRICS["epsilon_lower"].unit, value=found.bound, lo=found.bound, hi=found.bound,
        chance=0.0, n_questions=found.guesses, n_users=found.canaries, keys=keys,
    )  # fmt: skip
    return to_row(bound)


def as_values(found: Audit) -> dict[str, Any]:
    """Return the audit as JSON's types; an epsilon of None is infinite."""
    values = asdict(found)
    finite = math.isfinite(found.accounted.value)
    return {**values, "accounted": {**values["accounted"], "value": found.accounted.value if finite else None}}


def audit_from(values: Mapping[str, Any]) -> Audit:
    """Return the audit of :func:`as_values`."""
    told = values["accounted"]
    value = math.inf if told["value"] is None else told["value"]
    accounted = Epsilon(**{**told, "value": value, "not_covered": tuple(told["not_covered"])})
    return Audit(**{**values, "q": tuple(values["q"]), "accounted": accounted})


def as_json(found: Sequence[Audit]) -> str:
    """Return an audit as JSON, several as a list; a null epsilon is infinite."""
    told = [{**as_values(one), "holds": one.holds} for one in found]
    return json.dumps(told[0] if len(told) == 1 else told, indent=1, allow_nan=False)


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
    counts = {"canaries": found.canaries, "guesses": found.guesses, "correct": found.guesses}
    return epsilon_lower_bound(found.accounted.delta, found.confidence, **counts)
