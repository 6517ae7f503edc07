"""client-dp's table: accuracy, rounds and communication within a budget, ours beside the published (papers.md, 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from fedprint.evaluation.rows import POOLED, Row, pool_seeds
from fedprint.reports.numbers.evaluations import final_rows
from fedprint.reports.numbers.reference import reference_table
from fedprint.reports.tables.analyses import Cell, ResultTable, TableLine
from fedprint.reports.wording import estimate, for_a_user

PUBLISHED = "mnist_shards"
"""The data set that the paper's results are of; without a budget no other one is in the table."""
PUBLISHED_NOTE = (
    "Published: samples of fixed size, the moments accountant, a clipping norm that leaks (the median), one seed. "
    "Communication is the planned number of updates sent, the sum of m_t. What tuning costs is in no line. Epsilon is "
    "that of a client; a user here owns two. Two devices of one user share their two shards, a random half each, so "
    "K = 100 clients hold 50 distinct pairs of shards where the paper has 100."
)
CLIPPING: Mapping[str, str] = {
    "constant": "a constant clipping norm",
    "median": "the median of the norms as clipping norm, which leaks",
    "quantile": "a private quantile of the norms as clipping norm, paid for",
}
"""How dp-fedavg finds its norm -> in words."""


@dataclass(frozen=True, kw_only=True)
class _Run:
    """One of our lines; ``clipping`` and ``silent`` (what its guarantee does not cover) are empty without noise."""

    clients: int
    line: TableLine
    clipping: str = ""
    silent: str = ""


def single_seed_rows(rows: Sequence[Row]) -> list[Row]:
    """Return a pooled row (``n_seeds: 1``) for each result of client-dp's kind that has a single seed.

    Whoever compares budgets then finds one ``seed: all`` whatever the number of seeds; it repeats its seed's numbers.
    """
    if len({row["seed"] for row in rows}) != 1:
        return []
    single = [row for row in rows if _is_ours(row) or row["metric"] == "epsilon"]
    return [row for row in pool_seeds(single, least=1) if row["seed"] == POOLED]


def client_dp_table(runs: Mapping[str, tuple[Sequence[Row], str]]) -> ResultTable | None:
    """Return the table of client-dp's results with the runs' beside it; None where no run is of its kind.

    ``runs`` maps a name to all rows of a report and its resolved configuration (YAML).
    """
    ours = {name: run for name, (rows, config) in runs.items() if (run := _ours(name, rows, config)) is not None}
    if not ours:
        return None
    sizes = {run.clients for run in ours.values()}
    published = [run for row in reference_table("client_level_dp") if (run := _published(row)).clients in sizes]
    lines = sorted([*published, *ours.values()], key=lambda run: run.clients)
    return ResultTable(
        name="client-level-dp",
        title="Client-level differential privacy, beside the published results",
        note=_note(ours),
        labels=("clients", "data", "run", "guarantee"),
        heads=("accuracy", "rounds", "communication"),
        lines=tuple(run.line for run in lines),
    )


def _note(ours: Mapping[str, _Run]) -> str:
    """Say how the published numbers and ours came about; what differs between runs stands run by run."""
    private = {name: run for name, run in ours.items() if run.clipping}
    if not private:
        return f"{PUBLISHED_NOTE} Ours: the mean over seeds."
    clipping = _by_run({name: CLIPPING[run.clipping] for name, run in private.items()})
    silent = _by_run({name: run.silent for name, run in private.items()})
    return (
        f"{PUBLISHED_NOTE} Ours: the sampling, accountant and delta of each line, {clipping}, the mean over seeds. "
        f"Our guarantees do not cover: {silent}."
    )


def _by_run(values: Mapping[str, str]) -> str:
    """Return the value that all runs share, or each with the names of its runs."""
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    return ", ".join(
        f"{value} ({', '.join(name for name in values if values[name] == value)})"
        for value in dict.fromkeys(values.values())
    )


def _published(row: Mapping[str, str]) -> _Run:
    clients = int(row["clients"])
    guarantee = f"epsilon {row['epsilon']}, delta {float(row['delta']):g}" if row["private"] == "yes" else "none"
    cells: tuple[Cell, ...] = (
        f"{100 * float(row['accuracy']):.0f} %",
        row["communication_rounds"],
        f"{int(row['communication_cost']):,}",
    )
    line = TableLine(labels=(f"{clients:,}", PUBLISHED, "published", guarantee), cells=cells)
    return _Run(clients=clients, line=line)


def _is_ours(row: Row) -> bool:
    """Return whether a row is the accuracy of a run of client-dp's kind, private or not."""
    accuracy = (row["metric"], row["training"]) == ("accuracy", "federated") and not row.get("analysis")
    return accuracy and (row["dataset"] == PUBLISHED or row.get("epsilon") is not None)


def _ours(name: str, rows: Sequence[Row], config_text: str) -> _Run | None:
    row = next((row for row in final_rows(rows) if _is_ours(row)), None)
    if row is None:
        return None
    config = yaml.safe_load(config_text)
    federation = config["federation"]
    clients = 2 * int(row["n_users"])  # a device each for the two halves of a user's data
    rounds = int(row.get("rounds") or federation["rounds"])
    sent = int(row.get("communication") or rounds * max(1, round(federation["fraction"] * clients)))
    cells: tuple[Cell, ...] = (estimate(row), str(rounds), f"{sent:,}")
    line = TableLine(labels=(f"{clients:,}", str(row["dataset"]), name, _guarantee(row)), cells=cells)
    if row.get("epsilon") is None:
        return _Run(clients=clients, line=line)
    clip = next(each["clip"] for each in config["defences"] if each["name"] == "dp-fedavg")
    clipping = clip["name"] if isinstance(clip, Mapping) else "constant"
    return _Run(clients=clients, line=line, clipping=clipping, silent=row["not_covered"])


def _guarantee(row: Row) -> str:
    if row.get("epsilon") is None:
        return "none"
    where = f"{row['accountant']}, {row['sampling']}, {row['adjacency']}"
    of_user = for_a_user(row.get("epsilon_user"))
    return f"epsilon {row['epsilon']:.2f}, delta {row['delta']:g} ({where}; {of_user})"
