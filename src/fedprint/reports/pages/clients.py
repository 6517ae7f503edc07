"""The report on accuracy by the number of clients: the papers' claims, a figure, and a table beside the published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedprint.evaluation.rows import Row
from fedprint.reports.claims.clients import judge_clients, sentences
from fedprint.reports.figures.drawing import Drawing, finish, style
from fedprint.reports.figures.panels import WIDTH, blank_figure, finish_panels, interval_line, number_axis, points_of
from fedprint.reports.numbers.clients import ALONE, ClientsHead, accuracies, final
from fedprint.reports.numbers.reference import SPN_DATA, reference_table
from fedprint.reports.pages.html import Page, described, write_page
from fedprint.reports.tables.analyses import Cell, ResultTable, TableLine, cell
from fedprint.reports.wording import number

PUBLISHED: Mapping[str, tuple[str, float]] = {
    "spn": ("spn", 0.1),
    "dp-0.1": ("dp", 0.1),
    "ppdl-0.3": ("ppdl_0.3+dp", 1e-4),
    "ppdl-0.05": ("ppdl_0.05+dp", 1e-4),
}
"""Method -> mechanism and strength of spn's table of DLNet; of ppdl that with the least noise."""


def write_clients(*, head: ClientsHead, rows: Sequence[Row], config_text: str, out: Path) -> None:
    """Write the folder ``out``: index.html, measurements, claims, table, figure, config.yaml and summary.json.

    The folder appears as a whole; equal input gives equal bytes.
    """
    chosen = final(rows)
    verdicts = judge_clients(head, chosen)
    said = sentences(head, chosen, verdicts)
    page = Page(
        template="clients",
        sentences=said,
        drawings=[draw(head, chosen)],
        tables=[accuracy_table(head, chosen)],
        verdicts=verdicts,
        rows=rows,
        files=described("clients_sweep", head, config_text, verdict=said),
        values={"head": head},
    )
    write_page(page, out)


def draw(head: ClientsHead, rows: Sequence[Row]) -> Drawing:
    """Draw accuracy by the number of clients: a panel per partition, a line per method."""
    with style():
        figure = blank_figure(WIDTH, 3.6)
        panels = figure.subplots(1, len(head.partitions), sharey=True, squeeze=False)[0]
        for axes, partition in zip(panels, head.partitions, strict=True):
            axes.set_title(partition)
            for position, method in enumerate(head.methods):
                of_line = [row for row in accuracies(rows) if (row["partition"], row["method"]) == (partition, method)]
                interval_line(axes, points_of(of_line, "clients"), method, position)
            number_axis(axes, [float(clients) for clients in sorted(head.clients)], log=True)
            axes.set_xlabel("clients")
        top = max((row["hi"] for row in accuracies(rows) if row["hi"] is not None), default=1.0)
        finish_panels(figure, list(panels), "accuracy on test images", top)
        images = max(int(row["n_questions"]) // int(row.get("n_seeds") or 1) for row in accuracies(rows))
        seeds = f" and {len(head.seeds)} seeds" if len(head.seeds) > 1 else ""
        look = "Look at the right end: there each client has fewest images, and methods differ most."
        caption = (
            f"{head.dataset}, {head.network}; the same training images dealt out among more clients. Bars: 95 % "
            f"intervals over {images} test images{seeds}; {ALONE}: mean over the clients' own models."
        )
        return finish(figure, "accuracy-by-clients", "Accuracy by the number of clients", look, caption)


def accuracy_table(head: ClientsHead, rows: Sequence[Row]) -> ResultTable:
    """Return a line per partition and number of clients, a column per method; a published column where there is one."""
    known = {(row["partition"], int(row["clients"]), row["method"]): row for row in accuracies(rows)}
    published = {method: text for method in head.methods if (text := _published(head, method))}
    heads, lines = list[str](), []
    for method in head.methods:
        heads += [method, f"published {method}"] if method in published else [method]
    for rank, clients in sorted({(head.partitions.index(partition), n) for partition, n, _ in known}):
        partition, cells = head.partitions[rank], list[Cell]()
        for method in head.methods:
            cells.append(cell(known.get((partition, clients, method))))
            cells += [published[method]] if method in published else []
        lines.append(TableLine(labels=(partition, str(clients)), cells=tuple(cells)))
    note = "Published: ten clients in turn (round robin), all training images, 300 rounds; no intervals are given."
    return ResultTable(
        name="accuracy-by-clients",
        title="Accuracy by the number of clients",
        note=note if published else "",
        labels=("partition", "clients"),
        heads=tuple(heads),
        lines=tuple(lines),
    )


def _published(head: ClientsHead, method: str) -> str | None:
    """Return the paper's accuracy; None for what is not in its table."""
    if head.network != "dlnet" or head.dataset not in SPN_DATA or method not in PUBLISHED:
        return None
    mechanism, strength = PUBLISHED[method]
    for row in reference_table("spn_accuracy_dlnet"):
        if row["mechanism"] == mechanism and float(row["parameter"]) == strength:
            return number(float(row[SPN_DATA[head.dataset]]), "fraction")
    return None
