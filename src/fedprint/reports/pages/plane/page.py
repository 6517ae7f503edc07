"""The report of a sweep: the privacy-utility plane, its front in words, what defences cost, and the papers' claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedprint.evaluation.rows import Row
from fedprint.evaluation.tradeoffs.planes import BEST
from fedprint.reports.claims.plane import ADAPTIVE, NAIVE, judge_plane
from fedprint.reports.figures.plane import draw_plane
from fedprint.reports.numbers.plane import (
    Entry,
    decides,
    front,
    measured,
    measurement_rows,
    overhead,
    public_entry,
    readings,
)
from fedprint.reports.pages.html import Page, described, write_page
from fedprint.reports.pages.plane.beside import OWN, Beside, beside_table, pairs_json
from fedprint.reports.pages.plane.choices import choices_table
from fedprint.reports.pages.plane.linked import (
    effort_table,
    is_lower_bound,
    linked_counts,
    linked_drawings,
    linked_row,
    linked_table,
)
from fedprint.reports.pages.plane.privacy import (
    Reader,
    broken,
    draw_privacy,
    has_membership,
    privacy_rows,
    privacy_table,
    privacy_words,
)
from fedprint.reports.pages.plane.utility import utility_table
from fedprint.reports.tables.analyses import ResultTable, TableLine, cell
from fedprint.reports.wording import MISSING, percent, ranged, with_unit

CENTRAL = "dp-fedavg"
USEFUL = 0.9
"""The verdict names the safest point that keeps this share of the utility."""


@dataclass(frozen=True, kw_only=True)
class PlaneHead:
    """What holds for every number of the page: the data, who is defended, what the adversary sees and knows.

    ``users`` says whether they are for development, for confirmation or both; None where none are declared.
    """

    name: str
    title: str
    dataset: str
    prior: str
    seeds: tuple[int, ...]
    defended: str
    learn_from: str
    views: tuple[str, ...]
    adversaries: tuple[str, ...]
    utility_metric: str
    fast: bool
    config_hash: str
    users: str | None = None

    @property
    def headline(self) -> str:
        """The adversary of the verdict and of figures with one curve each: the last, fixed in advance."""
        return self.adversaries[-1]

    @property
    def readings(self) -> tuple[str, ...]:
        """Whom numbers are about: each adversary, and the better of several."""
        return readings(self.adversaries)

    def setting(self, *views: str) -> str:
        """The setting in short, to stand beside numbers under some views (default: all of the page)."""
        return f"view {'/'.join(views or self.views)}, defended: {self.defended}, {self.prior} prior"


def write_plane(
    *, head: PlaneHead, entries: Sequence[Entry], config_text: str, out: Path, beside: Beside | None = None
) -> None:
    """Write the folder ``out``: index.html, plane.json, measurements, claims, tables/, figures/, config.yaml, summary.

    ``entries`` start with the undefended one; ``beside`` is a run on other users. The folder appears as a whole; equal
    input gives equal bytes, but for processor times.
    """
    sentences = verdict(head, entries)
    every, reductions = plane_tables(head, entries)
    optional = (
        privacy_table(entries) if has_membership(entries) else None,
        every,
        beside_table(beside, entries, head.headline, head.users or OWN),
        linked_table(entries, head.headline),
        effort_table(entries),
        utility_table(entries),
        reductions,
        choices_table(entries),
        overhead_table(entries),
    )
    tables = [table for table in optional if table is not None]
    drawings = [*draw_plane(head.adversaries, entries), *linked_drawings(entries, head.headline)]
    drawings += draw_privacy(entries) if has_membership(entries) else []
    page = Page(
        template="plane",
        sentences=sentences,
        drawings=drawings,
        tables=tables,
        verdicts=judge_plane(entries, head.readings, head.dataset),
        rows=[*measurement_rows(head.name, entries), *privacy_rows(head.name, entries)],
        files={
            "plane.json": plane_json(head, entries, beside),
            **described("plane", head, config_text, verdict=sentences),
        },
        values={
            "head": head,
            "fronts": [front_words(head, entries, name) for name in head.readings],
            "central": central_words(head, entries),
            "privacy": privacy_words(entries),
            "broken": broken(entries),
            "hint": beside.hint if beside else None,
            "failed": [(entry.name, entry.error) for entry in entries if entry.error],
        },
    )
    write_page(page, out)


def plane_json(head: PlaneHead, entries: Sequence[Entry], beside: Beside | None = None) -> dict[str, Any]:
    """Return the plane as data: a point per strategy and strength, with intervals, cost and membership in the front."""
    plain = entries[0]
    fronts = {name: front(entries, plain, name) for name in head.readings}
    points = []
    for entry in entries:
        point: dict[str, Any] = {"strategy": entry.label, "strength": entry.strength, "error": entry.error}
        if entry.points:
            point["utility"] = _shown(entry.utility(plain))
            point["overhead"] = overhead(entry, plain)
            point["beside"] = pairs_json(beside, entries, entry, head.headline)
            point["naive_misses"] = _shown(entry.missed(NAIVE, ADAPTIVE))
            point["adversaries"] = {
                name: {
                    "view": entry.view(name),
                    "ap": _shown(entry.attack(name)),
                    "ap_over_chance": _shown(entry.over_chance(name)),
                    "ap_reduction": _shown(entry.reduction(plain, name)),
                    "linked_ap": _shown(entry.linked(name)),
                    "on_front": entry in fronts[name],
                }
                for name in head.readings
            }
        points.append(point)
    other = {"name": beside.name, "users": beside.users, "hint": beside.hint} if beside else None
    return {**asdict(head), "beside": other, "places": points}


def plane_tables(head: PlaneHead, entries: Sequence[Entry]) -> list[ResultTable]:
    """Return every point: with its utility and AP per adversary, and with what follows from AP."""
    plain = entries[0]
    heads: dict[str, Reader] = {"utility": lambda entry: entry.utility(plain)}
    heads |= {f"{name}: AP": partial(Entry.attack, name=name) for name in head.readings}
    heads |= {f"{name}: linked AP": partial(Entry.linked, name=name) for name in head.adversaries}
    more: dict[str, Reader] = {}
    for name in head.adversaries:
        more[f"{name}: AP over chance"] = partial(Entry.over_chance, name=name)
        more[f"{name}: AP gone"] = partial(_gone, plain=plain, name=name)
    return [
        ResultTable(
            name="plane",
            title="Every strength",
            note=f"All numbers: defended: {head.defended}, {head.prior} prior, the view of the line; the attacker "
            "chosen on prior data in each seed, “best” the better of what the adversaries chose. One update at a time; "
            "but “linked” is against an adversary who knows devices by pseudonyms that persist and reads all of their "
            "updates. Utility is normalised to no defence. Intervals (95 %) over seeds and users.",
            labels=("strategy", "strength", "view"),
            heads=tuple(heads),
            lines=_lines(head, entries, heads),
        ),
        ResultTable(
            name="plane-reductions",
            title="Every strength: AP over chance, and how much AP is gone",
            note="One update at a time. “AP gone” is the share of AP that the defence takes, paired user by user with "
            "the undefended federation of the same seed.",
            labels=("strategy", "strength", "view"),
            heads=tuple(more),
            lines=_lines(head, entries, more),
            folded=True,
        ),
    ]


def _gone(entry: Entry, plain: Entry, name: str) -> Row | None:
    return entry.reduction(plain, name) if entry.strategy else None


def _lines(head: PlaneHead, entries: Sequence[Entry], heads: Mapping[str, Reader]) -> tuple[TableLine, ...]:
    return tuple(
        TableLine(
            labels=(entry.label, entry.amount, entry.view(head.readings[-1])),
            cells=tuple(cell(read(entry)) for read in heads.values()),
        )
        for entry in measured(entries)
    )


def overhead_table(entries: Sequence[Entry]) -> ResultTable:
    """Return what defences cost in time and data."""
    lines = []
    for entry in measured(entries):
        costs = overhead(entry, entries[0])
        cells = (
            with_unit(costs["time_factor"], "ratio", 2),
            with_unit(costs["data_factor"], "ratio", 2),
            _milliseconds(costs["data_seconds_per_device"]),
            _milliseconds(costs["update_seconds_per_device"]),
            MISSING if costs["cluster_seconds"] is None else f"{costs['cluster_seconds']:.2f} s",
        )
        lines.append(TableLine(labels=(entry.label, entry.amount), cells=cells))
    return ResultTable(
        name="overhead",
        title="Overhead",
        note="Time: processor seconds of the whole federation over those without a defence, same seed; data: examples "
        "on a defended device over those before. Then what the defence itself takes: once per device on its data, for "
        "every update, and once for all to cluster the background. Several points shared the machine.",
        labels=("strategy", "strength"),
        heads=("time", "data", "data defence, per device", "update defence, per update", "clustering, once"),
        lines=tuple(lines),
    )


def front_words(head: PlaneHead, entries: Sequence[Entry], adversary: str) -> str:
    """Return the points on the Pareto front in words; a point under another view than no defence names it."""
    on, usual = front(entries, entries[0], adversary), entries[0].view(adversary)
    points = ", ".join(
        entry.name + ("" if (view := entry.view(adversary)) == usual else f" (view {view})") for entry in on
    )
    who = "the better of the adversaries" if adversary == BEST else f"the {adversary} adversary"
    members = {entry.strategy for entry in on}
    absent = [name for name in dict.fromkeys(e.strategy for e in measured(entries)) if name and name not in members]
    off = f" No strength of these is on it: {', '.join(absent)}." if absent else " Every strategy has a point on it."
    return f"The Pareto front against {who} ({head.setting(usual)}), from least to most AP: {points}.{off}"


def verdict(head: PlaneHead, entries: Sequence[Entry]) -> list[str]:
    """Return the AP without a defence, the safest point, and what the papers' favourite, mm-aug at 0.5, changes."""
    plain, who = entries[0], head.headline
    base, seeds = plain.attack(who), len(plain.points)
    said = [
        f"Without a defence an anonymous update of {head.dataset} identifies its sender with average precision "
        f"{percent(base, '.1f')}; random guessing gets {with_unit(base['chance'], 'fraction')}"
        f"{_linked_words(plain, entries, who)} ({head.setting(plain.view(who))}; {base['n_users']} "
        f"{_whom(head)}, {seeds} {'seed' if seeds == 1 else 'seeds'})."
    ]
    said += _safest_words(entries, who)
    for entry in measured(entries):
        if (entry.strategy, entry.strength) != ("mm-aug", 0.5):
            continue
        cuts = {name: row for name in head.adversaries if (row := entry.reduction(plain, name)) is not None}
        changes = " and ".join(f"{_change(row)} against the {name} adversary" for name, row in cuts.items())
        if cuts:
            said.append(
                f"mm-aug at alpha = 0.5 changes that average precision by {changes} (published: 75 % less), at utility "
                f"{ranged(entry.utility(plain))} of no defence."
            )
    return said


