"""The two points where defences act in the federated loop, and the devices they act on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import federation_cases as cases
import pytest
import torch
from torch import Generator

from fedprint.data.examples import CLUSTER
from fedprint.defences.counterweight import CounterAug
from fedprint.defences.on_data import BkgRepl, MmAug, RandAug, RepeatAug
from fedprint.defences.on_update import DpFedAvg, DpLocal, Laplace, Noise, Quantise, Sign, TopK
from fedprint.defences.points import ROLES, defend_data, settle
from fedprint.federation.rounds import Defence
from fedprint.store.writer import StoreWriter
from fedprint.types import (
    Examples,
    Params,
    Role,
)

ROOT = Path(__file__).parents[2]


# ---- the two defence points ----------------------------------------------------------------------------------------


@dataclass
class Recorder:
    """A defence that writes down what it sees; on the device it adds ``shift``, on the server it doubles."""

    name: str
    log: list[tuple[Any, ...]]
    shift: float = 0.0

    def settled(self, rng: Generator) -> Recorder:
        return self

    def on_device(self, update: Params, rng: Generator) -> Params:
        self.log.append(("device", self.name, rng.initial_seed()))
        return {n: tensor + self.shift for n, tensor in update.items()}

    def on_server(self, mean: Params, cohort_size: int, rng: Generator) -> Params:
        self.log.append(("server", self.name, rng.initial_seed(), cohort_size, float(mean["w"][0])))
        return {n: 2 * tensor + self.shift for n, tensor in mean.items()}


@dataclass
class DataRecorder:
    """A data defence that writes down which examples it got and gives back their first n - 1."""

    name: str
    log: list[tuple[Any, ...]]

    def settled(self, rng: Generator) -> DataRecorder:
        return self

    def on_data(self, examples: Examples, background: Examples, rng: Generator) -> Examples:
        self.log.append((self.name, examples, background, rng.initial_seed()))
        return {column: values[:-1] if len(values) > 1 else values for column, values in examples.items()}


def test_update_defences_go_in_list_order_on_the_device_and_in_reverse_on_the_server() -> None:
    log: list[tuple[Any, ...]] = []
    defences = [Recorder("a", log, 1.0), DataRecorder("point 1", []), Recorder("b", log, 10.0)]
    writer = cases.MemoryWriter({"w": torch.zeros(4)})
    cases.run(cases.devices(), cases.Scripted(), writer, cases.plan(rounds=1, cohort=3), defences)
    assert [entry[:2] for entry in log] == [("device", "a"), ("device", "b")] * 3 + [("server", "b"), ("server", "a")]
    # b sees the mean of what was sent, 1 + 1 + 10; a sees what b gave, 2 * 12 + 10; the server applies 2 * 34 + 1
    assert [(entry[3], entry[4]) for entry in log[-2:]] == [(3, pytest.approx(12.0)), (3, pytest.approx(34.0))]
    assert writer.globals[1]["w"].tolist() == pytest.approx([69.0] * 4)
    assert writer.observed[0][0].update["w"].tolist() == pytest.approx([12.0] * 4)


def test_no_two_defences_devices_or_rounds_share_their_randomness() -> None:
    log: list[tuple[Any, ...]] = []
    defences = [Recorder("a", log), Recorder("b", log)]
    cases.run(cases.devices(), cases.Scripted(), cases.MemoryWriter({"w": torch.zeros(4)}), cases.plan(5, 3), defences)
    assert len({entry[2] for entry in log}) == len(log) == 5 * (3 + 1) * 2


def test_data_defences_go_in_list_order_each_on_what_the_one_before_gave() -> None:
    log: list[tuple[Any, ...]] = []
    pool = cases.examples("cnn", 4, seed=9)
    population = cases.devices(sizes=(5, 4))
    kept = defend_data(population, [DataRecorder("a", log), Noise(sigma=1), DataRecorder("b", log)], pool, seed=0)
    assert [entry[0] for entry in log] == ["a", "b", "a", "b"]
    assert [len(entry[1]["y"]) for entry in log] == [5, 4, 4, 3]
    assert all(entry[2] is pool for entry in log)
    assert len({entry[3] for entry in log}) == 4
    assert [len(device.examples["y"]) for device in kept] == [3, 2]
    assert [replace(device, examples={}) for device in kept] == [replace(device, examples={}) for device in population]


def test_point_1_is_given_the_devices_own_examples_and_nobody_elses() -> None:
    log: list[tuple[Any, ...]] = []
    population = cases.devices()
    defend_data(population, [DataRecorder("a", log)], {}, seed=0)
    assert all(entry[1] is device.examples for entry, device in zip(log, population, strict=True))


DATA_DEFENCES: list[list[Defence]] = [
    [BkgRepl(alpha=0.5)], [RandAug(alpha=0.7)], [MmAug(alpha=0.7)], [RandAug(alpha=(0, 1)), MmAug(alpha=(0, 1))],
    [BkgRepl(alpha=0.3), BkgRepl(alpha=0.6)], [RepeatAug(alpha=0.7)], [CounterAug(alpha=0.7)],
    [CounterAug(alpha=0.7, choice="herding", candidates=20)],
]  # fmt: skip


def strangers() -> Examples:
    return {**cases.examples("cnn", 50, seed=9), CLUSTER: torch.arange(50) % 5}


@pytest.mark.parametrize("defences", DATA_DEFENCES)
def test_point_1_gives_a_device_the_same_whatever_the_others_hold(defences: list[Defence]) -> None:
    pool, population = strangers(), cases.devices()
    others = [replace(d, examples=cases.examples("cnn", 3, seed=i)) for i, d in enumerate(population)]
    for i, device in enumerate(population):
        among = defend_data([*others[:i], device, *others[i + 1 :]], defences, pool, seed=0)[i]
        alone = defend_data([device], defences, pool, seed=0)[0]
        assert all(torch.equal(among.examples[c], alone.examples[c]) for c in ("x", "y"))


def test_the_defence_points_are_called_in_one_place_each() -> None:
    def callers(pattern: str) -> set[tuple[str, str]]:
        return {
            (point, path.relative_to(ROOT / "src" / "fedprint").as_posix())
            for path in (ROOT / "src").rglob("*.py")
            # functions for other programs, and contract tests, run no federation
            if path.name != "protect.py" and path.parent.name != "testing"
            for point in re.findall(pattern, path.read_text(encoding="utf-8"))
        }

    device = {(point, "defences/points.py") for point in ("on_data", "on_device")}
    assert callers(r"\.(on_data|on_device|on_server)\(") == device | {("on_server", "federation/round_engine.py")}
    # the devices of a run, those of a federation without an attack, clients that send the gradient of a batch, and
    # the adversary's shadow devices
    assert callers(r"(?<!def )\b(defend_data|defend_update)\(") == {
        ("defend_update", "federation/round_engine.py"),
        ("defend_data", "kinds/federation/building/protection.py"),
        ("defend_data", "kinds/clients/training.py"),
        ("defend_data", "kinds/inversion/utility.py"),
        ("defend_update", "federation/gradient_rounds.py"),
        ("defend_data", "kinds/inversion/victims.py"),
        ("defend_update", "kinds/inversion/victims.py"),
        ("defend_update", "attacks/adversary/shadow_devices.py"),
        ("defend_data", "attacks/adversary/shadow_devices.py"),
    }


IDENTITIES: list[list[Defence]] = [
    [Noise(sigma=0)], [BkgRepl(alpha=0)], [RandAug(alpha=0)], [MmAug(alpha=0)], [DpLocal(clip=1e6, z=0)],
    [DpFedAvg(clip=1e6, z=0)], [TopK(share=1)], [Quantise(bits=32)], [Sign(enabled=False)],
    [Noise(sigma=0), BkgRepl(alpha=0), TopK(share=(1, 1))], [Laplace(sigma=0)], [RepeatAug(alpha=0)],
    [CounterAug(alpha=0)],
]  # fmt: skip
SETTINGS: list[list[Defence]] = [
    [Noise(sigma=1e-3)], [BkgRepl(alpha=0.5)], [RandAug(alpha=1)], [MmAug(alpha=1)], [DpLocal(clip=1e-2, z=1e-2)],
    [DpFedAvg(clip=1e-2, z=1e-2)], [TopK(share=0.1)], [Quantise(bits=2)], [Sign()],
    [Laplace(sigma=1e-3)], [RepeatAug(alpha=1)], [CounterAug(alpha=1)],
]  # fmt: skip


@pytest.mark.parametrize("defences", IDENTITIES)
def test_identity_settings_of_a_defence_change_no_bit(defences: list[Defence]) -> None:
    plain, defended_run = cases.federated(), defended(defences)
    assert all(cases.distance(a, b) == 0 for a, b in zip(plain.globals, defended_run.globals, strict=True))
    assert all(cases.distance(a.update, b.update) == 0 for (a, _), (b, _) in cases.paired(plain, defended_run))


@pytest.mark.parametrize("defences", SETTINGS)
def test_other_settings_of_a_defence_change_every_update(defences: list[Defence]) -> None:
    plain, defended_run = cases.federated(), defended(defences)
    changed = [cases.distance(a.update, b.update) for (a, _), (b, _) in cases.paired(plain, defended_run)]
    sizes = [seen.num_examples for seen, _ in cases.pairs(plain)]
    assert min(c for c, n in zip(changed, sizes, strict=True) if n > 1) > 1e-4
    assert cases.distance(plain.globals[-1], defended_run.globals[-1]) > 1e-4


@pytest.mark.parametrize("defences", SETTINGS)
def test_with_threads_a_defended_run_is_the_same_to_the_bit(defences: list[Defence]) -> None:
    one, other = (defended(defences, backend) for backend in ("vectorised:4", "threaded:2"))
    assert all(cases.distance(a, b) == 0 for a, b in zip(one.globals, other.globals, strict=True))
    assert all(cases.distance(a.update, b.update) == 0 for (a, _), (b, _) in cases.paired(one, other))


def defended(
    defences: Sequence[Defence], backend: str = "sequential", roles: Sequence[Role] = ROLES
) -> cases.MemoryWriter:
    population = defend_data(cases.devices(), defences, strangers(), seed=7, roles=roles)
    return cases.federated(backend=backend, defences=defences, population=population, roles=roles)


# ---- who is defended, and how strongly -----------------------------------------------------------------------------


@pytest.mark.parametrize("defences", [s for s in SETTINGS if not isinstance(s[0], DpFedAvg)])
def test_devices_of_other_roles_stay_clean(defences: list[Defence]) -> None:
    """In the first round all start from the same model: only those defended send something else."""
    plain, defended_run = cases.federated(), defended(defences, roles=("anonymous",))
    seen = Counter()
    for (a, _), (b, _) in cases.first_round(plain, defended_run):
        same = cases.distance(a.update, b.update) == 0 and a.num_examples == b.num_examples
        seen[a.role, same] += 1
        assert same == (a.role == "prior") or a.num_examples == 1
    assert seen["prior", True] and seen["anonymous", False]


def test_each_device_keeps_the_strength_it_drew_over_rounds_and_whoever_else_takes_part() -> None:
    defence = Noise(sigma=(0, 0.5))
    drawn = {d.device_id: settle([defence], d.device_id, 7)[0].sigma for d in cases.devices()}
    assert set(drawn.values()) == {0, 0.5}
    fewer = cases.devices()[:6]
    for population in (cases.devices(), fewer, fewer[::-1]):
        writer = cases.MemoryWriter({"w": torch.zeros(200)})
        cases.run(population, cases.Scripted(), writer, cases.plan(rounds=6, cohort=3), [defence])
        for seen, truth in cases.pairs(writer):
            spread = float(seen.update["w"].std())
            assert spread == pytest.approx(drawn[truth.device_id], rel=0.3), truth.device_id


def test_strengths_survive_a_resume(tmp_path: Path) -> None:
    of, initial, defences = cases.plan(4, 3), {"w": torch.zeros(50)}, [Noise(sigma=(0, 0.1, 0.5))]
    layout = cases.layout(of, initial)
    for name, stops in (("whole", ()), ("resumed", (0, 2))):
        for stop in (*stops, None):
            engine = cases.Scripted() if stop is None else cases.Dying(cases.Scripted(), stop)
            with StoreWriter.open(tmp_path / name, layout) as writer:
                if writer.next_round == 0:
                    writer.set_initial(initial)
                if stop is None:
                    cases.run(cases.devices(), engine, writer, of, defences)
                    writer.finalise()
                else:
                    with pytest.raises(cases.Killed):
                        cases.run(cases.devices(), engine, writer, of, defences)
    assert cases.contents(tmp_path / "whole") == cases.contents(tmp_path / "resumed")


def test_where_a_guarantee_is_claimed_no_device_weighs_more_than_another() -> None:
    """The noise hides one clipped update; a device that counts for three would show."""
    population = cases.devices(sizes=(1, 3))
    values = {population[0].device_id: 1.0, population[1].device_id: -1.0}
    for z, mean in ((1e-9, 0.0), (0.0, -0.5)):
        writer = cases.MemoryWriter({"w": torch.zeros(4)})
        cases.run(population, cases.Scripted(values), writer, cases.plan(rounds=1, cohort=2), [DpFedAvg(clip=5, z=z)])
        assert writer.globals[1]["w"].tolist() == pytest.approx([mean] * 4, abs=1e-6)
