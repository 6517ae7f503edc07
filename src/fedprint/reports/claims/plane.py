"""The papers' claims about defences (papers.md 2.6), judged on a sweep: once for each adversary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedprint.evaluation.rows import Row
from fedprint.reports.claims.verdict import UNTESTED, Claim, Finding, State, Verdict, side, verdict_on
from fedprint.reports.numbers.plane import Entry, measured
from fedprint.reports.wording import percent, ranged

CUT = 0.75
"""What mm-aug at alpha = 0.5 took from the AP on OpenImages."""
MOST = 0.95
"""The largest published reduction."""
ROUNDING = 0.02
"""How far from (1 + alpha) the examples of devices may be: each adds a whole number of them."""
LITTLE, MUCH = 0.5, 0.75
"""Read "much utility for little privacy" as: no strength takes half of the AP and leaves three quarters of utility."""

NAIVE, ADAPTIVE = "naive", "adaptive"
OURS = {"counter-aug": "rand-aug", "repeat-aug": "rand-aug", "one-bit-repeat": "one-bit-rand"}
"""Defences of this project, as sweeps name them, and the plainest one with the same extra examples."""
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
SOURCE, OWN_SOURCE = "2.6", "this project"


def judge_plane(entries: Sequence[Entry], adversaries: Sequence[str], dataset: str) -> list[Verdict]:
    """Judge the papers' claims, and ours of ours, for every adversary, who is the ``member`` of a verdict."""
    swept = {entry.strategy for entry in entries}
    claims = [*CLAIMS, *(_ours(own, other) for own in OURS if own in swept for other in (MM_AUG, OURS[own]))]
    asked = [(claim, adversary) for claim in claims for adversary in adversaries]
    if {NAIVE, ADAPTIVE} <= set(adversaries):
        asked.append((NEVER_WEAKER, ADAPTIVE))
    return [
        verdict_on(claim, claim.judge(Sweep(entries=entries, adversary=adversary)), adversary, dataset)
        for claim, adversary in asked
    ]


def cuts(strategy: str, strength: float, share: float) -> Judge:
    """Judge whether a strategy at a strength takes at least ``share`` of the AP."""

    def judge(sweep: Sweep) -> Finding:
        rows = [sweep.reduction(entry) for entry in sweep.of(strategy) if entry.strength == strength]
        return _at_least(rows[0], share, f"{strategy} {strength:g}") if rows and rows[0] else UNTESTED

    return judge


def largest_cut(sweep: Sweep) -> Finding:
    """Judge whether the strongest reduction by mm-aug reaches the published one."""
    rows = [(row["value"], entry, row) for entry in sweep.of(MM_AUG) if (row := sweep.reduction(entry))]
    if not rows:
        return UNTESTED
    _, entry, row = max(rows, key=lambda each: each[0])
    return _at_least(row, MOST, entry.name)


def dominates(sweep: Sweep) -> Finding:
    """Judge whether every point of the paper's other defences has one of mm-aug that beats it (:func:`_all_beaten`)."""
    return _all_beaten(sweep, MM_AUG, RIVALS)


def random_beats(sweep: Sweep) -> Finding:
    """Judge the same of rand-aug, beside noise and bkg-repl."""
    return _all_beaten(sweep, "rand-aug", (*NOISES, "bkg-repl"))


def less_at_equal_strength(own: str, control: str) -> Judge:
    """Judge whether ``own`` leaves less AP than ``control`` at every strength that both have: both cost the same."""

    def judge(sweep: Sweep) -> Finding:
        theirs = {entry.strength: entry for entry in sweep.of(control)}
        pairs = [(mine, theirs[mine.strength]) for mine in sweep.of(own) if mine.strength in theirs]
        known = [(mine, other, row) for mine, other in pairs if (row := mine.less_than(other, sweep.adversary))]
        if not known:
            return UNTESTED
        said = "; ".join(
            f"{mine.name}: {_cut(row)} less AP, utility {ranged(sweep.utility(mine))} and "
            f"{ranged(sweep.utility(other))} of {control}"
            for mine, other, row in known
        )
        return Finding(state=side((row["value"], row["lo"]) for _, _, row in known), numbers=said)

    return judge


def _ours(own: str, control: str) -> Claim[Judge]:
    text = f"{own} (ours) leaves less AP than {control} at every alpha"
    return Claim(f"{own}-beats-{control}", text, OWN_SOURCE, less_at_equal_strength(own, control))


def data_costs(sweep: Sweep) -> Finding:
    """Judge whether a device under mm-aug trains on (1 + alpha) times its data."""
    pairs = [(entry, fmean(point.data_factor for point in entry.points)) for entry in sweep.of(MM_AUG)]
    if not pairs:
        return UNTESTED
    said = "; ".join(f"{entry.name}: {factor:.2f} times the data" for entry, factor in pairs)
    fits = all(abs(factor - 1 - float(entry.strength or 0)) < ROUNDING for entry, factor in pairs)
    return Finding(state="holds" if fits else "fails", numbers=said)