def _safest_words(entries: Sequence[Entry], who: str) -> list[str]:
    """Say which useful defence with private data has the lowest AP, and what public data alone give.

    Useful means that it keeps :data:`USEFUL`, by its estimate: of what private data add, where the interval of that
    gain lies above 0, else of the utility.
    """
    plain, public = entries[0], public_entry(entries)
    gain = plain.private(plain, public).get("private_gain") if public else None
    by_gain = gain is not None and decides(gain)
    measure = "what private data add" if by_gain else "the utility"

    def kept(entry: Entry) -> Row | None:
        return entry.private(plain, public).get("private_share") if public and by_gain else entry.utility(plain)

    others = [(entry, kept(entry)) for entry in measured(entries) if entry.strategy and entry is not public]
    useful = [(entry, share) for entry, share in others if share and share["value"] >= USEFUL]
    if useful:
        best, most = min(useful, key=lambda pair: _hidden(pair[0], entries, who))
        bound = ", a lower bound by its effort" if is_lower_bound(best) else ""
        part = f", {ranged(most)} of {measure}" if by_gain else ""
        counts = linked_counts(entries)
        by = f" over {counts[-1]} linked updates" if counts and counts[-1] > 1 else ""
        said = [
            f"Of the defences that keep {100 * USEFUL:.0f} % of {measure}, {best.name} leaves the least{by}: average "
            f"precision {percent(best.attack(who), '.1f')}{_linked_words(best, entries, who)} against the {who} "
            f"adversary{bound}, at utility {ranged(best.utility(plain))} of no defence{part} (view {best.view(who)})."
        ]
    else:
        said = [f"No defence here keeps {100 * USEFUL:.0f} % of {measure}."] if others else []
    if public:
        said.append(
            f"Public data alone ({public.name}) have {ranged(public.utility(plain))} of the utility, at average "
            f"precision {percent(public.attack(who), '.1f')}{_linked_words(public, entries, who)}."
        )
    return said


