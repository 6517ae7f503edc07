"""The report on accuracy by the number of clients: the papers' claims, a figure, and a table beside the published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from fedprint.evaluation.rows import Row
from fedprint.reports.claims.clients import judge_clients, sentences
from fedprint.reports.figures.drawing import Drawing, finish, style
from fedprint.reports.figures.panels import WIDTH, blank_figure, finish_panels, interval_line, number_axis, points_of
from fedprint.reports.numbers.clients import ALONE, ClientsHead, accuracies, final
from fedprint.reports.numbers.reference import reference_table
from fedprint.reports.pages.html import Page, write_page
from fedprint.reports.tables.analyses import Cell, ResultTable, TableLine
from fedprint.reports.wording import estimate, number

PUBLISHED: Mapping[str, tuple[str, float]] = {
    "spn": ("spn", 0.1),
    "dp-0.1": ("dp", 0.1),
    "ppdl-0.3": ("ppdl_0.3+dp", 1e-4),
    "ppdl-0.05": ("ppdl_0.05+dp", 1e-4),
}
"""Method -> mechanism and strength of spn's table of DLNet; of ppdl that with the least noise."""

COLUMNS: Mapping[str, str] = {
    "mnist": "mnist",
    "mnist_writers": "mnist",
    "cifar10": "cifar10",
    "cifar100": "cifar100",
    "svhn": "svhn",
}
"""Our data set -> its column there."""


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
        files={
            "summary.json": {"clients_sweep": head.name, **asdict(head), "verdict": said},
            "config.yaml": config_text,
        },
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
        finish_panels(figure, list(panels), "accuracy on test images")
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
    found = {(row["partition"], int(row["clients"]), row["method"]): row for row in accuracies(rows)}
    places = sorted({(head.partitions.index(p), n) for p, n, _ in found})
    heads = [column for method in head.methods for column in (method, *_published_head(head, method))]
    lines = []
    for rank, clients in places:
        partition, cells = head.partitions[rank], list[Cell]()
        for method in head.methods:
            row = found.get((partition, clients, method))
            cells.append(None if row is None else estimate(row))
            if _published_head(head, method):
                cells.append(_published(head, method))
        lines.append(TableLine(labels=(partition, str(clients)), cells=tuple(cells)))
    note = "Published: ten clients in turn (round robin), all training images, 300 rounds; no intervals are given."
    return ResultTable(
        name="accuracy-by-clients",
        title="Accuracy by the number of clients",
        note=note if any(h.startswith("published") for h in heads) else "",
        labels=("partition", "clients"),
        heads=tuple(heads),
        lines=tuple(lines),
    )


def _published_head(head: ClientsHead, method: str) -> tuple[str, ...]:
    known = head.network == "dlnet" and head.dataset in COLUMNS and method in PUBLISHED
    return (f"published {method}",) if known else ()


def _published(head: ClientsHead, method: str) -> str | None:
    mechanism, strength = PUBLISHED[method]
    for row in reference_table("spn_accuracy_dlnet"):
        if row["mechanism"] == mechanism and float(row["parameter"]) == strength:
            return number(float(row[COLUMNS[head.dataset]]), "fraction")
    return None
