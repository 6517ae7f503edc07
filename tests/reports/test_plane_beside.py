"""Confirmation users beside development users on the page of a plane: the difference, and what is not there."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from fake_points import fake_point

from fedprint.reports.numbers.plane import Entry, measurement_rows
from fedprint.reports.pages.plane.beside import Beside, beside_table, pairs_of
from fedprint.reports.pages.plane.page import PlaneHead, write_plane
from fedprint.reports.pages.terminal import summary_table

HEAD = PlaneHead(
    name="demo", title="A plane", dataset="albums", prior="random", seeds=(0, 1, 2), defended="everyone",
    learn_from="offline", views=("local",), adversaries=("naive", "adaptive"), utility_metric="accuracy", fast=False,
    config_hash="abc", users="confirmation",
)  # fmt: skip


def entry(strategy: str | None, strength: float | None, ap: float, users: int = 20) -> Entry:
    """Three seeds, in which the adaptive adversary has ``ap`` and the naive one half of it."""
    aps = {"naive": ap / 2, "adaptive": ap}
    points = [fake_point(aps, 0.8, seed, defence=strategy or "none", users=users, linked=True) for seed in range(3)]
    return Entry(strategy=strategy, strength=strength, points=tuple(points))


HERE = [entry(None, None, 0.7), entry("noise", 0.1, 0.5), entry("noise", 0.2, 0.4)]
THERE = [entry(None, None, 0.6), entry("noise", 0.1, 0.3)]
BESIDE = Beside(name="dev", users="development", rows=tuple(measurement_rows("dev", THERE)))


def test_the_difference_is_of_independent_users() -> None:
    pairs = pairs_of(BESIDE, HERE, HERE[1], "adaptive")
    assert list(pairs) == [1, 30]
    one = pairs[1].difference
    assert (pairs[1].here["value"], pairs[1].other["value"]) == (pytest.approx(0.5), pytest.approx(0.3))
    half = math.hypot(0.03, 0.03)  # half widths of both intervals, square-and-add
    assert [one[end] for end in ("value", "lo", "hi")] == pytest.approx([0.2, 0.2 - half, 0.2 + half])
    assert pairs[30].difference["value"] == pytest.approx(1.2 * 0.2)


def test_a_point_that_the_other_run_lacks_has_no_difference() -> None:
    table = beside_table(BESIDE, HERE, "adaptive", "confirmation")
    assert table is not None and table.heads[:3] == (
        "one update: confirmation", "one update: development", "one update: difference",
    )  # fmt: skip
    assert table.lines[1].cells[0] is not None and table.lines[2].cells == (None,) * 6
    assert "AP falls with the number of users" not in table.note
    fewer = replace(BESIDE, rows=tuple(measurement_rows("dev", [entry(None, None, 0.6, users=10)])))
    unequal = beside_table(fewer, HERE, "adaptive", "confirmation")
    assert unequal is not None and "here 20 users, there 10 users" in unequal.note


def test_page_and_terminal_show_it(tmp_path: Path) -> None:
    write_plane(head=HEAD, entries=HERE, config_text="sweep: {}\n", out=tmp_path / "demo", beside=BESIDE)
    page = (tmp_path / "demo" / "index.html").read_text()
    assert "confirmation users beside development users" in page and "published run dev" in page
    assert (tmp_path / "demo" / "tables" / "beside.csv").is_file()
    points = json.loads((tmp_path / "demo" / "plane.json").read_text())["places"]
    assert points[1]["beside"][0]["difference"]["value"] == pytest.approx(0.2) and points[2]["beside"] == []
    table = summary_table(tmp_path / "demo")
    heads = [str(column.header) for column in table.columns]
    assert heads[-2:] == ["AP from 1 update, %", "AP from 30 updates, %"]
    assert list(table.columns[-2].cells)[1] == "50.0 (+20.0 [+15.8, +24.2])"
    assert "confirmation minus development users (dev)" in str(table.caption)


def test_users_of_whom_nothing_is_declared_are_yours(tmp_path: Path) -> None:
    own = replace(HEAD, users=None)
    write_plane(head=own, entries=HERE, config_text="sweep: {}\n", out=tmp_path / "demo", beside=BESIDE)
    assert "your users beside development users" in (tmp_path / "demo" / "index.html").read_text()
    assert "your minus development users (dev)" in str(summary_table(tmp_path / "demo").caption)


def test_without_the_other_run_the_page_has_a_hint_and_no_column(tmp_path: Path) -> None:
    missing = Beside(name="dev", hint="No users beside: experiments/dev is not published.")
    write_plane(head=HEAD, entries=HERE, config_text="sweep: {}\n", out=tmp_path / "demo", beside=missing)
    assert missing.hint is not None and missing.hint in (tmp_path / "demo" / "index.html").read_text()
    assert not (tmp_path / "demo" / "tables" / "beside.csv").exists()
    table = summary_table(tmp_path / "demo")
    assert missing.hint in str(table.caption) and not any("update" in str(c.header) for c in table.columns)
