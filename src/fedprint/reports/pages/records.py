"""The report of an audit of recorded updates: verdict, what leaks, what to change, and what that cost elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from fedprint.evaluation.rows import Row
from fedprint.records.judge import number
from fedprint.records.run import Result
from fedprint.records.verdict import RULES
from fedprint.reports.figures.drawing import INK, Drawing, finish, mark, percent_axis, style
from fedprint.reports.figures.panels import WIDTH, blank_figure, show_image
from fedprint.reports.numbers.order import attack_rank
from fedprint.reports.numbers.reference import reference_table
from fedprint.reports.pages.html import Page, write_page
from fedprint.reports.pages.sections import analysis_sections
from fedprint.reports.tables.analyses import Cell, ResultTable, TableLine, cell
from fedprint.reports.wording import Estimate, shown, with_unit

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS: Mapping[str, str] = {
    "ap": "AP",
    "ap_over_chance": "AP over chance",
    "top1": "top-1",
    "tpr_1": "TPR at FPR 1 %",
    "tpr_01": "TPR at FPR .1 %",
}
LINKAGES = {"update": "one update", "device": "all updates of a device"}
STATES = {"high": "bad", "moderate": "warn", "low": "good"}
MOST_USERS = 50
"""Users that the table of risks shows; audit.json has all."""


def write_records(result: Result, out: Path, *, show_users: bool = False) -> None:
    """Write the folder ``out``: index.html, audit.json, measurements, figures/ and tables/.

    Users have numbers, in the order in which the index names them. Their names, and examples that were read from
    updates, are shown with ``show_users`` only. The folder appears as a whole and replaces an older one; equal input
    gives equal bytes.
    """
    rows = result.judged.rows
    page = Page(
        template="records",
        sentences=result.verdict.sentences,
        drawings=[_drawing(rows), *(_pictures(result) if show_users else ())],
        tables=[
            _attacks(result),
            *_costs(),
            *_epsilon(result),
            _users(result, show_users),
            *_labels(result),
            *_examples(result),
        ],
        sections=analysis_sections([_plain(row) for row in rows]),
        rows=rows,
        files={"audit.json": result.summary()},
        values={"result": result, "rules": RULES, "state": STATES[result.verdict.risk]},
    )
    write_page(page, out)


def terminal_table(result: Result) -> Table:
    """Return the verdict's numbers for the terminal."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("what", "AP", "chance", "n", title=escape(f"{result.title}: the risk is {result.verdict.risk}"))
    for linkage, words in LINKAGES.items():
        for row in _of(result.judged.rows, linkage):
            chosen = row["attack"] == result.found.selected
            counted = f"{row['n_questions']} of {row['n_users']} users"
            cells = (f"{words}, {row['attack']}", shown(row), with_unit(row["chance"], "fraction"), counted)
            table.add_row(*map(escape, cells), style="bold" if chosen else "dim")
    return table


def _plain(row: Row) -> Row:
    """Return a row whose layers' names draw as text: matplotlib reads formulas between dollar signs."""
    return {key: value.replace("$", "\uff04") if isinstance(value, str) else value for key, value in row.items()}


def _of(rows: Sequence[Row], linkage: str) -> list[Row]:
    found = [row for row in rows if row["analysis"] is None and (row["metric"], row["linkage"]) == ("ap", linkage)]
    return sorted(found, key=lambda row: attack_rank(row["attack"]))


def _drawing(rows: Sequence[Row]) -> Drawing:
    """Draw the AP of every attack with interval and chance: of one update, and of all updates of a device."""
    names = [row["attack"] for row in _of(rows, "update")]
    with style():
        figure = blank_figure(WIDTH, 1.0 + 0.42 * len(names))
        axes = figure.subplots()
        for which, (linkage, words) in enumerate(LINKAGES.items()):
            colour, marker = mark(which)
            for row in _of(rows, linkage):
                y = names.index(row["attack"]) + 0.3 * which - 0.15
                axes.plot([row["lo"], row["hi"]], [y, y], color=colour)
                axes.plot(row["value"], y, marker, color=colour, label=words if y < 0.5 else None)
                axes.plot([row["chance"]] * 2, [y - 0.13, y + 0.13], color=INK, lw=1.2)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(0, 1.02)
        axes.grid(visible=False, axis="y")
        percent_axis(axes, "x", "average precision")
        figure.legend(loc="outside upper right", ncols=2)
        return finish(
            figure,
            "attacks",
            "How well each attack names the sender",
            "Look at how far a bar is to the right of its upright line.",
            "Bars: 95 % intervals over users; upright lines: random scores. count, norm and participation read no "
            "number "
            "of the update; ridge+sides joins ridge with count and norm.",
        )


