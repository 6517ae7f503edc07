"""The federated loop: cohorts, weights, defence points, what is recorded, and when it stops."""

from __future__ import annotations

import importlib.util
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import federation_cases as cases
import pytest
import torch
from scipy import stats

from fedprint import params as algebra
from fedprint.defences.on_data import BkgRepl
from fedprint.defences.on_update import Noise
from fedprint.defences.points import defend_data
from fedprint.defences.schedules import Constant, Step
from fedprint.federation.backends import make_backend
from fedprint.federation.rounds import FederationPlan, cohort_size, federate, pseudonym, sample_cohort
from fedprint.store.writer import StoreWriter
from fedprint.types import (
    Device,
    FedprintError,
    LocalTraining,
)

ROOT = Path(__file__).parents[2]


def by_hand() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fedavg_by_hand", ROOT / "examples" / "fedavg_by_hand.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- the algorithm -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["sequential", "vectorised:3"])
@pytest.mark.parametrize("kind", ["cnn", "multi-label", "lm"])
def test_the_engine_equals_the_loop_by_hand(kind: str, backend: str) -> None:
    of, population = cases.plan(rounds=10), cases.devices(kind, dtype=torch.float64)
    recorded = cases.federated(kind, backend, of, dtype=torch.float64)
    data = {device.device_id: device.examples for device in population}
    rounds = by_hand().fedavg(cases.model(kind, torch.float64), data, of.rounds, of.cohort, of.training, of.seed)
    for t, (updates, weights) in enumerate(rounds):
        assert cases.distance(recorded.globals[t + 1], weights) < 1e-10, t
        assert [truth.device_id for truth in recorded.truths[t]] == list(updates)
        for seen, update in zip(recorded.observed[t], updates.values(), strict=True):
            assert cases.distance(seen.update, update) < 1e-10
    assert cases.distance(recorded.globals[0], recorded.globals[10]) > 1e-2


def test_the_server_weights_by_the_number_of_examples() -> None:
    population = cases.devices(sizes=(1, 3))
    values = {population[0].device_id: 1.0, population[1].device_id: -1.0}
    writer = cases.MemoryWriter({"w": torch.zeros(4)})
    cases.run(population, cases.Scripted(values), writer, cases.plan(rounds=1, cohort=2))
    assert writer.globals[1]["w"].tolist() == [-0.5] * 4


def test_only_the_cohort_counts_in_the_weights() -> None:
    """Erratum 1: n is the number of examples of the sampled devices, not of all."""
    writer = cases.MemoryWriter({"w": torch.zeros(1)})
    cases.run(cases.devices(), cases.Scripted(), writer, cases.plan(rounds=1, cohort=3))
    assert writer.globals[1]["w"].item() == pytest.approx(1.0, abs=1e-6)


def test_metrics_and_reports_tell_of_each_round() -> None:
    reports: list[Any] = []
    writer = cases.MemoryWriter({"w": torch.zeros(4)})
    federate(
        devices=cases.devices(),
        plan=cases.plan(rounds=3),
        backend=cases.Scripted(),
        defences=(),
        writer=writer,  # type: ignore[arg-type]
        utility=lambda t, params: {"utility": float(params["w"][0])} if t == 1 else {},
        report=reports.append,
    )
    assert [report.round for report in reports] == [0, 1, 2]
    assert [report.clients for report in reports] == [4, 4, 4]
    assert [sorted(m) for m in writer.metrics()] == [["loss", "round", "update_norm"]] * 1 + [
        ["loss", "round", "update_norm", "utility"],
        ["loss", "round", "update_norm"],
    ]
    assert writer.metrics()[1]["utility"] == pytest.approx(2.0)
    assert writer.metrics()[0]["update_norm"] == pytest.approx(2.0)


def test_the_loss_is_weighted_by_examples() -> None:
    population = cases.devices(sizes=(1, 3))
    losses = {(0, population[0].device_id): 4.0, (0, population[1].device_id): 8.0}
    writer = cases.MemoryWriter({"w": torch.zeros(4)})
    cases.run(population, cases.Scripted(losses=losses), writer, cases.plan(rounds=1, cohort=2))
    assert writer.metrics()[0]["loss"] == pytest.approx(7.0)


# ---- cohorts -------------------------------------------------------------------------------------------------------

CROWD = cases.devices(sizes=(1,) * 20)


def cohorts(rounds: int, size: int, population: Sequence[Device] = CROWD, seed: int = 0) -> list[list[Device]]:
    of = cases.plan(rounds=rounds, cohort=size, seed=seed)
    return [sample_cohort(population, of, t) for t in range(rounds)]


