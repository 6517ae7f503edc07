"""client-dp's table: accuracy, rounds and communication within a budget, ours beside the published (papers.md, 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml

from fedprint.evaluation.rows import Row
from fedprint.reports.analysis_tables import Cell, ResultTable, TableLine
from fedprint.reports.evaluations import final_rows
from fedprint.reports.reference import reference_table
from fedprint.reports.wording import estimate

PUBLISHED = "mnist_shards"
"""The data set that the paper's results are of; without a budget no other one is in the table."""
NOTE = (
    "Published: samples of fixed size, the moments accountant, a clipping norm that leaks (the median), one seed. "
    "Ours: the sampling, accountant and delta of each line, a constant clipping norm, the mean over seeds. "
    "Communication is the planned number of updates sent, the sum of m_t. What tuning the settings costs is in no line."
)


def client_dp_table(runs: Mapping[str, tuple[Sequence[Row], str]]) -> ResultTable | None:
    """Return the table of client-dp's results with the runs' beside it; None where no run is of its kind.

    ``runs`` maps a name to all rows of a report and its resolved configuration (YAML).
    """
    ours = [found for name, (rows, config) in runs.items() if (found := _ours(name, rows, config)) is not None]
    if not ours:
        return None
    sizes = {clients for clients, _ in ours}
    published = [pair for row in reference_table("client_level_dp") if (pair := _published(row))[0] in sizes]
    lines = sorted([*published, *ours], key=lambda pair: pair[0])
    return ResultTable(
        name="client-level-dp",
        title="Client-level differential privacy, beside the published results",
        note=NOTE,
        labels=("clients", "data", "run", "guarantee"),
        heads=("accuracy", "rounds", "communication"),
        lines=tuple(line for _, line in lines),
    )


def _published(row: Mapping[str, str]) -> tuple[int, TableLine]:
    clients = int(row["clients"])
    guarantee = f"epsilon {row['epsilon']}, delta {float(row['delta']):g}" if row["private"] == "yes" else "none"
    cells: tuple[Cell, ...] = (
        f"{100 * float(row['accuracy']):.0f} %",
        row["communication_rounds"],
        f"{int(row['communication_cost']):,}",
    )
    return clients, TableLine(labels=(f"{clients:,}", PUBLISHED, "published", guarantee), cells=cells)


def _ours(name: str, rows: Sequence[Row], config_text: str) -> tuple[int, TableLine] | None:
    found = [
        row
        for row in final_rows(rows)
        if (row["metric"], row["training"]) == ("accuracy", "federated")
        and (row["dataset"] == PUBLISHED or row.get("epsilon") is not None)
    ]
    if not found:
        return None
    federation = yaml.safe_load(config_text)["federation"]
    row, clients = found[0], 2 * int(found[0]["n_users"])  # a device each for the two halves of a user's data
    rounds = int(row.get("rounds") or federation["rounds"])
    sent = int(row.get("communication") or rounds * max(1, round(federation["fraction"] * clients)))
    cells: tuple[Cell, ...] = (estimate(row), str(rounds), f"{sent:,}")
    return clients, TableLine(labels=(f"{clients:,}", str(row["dataset"]), name, _guarantee(row)), cells=cells)


def _guarantee(row: Row) -> str:
    if row.get("epsilon") is None:
        return "none"
    where = f"{row['accountant']}, {row['sampling']}, {row['adjacency']}"
    return f"epsilon {row['epsilon']:.2f}, delta {row['delta']:g} ({where})"
