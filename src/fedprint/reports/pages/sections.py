"""The page's part on analyses: what each shows, its figures, and its numbers in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedprint.evaluation.rows import Row
from fedprint.reports.figures.analyses import draw_rows
from fedprint.reports.figures.drawing import Drawing
from fedprint.reports.figures.exhibits import draw_exhibits
from fedprint.reports.numbers.evaluations import Evaluation, final_analyses
from fedprint.reports.numbers.order import rank
from fedprint.reports.tables.analyses import ResultTable, result_table
from fedprint.reports.tables.exhibits import tabulate_exhibits

TEXTS: Mapping[str, tuple[str, str]] = {
    "paired": (
        "Differences between attackers and priors",
        "AP of one update minus that of another attacker, or of the same under another prior, user by user: an "
        "interval that excludes 0 tells the two apart, also where their own intervals overlap.",
    ),
    "linked": (
        "Linked updates",
        "What does a pseudonym that persists give away? The adversary averages the scores of so many updates of one "
        "device. A device may send many.",
    ),
    "effort": (
        "Effort of the adversary",
        "AP with all shadow devices minus AP with those of every other global model, user by user: what the last "
        "doubling of the effort gained. Where that is a point or more, the AP is a lower bound.",
    ),
    "prior-examples": ("Prior examples", "How much of a user's data must the adversary have?"),
    "training-updates": ("Training updates", "How many labelled updates must the adversary have seen?"),
    "adversaries": (
        "Adversaries",
        "The naive adversary does not know that updates are defended; the adaptive one knows how. It attacks as the "
        "naive one does, and from clean devices, from defended ones and from both with settings for defended updates. "
        "It averages their scores; the weight of each is the fourth power of its AP on held-out prior data (column "
        "recipe: the one with the largest weight).",
    ),
    "privacy": (
        "Privacy budget",
        "What client-level differential privacy lets those learn who see the released models only; never those who see "
        "single updates. Bounds by accountant, beside what they do not cover. A client is a device. A user owns two "
        "and is in a round twice, once or not at all: a larger epsilon, not priced where samples are of fixed size.",
    ),
    "diversity": (
        "How alike the clients became",
        "Between-clients variance V_c and update scale U_s, read off raw updates, in doublings: 1 is twice as much in "
        "the last third of the rounds as in the first. Without several seeds the interval takes rounds as independent.",
    ),
    "strengths": ("Chosen strengths", "Users who protect themselves, and how strongly, beside those who do not."),
    "layers": ("Layers", "Each attack is tuned anew on each layer alone, on prior data."),
    "epochs": ("Training epochs", "Does an update's place in training matter?"),
    "users": ("Number of users", "How recognition falls as the crowd grows."),
    "crowds": (
        "More users",
        "The same attack among fewer users, and among up to a million if these were like those. The prediction rests "
        "on how often wrong scores are as high as right ones; beyond the data this follows a generalised Pareto tail. "
        "Its interval holds for other users drawn from the same ones, not for a tail of another form. TPR at a false "
        "positive rate does not depend on the number of users, but for chance.",
    ),
    "matching": (
        "Matching",
        "Is an anonymous update from the same user as a given prior update? Balanced pairs; the strong matcher and all "
        "its settings come from prior updates only.",
    ),
    "open-world": ("Open world", "Some users have no prior and have to be called unseen."),
    "cross-modal": (
        "Cross-modal matching",
        "Does an update from pictures belong to the user with these captions? Balanced pairs.",
    ),
    "attributes": (
        "Attribute inference",
        "Which class of an attribute does the sender have? For known users this is re-identification with fewer "
        "classes; only new users show whether the attribute itself leaks. Learned alone, or together with the user.",
    ),
    "data-space": ("Data space", "Naming the user from raw examples instead of an update."),
    "profile": ("Profile", "Devices ranked by how well they fit a profile, without data of any user."),
    "participation": (
        "Views: sums and released models",
        "Did a user take part in a round? Asked of someone who sees only a cohort's sum (aggregate, before the "
        "server's noise), or only the released models (central, after it).",
    ),
    "membership": (
        "Membership",
        "Did a client take part in the training at all? Half of the users' anonymous devices stayed away. Asked of "
        "someone who sees raw updates (local), sums per round (aggregate), or the released models only (central), and "
        "has the user's prior (candidates) or the very data of the device (known-data).",
    ),
    "distances": ("Distances", "How alike a user's own examples are, beside other users' ones."),
    "class-bias": ("Class bias", "Which labels' outputs an update moves, prior beside private."),
    "recognisable": ("Who is recognised, and why", "The users that are recognised most and least, and their labels."),
    "raw-features": ("Raw features", "Are users as separate in the data as in the updates?"),
}
"""Analysis -> title and what it asks, in the page's order."""

SHOWN: Mapping[str, tuple[str, ...]] = {
    "privacy": ("protects", "accountant", "delta", "sampling", "adjacency", "rounds", "not_covered"),
}
"""Analysis -> keys that its table has even where all rows agree: without them an epsilon means nothing."""

OPEN_LINES = 24
"""Longer tables, and those behind a figure, open on a click."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One analysis on the page; ``drawings`` and ``tables`` may be empty, not both."""

    name: str
    title: str
    note: str
    drawings: tuple[Drawing, ...]
    tables: tuple[ResultTable, ...]


def analysis_sections(
    rows: Sequence[Row], evaluations: Sequence[Evaluation] = (), more: Mapping[str, Sequence[ResultTable]] | None = None
) -> tuple[Section, ...]:
    """Return a section per analysis that measured or exhibited something, known ones in order, then others by name.

    ``more`` are tables that lead a section.
    """
    final = final_analyses(rows)
    figures = draw_rows(final)
    shown = draw_exhibits(evaluations)
    listed = tabulate_exhibits(evaluations)
    names = {str(row["analysis"]) for row in final} | set(shown) | set(listed)
    sections = []
    for name in sorted(names, key=lambda name: rank(tuple(TEXTS), name)):
        title, note = TEXTS.get(name, (name.replace("-", " ").capitalize(), ""))
        drawings = figures.get(name, ()) + shown.get(name, ())
        table = _table([row for row in final if row["analysis"] == name], name, title, bool(drawings))
        tables = (*(more or {}).get(name, ()), *listed.get(name, ()), *(() if table is None else (table,)))
        if drawings or tables:
            sections.append(Section(name=name, title=title, note=note, drawings=drawings, tables=tables))
    return tuple(sections)


def _table(rows: Sequence[Row], name: str, title: str, drawn: bool) -> ResultTable | None:
    table = result_table(rows, name, f"{title}: numbers", shown=SHOWN.get(name, ()))
    if table is None or not (drawn or len(table.lines) > OPEN_LINES):
        return table
    return replace(table, title=f"{title}: all {len(table.lines)} numbers with interval and chance", folded=True)
