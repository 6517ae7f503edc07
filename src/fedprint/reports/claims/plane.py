"""The papers' claims about defences (papers.md 2.6), judged on a sweep: once for each adversary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedprint.evaluation.rows import Row
from fedprint.reports.claims.comparison import AllOf, AnyOf, Comparison, Test, compared
from fedprint.reports.claims.evidence import unpaired
from fedprint.reports.claims.verdict import UNTESTED, Claim, Finding, Judged, Verdict, decide
from fedprint.reports.numbers.plane import Entry, measured
from fedprint.reports.wording import percent, ranged
from fedprint.types import Linkage

CUT = 0.75
"""What mm-aug at alpha = 0.5 took from the AP on OpenImages."""
MOST = 0.95
"""The largest published reduction."""
ROUNDING = 0.02
"""How far from (1 + alpha) the examples of devices may be: each adds a whole number of them."""
LITTLE, MUCH = 0.5, 0.75
"""Read "much utility for little privacy" as: no strength takes half of the AP and leaves three quarters of utility."""
NEARLY = 0.05
"""An adversary that misses no more than this share of another's AP is not weaker: both often choose one attack."""

NAIVE, ADAPTIVE = "naive", "adaptive"
ANY = "any"
"""The ``member`` of a claim in which no adversary has a part (:data:`ON_COST`): Holm's correction counts it once."""
OURS = {"counter-aug": "rand-aug", "repeat-aug": "rand-aug", "one-bit-repeat": "one-bit-rand"}
"""Defences of this project, as sweeps name them, and the plainest one with the same extra examples."""
MM_AUG, NOISES = "mm-aug", ("noise", "dp-local", "dp-fedavg")
RIVALS = (*NOISES, "bkg-repl", "rand-aug")
"""The defences that the paper sets beside mm-aug."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What a claim is judged on: the entries, the undefended one first, and the adversary (:data:`ANY`: none)."""

    entries: Sequence[Entry]
    adversary: str

    @property
    def plain(self) -> Entry:
        """The entry without a defence."""
        return self.entries[0]

    def of(self, *strategies: str) -> list[Entry]:
        """Return the measured entries of strategies."""
        return [entry for entry in measured(self.entries) if entry.strategy in strategies]

    def reduction(self, entry: Entry) -> Row | None:
        """Return the share of AP that is gone against the sweep's adversary."""
        return entry.reduction(self.plain, self.adversary)

    def utility(self, entry: Entry) -> Row:
        """Return the normalised utility."""
        return entry.utility(self.plain)


Judge = Callable[[Sweep], Finding]
SOURCE, OWN_SOURCE = "2.6", "this project"


def judge_plane(entries: Sequence[Entry], adversaries: Sequence[str], dataset: str) -> list[Verdict]:
    """Judge the papers' claims, and this project's of its own defences, for every adversary: the ``member``.

    A claim on what a defence costs (:data:`ON_COST`) is judged once: of :data:`ANY`.
    """
    swept = {entry.strategy for entry in entries}
    pairs = [(own, other) for own in OURS if own in swept for other in (MM_AUG, OURS[own])]
    claims = [*CLAIMS, *(claim for pair in pairs for claim in _ours(*pair))]
    asked = [(claim, who) for claim in claims for who in ([ANY] if claim.name in ON_COST else adversaries)]
    if {NAIVE, ADAPTIVE} <= set(adversaries):
        asked.append((NEVER_WEAKER, ADAPTIVE))
    return decide([
        Judged(
            claim=claim,
            finding=claim.judge(Sweep(entries=entries, adversary=adversary)),
            member=adversary,
            dataset=dataset,
        )
        for claim, adversary in asked
    ])  # fmt: skip


def cuts(strategy: str, strength: float, share: float) -> Judge:
    """Judge whether a strategy at a strength takes at least ``share`` of the AP."""

    def judge(sweep: Sweep) -> Finding:
        rows = [sweep.reduction(entry) for entry in sweep.of(strategy) if entry.strength == strength]
        return _at_least(rows[0], share, f"{strategy} {strength:g}") if rows and rows[0] else UNTESTED

    return judge


def largest_cut(sweep: Sweep) -> Finding:
    """Judge whether some strength of mm-aug reaches the largest published reduction."""
    rows = [(entry, row) for entry in sweep.of(MM_AUG) if (row := sweep.reduction(entry))]
    if not rows:
        return UNTESTED
    best, largest = max(rows, key=lambda each: float(each[1]["value"]))
    numbers = f"{best.name}: {_cut(largest)} of AP gone"
    return Finding(test=AnyOf(tuple(compared(row, MOST) for _, row in rows)), numbers=numbers)


def dominates(sweep: Sweep) -> Finding:
    """Judge whether every point of the paper's other defences has one of mm-aug that beats it (:func:`_all_beaten`)."""
    return _all_beaten(sweep, MM_AUG, RIVALS)


