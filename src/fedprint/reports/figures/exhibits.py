"""Figures of what analyses exhibit: descriptions of data and updates, made with everything known (papers.md 2.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedprint.reports.figures.drawing import GRID, MARKERS, MUTED, SERIES, Drawing, finish, percent_axis, person, style
from fedprint.reports.figures.panels import WIDTH, blank_figure, heat_map
from fedprint.reports.numbers.evaluations import CONTROL, Evaluation, Exhibit, exhibits_of
from fedprint.reports.numbers.order import prior_title
from fedprint.reports.wording import number, people, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ByPrior = Mapping[str, Exhibit]


def draw_exhibits(evaluations: Sequence[Evaluation]) -> dict[str, tuple[Drawing, ...]]:
    """Return the figures of every exhibit, by analysis; of each prior its first seed."""
    painters: Mapping[str, Callable[[ByPrior], tuple[Drawing, ...]]] = {
        "distances": distances,
        "class-bias": class_bias,
        "recognisable": reasons,
        "raw-features": raw_features,
    }
    drawn = {}
    with style():
        for name, paint in painters.items():
            exhibits = exhibits_of(evaluations, name)
            if exhibits and (drawings := paint(exhibits)):
                drawn[name] = drawings
    return drawn


def distances(exhibits: ByPrior) -> tuple[Drawing, ...]:
    """Draw each user's distance among its own examples against that to other users' examples, a panel per prior."""
    known = {prior: shown for prior, shown in exhibits.items() if shown.get("users")}
    if not known:
        return ()
    figure = blank_figure(WIDTH, 0.6 + WIDTH / max(len(known), 2.4))
    panels = figure.subplots(1, len(known), squeeze=False)[0]
    for axes, (prior, shown) in zip(panels, known.items(), strict=True):
        intra, inter = ([row[key] for row in shown["users"]] for key in ("intra", "inter"))
        low, high = min(intra + inter), max(intra + inter)
        axes.plot([low, high], [low, high], color=MUTED, ls=":", lw=1.4)
        axes.plot(intra, inter, MARKERS[0], color=SERIES[0], ms=4, alpha=0.7, mew=0)
        axes.set_aspect("equal")
        axes.set_title(prior_title(prior))
        axes.set_xlabel("among the user's own examples")
    panels[0].set_ylabel("to other users' examples")
    closer = "; ".join(f"{prior_title(prior)}: {_closer(shown)}" for prior, shown in known.items())
    first = next(iter(known.values()))
    look = "Look at how many dots lie above the dotted line: these users differ from others in their data already."
    caption = (
        f"Median distance of L2-normalised {first.get('kind', 'features')} for each of "
        f"{people(int(first.get('n', len(first['users']))))}; above the dotted line (chance: equal distances) a user's "
        f"own examples are closer to one another. Share of users above it, with 95 % interval: {closer}."
    )
    return (finish(figure, "distances", "How alike a user's own examples are", look, caption),)


def class_bias(exhibits: ByPrior) -> tuple[Drawing, ...]:
    """Draw a heat map per prior: how far devices move each class, and their labels, prior beside private."""
    drawings: list[Drawing] = []
    for prior, shown in exhibits.items():
        if prior == CONTROL or shown.get("kind") != "classes" or not shown.get("users"):
            continue
        name = "class-bias" if not drawings else f"class-bias-{prior}"
        drawings.append(_class_bias(shown, prior, name))
    return tuple(drawings)


def _class_bias(shown: Exhibit, prior: str, name: str) -> Drawing:
    users, classes = shown["users"], [str(entry) for entry in shown["classes"]]
    figure = blank_figure(WIDTH, 1.6 + 0.5 * len(users))
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    parts = (("norm", "update norm"), ("share", "labels"))
    for line, (key, title) in zip(panels, parts, strict=True):
        tables = {device: [_shares(row[device][key]) for row in users] for device in ("prior", "private")}
        highest = max(max(values) for table in tables.values() for values in table)
        for axes, (device, table) in zip(line, tables.items(), strict=True):
            heat_map(axes, table, "viridis", (0.0, highest))
            axes.set_title(f"{title}, {device} device")
            axes.set_yticks(range(len(users)), [_user(row) for row in users])
            axes.set_xticks(range(len(classes)), classes, rotation=90 if max(map(len, classes)) > 2 else 0)
    updates = sorted({int(row[device]["updates"]) for row in users for device in ("prior", "private")})
    caption = (
        f"Above: the L2 norm of each class's column of the output layer, averaged over a device's updates and in per "
        f"cent of the row; below: the device's labels in per cent. {prior_title(prior).capitalize()}; the most and the "
        f"least recognisable users, AP of the chosen attacker behind their number; {updates[0]} to {updates[-1]} "
        "updates per device. A description, without chance or interval."
    )
    look = "Compare left and right in one row: classes that both devices of a user move more than others give it away."
    return finish(figure, name, f"Class bias of devices ({prior_title(prior)})", look, caption)


def reasons(exhibits: ByPrior) -> tuple[Drawing, ...]:
    """Draw Spearman's correlation of users' AP with what may explain it, and AP by label divergence."""
    shown = next((one for prior, one in exhibits.items() if prior != CONTROL and one.get("reasons")), None)
    if shown is None:
        return ()
    known = {name: entry for name, entry in shown["reasons"].items() if entry.get("correlation") is not None}
    if not known:
        return ()
    figure = blank_figure(WIDTH, 2.9)
    left, right = figure.subplots(1, 2, width_ratios=(1.2, 1))
    for y, entry in enumerate(known.values()):
        left.plot([entry["lo"], entry["hi"]], [y, y], color=SERIES[0], lw=1.6)
        left.plot(entry["correlation"], y, "o", color=SERIES[0], ms=5)
    left.axvline(0, color=MUTED, ls=":", lw=1.4)
    left.set_yticks(range(len(known)), [name.replace("_", " ") for name in known])
    left.set_ylim(len(known) - 0.5, -0.5)
    left.set_xlim(-1.02, 1.02)
    left.set_xlabel("Spearman's correlation with the user's AP")
    best = max(known, key=lambda name: abs(float(known[name]["correlation"])))
    right.plot([row[best] for row in shown["users"]], [row["ap"] for row in shown["users"]], "o",
               color=SERIES[0], ms=4, alpha=0.7, mew=0)  # fmt: skip
    right.set_xlabel(best.replace("_", " "))
    right.set_ylim(0, 1.03)
    percent_axis(right, "y", "average precision")
    meanings = "; ".join(f"{name.replace('_', ' ')}: {entry['meaning']}" for name, entry in known.items())
    caption = (
        f"Left: rank correlation over {people(len(shown['users']))} with its 95 % interval (dotted: chance, no "
        f"relation); right: the strongest of them, user by user. {meanings}."
    )
    look = "Look at which bars stay clear of the dotted line: these properties go with being recognised."
    return (finish(figure, "recognisable", "What goes with being recognised", look, caption),)


def raw_features(exhibits: ByPrior) -> tuple[Drawing, ...]:
    """Draw a t-SNE of raw examples beside one of updates, of the same users in the same colours."""
    shown = next((one for one in exhibits.values() if one.get("raw") and one.get("updates")), None)
    if shown is None:
        return ()
    users = sorted({int(point["user_id"]) for panel in ("raw", "updates") for point in shown[panel]})
    figure = blank_figure(WIDTH, 0.6 + WIDTH / 2)
    panels = figure.subplots(1, 2)
    for axes, panel, title in zip(panels, ("raw", "updates"), ("raw examples", "updates"), strict=True):
        _scatter(axes, shown[panel], users)
        axes.set_title(title)
    caption = (
        f"t-SNE of {len(shown['raw'])} raw examples ({shown.get('kind', 'features')}) and of {len(shown['updates'])} "
        f"updates of the same {people(len(users))}. Colour and shape: the user; filled: what the adversary knows "
        "(prior), hollow: the anonymous device. Pictures of this kind have neither chance nor interval, and distances "
        "between far groups mean nothing."
    )
    look = "Compare the panels: where colours form groups on the right alone, training makes users separable."
    return (finish(figure, "raw-features", "Users in their data and in their updates", look, caption),)


def _scatter(axes: Axes, points: Sequence[Mapping[str, Any]], users: Sequence[int]) -> None:
    for position, user in enumerate(users):
        colour, marker = person(position)
        for role, face in (("prior", colour), ("private", "none")):
            own = [point for point in points if point["user_id"] == user and point["role"] == role]
            x, y = [point["x"] for point in own], [point["y"] for point in own]
            axes.plot(x, y, marker, color=colour, mfc=face, ms=4, mew=0.9, ls="")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(visible=True, color=GRID)


def _shares(values: Sequence[float]) -> list[float]:
    total = sum(values)
    return [value / total if total else 0.0 for value in values]


def _user(row: Mapping[str, Any]) -> str:
    return f"user {row['user_id']} ({number(row['ap'], 'fraction', 0)})"


def _closer(shown: Exhibit) -> str:
    return percent(shown["share_closer"]) if shown.get("share_closer") else "unknown"