def _attacks(result: Result) -> ResultTable:
    rows, lines = result.judged.rows, list[TableLine]()
    for linkage, words in LINKAGES.items():
        for row in _of(rows, linkage):
            name = row["attack"]
            cells: list[Cell] = [cell(number(rows, metric, linkage=linkage, attack=name)) for metric in COLUMNS]
            p = f"{row['p_chance']:.2g}"
            lines.append(TableLine(labels=(words, f"{name} (chosen)" if name == result.found.selected else name),
                                   cells=(*cells, p)))  # fmt: skip
    note = "".join(f" Not run: {name}, because {why}." for name, why in result.found.left_out.items())
    return ResultTable(
        name="attacks",
        title="Attacks",
        note="The chosen attack has the least log-loss in validation; the largest number of the table is an upper "
        "estimate."
        f" p: permutation test against no link to the user.{note}",
        labels=("asked from", "attack"),
        heads=(*COLUMNS.values(), "p"),
        lines=tuple(lines),
        grouped=1,
    )


def _costs() -> list[ResultTable]:
    """Return what defences left and cost in the published planes of this project."""
    lines, sources = list[TableLine](), dict[str, str]()
    for row in reference_table("planes"):
        sources[row["experiment"]] = row["source"].replace("`", "")
        cells = tuple(_published(row, name, unit) for name, unit in _PLANE.items())
        lines.append(TableLine(labels=(row["experiment"], _setting(row)), cells=cells))
    measured = "; ".join(f"{name}: {source}" for name, source in sources.items())
    note = (
        "What defences left to an adversary who knows them, and how much utility they kept, in federations that this "
        f"project ran. Measured elsewhere, so no promise for yours. {measured}."
    )
    heads = ("AP of one update", "AP of all updates of a device", "utility over no defence")
    return [
        ResultTable(
            name="costs",
            title="What it would cost to change something",
            note=note,
            labels=("measured on", "defence and strength"),
            heads=heads,
            lines=tuple(lines),
            grouped=1,
        )
    ]


_PLANE = {"ap": "fraction", "ap_linked": "fraction", "utility": "ratio"}


def _setting(row: Mapping[str, str]) -> str:
    return f"{row['strategy']} {float(row['strength']):g}" if row["strength"] else row["strategy"]


def _published(row: Mapping[str, str], name: str, unit: str) -> Cell:
    if not row[name]:
        return None
    value, lo, hi, chance = (float(row[key]) if row.get(key) else None for key in
                             (name, f"{name}_lo", f"{name}_hi", f"{name}_chance"))  # fmt: skip
    counts = {f"n_{what}": int(row[f"{name}_n_{what}"]) for what in ("questions", "users", "seeds")}
    level = chance if unit == "fraction" else None  # nobody asks what random guesses keep of the utility
    return Estimate(metric=name, unit=unit, value=value, lo=lo, hi=hi, chance=level, **counts)


def _epsilon(result: Result) -> list[ResultTable]:
    bound, claim = result.judged.bound, result.judged.claim
    if bound is None:
        return []
    columns = {
        "claimed": "nothing" if claim.epsilon is None else f"{claim.epsilon:g}",
        "at least": f"{bound.epsilon:.2f}",
        "largest that so many users can show": f"{bound.ceiling:.2f}",
        "delta": f"{bound.delta:g}",
        "confidence": f"{100 * bound.confidence:g} %",
        "hits": f"{100 * bound.tpr:.1f} %",
        "false alarms": f"{100 * bound.fpr:.2f} %",
        "rests on": f"{bound.n_questions} questions about {bound.n_users} users",
    }
    note = (
        "Local differential privacy of a device with this epsilon and delta would allow at most e^epsilon times the "
        "false "
        "alarms, plus delta, as hits. Senders are taken as independent, single updates of one are not. A bound below a "
        "claim proves nothing."
    )
    line = TableLine(labels=(LINKAGES[claim.of],), cells=tuple(columns.values()))
    return [
        ResultTable(
            name="epsilon",
            title="Epsilon, claimed and at least",
            note=note,
            labels=("epsilon of",),
            heads=tuple(columns),
            lines=(line,),
        )
    ]


