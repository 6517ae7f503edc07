"""Training under a budget in the report: the published table beside ours, the dot, and the clients' diversity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from fedprint.evaluation.rows import COLUMNS
from fedprint.reports.figures.privacy import budget_note, diversity_curves
from fedprint.reports.numbers.evaluations import all_rows, final_analyses, final_rows, read_evaluations
from fedprint.reports.pages.sections import analysis_sections
from fedprint.reports.tables.client_dp import client_dp_table, single_seed_rows
from fedprint.reports.wording import Estimate

SPENT = {
    "epsilon": 7.98, "epsilon_user": 18.9, "delta": 1e-3,
    "accountant": "prv", "sampling": "poisson", "adjacency": "add-remove",
    "rounds": 54, "communication": 1188, "not_covered": "the logged training loss; the choice of the settings",
}  # fmt: skip
BOTH = "18.9 for a user with both devices"


def config(rounds: int = 380, fraction: float = 1.0, clip: Any = 1.0) -> str:
    defences = [{"name": "noise", "sigma": 1.0}, {"name": "dp-fedavg", "clip": clip}]
    return yaml.safe_dump({"federation": {"rounds": rounds, "fraction": fraction}, "defences": defences})


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
        ("100", "mnist_shards", "private", "epsilon 7.98, delta 0.001 (prv, poisson, add-remove; " + BOTH + ")"),
        ("100", "mnist_shards", "open", "none"),
    ]
    assert [line.cells[1:] for line in table.lines] == [
        ("380", "38,000"), ("11", "550"), ("54", "1,188"), ("380", "38,000"),
    ]  # fmt: skip
    assert [line.cells[0] for line in table.lines[:2]] == ["97 %", "78 %"]
    ours = [line.cells[0] for line in table.lines[2:]]
    assert all(isinstance(cell, Estimate) for cell in ours)
    assert [cell.value for cell in ours if isinstance(cell, Estimate)] == [0.91, 0.97]


def test_what_nothing_prices_for_a_user_is_said_in_words() -> None:
    table = client_dp_table({"private": ([row(**{**SPENT, "epsilon_user": None})], config())})
    assert table is not None
    assert table.lines[-1].labels[-1].endswith("(prv, poisson, add-remove; not priced for a user with both devices)")
    assert "K = 100 clients hold 50 distinct pairs of shards where the paper has 100" in table.note


def test_the_note_tells_how_each_run_clipped_and_what_no_guarantee_covers() -> None:
    def note(**clips: Any) -> str:
        runs = {name: ([row(**SPENT)], config(clip=clip)) for name, clip in clips.items()}
        table = client_dp_table({**runs, "open": ([row()], config())})
        assert table is not None
        return table.note

    assert "Ours: the sampling, accountant and delta of each line, a constant clipping norm, the mean" in note(
        a=1.0, b=2.0
    )
    assert "Our guarantees do not cover: the logged training loss; the choice of the settings." in note(a=1.0)
    mixed = note(a=1.0, b={"name": "median"}, c={"name": "quantile"}, d=2.0)
    assert (
        "a constant clipping norm (a, d), the median of the norms as clipping norm, which leaks (b), a private" in mixed
    )
    assert "constant" not in note(b={"name": "median"})
    assert note().endswith("Ours: the mean over seeds.")
    leaks = {"m": ([row(**{**SPENT, "not_covered": "the median"})], config(clip={"name": "median"}))}
    table = client_dp_table({**leaks, "a": ([row(**SPENT)], config())})
    assert table is not None and "cover: the median (m), the logged training loss; the choice" in table.note


def test_a_run_of_one_seed_has_a_pooled_row_that_readers_pass_over(evaluations: Callable[..., list[Path]]) -> None:
    def rows_of(seeds: list[int], **of_accuracy: Any) -> list[Any]:
        found = read_evaluations(evaluations(priors=["random"], seeds=seeds))
        epsilon = [row(metric="epsilon", value=7.9, lo=7.9, hi=7.9, analysis="privacy", accountant=name)
                   for name in ("prv", "rdp")]  # fmt: skip
        return all_rows([
            replace(item,
                    rows=tuple({**r, **of_accuracy} if r["training"] == "federated" and r["metric"] == "accuracy" else r
                               for r in item.rows),
                    analyses=tuple({**r, "seed": item.seed} for r in epsilon))
            for item in found
        ])  # fmt: skip

    rows = rows_of([3], **SPENT)
    added = single_seed_rows(rows)
    assert [(r["metric"], r["seed"], r["n_seeds"]) for r in added] == [("accuracy", "all", 1)] + [
        ("epsilon", "all", 1)
    ] * 2
    single = next(r for r in rows if r["metric"] == "accuracy" and r.get("epsilon"))
    assert {k: v for k, v in added[0].items() if k not in ("seed", "n_seeds")} == {
        k: v for k, v in single.items() if k != "seed"
    }
    assert final_rows([*rows, *added]) == final_rows(rows) and final_analyses([*rows, *added]) == final_analyses(rows)
    assert {r["seed"] for r in final_rows([*rows, *added])} == {3}
    several = rows_of([0, 1], **SPENT)
    assert single_seed_rows(several) == [] and {r["seed"] for r in final_rows(several)} == {"all"}
    kept = [r for r in rows_of([3]) if r["metric"] != "epsilon"]
    assert single_seed_rows(kept) == [], "no budget and other data: no run of client-dp's kind"


def test_the_table_of_a_budget_shows_what_an_epsilon_is_of_though_it_does_not_vary() -> None:
    rows = [
        row(metric="epsilon", value=value, lo=value, hi=value, analysis="privacy",
            **{**SPENT, "epsilon": None, "communication": None, "accountant": name, "protects": protects})
        for name, value, protects in (("prv", 7.9, "device"), ("rdp", 8.4, "device"), ("pld", 18.9, "user"))
    ]  # fmt: skip
    (section,) = analysis_sections(rows)
    (table,) = section.tables
    shown = dict(zip(table.labels, table.lines[0].labels, strict=True))
    assert shown | {"prior": "", "attack": ""} == {
        "prior": "", "protects": "a device", "accountant": "prv", "delta": "0.001",
        "sampling": "poisson", "adjacency": "add-remove",
        "rounds": "54", "not covered": SPENT["not_covered"], "attack": "",
    }  # fmt: skip
    assert [line.labels[1:3] for line in table.lines] == [
        ("a device", "prv"), ("a device", "rdp"), ("a user with both devices", "pld"),
    ]  # fmt: skip


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
    assert budget_note(private) == (
        " 54 rounds and 1188 updates, as planned, cost epsilon 7.98 at delta 0.001 (prv, poisson sampling, add-remove; "
        f"{BOTH}). Not covered: the logged training loss; the choice of the settings."
    )
    private = [replace(private[0], details={**private[0].details, "stopped_by_budget": True})]
    assert (
        budget_note(private)
        == " The dot: here the budget ended the training, after 54 rounds and 1188 updates that cost epsilon 7.98 at "
        f"delta 0.001 (prv, poisson sampling, add-remove; {BOTH}). Not covered: the logged training loss; "
        "the choice of the settings."
    )
    drawing = diversity_curves(private)
    assert drawing is not None and b"U_s" in drawing.svg and "no guarantee" in drawing.caption