def never_weaker(sweep: Sweep) -> Finding:
    """Judge whether the adversary has at least the naive one's AP at every point, all seeds together.

    It fails where one point's interval lies on the other side: of forty points as good as equal one does by chance.
    """
    known = [(entry, row) for entry in measured(sweep.entries) if (row := entry.missed(NAIVE, sweep.adversary))]
    if not known:
        return UNTESTED
    below = [(entry, row) for entry, row in known if row["value"] < 0]
    clear = [entry for entry, row in below if row["hi"] < 0]
    said = f"below it at {len(below)} of {len(known)} points, beyond the interval at {len(clear)}"
    said += "".join(f"; {entry.name}: the naive one misses {_cut(row)} of its AP" for entry, row in below)
    if below and not clear:
        return Finding(state="unclear", numbers=said, result="weaker at some points, nowhere beyond chance")
    return Finding(state="fails" if clear else "holds", numbers=said)


NEVER_WEAKER: Claim[Judge] = Claim(
    "adaptive-never-weaker",
    "the adaptive adversary is never weaker than the naive one",
    OWN_SOURCE,
    never_weaker,
)


def _all_beaten(sweep: Sweep, strategy: str, others: Sequence[str]) -> Finding:
    """Judge whether every point of ``others`` has one of ``strategy`` with no more AP and no less utility.

    It holds when all are dominated and for each one interval (of AP or of utility) parts the two.
    """
    rivals, own = sweep.of(*others), sweep.of(strategy)
    if not own or not rivals:
        return UNTESTED
    beaten = {entry.name: [_beats(sweep, mine, entry) for mine in own] for entry in rivals}
    free = [name for name, verdicts in beaten.items() if "clear" not in verdicts and "order" not in verdicts]
    blurred = [name for name, verdicts in beaten.items() if "clear" not in verdicts and name not in free]
    said = f"{len(beaten) - len(free)} of {len(beaten)} other points have one of {strategy} at least as good in both"
    said += f"; not {', '.join(free)}" if free else ""
    return Finding(state="fails" if free else "unclear" if blurred else "holds", numbers=said)


def noise_loses(sweep: Sweep) -> Finding:
    """Judge whether no strength of noise or dp takes half of the AP and leaves three quarters of the utility."""
    pairs = [(entry, sweep.reduction(entry), sweep.utility(entry)) for entry in sweep.of(*NOISES)]
    known = [(entry, cut, utility) for entry, cut, utility in pairs if cut]
    if not known:
        return UNTESTED
    both = [
        f"{entry.name}: {_cut(cut)} of AP gone at utility {ranged(utility)}"
        for entry, cut, utility in known
        if cut["value"] > LITTLE and utility["value"] > MUCH
    ]
    surely_not = all(cut["hi"] < LITTLE or utility["hi"] < MUCH for _, cut, utility in known)
    state: State = "fails" if both else "holds" if surely_not else "unclear"
    return Finding(state=state, numbers="; ".join(both) or f"none of {len(known)} points does both")


def replacement_costs(sweep: Sweep) -> Finding:
    """Judge whether bkg-repl, where it takes half of the AP, leaves less than three quarters of the utility."""
    rows = [
        (entry, sweep.utility(entry))
        for entry in sweep.of("bkg-repl")
        if (cut := sweep.reduction(entry)) and cut["value"] > LITTLE
    ]
    if not rows:
        return UNTESTED
    kept = [row for _, row in rows if row["value"] >= MUCH]
    state: State = "fails" if kept else "holds" if all(row["hi"] < MUCH for _, row in rows) else "unclear"
    return Finding(state=state, numbers="; ".join(f"{entry.name}: utility {ranged(row)}" for entry, row in rows))


def exceeds_one(sweep: Sweep) -> Finding:
    """Judge whether mm-aug at some strength has a better utility than no defence."""
    rows = [(entry, sweep.utility(entry)) for entry in sweep.of(MM_AUG)]
    if not rows:
        return UNTESTED
    entry, row = max(rows, key=lambda each: each[1]["value"])
    return Finding(state=side([(row["value"] - 1, row["lo"] - 1)]), numbers=f"{entry.name}: utility {ranged(row)}")


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


def _beats(sweep: Sweep, mine: Entry, other: Entry) -> str:
    """Return ``no``, ``order`` (at least as good in both values), or ``clear`` (and one interval apart)."""
    ap, ap2 = mine.over_chance(sweep.adversary), other.over_chance(sweep.adversary)
    utility, utility2 = sweep.utility(mine), sweep.utility(other)
    if ap["value"] > ap2["value"] or utility["value"] < utility2["value"]:
        return "no"
    return "clear" if ap["hi"] < ap2["lo"] or utility["lo"] > utility2["hi"] else "order"


def _at_least(row: Row, share: float, name: str) -> Finding:
    """Judge whether the row's value is at least ``share``; one that is less by chance, perhaps, is said to be so."""
    numbers = f"{name}: {_cut(row)} of AP gone"
    if row["value"] >= share:
        state: State = "holds" if row["lo"] >= share else "unclear"
        return Finding(state=state, numbers=numbers)
    near = "fails, though the interval includes it" if row["hi"] >= share else ""
    return Finding(state="fails", result=near, numbers=numbers)


def _cut(row: Row) -> str:
    return percent(row, "z.0f")
