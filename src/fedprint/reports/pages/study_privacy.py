"""What a study's operating points spent of a privacy budget, and what no epsilon there covers: the search."""

from __future__ import annotations

from collections.abc import Sequence

from fedprint.reports.tables.analyses import ResultTable, TableLine
from fedprint.tuning.result import Guarantee, OperatingPoint

COULD_BE = (
    "A search can be covered: one that draws its number of trials at random, chooses their settings independently and "
    "releases the best alone costs two to three times one trial's epsilon (Liu and Talwar 2019; Papernot and Steinke "
    "2022). This one has a fixed number of trials, and each learns from those before."
)


def guarantee_words(guarantee: Guarantee) -> str:
    """Return an epsilon in words, with all that it is an epsilon of but what it does not cover."""
    where = f"{guarantee.accountant}, {guarantee.sampling} sampling, {guarantee.adjacency}, {guarantee.rounds} rounds"
    return f"epsilon {guarantee.epsilon:.2f} at delta {guarantee.delta:g} ({where})"


def search_note(point: OperatingPoint, seeds: int) -> str | None:
    """Say what the search for a point cost in privacy, None for a point without a guarantee.

    ``seeds`` are those of a trial. The sum is by basic composition and as if all
    had the point's epsilon: what they spent together is accounted for nowhere.
    """
    if point.guarantee is None:
        return None
    epsilon, delta = point.guarantee.epsilon, point.guarantee.delta
    trials, afresh = sum(point.trials.values()), point.measured * len(point.seeds)
    runs = trials * seeds + afresh
    return (
        f"{point.strategy}: epsilon {epsilon:.2f} is that of one training with these settings. It does not cover "
        f"the search: up to {runs} private federations on the same data ({trials} trials of {seeds}, "
        f"{afresh} afresh). If each spent as much, basic composition gives epsilon "
        f"{runs * epsilon:.0f} at delta {runs * delta:.2g} for all of them; the federations without a "
        f"defence, which utility is measured by, have none. {COULD_BE}"
    )


def guarantees_table(points: Sequence[OperatingPoint]) -> ResultTable | None:
    """Return a line per operating point under a privacy budget; None where there is none."""
    spent = {point.strategy: _cells(point.guarantee) for point in points if point.guarantee is not None}
    if not spent:
        return None
    return ResultTable(
        name="guarantees",
        title="Privacy budget of the operating points",
        note="Of one training at the operating point, for those who see released models only; never for a server that "
        "sees updates. The search is not covered.",
        labels=("strategy",),
        heads=tuple(next(iter(spent.values()))),
        lines=tuple(TableLine(labels=(name,), cells=tuple(cells.values())) for name, cells in spent.items()),
    )


def _cells(guarantee: Guarantee) -> dict[str, str]:
    of_user = guarantee.epsilon_user
    return {
        "epsilon": f"{guarantee.epsilon:.3f}",
        "of a user with both devices": "" if of_user is None else f"{of_user:.3f}",
        "delta": f"{guarantee.delta:g}",
        "accountant": guarantee.accountant,
        "sampling": guarantee.sampling,
        "adjacency": guarantee.adjacency,
        "rounds": str(guarantee.rounds),
        "communication": f"{guarantee.communication:,}",
        "not covered": guarantee.not_covered,
    }
