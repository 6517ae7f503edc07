"""The headline of a report as a table for the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from fedprint.evaluation.rows import Row, read_measurements
from fedprint.reports.numbers.clients import accuracy_of, final
from fedprint.reports.numbers.evaluations import CHOSEN, final_rows
from fedprint.reports.numbers.inversion import DEFENCES, MAIN, of_variant, scored
from fedprint.reports.pages.html import read_summary
from fedprint.reports.pages.plane.beside import OWN
from fedprint.reports.tables.federation import NO_ATTACKER, AttackLine, AttackTable, attack_tables, utility_lines
from fedprint.reports.wording import (
    LINKAGES,
    METRIC_TITLES,
    MISSING,
    TRAININGS,
    interval,
    percent,
    ranged,
    valued,
    with_unit,
)

NUMBERS = ("AP", "95 %", "chance", "×", "n", "users", "seeds")


def summary_table(report_folder: Path) -> Table:
    """Return the chosen attacker per prior and linkage, the best on test data where it is another, utility and path.

    Raises:
        FedprintError: the folder holds no report.
    """
    folder = Path(report_folder)
    summary = read_summary(folder)
    for mark, make in TABLES.items():
        if mark in summary:
            return make(folder, summary)
    rows = final_rows(read_measurements(folder / "measurements.jsonl"))
    table = _table(folder, summary, [*summary["verdict"], *_utilities(summary["prior"], rows)])
    table.collapse_padding, table.pad_edge = True, False
    for column in ("prior", "linkage", "attacker", *NUMBERS):
        table.add_column(
            column,
            justify="right" if column in NUMBERS else "left",
            overflow="fold",
            no_wrap=column == "95 %",
            min_width=len(column),
        )
    for attacks in attack_tables(rows):
        for linkage in LINKAGES:
            for line, note in _lines(attacks, linkage):
                cells = (attacks.prior, linkage, f"{line.attack}{note}", *_numbers(line, linkage))
                table.add_row(*map(escape, cells), style="bold" if line.chosen else "dim")
        table.add_section()
    return table


def published_table(folder: Path) -> Table:
    """Return the metrics of an experiment of which only what git holds is on this machine.

    Raises:
        FedprintError: the folder holds no measurements.
    """
    rows = read_measurements(folder / "measurements.jsonl")
    file = folder / "metrics.json"
    metrics = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    caption = f"{len(rows)} published measurements: {folder / 'measurements.jsonl'}"
    table = Table("metric", "value", title=folder.name, caption=caption, caption_justify="left")
    for name, value in metrics.items():
        table.add_row(str(name), f"{value:.4g}" if isinstance(value, float) else str(value))
    return table


def suite_table(folder: Path, summary: Mapping[str, Any]) -> Table:
    """Return the chosen attacker of every member and prior on single updates; of members without one the utility."""
    rows, names = read_measurements(folder / "measurements.jsonl"), [member["name"] for member in summary["members"]]
    rows_of = {name: final_rows([row for row in rows if row["member"] == name]) for name in names}
    notes = [
        f"{member['name']}: {line}"
        for member in summary["members"]
        if member["attack"] is None
        for prior in member["priors"]
        for line in _utilities(prior, rows_of[member["name"]])
    ]
    failed = [f"{name} failed: {reason}" for name, reason in summary["failures"].items()]
    table = _table(folder, summary, [*notes, *failed])
    table.padding, table.pad_edge = 0, False  # so that 80 columns hold it
    for column in ("member", "prior", "attacker", *NUMBERS):
        table.add_column(
            column, justify="right" if column in NUMBERS else "left", overflow="fold", no_wrap=column != "attacker"
        )
    for name, of_member in rows_of.items():
        for attacks in attack_tables(of_member):
            if (line := attacks.best) is not None and _ap(line, "update") is not None:
                cells = (name, attacks.prior, line.attack, *_numbers(line, "update"))
                table.add_row(*map(escape, cells))
        table.add_section()
    table.show_header = table.row_count > 0
    return table


def plane_table(folder: Path, summary: Mapping[str, Any]) -> Table:
    """Return every point of a sweep: utility, and AP over chance for each adversary; the front is marked.

    Where a run on other users stands beside it, AP in % with the difference to theirs.
    """
    plane = json.loads((folder / "plane.json").read_text(encoding="utf-8"))
    names = summary["adversaries"]
    columns = ("strategy", "strength", "utility", *(f"{name}: AP / chance" for name in names))
    beside, notes = plane.get("beside"), list(summary["verdict"])
    counts = sorted({pair["updates"] for point in plane["places"] for pair in point.get("beside", ())})
    columns += tuple(f"AP from {count} update{'s' if count > 1 else ''}, %" for count in counts)
    if beside:
        notes.append(
            beside["hint"] or f"in brackets: {plane['users'] or OWN} minus {beside['users']} users ({beside['name']})"
        )
    table = _table(folder, summary, notes, columns)
    for point in plane["places"]:
        strength = MISSING if point["strength"] is None else f"{point['strength']:g}"
        cells = [point["error"] or MISSING] if "utility" not in point else [f"{point['utility']['value']:.2f}"]
        for name in names if "utility" in point else ():
            numbers = point["adversaries"][name]
            mark = "  on the front" if numbers["on_front"] else ""
            cells.append(f"{ranged(numbers['ap_over_chance'], '.1f')}{mark}")
        pairs = {pair["updates"]: pair for pair in point.get("beside", ())}
        cells += [_beside(pairs.get(count)) for count in counts if "utility" in point]
        table.add_row(*map(escape, (point["strategy"], strength, *cells)))
    return table


def _beside(pair: Mapping[str, Any] | None) -> str:
    """Return ``52.1 (+1.3 [-4.0, 6.6])``: an AP, and what it has more than on other users."""
    if pair is None:
        return MISSING
    return f"{100 * pair['here']['value']:.1f} ({ranged(pair['difference'], '+.1f', 100.0)})"


def study_table(folder: Path, summary: Mapping[str, Any]) -> Table:
    """Return the operating point of every strategy, and why one does not keep below the ceiling."""
    points = json.loads((folder / "operating_points.json").read_text(encoding="utf-8"))
    notes = [f"{point['strategy']}: {point['note']}" for point in points if not point["feasible"]]
    columns = (
        "strategy",
        "parameters",
        "below the ceiling",
        "utility",
        "AP of an update, %",
        "AP judged, %",
        "ceiling, %",
    )
    table = _table(folder, summary, [f"ceiling: {summary['ceiling']}", *notes], columns)
    for point in points:
        shown = point["confirmation"] or point
        utility = MISSING if shown["utility"] is None else f"{shown['utility']:.3f}"
        shares = [shown[name] for name in ("attack_ap", "linked_ap", "ceiling")]
        cells = [utility, *(MISSING if share is None else f"{100 * share:.1f}" for share in shares)]
        settings = ", ".join(f"{name} = {value:.4g}" for name, value in point["parameters"].items()) or MISSING
        table.add_row(escape(point["strategy"]), escape(settings), "yes" if point["feasible"] else "no", *cells)
    return table


def audit_table(folder: Path, summary: Mapping[str, Any]) -> Table:
    """Return both epsilons of every audit."""
    columns = ("epsilon, at least", "confidence", "accounted for", "delta", "rounds", "guesses", "right ones")
    verdicts = dict.fromkeys(audit["verdict"] for audit in summary["audits"])
    table = Table(*columns, title=escape(summary["title"]), caption="\n".join(verdicts), caption_justify="left")
    for audit in summary["audits"]:
        promise = audit["accounted"]
        accounted = "infinite" if promise["value"] is None else f"{promise['value']:.3f} ({promise['accountant']})"
        counts = (str(audit[name]) for name in ("rounds", "guesses", "correct"))
        confidence = f"{100 * audit['confidence']:g} %"
        table.add_row(f"{audit['bound']:.3f}", confidence, accounted, f"{promise['delta']:g}", *counts)
    return table


def inversion_table(folder: Path, summary: Mapping[str, Any]) -> Table:
    """Return the CAP scores against reconstruction of the papers' grid, by attack, batch and adversary."""
    rows = of_variant(read_measurements(folder / "measurements.jsonl"), MAIN)
    names = ("none", *DEFENCES)
    columns = ("attack", "batch", "adversary", *(f"CAP {name}" for name in names))
    table = _table(folder, summary, summary["verdict"], columns)
    for attack, _, batches in summary["attacks"]:
        for batch in batches:
            for adversary in summary["adversaries"]:
                caps = scored(rows, "cap_reconstruction", attack, batch, adversary)
                table.add_row(escape(attack), str(batch), adversary, *(ranged(caps.get(name)) for name in names))
    return table