def test_a_cohort_has_its_size_and_nobody_twice() -> None:
    for size in (1, 7, 20):
        for cohort in cohorts(50, size):
            assert len({device.device_id for device in cohort}) == len(cohort) == size


def test_cohorts_differ_by_round_and_by_seed_and_are_the_same_again() -> None:
    names = [[d.device_id for d in cohort] for cohort in cohorts(40, 5)]
    assert len({tuple(cohort) for cohort in names}) > 35
    assert names == [[d.device_id for d in cohort] for cohort in cohorts(40, 5)]
    assert names != [[d.device_id for d in cohort] for cohort in cohorts(40, 5, seed=1)]


def test_every_device_is_drawn_equally_often() -> None:
    counts = Counter(device.device_id for cohort in cohorts(1000, 5) for device in cohort)
    assert len(counts) == 20
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_slots_tell_neither_role_nor_identity() -> None:
    rounds = cohorts(2000, 5)
    table = torch.zeros(5, len(CROWD))
    position = {device.device_id: i for i, device in enumerate(CROWD)}
    for cohort in rounds:
        for slot, device in enumerate(cohort):
            table[slot, position[device.device_id]] += 1
    by_role = torch.stack([table[:, 0::2].sum(1), table[:, 1::2].sum(1)], 1)
    assert stats.chi2_contingency(table.numpy()).pvalue > 1e-4
    assert stats.chi2_contingency(by_role.numpy()).pvalue > 1e-4


def test_the_order_in_which_devices_are_given_changes_nothing() -> None:
    population = cases.devices()
    forward = cases.federated(population=population)
    backward = cases.federated(population=population[::-1])
    assert [[t.device_id for t in r] for r in forward.truths] == [[t.device_id for t in r] for r in backward.truths]
    assert cases.distance(forward.globals[-1], backward.globals[-1]) == 0


@pytest.mark.parametrize(("devices", "fraction", "size"), [(100, 0.1, 10), (7, 0.01, 1), (6, 1.0, 6), (80, 0.2, 16)])
def test_the_cohort_is_a_fraction_of_the_devices_and_never_empty(devices: int, fraction: float, size: int) -> None:
    assert cohort_size(devices, fraction) == size


@pytest.mark.parametrize("fraction", [1.1, 3])
def test_a_cohort_larger_than_the_population_is_refused(fraction: float) -> None:
    with pytest.raises(FedprintError, match=r"federation\.fraction: .* population of 10 devices; use at most 1\.0"):
        cohort_size(10, fraction)


def test_a_plan_with_a_cohort_larger_than_the_population_is_refused() -> None:
    with pytest.raises(FedprintError, match=r"a cohort of 9 does not fit a population of 8 devices"):
        cases.federated(of=cases.plan(cohort=9))


# ---- what is recorded ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded() -> cases.MemoryWriter:
    return cases.federated(of=cases.plan(rounds=12))


def test_an_anonymous_observation_carries_no_user_and_a_prior_one_does(recorded: cases.MemoryWriter) -> None:
    roles = Counter()
    for seen, truth in cases.pairs(recorded):
        roles[seen.role] += 1
        assert seen.user_id == (truth.user_id if seen.role == "prior" else None)
        assert truth.device_id == f"user-{truth.user_id}-{seen.role}"
    assert min(roles["anonymous"], roles["prior"]) > 10


def test_observations_are_numbered_by_round_and_slot(recorded: cases.MemoryWriter) -> None:
    assert [seen.obs_id for seen, _ in cases.pairs(recorded)] == list(range(48))
    assert [seen.round for seen, _ in cases.pairs(recorded)] == [t for t in range(12) for _ in range(4)]


def test_a_pseudonym_persists_over_rounds_and_differs_between_a_users_devices(recorded: cases.MemoryWriter) -> None:
    names: dict[str, set[str]] = {}
    for seen, truth in cases.pairs(recorded):
        names.setdefault(truth.device_id, set()).add(seen.pseudonym)
    assert len(names) == 8
    assert all(len(of_device) == 1 for of_device in names.values())
    assert len(set.union(*names.values())) == 8


def test_a_pseudonym_depends_on_the_seed_and_holds_no_name() -> None:
    names = [pseudonym(seed, device) for seed in (0, 1) for device in ("user-3-prior", "user-3-anonymous")]
    assert len(set(names)) == 4
    assert all(re.fullmatch(r"[0-9a-f]{16}", name) for name in names)


def test_the_number_of_examples_is_that_of_the_device(recorded: cases.MemoryWriter) -> None:
    sizes = {device.device_id: len(device.examples["y"]) for device in cases.devices()}
    assert all(seen.num_examples == sizes[truth.device_id] for seen, truth in cases.pairs(recorded))


