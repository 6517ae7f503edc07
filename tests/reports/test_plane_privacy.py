"""Attacks by epsilon and view on a sweep's page: which number stands where, what is said, and a broken promise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_points import fake_point

from fedprint.evaluation.rows import COLUMNS, POOLED, Row, read_measurements
from fedprint.reports.numbers.plane import Entry
from fedprint.reports.pages.plane.page import PlaneHead, write_plane
from fedprint.reports.pages.plane.privacy import (
    DATA,
    LOSS,
    PRIOR,
    attack_row,
    broken,
    draw_privacy,
    has_membership,
    privacy_table,
    privacy_words,
)
from fedprint.reports.tables.analyses import ResultTable

HEAD = PlaneHead(
    name="dp", title="Epsilons", dataset="albums", prior="random", seeds=(0, 1), defended="everyone",
    learn_from="offline", views=("local",), adversaries=("naive",), utility_metric="accuracy", fast=False,
    config_hash="abc",
)  # fmt: skip


def row(metric: str, view: str, value: float, seed: int, attack: str | None, analysis: str, **keys: object) -> Row:
    return {
        **dict.fromkeys(COLUMNS), "experiment": "point", "dataset": "albums", "prior": "random",
        "training": "federated",
        "unit": "nats" if "epsilon" in metric else "fraction", "metric": metric, "view": view, "value": value,
        "lo": value - 0.05, "hi": value + 0.05, "chance": 0.5, "n_questions": 40, "n_users": 40, "seed": seed,
        "attack": attack, "analysis": analysis, "adversary": "naive", **keys,
    }  # fmt: skip


def place(strength: float | None, epsilon: float | None, central: float, bound: float | None = None) -> Entry:
    points, audits = [], []
    for seed in range(2):
        shift = 0.01 * (2 * seed - 1)
        values = {"local": 0.97, "aggregate": 0.8, "central": central}
        rows = [
            row(metric, view, value + shift, seed, "ridge" if view == "local" else "candidates", "membership")
            for metric in ("membership_auc", "membership_tpr", "participation_ap")
            for view, value in values.items()
        ]
        rows.append(row("membership_auc", "central", 0.6 + shift, seed, "loss", "membership"))
        # validation chose another attack in the other seed: still one number
        rows = [{**found, "attack": "svm"} if found["attack"] == "ridge" and seed else found for found in rows]
        if epsilon is not None:
            keys = {"delta": 1e-3, "sampling": "poisson", "adjacency": "add-remove", "rounds": 9,
                    "not_covered": "the loss; the settings"}  # fmt: skip
            told = {"prv": ("device", epsilon), "rdp": ("device", epsilon + 0.7), "pld": ("user", 2.5 * epsilon)}
            for accountant, (protects, value) in told.items():
                of = {"accountant": accountant, "protects": protects, **keys}
                rows.append(row("epsilon", "central", value, seed, None, "privacy", **of))
        point = fake_point({"naive": 0.6}, 0.7, seed, defence="dp-fedavg" if strength else "none")
        points.append(replace(point, analyses=tuple(rows)))
        if bound is not None:
            audits.append(row("epsilon_lower", "central", bound + shift, seed, None, "audit", accounted=epsilon))
    strategy = None if strength is None else "dp-fedavg"
    return Entry(strategy=strategy, strength=strength, points=tuple(points), audits=tuple(audits))


ENTRIES = [place(None, None, 0.9), place(4.0, 1.0, 0.52, 0.2), place(1.0, 8.0, 0.7, 2.5), place(0.0, None, 0.88)]


def test_numbers_are_those_of_metric_view_and_attack() -> None:
    found = attack_row(ENTRIES[1], "membership_auc", "central")
    assert found is not None and found["value"] == pytest.approx(0.52) and found["n_seeds"] == 2
    loss = attack_row(ENTRIES[1], "membership_auc", "central", LOSS)
    assert loss is not None and loss["value"] == pytest.approx(0.6)
    local = attack_row(ENTRIES[1], "participation_ap", "local")
    assert local is not None and local["value"] == pytest.approx(0.97)
    assert attack_row(ENTRIES[1], "membership_auc", "nowhere") is None


def test_who_knows_the_data_stands_in_front_of_who_knows_the_prior() -> None:
    entry = ENTRIES[2]
    known = tuple(
        replace(point, analyses=(*point.analyses, row("membership_auc", "central", 0.9, seed, DATA, "membership")))
        for seed, point in enumerate(entry.points)
    )
    asked = [ENTRIES[0], replace(entry, points=known)]
    values = {
        attack: found["value"]
        for attack in (None, PRIOR, DATA, LOSS)
        if (found := attack_row(asked[1], "membership_auc", "central", attack)) is not None
    }
    assert values == pytest.approx({None: 0.9, PRIOR: 0.7, DATA: 0.9, LOSS: 0.6})
    table = privacy_table(asked)
    shown = _numbers(table, "dp-fedavg", "1")
    assert shown["member at all, AUC", "central"] == pytest.approx(0.9)
    assert shown["member at all, AUC, by the prior", "central"] == pytest.approx(0.7)
    assert "has all examples of each device" in table.note and "an AUC of 90.0 %" in privacy_words(asked)[1]
    assert "has less" in privacy_table(ENTRIES).note


def test_the_table_sets_every_attack_beside_the_promise() -> None:
    table = privacy_table(ENTRIES)
    assert list(dict.fromkeys(line.labels[1:3] for line in table.lines)) == [
        ("–", "none"),
        ("4", "1.00 at delta 0.001 (prv, poisson, add-remove, 9 rounds; 2.5 for a user with both devices)"),
        ("1", "8.00 at delta 0.001 (prv, poisson, add-remove, 9 rounds; 20.0 for a user with both devices)"),
        ("0", "none"),
    ]  # fmt: skip
    assert table.note.endswith("What is promised does not cover: the loss; the settings.")
    assert "does not cover" not in privacy_table(ENTRIES[:1]).note
    shown = _numbers(table, "dp-fedavg", "1")
    assert shown["epsilon, at least (audit)", "central"] == pytest.approx(2.5)
    assert shown["member at all, AUC", "aggregate"] == pytest.approx(0.8)
    assert shown["member at all, AUC", "central"] == pytest.approx(0.7)
    assert shown["who sent it, AP", "local"] == pytest.approx(0.6)
    assert ("epsilon, at least (audit)", "central") not in _numbers(table, table.lines[0].labels[0], "–")


def _numbers(table: ResultTable, strategy: str, strength: str) -> dict[tuple[str, str], float]:
    """Return the numbers of a point by question and view."""
    lines = [line for line in table.lines if line.labels[:2] == (strategy, strength)]
    return {
        (line.labels[3], view): cell.value
        for line in lines
        for view, cell in zip(table.heads, line.cells, strict=True)
        if cell is not None and not isinstance(cell, str)
    }


def test_it_is_said_from_whom_epsilon_protects() -> None:
    words = " ".join(privacy_words(ENTRIES))
    assert "9 rounds; 2.5 for a user with both devices) (dp-fedavg 4). What is" in words
    assert "promised does not cover: the loss; the settings. It does not hold" in words
    assert "does not hold against a server that sees updates" in words
    assert "an AUC of 97.0 % [" in words and "an AUC of 52.0 % [" in words
    assert "0.20 of 1.00, 2.50 of 8.00" in words
    assert privacy_words([ENTRIES[0], ENTRIES[3]]) == []


def test_a_broken_promise_is_told() -> None:
    assert broken(ENTRIES) == []
    (first, *_) = broken([*ENTRIES, place(2.0, 1.0, 0.5, 1.5)])
    assert first.startswith("dp-fedavg 2, seed 0: the audit shows epsilon 1.49, accounted were 1.00")


def test_the_page_and_its_measurements(tmp_path: Path) -> None:
    write_plane(head=HEAD, entries=ENTRIES, config_text="sweep: {}\n", out=tmp_path / "dp")
    page = (tmp_path / "dp" / "index.html").read_text()
    for text in ("What epsilon protects from", "Attacks by epsilon and view", "table-privacy", "view aggregate"):
        assert text in page, text
    assert "A broken promise" not in page
    rows = read_measurements(tmp_path / "dp" / "measurements.jsonl")
    pooled = {(r["strength"], r["metric"], r["view"], r["attack"]): r for r in rows if r["seed"] == POOLED}
    assert pooled[4.0, "membership_auc", "local", "selected"]["value"] == pytest.approx(0.97)
    assert pooled[1.0, "membership_auc", "central", "loss"]["n_seeds"] == 2
    assert pooled[1.0, "epsilon_lower", "central", None]["value"] == pytest.approx(2.5)
    assert (tmp_path / "dp" / "tables" / "privacy.csv").is_file()
    svg = (tmp_path / "dp" / "figures" / "privacy.svg").read_text()
    assert "view central" in svg and "epsilon accounted for" in svg


def test_a_sweep_without_membership_is_as_before() -> None:
    plain = [replace(entry, points=tuple(replace(p, analyses=()) for p in entry.points)) for entry in ENTRIES]
    assert not has_membership(plain) and has_membership(ENTRIES)
    assert draw_privacy(plain) == []
