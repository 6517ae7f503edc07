"""The papers' claims about defences (papers.md 2.6), judged on a sweep: once for each adversary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedprint.evaluation.rows import Row
from fedprint.reports.claims import STATES, Verdict
from fedprint.reports.evidence import UNTESTED, Finding, State
from fedprint.reports.plane_numbers import Entry, measured

CUT = 0.75
"""What mm-aug at alpha = 0.5 took from the AP on OpenImages."""
MOST = 0.95
"""The largest published reduction."""
ROUNDING = 0.02
"""How far from (1 + alpha) the examples of devices may be: each adds a whole number of them."""
LITTLE, MUCH = 0.5, 0.75
"""Read "much utility for little privacy" as: no strength takes half of the AP and leaves three quarters of utility."""

MM_AUG, NOISES = "mm-aug", ("noise", "dp-local", "dp-fedavg")
RIVALS = (*NOISES, "bkg-repl", "rand-aug")
"""The defences that the paper sets beside mm-aug."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What a claim is judged on: the entries, the undefended one first, and the adversary."""

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


def judge_plane(entries: Sequence[Entry], adversaries: Sequence[str], dataset: str) -> list[Verdict]:
    """Judge every claim for every adversary; ``member`` of a verdict is the adversary."""
    verdicts = []
    for name, text, judge in CLAIMS:
        for adversary in adversaries:
            found = judge(Sweep(entries=entries, adversary=adversary))
            verdicts.append(
                Verdict(
                    claim=name, text=text, source="2.6", member=adversary, dataset=dataset, state=found.state,
                    result=STATES[found.state], numbers=found.numbers,
                )
            )  # fmt: skip
    return verdicts


def cuts(strategy: str, strength: float, share: float) -> Judge:
    """Judge whether a strategy at a strength takes at least ``share`` of the AP."""

    def judge(found: Sweep) -> Finding:
        rows = [found.reduction(entry) for entry in found.of(strategy) if entry.strength == strength]
        return _at_least(rows[0], share, f"{strategy} {strength:g}") if rows and rows[0] else UNTESTED

    return judge


def largest_cut(found: Sweep) -> Finding:
    """Judge whether the strongest reduction by mm-aug reaches the published one."""
    rows = [(row["value"], entry, row) for entry in found.of(MM_AUG) if (row := found.reduction(entry))]
    if not rows:
        return UNTESTED
    _, entry, row = max(rows, key=lambda each: each[0])
    return _at_least(row, MOST, entry.place)


def dominates(found: Sweep) -> Finding:
    """Judge whether every place of the paper's other defences has one of mm-aug that beats it (:func:`_all_beaten`)."""
    return _all_beaten(found, MM_AUG, RIVALS)


def random_beats(found: Sweep) -> Finding:
    """Judge the same of rand-aug, beside noise and bkg-repl."""
    return _all_beaten(found, "rand-aug", (*NOISES, "bkg-repl"))


def data_costs(found: Sweep) -> Finding:
    """Judge whether a device under mm-aug trains on (1 + alpha) times its data."""
    pairs = [(entry, fmean(point.data_factor for point in entry.points)) for entry in found.of(MM_AUG)]
    if not pairs:
        return UNTESTED
    said = "; ".join(f"{entry.place}: {factor:.2f} times the data" for entry, factor in pairs)
    fits = all(abs(factor - 1 - float(entry.strength or 0)) < ROUNDING for entry, factor in pairs)
    return Finding(state="holds" if fits else "fails", numbers=said)


def _all_beaten(found: Sweep, strategy: str, others: Sequence[str]) -> Finding:
    """Judge whether every place of ``others`` has one of ``strategy`` with no more AP and no less utility.

    It holds when all are dominated and for each one interval (of AP or of utility) parts the two.
    """
    rivals, own = found.of(*others), found.of(strategy)
    if not own or not rivals:
        return UNTESTED
    beaten = {entry.place: [_beats(found, mine, entry) for mine in own] for entry in rivals}
    free = [place for place, verdicts in beaten.items() if "clear" not in verdicts and "order" not in verdicts]
    blurred = [place for place, verdicts in beaten.items() if "clear" not in verdicts and place not in free]
    said = f"{len(beaten) - len(free)} of {len(beaten)} other places have one of {strategy} at least as good in both"
    said += f"; not {', '.join(free)}" if free else ""
    return Finding(state="fails" if free else "unclear" if blurred else "holds", numbers=said)