def random_beats(sweep: Sweep) -> Finding:
    """Judge the same of rand-aug, beside noise and bkg-repl."""
    return _all_beaten(sweep, "rand-aug", (*NOISES, "bkg-repl"))


def less_at_equal_strength(own: str, control: str, linkage: Linkage) -> Judge:
    """Judge whether ``own`` leaves less AP than ``control`` at every strength that both have: both cost the same.

    It is the AP of one update, or of all updates of a device (``device``).
    """

    def judge(sweep: Sweep) -> Finding:
        theirs = {entry.strength: entry for entry in sweep.of(control)}
        pairs = [(mine, theirs[mine.strength]) for mine in sweep.of(own) if mine.strength in theirs]
        known = [
            (mine, other, row) for mine, other in pairs if (row := mine.less_than(other, sweep.adversary, linkage))
        ]
        if not known:
            return UNTESTED
        said = "; ".join(
            f"{mine.name}: {_cut(row)} less AP than {other.name}, at utility {ranged(sweep.utility(mine))}, that of "
            f"{other.name} {ranged(sweep.utility(other))}"
            for mine, other, row in known
        )
        return Finding(test=AllOf(tuple(compared(row, 0.0) for _, _, row in known)), numbers=said)

    return judge


def _ours(own: str, control: str) -> Iterator[Claim[Judge]]:
    cases: tuple[tuple[Linkage, str], ...] = (("update", ""), ("device", " of all updates of a device"))
    for linkage, of in cases:
        text = f"{own} leaves less AP{of} than {control} at every alpha"
        judge = less_at_equal_strength(own, control, linkage)
        yield Claim(leaves_less(own, control, linkage), text, OWN_SOURCE, judge)


def leaves_less(own: str, control: str, linkage: Linkage) -> str:
    """Return the name of the claim that ``own`` leaves less AP than ``control`` (:func:`less_at_equal_strength`)."""
    return f"{own}-beats-{control}{'-linked' if linkage == 'device' else ''}"


def data_costs(sweep: Sweep) -> Finding:
    """Judge whether a device under mm-aug trains on (1 + alpha) times its data."""
    pairs = [(entry, fmean(point.data_factor for point in entry.points)) for entry in sweep.of(MM_AUG) if entry.points]
    if not pairs:
        return UNTESTED
    said = "; ".join(f"{entry.name}: {factor:.2f} times the data" for entry, factor in pairs)
    off = [(entry, abs(factor - 1 - float(entry.strength or 0))) for entry, factor in pairs]
    return Finding(test=AllOf(tuple(_counted(entry, value) for entry, value in off)), numbers=said)


def _counted(entry: Entry, off: float) -> Comparison:
    """Return by how much a count of examples is ``off``, which no drawing of users changes."""
    users = min(point.utility.n_users for point in entry.points)
    return Comparison(value=off, lo=off, hi=off, bound=ROUNDING, above=False, n_users=users, n_seeds=len(entry.points))


def never_weaker(sweep: Sweep) -> Finding:
    """Judge whether the adversary has the naive one's AP at every point, but for :data:`NEARLY`."""
    known = [(entry, row) for entry in measured(sweep.entries) if (row := entry.missed(NAIVE, sweep.adversary))]
    if not known:
        return UNTESTED
    below = [(entry, row) for entry, row in known if row["value"] < 0]
    said = f"below it at {len(below)} of {len(known)} points"
    said += "".join(f"; {entry.name}: the naive one misses {_cut(row)} of its AP" for entry, row in below)
    return Finding(test=AllOf(tuple(compared(row, -NEARLY) for _, row in known)), numbers=said)


NEVER_WEAKER: Claim[Judge] = Claim(
    "adaptive-never-weaker",
    "the adaptive adversary is never weaker than the naive one (by more than 5 % of its own AP)",
    OWN_SOURCE,
    never_weaker,
)


def _all_beaten(sweep: Sweep, strategy: str, others: Sequence[str]) -> Finding:
    """Judge whether every point of ``others`` has one of ``strategy`` with less AP and more utility.

    Both differences are paired over users where the points have values per user.
    """
    rivals, own = sweep.of(*others), sweep.of(strategy)
    if not own or not rivals:
        return UNTESTED
    pairs = {rival.name: [_beats(sweep, mine, rival) for mine in own] for rival in rivals}
    free = [name for name, tests in pairs.items() if not any(all(map(_as_said, test.parts)) for test in tests)]
    said = f"{len(pairs) - len(free)} of {len(pairs)} other points have one of {strategy} with less AP and more utility"
    said += f"; not {', '.join(free)}" if free else ""
    return Finding(test=AllOf(tuple(AnyOf(tuple(tests)) for tests in pairs.values())), numbers=said)