def clients_table(folder: Path, summary: Mapping[str, Any]) -> Table:
    """Return every method's accuracy by partition and number of clients."""
    rows = final(read_measurements(folder / "measurements.jsonl"))
    diverged = [f"{label}: {reason}" for label, reason in summary["failures"].items()]
    columns = ("partition", "clients", *summary["methods"])
    table = _table(folder, summary, [*summary["verdict"], *diverged], columns)
    for partition in summary["partitions"]:
        for clients in summary["clients"]:
            cells = [percent(accuracy_of(rows, partition, method, clients)) for method in summary["methods"]]
            table.add_row(*map(escape, (partition, str(clients), *cells)))
    return table


def _lines(table: AttackTable, linkage: str) -> list[tuple[AttackLine, str]]:
    """Return the chosen line and, where another attack did better on test data, that one too; else random scores."""
    known = [line for line in table.lines if _ap(line, linkage) is not None]
    attackers = [line for line in known if line.attack not in (CHOSEN, NO_ATTACKER)]
    if not attackers:
        return [(line, "") for line in known]
    best = max(attackers, key=lambda line: _ap(line, linkage) or 0.0)
    chosen = [(line, "") for line in known if line.chosen]
    return chosen if best.chosen else [*chosen, (best, " (best on test data)")]