def _users(result: Result, show: bool) -> ResultTable:
    users = result.judged.users
    lines = [
        TableLine(
            labels=(str(place), _user(result, one.user_id, show)),
            cells=(f"{100 * one.ap:.1f} %", f"{100 * one.chance:.1f} %", f"{one.n_updates}"),
        )
        for place, one in enumerate(users[:MOST_USERS], 1)
    ]
    numbered = "" if show else " Users are numbered in the order in which the index names them."
    return ResultTable(
        name="users",
        title="Users by risk",
        note=f"The {len(lines)} of {len(users)} users whose single updates the chosen attack names best.{numbered} "
        "Of few updates the order is mostly chance.",
        labels=("place", "user"),
        heads=("AP", "chance", "updates"),
        lines=tuple(lines),
        folded=True,
    )


def _user(result: Result, column: int, show: bool) -> str:
    name = result.names[column]
    return name if show else f"user {result.numbers[name]}"


def _labels(result: Result) -> list[ResultTable]:
    found = result.labels
    if isinstance(found, str):
        return []
    names = result.classes or tuple(f"class {c}" for c in range(found.shares.shape[1]))
    lines = []
    for place, shares in enumerate(found.shares, 1):
        order = sorted(range(len(names)), key=lambda c: (-shares[c], c))[:5]
        words = ", ".join(f"{names[c]} {100 * shares[c]:.0f} %" for c in order if shares[c] > 0)
        lines.append(TableLine(labels=(f"device {place}",), cells=(words or "none",)))
    return [
        ResultTable(
            name="labels",
            title="Labels that updates show",
            note=f"Estimated shares of the most frequent labels of the first devices that are asked about, from "
            f"{found.layer} "
            "alone. The numbers of examples of a device need no attack where they are sent. Nothing here is checked: "
            "no "
            "truth about labels was given, and after many local steps the shares are biased.",
            labels=("device",),
            heads=("labels",),
            lines=tuple(lines),
            folded=True,
        )
    ]


def _examples(result: Result) -> list[ResultTable]:
    found = result.examples
    if isinstance(found, str):
        return []
    read, several = found.counts > 0, found.updates - found.of_one
    of_several = int(read.sum()) - found.of_one_read
    lines = [TableLine(labels=("of one example",), cells=(f"{found.of_one}", f"{found.of_one_read}",
                       "" if found.labels is None else f"{found.labels}"))]  # fmt: skip
    shown = f"{of_several}" if found.needed else "not tried"
    lines.append(TableLine(labels=("of several, or of unknown number",), cells=(f"{several}", shown, "")))
    rule = (
        f"Of several examples one counts as read where {found.needed} rows of the layer agree on it and all others are "
        "clearly apart: a lower bound. Examples that the model cannot tell apart look like one, their mean."
        if found.needed
        else f"Updates of several examples were not tried: {found.why}."
    )
    return [
        ResultTable(
            name="examples",
            title="Examples that updates show",
            note=f"From the gradient of {found.layer} and its bias, in closed form; {found.updates} updates, drawn at "
            f"random where there are more. An update of one example counts where all rows agree. {rule} A label "
            "counts where one entry of the last bias rises alone, which holds for cross-entropy.",
            labels=("updates",),
            heads=("looked at", "with an example read", "with the label read"),
            lines=tuple(lines),
        )
    ]


def _pictures(result: Result) -> list[Drawing]:
    """Draw the first examples that were read, and those that a search recovered, where they are images."""
    shape, drawings = result.shape, list[Drawing]()
    if len(shape) != 3 or shape[0] not in (1, 3):
        return drawings
    if not isinstance(result.examples, str) and len(result.examples.inputs):
        words = ("Examples read from single updates", "as the first layer reads them")
        drawings.append(_images("examples", result.examples.inputs.reshape(-1, *shape), *words))
    if not isinstance(result.searched, str) and len(result.searched.images):
        drawings.append(_images("searched", result.searched.images, "Images recovered by a search", "as it ended"))
    return drawings


def _images(name: str, images: NDArray[Any], title: str, what: str) -> Drawing:
    """Draw images (k, c, h, w), each from its darkest to its lightest value."""
    with style():
        figure = blank_figure(max(0.9 * len(images), 3.0), 1.2)
        panels = figure.subplots(1, len(images), squeeze=False)[0]
        for axes, image in zip(panels, images, strict=True):
            axes.set_axis_off()
            low, high = float(image.min()), float(image.max())
            show_image(axes, (image - low) / ((high - low) or 1.0), 1)
        caption = f"The first examples {what}, each from its darkest to its lightest value."
        return finish(figure, name, title, "These are what devices trained on, found in their updates alone.", caption)