def noise_loses(found: Sweep) -> Finding:
    """Judge whether no strength of noise or dp takes half of the AP and leaves three quarters of the utility."""
    pairs = [(entry, found.reduction(entry), found.utility(entry)) for entry in found.of(*NOISES)]
    known = [(entry, cut, utility) for entry, cut, utility in pairs if cut]
    if not known:
        return UNTESTED
    both = [
        f"{entry.place}: {_cut(cut)} of AP gone at utility {_ratio(utility)}"
        for entry, cut, utility in known
        if cut["value"] > LITTLE and utility["value"] > MUCH
    ]
    surely_not = all(cut["hi"] < LITTLE or utility["hi"] < MUCH for _, cut, utility in known)
    state: State = "fails" if both else "holds" if surely_not else "unclear"
    return Finding(state=state, numbers="; ".join(both) or f"none of {len(known)} places does both")


def replacement_costs(found: Sweep) -> Finding:
    """Judge whether bkg-repl, where it takes half of the AP, leaves less than three quarters of the utility."""
    rows = [
        (entry, found.utility(entry))
        for entry in found.of("bkg-repl")
        if (cut := found.reduction(entry)) and cut["value"] > LITTLE
    ]
    if not rows:
        return UNTESTED
    kept = [row for _, row in rows if row["value"] >= MUCH]
    state: State = "fails" if kept else "holds" if all(row["hi"] < MUCH for _, row in rows) else "unclear"
    return Finding(state=state, numbers="; ".join(f"{entry.place}: utility {_ratio(row)}" for entry, row in rows))


def exceeds_one(found: Sweep) -> Finding:
    """Judge whether mm-aug at some strength has a better utility than no defence."""
    rows = [(entry, found.utility(entry)) for entry in found.of(MM_AUG)]
    if not rows:
        return UNTESTED
    entry, row = max(rows, key=lambda each: each[1]["value"])
    state: State = "holds" if row["lo"] > 1 else "unclear" if row["value"] > 1 else "fails"
    return Finding(state=state, numbers=f"{entry.place}: utility {_ratio(row)}")


CLAIMS: tuple[tuple[str, str, Judge], ...] = (
    ("mm-aug-cuts", "mm-aug at alpha = 0.5 takes 75 % of the AP (OpenImages)", cuts(MM_AUG, 0.5, CUT)),
    ("rand-aug-cuts", "rand-aug at alpha = 0.5 takes 45 % of the AP (OpenImages)", cuts("rand-aug", 0.5, 0.45)),
    ("bkg-repl-cuts", "bkg-repl at alpha = 0.5 takes 67 % of the AP (OpenImages)", cuts("bkg-repl", 0.5, 0.67)),
    ("largest-cut", "mm-aug takes up to 95 % of the AP", largest_cut),
    ("mm-aug-dominates", "mm-aug dominates every other defence (of the paper's)", dominates),
    ("rand-aug-second", "rand-aug also beats noise and bkg-repl", random_beats),
    ("mm-aug-data", "mm-aug costs (1 + alpha) times the data", data_costs),
    ("mm-aug-gains", "mm-aug exceeds utility 1 (PIPA, OpenImages)", exceeds_one),
    ("noise-loses", "noise and dp lose much utility for little privacy", noise_loses),
    ("bkg-repl-costs", "bkg-repl protects, but below 0.75 of the utility (PIPA, Blog, Yelp)", replacement_costs),
)


def _beats(found: Sweep, mine: Entry, other: Entry) -> str:
    """Return ``no``, ``order`` (at least as good in both values), or ``clear`` (and one interval apart)."""
    ap, ap2 = mine.over_chance(found.adversary), other.over_chance(found.adversary)
    utility, utility2 = found.utility(mine), found.utility(other)
    if ap["value"] > ap2["value"] or utility["value"] < utility2["value"]:
        return "no"
    return "clear" if ap["hi"] < ap2["lo"] or utility["lo"] > utility2["hi"] else "order"


def _at_least(row: Row, share: float, place: str) -> Finding:
    state: State = "holds" if row["lo"] >= share else "unclear" if row["value"] >= share else "fails"
    return Finding(state=state, numbers=f"{place}: {_cut(row)} of AP gone")


def _cut(row: Row) -> str:
    return f"{100 * row['value']:.0f} % [{100 * row['lo']:.0f}, {100 * row['hi']:.0f}]"


def _ratio(row: Row) -> str:
    return f"{row['value']:.2f} [{row['lo']:.2f}, {row['hi']:.2f}]"