def test_the_update_is_recorded_as_sent_and_the_server_applies_what_was_sent() -> None:
    recorded = cases.federated(of=cases.plan(rounds=2), defences=[Noise(sigma=0.1)], dtype=torch.float64)
    plain = cases.federated(of=cases.plan(rounds=2), dtype=torch.float64)
    for t, observed in enumerate(recorded.observed):
        mean = algebra.weighted_mean([seen.update for seen in observed], [seen.num_examples for seen in observed])
        assert cases.distance(recorded.globals[t + 1], algebra.add(recorded.globals[t], mean)) == 0
    sent = [(a.update, b.update) for (a, _), (b, _) in cases.first_round(recorded, plain)]
    noise = torch.cat([(a[name] - b[name]).flatten() for a, b in sent for name in a])
    assert float(noise.std()) == pytest.approx(0.1, rel=0.05)


# ---- training that fails -------------------------------------------------------------------------------------------


def test_nan_in_a_devices_data_stops_with_round_device_and_remedy() -> None:
    population = [with_nan(d) if d.device_id == "user-1-anonymous" else d for d in cases.devices()]
    net = cases.model("cnn")
    writer = cases.MemoryWriter(cases.start(net))
    with pytest.raises(FedprintError) as stopped:
        cases.run(population, make_backend("sequential", net), writer, cases.plan(rounds=50))
    t = writer.next_round
    assert "user-1-anonymous" in {d.device_id for d in sample_cohort(by_id(population), cases.plan(), t)}
    assert f"in round {t}: device user-1-anonymous has loss nan" in str(stopped.value)
    assert "lower federation.lr (now 0.2)" in str(stopped.value)
    assert "\n" not in str(stopped.value)


def with_nan(device: Device) -> Device:
    return replace(device, examples={**device.examples, "x": torch.full_like(device.examples["x"], math.nan)})


def by_id(population: Sequence[Device]) -> list[Device]:
    return sorted(population, key=lambda device: device.device_id)


@pytest.mark.parametrize(("loss", "stops"), [(math.nan, True), (math.inf, True), (100.0, True), (15.0, False)])
def test_a_loss_that_explodes_stops_the_round_it_happens_in(loss: float, stops: bool) -> None:
    population = cases.devices(sizes=(2, 2))
    losses = {(2, d.device_id): loss for d in population}
    writer = cases.MemoryWriter({"w": torch.zeros(4)})
    if stops:
        with pytest.raises(FedprintError, match=r"training diverged in round 2: device user-0-.* has loss"):
            cases.run(population, cases.Scripted(losses=losses), writer, cases.plan(5, 2))
    else:
        cases.run(population, cases.Scripted(losses=losses), writer, cases.plan(5, 2))
    assert writer.next_round == (2 if stops else 5)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("index", range(4))
def test_an_update_that_is_not_finite_stops_though_its_loss_is_fine(index: int, value: float) -> None:
    population = cases.devices(sizes=(2, 2, 2, 2))
    bad = population[index].device_id
    losses = {(0, d.device_id): 2.0 for d in population if d.device_id != bad}
    writer = cases.MemoryWriter({"w": torch.zeros(4)})
    with pytest.raises(FedprintError, match=rf"in round 0: device {bad} .*; lower federation\.lr"):
        cases.run(population, cases.Scripted({bad: value}, losses), writer, cases.plan(1, 4))
    assert writer.next_round == 0


def test_a_diverged_run_leaves_a_store_that_resumes(tmp_path: Path) -> None:
    population = cases.devices(sizes=(2, 2))
    of, initial = cases.plan(5, 2), {"w": torch.zeros(4)}
    layout = cases.layout(of, initial)
    with StoreWriter.open(tmp_path / "broken", layout) as writer:
        writer.set_initial(initial)
        broken = cases.Scripted(losses={(3, d.device_id): math.nan for d in population})
        with pytest.raises(FedprintError, match="round 3"):
            cases.run(population, broken, writer, of)
    with StoreWriter.open(tmp_path / "broken", layout) as writer:
        assert writer.next_round == 3
        cases.run(population, cases.Scripted(), writer, of)
        writer.finalise()
    with StoreWriter.open(tmp_path / "whole", layout) as writer:
        writer.set_initial(initial)
        cases.run(population, cases.Scripted(), writer, of)
        writer.finalise()
    assert cases.contents(tmp_path / "broken") == cases.contents(tmp_path / "whole")


# ---- resuming ------------------------------------------------------------------------------------------------------