def _whom(head: PlaneHead) -> str:
    return {None: "users", "both": "development and confirmation users"}.get(head.users, f"{head.users} users")


def _hidden(entry: Entry, entries: Sequence[Entry], who: str) -> float:
    """Return the AP over the most linked updates that were measured, else of one update."""
    counts = linked_counts(entries)
    row = linked_row(entry, counts[-1], who) if counts else None
    return float((row or entry.attack(who))["value"])


def _linked_words(entry: Entry, entries: Sequence[Entry], who: str) -> str:
    """Return the AP over the most linked updates, and the largest of any attack there, side channels among them."""
    counts = linked_counts(entries)
    rows = [linked_row(entry, counts[-1], name) for name in (who, None)] if counts else [None]
    if any(row is None for row in rows) or counts[-1] == 1:
        return ""
    chosen, most = (percent(row, ".1f") for row in rows)
    return f", and {chosen} over {counts[-1]} linked updates (any attack: {most})"


def _change(cut: Row) -> str:
    """Return a reduction as a change: ``-81 % [-85, -70]``."""
    value, lo, hi = (-100 * float(cut[key]) for key in ("value", "hi", "lo"))
    return f"{value:+.0f} % [{lo:+.0f}, {hi:+.0f}]"


def central_words(head: PlaneHead, entries: Sequence[Entry]) -> str | None:
    """Say, with the numbers, that central differential privacy does not protect from who sees updates."""
    central = [entry for entry in measured(entries) if entry.strategy == CENTRAL and entry.strength is not None]
    if not central:
        return None
    strongest = max(central, key=lambda entry: entry.strength or 0.0)
    name = head.adversaries[-1]
    row, base = (percent(entry.attack(name), ".1f") for entry in (strongest, entries[0]))
    return (
        f"Central differential privacy does not protect against a server that sees updates: {CENTRAL} clips on the "
        "device and adds its noise on the server, after the server has seen each clipped update. At its largest noise "
        f"here (z = {strongest.strength:g}) the {name} adversary has AP {row}, without any defence {base} "
        f"({head.setting(strongest.view(name))}). What remains of a reduction comes from the clipping and from the "
        "worse global model, not from the guarantee, which is about released models (view central)."
    )


def _shown(row: Row | None) -> Mapping[str, Any] | None:
    names = ("value", "lo", "hi", "chance", "unit", "n_questions", "n_users", "n_seeds")
    return {name: row.get(name) for name in names} if row else None


def _milliseconds(value: float | None) -> str:
    return MISSING if value is None else f"{1000 * value:.2f} ms"