def _beats(sweep: Sweep, mine: Entry, other: Entry) -> AllOf:
    """Compare AP and utility of two points: the first should have less AP and lose no utility to the other."""
    more = mine.more_than(other, sweep.adversary)
    more = more or unpaired(mine.attack(sweep.adversary), other.attack(sweep.adversary))
    lost = mine.lost(other) or unpaired(sweep.utility(other), sweep.utility(mine))
    return AllOf((compared(more, 0.0, above=False), compared(lost, 0.0, above=False)))


def _as_said(test: Test) -> bool:
    """Return whether the number of a comparison itself lies on the side that the claim says."""
    return isinstance(test, Comparison) and (test.value > test.bound) == test.above


def noise_loses(sweep: Sweep) -> Finding:
    """Judge whether no strength of noise or dp takes half of the AP and leaves three quarters of the utility."""
    known = _cuts_and_utilities(sweep, *NOISES)
    if not known:
        return UNTESTED
    both = [
        f"{entry.name}: {_cut(cut)} of AP gone at utility {ranged(utility)}"
        for entry, cut, utility in known
        if cut["value"] > LITTLE and utility["value"] > MUCH
    ]
    none = f"none of {len(known)} points takes half of the AP and keeps .75 of the utility"
    return Finding(test=_not_both(known), numbers="; ".join(both) or none)


def replacement_costs(sweep: Sweep) -> Finding:
    """Judge whether bkg-repl takes half of the AP somewhere, and nowhere with three quarters of the utility left."""
    known = _cuts_and_utilities(sweep, "bkg-repl")
    if not known:
        return UNTESTED
    protects = AnyOf(tuple(compared(cut, LITTLE) for _, cut, _ in known))
    numbers = "; ".join(
        f"{entry.name}: {_cut(cut)} of AP gone at utility {ranged(utility)}" for entry, cut, utility in known
    )
    return Finding(test=AllOf((protects, _not_both(known))), numbers=numbers)


def _cuts_and_utilities(sweep: Sweep, *strategies: str) -> list[tuple[Entry, Row, Row]]:
    pairs = [(entry, sweep.reduction(entry), sweep.utility(entry)) for entry in sweep.of(*strategies)]
    return [(entry, cut, utility) for entry, cut, utility in pairs if cut]


def _not_both(known: Sequence[tuple[Entry, Row, Row]]) -> AllOf:
    """Compare every point: it takes less than half of the AP, or leaves less than three quarters of the utility."""
    return AllOf(
        tuple(
            AnyOf((compared(cut, LITTLE, above=False), compared(utility, MUCH, above=False)))
            for _, cut, utility in known
        )
    )


def exceeds_one(sweep: Sweep) -> Finding:
    """Judge whether mm-aug at some strength has a better utility than no defence."""
    rows = [(entry, sweep.utility(entry)) for entry in sweep.of(MM_AUG)]
    if not rows:
        return UNTESTED
    entry, best = max(rows, key=lambda each: float(each[1]["value"]))
    test = AnyOf(tuple(compared(row, 1.0) for _, row in rows))
    return Finding(test=test, numbers=f"{entry.name}: utility {ranged(best)}")


CLAIMS: tuple[Claim[Judge], ...] = (
    Claim("mm-aug-cuts", "mm-aug at alpha = 0.5 takes 75 % of the AP (OpenImages)", SOURCE, cuts(MM_AUG, 0.5, CUT)),
    Claim("rand-aug-cuts", "rand-aug at alpha = 0.5 takes 45 % of the AP (OpenImages)", SOURCE,
          cuts("rand-aug", 0.5, 0.45)),
    Claim("bkg-repl-cuts", "bkg-repl at alpha = 0.5 takes 67 % of the AP (OpenImages)", SOURCE,
          cuts("bkg-repl", 0.5, 0.67)),
    Claim("largest-cut", "mm-aug takes up to 95 % of the AP", SOURCE, largest_cut),
    Claim("mm-aug-dominates", "mm-aug dominates every other defence (of the paper's)", SOURCE, dominates),
    Claim("rand-aug-second", "rand-aug also beats noise and bkg-repl", SOURCE, random_beats),
    Claim("mm-aug-data", "mm-aug costs (1 + alpha) times the data", SOURCE, data_costs),
    Claim("mm-aug-gains", "mm-aug exceeds utility 1 (PIPA, OpenImages)", SOURCE, exceeds_one),
    Claim("noise-loses", "noise and dp lose much utility for little privacy", SOURCE, noise_loses),
    Claim("bkg-repl-costs", "bkg-repl protects, but below 0.75 of the utility (PIPA, Blog, Yelp)", SOURCE,
          replacement_costs),
)  # fmt: skip

ON_COST = ("mm-aug-data", "mm-aug-gains")
"""Claims in which no adversary has a part."""


def _at_least(row: Row, share: float, name: str) -> Finding:
    """Judge whether the row's value is at least ``share``."""
    return Finding(test=compared(row, share), numbers=f"{name}: {_cut(row)} of AP gone")


def _cut(row: Row) -> str:
    return percent(row, "z.0f")