def train(folder: Path, of: FederationPlan, kind: str, backend: str, die_after: int | None = None) -> None:
    net = cases.model(kind)
    initial = cases.start(net)
    defences = [Noise(sigma=1e-3)]
    population = defend_data(cases.devices(kind), [BkgRepl(alpha=0.3)], cases.examples(kind, 30, seed=9), of.seed)
    engine = make_backend(backend, net)
    with StoreWriter.open(folder, cases.layout(of, initial, precision="float16")) as writer:
        if writer.next_round == 0:
            writer.set_initial(initial)
        cases.run(population, engine if die_after is None else cases.Dying(engine, die_after), writer, of, defences)
        writer.finalise()


@pytest.mark.parametrize(
    ("kind", "backend"), [("cnn", "sequential"), ("multi-label", "vectorised:3"), ("lm", "sequential")]
)
def test_a_run_killed_after_any_round_resumes_to_the_same_bytes(tmp_path: Path, kind: str, backend: str) -> None:
    of = cases.plan(rounds=5)
    train(tmp_path / "whole", of, kind, backend)
    for k in range(5):
        with pytest.raises(cases.Killed):
            train(tmp_path / str(k), of, kind, backend, die_after=k)
        train(tmp_path / str(k), of, kind, backend)
        assert cases.contents(tmp_path / str(k)) == cases.contents(tmp_path / "whole"), f"killed after round {k}"
    files = cases.contents(tmp_path / "whole")
    assert {"observed/complete.json", "truth/index.parquet"} <= set(files)


def test_a_run_killed_in_every_round_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    of = cases.plan(rounds=4)
    train(tmp_path / "whole", of, "cnn", "sequential")
    for _ in range(of.rounds - 1):
        with pytest.raises(cases.Killed):
            train(tmp_path / "again", of, "cnn", "sequential", die_after=1)
    train(tmp_path / "again", of, "cnn", "sequential")
    assert cases.contents(tmp_path / "again") == cases.contents(tmp_path / "whole")


HALVED = Step(at=(2, 4), factors=(0.5, 0.25))


def test_the_clients_learning_rate_follows_its_schedule() -> None:
    of = replace(cases.plan(rounds=6, cohort=2), lr_schedule=HALVED)
    seen: list[LocalTraining] = []

    class Watching(cases.Scripted):
        def run(self, jobs, params, training):  # type: ignore[no-untyped-def]
            seen.append(training)
            return super().run(jobs, params, training)

    cases.run(cases.devices(sizes=(2, 2)), Watching(), cases.MemoryWriter({"w": torch.zeros(4)}), of)
    lr = cases.TRAINING.lr
    assert [training.lr for training in seen] == [lr, lr, lr / 2, lr / 2, lr / 4, lr / 4]
    assert seen[:2] == [cases.TRAINING] * 2 and {replace(training, lr=lr) for training in seen} == {cases.TRAINING}


def test_a_schedule_that_changes_nothing_changes_no_bit() -> None:
    plain = cases.federated(of=cases.plan(rounds=3))
    for schedule in (Constant(), Step(at=(0, 3), factors=(1.0, 0.5))):
        recorded = cases.federated(of=replace(cases.plan(rounds=3), lr_schedule=schedule))
        assert [cases.distance(a, b) for a, b in zip(plain.globals, recorded.globals, strict=True)] == [0] * 4
    halved = cases.federated(of=replace(cases.plan(rounds=3), lr_schedule=HALVED))
    moved = [cases.distance(a, b) > 0 for a, b in zip(plain.globals, halved.globals, strict=True)]
    assert moved == [False, False, False, True]


def test_a_run_with_a_schedule_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    of = replace(cases.plan(rounds=5), lr_schedule=HALVED)
    train(tmp_path / "whole", of, "cnn", "sequential")
    for k in (1, 2, 3):
        with pytest.raises(cases.Killed):
            train(tmp_path / str(k), of, "cnn", "sequential", die_after=k)
        train(tmp_path / str(k), of, "cnn", "sequential")
        assert cases.contents(tmp_path / str(k)) == cases.contents(tmp_path / "whole"), f"killed after round {k}"


def test_another_seed_gives_other_bytes(tmp_path: Path) -> None:
    train(tmp_path / "a", cases.plan(rounds=2), "cnn", "sequential")
    train(tmp_path / "b", cases.plan(rounds=2, seed=8), "cnn", "sequential")
    a, b = cases.contents(tmp_path / "a"), cases.contents(tmp_path / "b")
    assert a.keys() == b.keys()
    assert [name for name in a if a[name] == b[name]] == ["observed/layout.json"]


def test_the_loop_reads_no_global_randomness() -> None:
    torch.manual_seed(1)
    first = cases.federated(defences=[Noise(sigma=0.1)])
    torch.manual_seed(2)
    again = cases.federated(defences=[Noise(sigma=0.1)])
    assert cases.distance(first.globals[-1], again.globals[-1]) == 0
