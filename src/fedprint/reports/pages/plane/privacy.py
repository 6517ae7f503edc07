"""The part of a sweep's page on differential privacy: attacks under every view beside the epsilon that is promised.

Written where a sweep's points have the analysis ``membership``; epsilons and audits stand beside it where there are
any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fedprint.evaluation.rows import POOLED, Row, pool_seeds
from fedprint.evaluation.tradeoffs.planes import over_seeds
from fedprint.reports.figures.drawing import MUTED, Drawing, finish, mark, percent_axis, style
from fedprint.reports.figures.panels import WIDTH, blank_figure, shared_legend
from fedprint.reports.numbers.evaluations import CHOSEN
from fedprint.reports.numbers.plane import KEPT, Entry, measured
from fedprint.reports.tables.analyses import ResultTable, TableLine, cell
from fedprint.reports.wording import for_a_user, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VIEWS = ("local", "aggregate", "central")
AUC, TPR, TOOK_PART, EPSILON, AUDITED = (
    "membership_auc",
    "membership_tpr",
    "participation_ap",
    "epsilon",
    "epsilon_lower",
)
LOSS, PRIOR, DATA = "loss", "candidates", "known-data"
"""Attacks of the analysis on sums and released models: by the loss alone, by updates of priors, of the very data."""
Reader = Callable[[Entry], Row | None]


def has_membership(entries: Sequence[Entry]) -> bool:
    """Return whether the sweep asked who took part at all."""
    return any(attack_row(entry, AUC, "central") for entry in measured(entries))


def attack_row(entry: Entry, metric: str, view: str, attack: str | None = None) -> Row | None:
    """Return a number of the analysis ``membership`` under a view, pooled over seeds.

    By default of who knows most: of sums and released models, the data of the device where that was asked.
    """
    rows = [
        row
        for point in entry.points
        for row in point.analyses
        if (row.get("analysis"), row["metric"], row["view"]) == ("membership", metric, view)
    ]
    if attack is not None:
        chosen = [row for row in rows if row["attack"] == attack]
    else:
        chosen = [row for row in rows if row["attack"] == DATA] or [row for row in rows if row["attack"] != LOSS]
    return over_seeds([{**row, "attack": CHOSEN} for row in chosen]) if chosen else None


def promised(entry: Entry, protects: str = "device") -> Row | None:
    """Return the run's epsilon of a ``device`` (by the accountant that it counts with) or a ``user``.

    It is equal in every seed.
    """
    epsilons = (row for point in entry.points for row in point.analyses if row["metric"] == EPSILON)
    return next((row for row in epsilons if row.get("protects", "device") == protects), None)


def audited(entry: Entry) -> Row | None:
    """Return the lower bound of the audits, the mean over seeds."""
    return over_seeds(entry.audits) if entry.audits else None


def privacy_rows(experiment: str, entries: Sequence[Entry]) -> list[Row]:
    """Return the rows of analyses and audits with their strategy and strength, and pooled over seeds.

    ``chosen`` is the strength of devices that chose their own.
    """
    rows: list[Row] = []
    for entry in measured(entries):
        keys = {"experiment": experiment, "strategy": entry.label, "strength": entry.strength}
        # What each adversary found, and what it found of linked updates and with more effort, are the sweep's own rows.
        own = [row for point in entry.points for row in point.analyses if row["analysis"] not in ("adversaries", *KEPT)]
        rows += [{**row, **({"chosen": row["strength"]} if "strength" in row else {}), **keys} for row in own]
        rows += [{**row, **keys} for row in entry.audits]
    same = [{**row, "attack": CHOSEN} if _by_chosen_attack(row) else row for row in rows]
    return rows + [row for row in pool_seeds(same, varying={"layers", "recipe"}) if row["seed"] == POOLED]


def _by_chosen_attack(row: Row) -> bool:
    return bool(row["analysis"] == "strengths" or (row["analysis"] == "membership" and row["view"] == "local"))


def privacy_table(entries: Sequence[Entry]) -> ResultTable:
    """Return, for each point, a line per question with the answer under every view."""
    questions: dict[str, dict[str, Reader]] = {
        "epsilon, at least (audit)": {"central": audited},
        "who sent it, AP": {"local": lambda entry: entry.attack("adaptive")},
        "who took part in a round, AP": {view: _reader(TOOK_PART, view) for view in VIEWS},
        "member at all, AUC": {view: _reader(AUC, view) for view in VIEWS},
        "member at all, AUC, by the prior": {view: _reader(AUC, view, PRIOR) for view in VIEWS[1:]},
        "member at all, AUC, by the loss": {"central": _reader(AUC, "central", LOSS)},
        "members found at 5 % false alarms": {view: _reader(TPR, view) for view in VIEWS},
    }
    answered = (
        (entry, question, tuple(cell(readers[view](entry)) if view in readers else None for view in VIEWS))
        for entry in measured(entries)
        for question, readers in questions.items()
    )
    lines = [
        TableLine(labels=(entry.label, entry.amount, epsilon_words(entry), question), cells=cells)
        for entry, question, cells in answered
        if any(cells)
    ]
    return ResultTable(
        name="privacy",
        title="Each question under every view",
        note="Local: each update as it left the device, before any server noise; aggregate: sums of a round, before "
        "it; central: the released models, after it. The promise is about view central alone, and it is made against "
        f"someone who knows every example of the device.{_knowing_words(entries)} The audit's number is a "
        "lower bound by canary clients in a training of its own, at the same delta, mean over seeds."
        f"{_silent_words(entries)}",
        labels=("strategy", "strength", "epsilon", "question"),
        heads=VIEWS,
        grouped=3,
        lines=tuple(lines),
    )


def _reader(metric: str, view: str, attack: str | None = None) -> Reader:
    return lambda entry: attack_row(entry, metric, view, attack)


def _knowing_words(entries: Sequence[Entry]) -> str:
    asked = any(attack_row(entry, AUC, "central", DATA) for entry in measured(entries))
    return (
        " Whoever looks at sums and released models here has all examples of each device, of members' and of others'; "
        "by the prior: those of the user's other device alone."
        if asked
        else " Whoever looks at sums and released models here has less: the examples of the user's other device."
    )


def epsilon_words(entry: Entry) -> str:
    """Return what is promised in words, with all that it is a promise of."""
    row = promised(entry)
    if row is None:
        return "none"
    of = f"{row['accountant']}, {row['sampling']}, {row['adjacency']}, {row['rounds']} rounds"
    of_user = promised(entry, "user")
    both = for_a_user(None if of_user is None else of_user["value"])
    return f"{row['value']:.2f} at delta {row['delta']:g} ({of}; {both})"


def _silent_words(entries: Sequence[Entry]) -> str:
    """Say what the promises do not cover, in a sentence with a space before it; nothing where none is made."""
    rows = [row for entry in measured(entries) if (row := promised(entry)) is not None]
    silent = dict.fromkeys(what for row in rows for what in str(row["not_covered"]).split("; "))
    return f" What is promised does not cover: {'; '.join(silent)}." if silent else ""


def privacy_words(entries: Sequence[Entry]) -> list[str]:
    """Say, with the numbers of the smallest epsilon, from whom central differential privacy protects."""
    private = [(row["value"], entry) for entry in measured(entries) if (row := promised(entry)) is not None]
    if not private:
        return []
    _, strongest = min(private, key=lambda pair: pair[0])
    plain = entries[0]
    ap, plain_ap = (percent(entry.attack("adaptive"), ".1f") for entry in (strongest, plain))
    said = [
        f"The smallest promise here is epsilon = {epsilon_words(strongest)} ({strongest.name})."
        f"{_silent_words(entries)} It does not hold against a server that sees updates: the "
        "noise comes after them. Under view local that server tells members from others with "
        f"{_auc(strongest, 'local')}, without a defence {_auc(plain, 'local')}, and names the sender of an update with "
        f"AP {ap}, without a defence {plain_ap}.",
        f"Nor does it hold for sums before the noise (view aggregate): {_auc(strongest, 'aggregate')}, without a "
        f"defence {_auc(plain, 'aggregate')}. It is about released models (view central): "
        f"{_auc(strongest, 'central')}, without a defence {_auc(plain, 'central')}.{_knowing_words(entries)}",
    ]
    audits = [(promise, row) for promise, entry in private if (row := audited(entry)) is not None]
    if audits:
        shown = ", ".join(f"{row['value']:.2f} of {promise:.2f}" for promise, row in sorted(audits, key=lambda a: a[0]))
        said.append(f"Audits show at least this much of the promised epsilon: {shown}.")
    return said


def broken(entries: Sequence[Entry]) -> list[str]:
    """Return the points where an audit shows more than is promised: something is wrong with the mechanism."""
    return [
        f"{entry.name}, seed {row['seed']}: the audit shows epsilon {row['value']:.2f}, accounted were "
        f"{row['accounted']:.2f}"
        for entry in entries
        for row in entry.audits
        if row["value"] > row["accounted"]
    ]


def _auc(entry: Entry, view: str) -> str:
    row = attack_row(entry, AUC, view)
    return f"an AUC of {percent(row, '.1f')}" if row else "an AUC that was not measured"


# ---- the figure ----------------------------------------------------------------------------------------------------


def draw_privacy(entries: Sequence[Entry]) -> list[Drawing]:
    """Return attacks by epsilon, a curve per view; without private points nothing."""
    points = sorted(
        ((row["value"], entry) for entry in measured(entries) if (row := promised(entry)) is not None),
        key=lambda pair: pair[0],
    )
    if not points:
        return []
    with style():
        figure = blank_figure(WIDTH, 3.6)
        panels = figure.subplots(1, 2, squeeze=False)[0]
        for axes, (metric, title) in zip(panels, _PANELS.items(), strict=True):
            for position, view in enumerate(VIEWS):
                _curve(axes, points, entries[0], metric, view, position)
            axes.set_xscale("log")
            axes.set_xticks([epsilon for epsilon, _ in points], [f"{epsilon:.2g}" for epsilon, _ in points])
            axes.minorticks_off()
            axes.set_ylim(0, 1.03)
            axes.set_title(title)
            axes.set_xlabel("epsilon accounted for")
            percent_axis(axes, "y", "AUC" if metric == AUC else "AP")
        shared_legend(figure, panels)
        return [finish(figure, "privacy", "Attacks by epsilon and view", _LOOK, _CAPTION)]


_PANELS: Mapping[str, str] = {AUC: "Member at all", TOOK_PART: "Who took part in a round"}
_LOOK = "Look at whether view central falls to chance at small epsilons; the promise does not cover the other views."
_CAPTION = (
    "How well attacks do, by the promised epsilon; bars 95 % intervals over seeds and users. Short lines on the "
    "right: without a defence. Dotted: chance. The promise is about the released models (central), after the noise."
)


def _curve(
    axes: Axes, points: Sequence[tuple[float, Entry]], plain: Entry, metric: str, view: str, position: int
) -> None:
    colour, marker = mark(position)
    known = [(epsilon, row) for epsilon, entry in points if (row := attack_row(entry, metric, view)) is not None]
    x, rows = [epsilon for epsilon, _ in known], [row for _, row in known]
    axes.plot(x, [row["value"] for row in rows], color=colour, marker=marker, ms=5, lw=1.4, label=f"view {view}")
    axes.vlines(x, [row["lo"] for row in rows], [row["hi"] for row in rows], color=colour, lw=1, alpha=0.5)
    base = attack_row(plain, metric, view)
    if base is not None:
        axes.axhline(base["value"], xmin=0.95, color=colour, lw=2.5)
        axes.axhline(base["chance"], color=MUTED, lw=1.2, ls=":")