def _ap(line: AttackLine, linkage: str) -> float | None:
    numbers = line.by_linkage.get(linkage, {})
    return numbers["ap"].value if "ap" in numbers else None


def _numbers(line: AttackLine, linkage: str) -> list[str]:
    """Return a cell for each of :data:`NUMBERS`."""
    numbers = line.by_linkage[linkage]
    ap, ratio = numbers["ap"], numbers.get("ap_over_chance")
    return [
        with_unit(ap.value, ap.unit),
        interval(ap),
        with_unit(ap.chance, ap.unit),
        with_unit(ratio.value, ratio.unit) if ratio else MISSING,
        str(ap.n_questions),
        str(ap.n_users),
        str(ap.n_seeds),
    ]


def plain_table(folder: Path, summary: Mapping[str, Any]) -> Table:
    """Return the rows of a summary's ``table``, as plug-ins write them: mappings with the same keys."""
    rows = summary["table"]
    table = _table(folder, summary, (), list(rows[0]) if rows else ())
    for row in rows:
        table.add_row(*(escape(f"{value:g}" if isinstance(value, float) else str(value)) for value in row.values()))
    return table


def _table(folder: Path, summary: Mapping[str, Any], notes: Sequence[str], columns: Sequence[str] = ()) -> Table:
    """Return an empty table with the report's title, the notes below it, and where the page is."""
    caption = "\n".join([*notes, f"report{' (fast run)' if summary['fast'] else ''}: {folder / 'index.html'}"])
    table = Table(title=escape(summary["title"]), caption=escape(caption), caption_justify="left", box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(escape(column), overflow="fold")
    return table


def _utilities(prior: str, rows: Sequence[Row]) -> list[str]:
    """Return a line per metric of utility: what each way of training reaches under a prior."""
    utility = [line for line in utility_lines(rows) if line.prior == prior]
    return [
        f"utility ({METRIC_TITLES.get(metric, metric)}, {prior} prior): "
        + ", ".join(f"{TRAININGS.get(line.training, line.training)} {valued(line.estimate)}" for line in same)
        for metric in dict.fromkeys(line.estimate.metric for line in utility)
        if (same := [line for line in utility if line.estimate.metric == metric])
    ]


TABLES: Mapping[str, Callable[[Path, Mapping[str, Any]], Table]] = {
    "suite": suite_table,
    "plane": plane_table,
    "study": study_table,
    "audit": audit_table,
    "inversion": inversion_table,
    "clients_sweep": clients_table,
    "table": plain_table,
}
"""Key of summary.json that marks a kind of report -> its table."""
