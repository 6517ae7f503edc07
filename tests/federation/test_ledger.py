"""The privacy ledger: written before what it pays for, refused when changed, exact after any crash."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import federation_cases as cases
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_store_resume import Killed, crash_at

from fedprint.accounting.events import PoissonGaussian
from fedprint.defences.clipping import MedianClip, QuantileClip
from fedprint.defences.on_update import DpFedAvg
from fedprint.federation.backends import make_backend
from fedprint.federation.cohorts import FederationPlan, largest_cohort
from fedprint.federation.ledger import Entry, Ledger, read_ledger
from fedprint.federation.privacy import planned_events, rounds_allowed
from fedprint.federation.rounds import ROLES, federate
from fedprint.store.reader import UpdateStore
from fedprint.store.writer import StoreWriter
from fedprint.types import FedprintError

ENTRY = Entry(round=0, q=0.25, sigma=1.5, sampling="poisson", adjacency="add-remove", rule="constant", clip=0.7)


def entries(count: int) -> list[Entry]:
    return [replace(ENTRY, round=t, clip=0.1 + t / 3) for t in range(count)]


def filled(path: Path, count: int = 4, **settings: Any) -> Ledger:
    ledger = Ledger(path, "run", **settings)
    for entry in entries(count):
        ledger.spend(entry)
    return ledger


# ---- the file ------------------------------------------------------------------------------------------------------


def test_what_was_spent_is_read_again_exactly(tmp_path: Path) -> None:
    assert filled(tmp_path / "l").entries == tuple(entries(4)) == read_ledger(tmp_path / "l", "run", lines=4)
    assert entries(1)[0].event == PoissonGaussian(q=0.25, sigma=1.5)
    assert read_ledger(tmp_path / "none", "run") == ()
    body = json.loads((tmp_path / "l").read_text().splitlines()[2])["body"]
    assert body == {"round": 2, "q": 0.25, "sigma": 1.5, "sampling": "poisson", "adjacency": "add-remove",
                    "rule": "constant", "clip": 0.1 + 2 / 3, "bands": 1}  # fmt: skip


def test_it_is_on_the_disk_before_spend_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    for name in ("pwrite", "fsync"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real, name=name: (order.append(name), real(*a))[1])
    Ledger(tmp_path / "l", "run").spend(ENTRY)
    assert order == ["pwrite", "fsync", "fsync"], "the file, then its folder"


def test_a_ledger_is_continued_and_a_round_redone_must_be_the_same(tmp_path: Path) -> None:
    filled(tmp_path / "l", 3)
    again = filled(tmp_path / "l", 5, released=3)
    assert len(again.entries) == 5
    with pytest.raises(FedprintError, match="line 2 is not what round 1 spends"):
        again.spend(replace(entries(5)[1], sigma=9.0))
    with pytest.raises(FedprintError, match="round 7 after 5 lines; spend rounds in order"):
        again.spend(replace(ENTRY, round=7))


def test_rounds_beyond_the_budget_are_refused(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l", 2, allowed=2)
    assert [ledger.allows(t) for t in range(4)] == [True, True, False, False]
    with pytest.raises(FedprintError, match="round 2 is beyond the budget of 2 rounds"):
        ledger.spend(replace(ENTRY, round=2))
    assert Ledger(tmp_path / "l", "run").allows(10**6)


def refused(path: Path, **settings: Any) -> None:
    with pytest.raises(FedprintError) as stopped:
        Ledger(path, "run", **settings)
    assert "\n" not in str(stopped.value) and "restore the file" in str(stopped.value)


def test_every_changed_byte_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "l", 3)
    whole = (tmp_path / "l").read_bytes()
    for at in range(len(whole)):
        (tmp_path / "l").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        if whole[at : at + 1] == b"\n" and at == len(whole) - 1:
            assert len(Ledger(tmp_path / "l", "run").entries) == 2, "a line without its end was never finished"
            refused(tmp_path / "l", released=3)
        else:
            refused(tmp_path / "l")


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 10**4), released=st.integers(0, 3))
def test_a_ledger_cut_short_never_counts_less_than_was_released(
    cut: int, released: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / "l"
    filled(path, 3)
    os.truncate(path, cut % path.stat().st_size)
    left = path.read_bytes().count(b"\n")
    if left < released:
        refused(path, released=released)
    else:
        assert Ledger(path, "run", released=released).entries == tuple(entries(left))


@pytest.mark.parametrize("lines", [[1, 2], [0, 2], [0, 1, 1], [1, 0], [0, 0]])
def test_lines_left_out_doubled_or_exchanged_are_refused(tmp_path: Path, lines: list[int]) -> None:
    filled(tmp_path / "l", 3)
    whole = (tmp_path / "l").read_bytes().splitlines(keepends=True)
    (tmp_path / "l").write_bytes(b"".join(whole[i] for i in lines))
    refused(tmp_path / "l")


def test_the_ledger_of_another_run_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "l")
    with pytest.raises(FedprintError, match="belongs to another run"):
        Ledger(tmp_path / "l", "other")
    with pytest.raises(FedprintError, match="4 lines, not one for each of 5 rounds"):
        read_ledger(tmp_path / "l", "run", lines=5)


# ---- in a federation -----------------------------------------------------------------------------------------------

RULES = [0.01, MedianClip(), QuantileClip(start=0.02, count_noise=0.5)]
GENTLE = replace(cases.TRAINING, lr=0.002)
"""Small updates, so that noise on so few clients does not end training."""


def private(rounds: int = 4, rule: Any = RULES[0]) -> tuple[FederationPlan, DpFedAvg]:
    plan = replace(cases.plan(rounds=rounds, cohort=3, training=GENTLE), sampling="poisson", momentum=0.5)
    return replace(plan, slots=largest_cohort(8, plan)), DpFedAvg(clip=rule, z=1.2)


def train(folder: Path, plan: FederationPlan, defence: DpFedAvg, allowed: int | None = None) -> None:
    """Run or resume; the store stays unfinished where the budget ends first."""
    net = cases.model("cnn")
    initial = cases.start(net)
    layout = replace(cases.layout(plan, initial), cohort=plan.rows)
    with StoreWriter.open(folder, layout) as writer:
        if writer.next_round == 0:
            writer.set_initial(initial)
        federate(
            devices=cases.devices("cnn"), plan=plan, backend=make_backend("sequential", net), defences=[defence],
            writer=writer, utility=lambda t, params: {}, report=lambda report: None,
            ledger=Ledger(folder / "ledger", "run", released=writer.next_round, allowed=allowed),
        )  # fmt: skip
        if allowed is None:
            writer.finalise()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def spent_and_released(folder: Path) -> tuple[int, int]:
    """Return whole ledger lines and rounds whose bytes a model may be in: those of which anything is in the store."""
    spent = len(read_ledger(folder / "ledger", "run")) if folder.exists() else 0
    arrays = list((folder / "observed").glob("global.*"))
    if not arrays or arrays[0].stat().st_size == 0:
        return spent, 0
    models = torch.frombuffer(bytearray(arrays[0].read_bytes()), dtype=torch.float32)
    written = models.reshape(5, -1).ne(0).any(1)
    return spent, max(0, int(written.sum()) - 1)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "stride"), [*((rule, 7) for rule in RULES), (RULES[0], 1)])
def test_killed_between_any_two_writes_it_never_counts_too_little_and_ends_the_same(
    tmp_path: Path, rule: Any, stride: int
) -> None:
    plan, defence = private(rule=rule)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        train(tmp_path / "whole", plan, defence)
    whole, step, finished = contents(tmp_path / "whole"), 0, False
    while not finished:
        step += stride
        folder = tmp_path / str(step)
        finished = not killed(lambda folder=folder: train(folder, plan, defence), step)
        spent, released = spent_and_released(folder)
        assert spent >= released, f"{released} models and {spent} lines after a kill at write {step}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda fd: None)
            train(folder, plan, defence)
        assert contents(folder) == whole, f"after a kill at write {step}"
    assert step > 60


def killed(work: Callable[[], object], step: int) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        crash_at(patch, step)
        try:
            work()
        except Killed:
            return True
    return False


def test_training_ends_with_the_budget_and_the_model_before_it(tmp_path: Path) -> None:
    plan, defence = private(rounds=4)
    train(tmp_path / "whole", plan, defence)
    train(tmp_path / "short", plan, defence, allowed=2)
    assert len(read_ledger(tmp_path / "short" / "ledger", "run")) == 2
    stores = [UpdateStore.open(tmp_path / name / "observed", partial=True) for name in ("short", "whole")]
    assert [store.rounds for store in stores] == [2, 4]
    assert cases.distance(stores[0].global_params(2), stores[1].global_params(2)) == 0


def test_a_lost_ledger_stops_the_run(tmp_path: Path) -> None:
    plan, defence = private()
    train(tmp_path, plan, defence, allowed=3)
    (tmp_path / "ledger").unlink()
    with pytest.raises(FedprintError, match="0 lines for 3 released models"):
        train(tmp_path, plan, defence)


@pytest.mark.parametrize("rule", RULES)
def test_the_ledger_says_what_was_planned(tmp_path: Path, rule: Any) -> None:
    plan, defence = private(rule=rule)
    train(tmp_path, plan, defence)
    entries = read_ledger(tmp_path / "ledger", "run", lines=4)
    assert tuple(entry.event for entry in entries) == planned_events(defence, plan, 8, ROLES)
    assert {entry.rule for entry in entries} == {"constant" if rule == RULES[0] else rule.name}
    store = UpdateStore.open(tmp_path / "observed")
    clips = [metrics.get("clip", RULES[0]) for metrics in store.history()]
    assert [entry.clip for entry in entries] == clips


def test_the_budget_decides_on_the_rounds_before_the_first() -> None:
    plan = replace(cases.plan(rounds=40, cohort=3), sampling="poisson")
    budget = {"epsilon": 8.0, "delta": 1e-3, "accountant": "moments"}
    defence = DpFedAvg(clip=1, z=1.2, budget=budget)
    assert rounds_allowed(DpFedAvg(clip=1, z=1.2), plan, 8, ROLES) == 40
    assert 0 < rounds_allowed(defence, plan, 8, ROLES) < rounds_allowed(defence, plan, 10, ROLES) < 40
    for kind, roles, fault in (
        (defence, ("anonymous",), "epsilon is infinite .devices of one role are not clipped"),
        (DpFedAvg(clip=1, z=0, budget=budget), ROLES, "epsilon is infinite .no noise"),
        (DpFedAvg(clip=1, z=0.3, budget=budget), ROLES, "does not allow one round of 3 of 8 clients at z=0.3"),
    ):
        with pytest.raises(FedprintError, match=fault):
            rounds_allowed(kind, plan, 8, roles)
