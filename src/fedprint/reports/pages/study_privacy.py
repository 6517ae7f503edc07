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


def guarantee_words(found: Guarantee) -> str:
    """Return an epsilon in words, with all that it is an epsilon of but what it does not cover."""
    of = f"{found.accountant}, {found.sampling} sampling, {found.adjacency}, {found.rounds} rounds"
    return f"epsilon {found.epsilon:.2f} at delta {found.delta:g} ({of})"


def search_note(point: OperatingPoint, seeds: int, margin_seeds: int) -> str | None:
    """Say what the search for a point cost in privacy, None for a point without a guarantee.

    ``seeds`` are those of a trial, ``margin_seeds`` those of the spread. The sum is by basic composition and as if all
    had the point's epsilon: what they spent together is accounted for nowhere.
    """
    found = point.guarantee
    if found is None:
        return None
    trials, afresh = sum(point.trials.values()), point.measured * len(point.seeds)
    runs = trials * seeds + margin_seeds + afresh
    return (
        f"{point.strategy}: epsilon {found.epsilon:.2f} is that of one training with these settings. It does not cover "
        f"the search: up to {runs} private federations on the same data ({trials} trials of {seeds}, {margin_seeds} "
        f"for the margin, {afresh} afresh). If each spent as much, basic composition gives epsilon "
        f"{runs * found.epsilon:.0f} at delta {runs * found.delta:.2g} for all of them; the federations without a "
        f"defence, which utility is measured by, have none. {COULD_BE}"
    )


def guarantees_table(points: Sequence[OperatingPoint]) -> ResultTable | None:
    """Return a line per operating point under a privacy budget; None where there is none."""
    lines = [_line(point.strategy, point.guarantee) for point in points if point.guarantee is not None]
    if not lines:
        return None
    return ResultTable(
        name="guarantees",
        title="Privacy budget of the operating points",
        note="Of one training at the operating point, for those who see released models only; never for a server that "
        "sees updates. The search is not covered.",
        labels=("strategy",),
        heads=(
            "epsilon",
            "of a user with both devices",
            "delta",
            "accountant",
            "sampling",
            "adjacency",
            "rounds",
            "communication",
            "not covered",
        ),
        lines=tuple(lines),
    )


def _line(strategy: str, found: Guarantee) -> TableLine:
    cells = (
        f"{found.epsilon:.3f}", "" if found.epsilon_user is None else f"{found.epsilon_user:.3f}", f"{found.delta:g}",
        found.accountant, found.sampling, found.adjacency, str(found.rounds), f"{found.communication:,}",
        found.not_covered,
    )  # fmt: skip
    return TableLine(labels=(strategy,), cells=cells)
