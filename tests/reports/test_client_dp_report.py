"""Training under a budget in the report: the published table beside ours, the dot, and the clients' diversity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from fedprint.evaluation.rows import COLUMNS
from fedprint.reports.client_dp import client_dp_table
from fedprint.reports.evaluations import all_rows, read_evaluations
from fedprint.reports.private_curves import budget_note, diversity_curves
from fedprint.reports.wording import Estimate

SPENT = {
    "epsilon": 7.98, "delta": 1e-3, "accountant": "prv", "sampling": "poisson", "adjacency": "add-remove",
    "rounds": 54, "communication": 1188,
}  # fmt: skip


def config(rounds: int = 380, fraction: float = 1.0) -> str:
    return yaml.safe_dump({"federation": {"rounds": rounds, "fraction": fraction}})


def row(**values: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(COLUMNS), "dataset": "mnist_shards", "prior": "random", "training": "federated",
        "metric": "accuracy", "unit": "fraction", "value": 0.91, "lo": 0.9, "hi": 0.92, "n_questions": 10_000,
        "n_users": 50, "seed": "all", **values,
    }  # fmt: skip


def test_the_published_rows_of_the_same_size_stand_beside_ours() -> None:
    table = client_dp_table({"private": ([row(**SPENT)], config()), "open": ([row(value=0.97)], config())})
    assert table is not None
    assert [line.labels for line in table.lines] == [
        ("100", "mnist_shards", "published", "none"),
        ("100", "mnist_shards", "published", "epsilon 8, delta 0.001"),
        ("100", "mnist_shards", "private", "epsilon 7.98, delta 0.001 (prv, poisson, add-remove)"),
        ("100", "mnist_shards", "open", "none"),
    ]
    assert [line.cells[1:] for line in table.lines] == [
        ("380", "38,000"), ("11", "550"), ("54", "1,188"), ("380", "38,000"),
    ]  # fmt: skip
    assert [line.cells[0] for line in table.lines[:2]] == ["97 %", "78 %"]
    ours = [line.cells[0] for line in table.lines[2:]]
    assert all(isinstance(cell, Estimate) for cell in ours)
    assert [cell.value for cell in ours if isinstance(cell, Estimate)] == [0.91, 0.97]


def test_other_data_and_other_sizes_have_no_published_rows() -> None:
    assert client_dp_table({"digits": ([row(dataset="mnist_writers")], "no: yaml: at all")}) is None
    table = client_dp_table({"small": ([row(n_users=10)], config(rounds=7, fraction=0.25))})
    assert table is not None and [line.cells[1:] for line in table.lines] == [("7", "35")]
    writers = client_dp_table({"writers": ([row(dataset="mnist_writers", n_users=580, **SPENT)], config())})
    assert writers is not None
    assert [line.labels[:3] for line in writers.lines] == [("1,160", "mnist_writers", "writers")]


def test_a_number_keeps_its_guarantee_when_seeds_are_pooled(evaluations: Callable[..., list[Path]]) -> None:
    found = read_evaluations(evaluations(priors=["random"], seeds=[0, 1]))
    spent = [
        replace(item, rows=tuple({**r, **SPENT} if r["training"] == "federated" else r for r in item.rows))
        for item in found
    ]
    pooled = [r for r in all_rows(spent) if r["seed"] == "all" and r["metric"] == "accuracy"]
    federated = [r for r in pooled if r["training"] == "federated" and not r.get("attack")]
    assert len(federated) == 1 and {key: federated[0][key] for key in SPENT} == SPENT
    other = [replace(spent[0]), replace(spent[1], rows=tuple({**r, "delta": 1e-5} for r in spent[1].rows))]
    assert not [r for r in all_rows(other) if r["seed"] == "all" and r["metric"] == "accuracy" and "rounds" in r
                and r["training"] == "federated"], "numbers under different guarantees are not averaged"  # fmt: skip


def test_the_dot_is_explained_and_the_diversity_drawn_where_rounds_have_it(
    evaluations: Callable[..., list[Path]],
) -> None:
    plain = read_evaluations(evaluations(priors=["random"], seeds=[0]))
    assert budget_note(plain) == "" and diversity_curves(plain) is None
    history = [{"round": t, "between_clients_variance": 0.1 + t, "update_scale": 0.0 if t == 1 else 0.5}
               for t in range(4)]  # fmt: skip
    private = [replace(plain[0], details={**plain[0].details, "budget": SPENT, "history": history})]
    assert (
        budget_note(private)
        == " The dot: epsilon 7.98 at delta 0.001 (prv) is spent, after 54 rounds and 1188 updates."
    )
    drawing = diversity_curves(private)
    assert drawing is not None and b"U_s" in drawing.svg and "no guarantee" in drawing.caption
