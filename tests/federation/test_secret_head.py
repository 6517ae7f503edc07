"""The secret head in a federation: what leaves a client, what lasts, what a resume finds, and who trains it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import federation_cases as cases
import numpy as np
import pytest
import torch
from tiny_project import TINY
from torch import Tensor

from fedprint import params as algebra
from fedprint.data.examples import CODE
from fedprint.defences.clipping import MedianClip
from fedprint.defences.on_update import DpFedAvg, Noise
from fedprint.defences.points import defend_data
from fedprint.defences.secret_head import SecretHead
from fedprint.federation.backends import make_backend
from fedprint.federation.client_state import ClientFiles
from fedprint.federation.cohorts import FederationPlan, largest_cohort
from fedprint.federation.ledger import Ledger
from fedprint.federation.rounds import federate
from fedprint.federation.unrecorded import train_alone
from fedprint.kinds.federation.config import check_experiment
from fedprint.models.dual_head import SECRET, DualHead
from fedprint.rng import seed_for, torch_rng
from fedprint.store.writer import StoreWriter
from fedprint.types import ClientJob, FedprintError, Params, Role

BITS = 6
SPN = SecretHead(bits=BITS, alpha2=0.05)


def network(kind: str = "cnn", dtype: torch.dtype = torch.float32) -> DualHead:
    net = DualHead(cases.model(kind), bits=BITS)
    net.public.load_state_dict(cases.model(kind).state_dict())
    return net.to(dtype)


def public(net: DualHead) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in net.public_parameters().items()}


class Kept(ClientFiles):
    """Remembers everything that was ever saved, by device and round."""

    def __init__(self, folder: Path, net: DualHead, seed: int = 7) -> None:
        super().__init__(folder, lambda device: net.draw_private(torch_rng(seed, "secret-head", device)))
        self.saved: dict[tuple[str, int], Params] = {}
        self.loaded: dict[tuple[str, int], Params] = {}

    def load(self, device_id: str, t: int) -> Params:
        self.loaded[device_id, t] = super().load(device_id, t)
        return self.loaded[device_id, t]

    def save(self, device_id: str, t: int, private: Params) -> None:
        self.saved[device_id, t] = private
        super().save(device_id, t, private)


def run(
    folder: Path,
    *,
    kind: str = "cnn",
    backend: str = "sequential",
    of: FederationPlan | None = None,
    defences: Sequence[Any] = (SPN,),
    roles: Sequence[Role] = ("anonymous", "prior"),
    writer: Any = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[Any, Kept]:
    net, plan = network(kind, dtype), of or cases.plan()
    kept = Kept(folder, net)
    writer = cases.MemoryWriter(public(net)) if writer is None else writer
    federate(
        devices=defend_data(cases.devices(kind, dtype=dtype), defences, {}, plan.seed, roles),
        plan=plan,
        backend=make_backend(backend, net),
        defences=defences,
        writer=writer,
        utility=lambda t, params: {},
        report=lambda report: None,
        roles=roles,
        private=kept,
    )
    return writer, kept


# ---- what leaves ---------------------------------------------------------------------------------------------------


def fingerprints(private: Params) -> list[bytes]:
    """Byte strings by which private parameters show: 3 numbers in a row, in every precision, zeros left out."""
    digests = []
    for tensor in private.values():
        values = tensor.reshape(-1).double().numpy()
        for dtype in ("float16", "float32", "float64"):
            digests += [
                v.astype(dtype).tobytes() for v in (values[i : i + 3] for i in range(0, len(values) - 2, 3)) if v.any()
            ]
    return digests


@pytest.mark.parametrize("precision", ["float16", "float32"])
@pytest.mark.parametrize("backend", ["sequential", "vectorised:3"])
def test_no_byte_of_a_private_parameter_is_sent_or_stored(tmp_path: Path, backend: str, precision: Any) -> None:
    plan, net = cases.plan(rounds=3), network()
    layout = cases.layout(plan, public(net), precision=precision)
    with StoreWriter.open(tmp_path / "store", layout) as writer:
        writer.set_initial(public(net))
        _, kept = run(tmp_path / "private", backend=backend, of=plan, writer=writer)
        writer.finalise()
    stored = b"".join(path.read_bytes() for path in sorted((tmp_path / "store").rglob("*")) if path.is_file())
    secrets = [mark for private in (*kept.saved.values(), *kept.loaded.values()) for mark in fingerprints(private)]
    assert len(secrets) > 1000
    assert not [mark for mark in secrets if mark in stored]
    assert SECRET.encode() not in stored and CODE.encode() not in stored
    private_bytes = b"".join(path.read_bytes() for path in (tmp_path / "private").rglob("*.safetensors"))
    last = {device: private for (device, _), private in kept.saved.items()}
    assert any(mark in private_bytes for private in last.values() for mark in fingerprints(private)), (
        "the search can find them"
    )


def test_updates_hold_the_public_layers_only_and_private_ones_train(tmp_path: Path) -> None:
    writer, kept = run(tmp_path)
    for observed in writer.observed:
        assert all(list(o.update) == list(writer.globals[0]) for o in observed)
    assert not any(SECRET in name for name in writer.globals[-1])
    for (device, t), private in kept.saved.items():
        assert cases.distance(private, kept.loaded[device, t]) > 1e-4


# ---- what lasts ----------------------------------------------------------------------------------------------------


def test_private_parameters_last_over_the_rounds(tmp_path: Path) -> None:
    _, kept = run(tmp_path, of=cases.plan(rounds=8))
    again = 0
    for device, t in kept.loaded:
        earlier = [round for name, round in kept.saved if name == device and round < t]
        if earlier:
            again += 1
            assert cases.distance(kept.loaded[device, t], kept.saved[device, max(earlier)]) == 0
    assert again > 10


class Stop(Exception):
    """Stands for a kill."""


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["fedavg", "round-robin"])
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path: Path, aggregation: Any) -> None:
    plan = FederationPlan(rounds=6, cohort=4, training=cases.TRAINING, seed=7, aggregation=aggregation)
    layout = cases.layout(plan, public(network()), precision="float32")

    def train(folder: Path, stop_at: int | None = None) -> Mapping[str, bytes]:
        with StoreWriter.open(folder / "store", layout) as writer:
            if writer.next_round == 0:
                writer.set_initial(public(network()))
            if stop_at is not None:
                append = writer.append

                def failing(t: int, *rest: Any) -> None:
                    if t == stop_at:
                        raise Stop
                    append(t, *rest)

                writer.append = failing  # type: ignore[method-assign]
            run(folder / "private", of=plan, writer=writer)
            writer.finalise()
        return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}

    whole = train(tmp_path / "whole")
    for stop_at in (0, 2, 5):
        folder = tmp_path / str(stop_at)
        with pytest.raises(Stop):
            train(folder, stop_at)
        resumed = train(folder)
        same = [name for name in whole if resumed.get(name) == whole[name]]
        assert same == list(whole), stop_at


def test_few_files_stay_and_a_round_done_again_does_not_read_its_own(tmp_path: Path) -> None:
    state = ClientFiles(tmp_path, lambda device: {"w": torch.zeros(2)})
    for t in range(10):
        state.save("a/b", t, {"w": torch.full((2,), float(t + 1))})
    assert len(list(tmp_path.rglob("*.safetensors"))) == 3
    assert [state.load("a/b", t)["w"][0].item() for t in (8, 9, 10, 50)] == [8, 9, 10, 10]
    assert state.load("c", 5)["w"].tolist() == [0, 0]


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    state = ClientFiles(tmp_path, lambda device: {"w": torch.zeros(2)})
    state.save("a", 0, {"w": torch.ones(2)})
    next(tmp_path.rglob("*.safetensors")).write_bytes(b"junk")
    with pytest.raises(FedprintError, match=r"cannot be read .*; delete the checkpoint"):
        state.load("a", 1)


# ---- training ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cnn", "multi-label"])
@pytest.mark.parametrize("backend", ["threaded:2", "vectorised:3"])
def test_backends_agree_on_updates_and_on_private_parameters(tmp_path: Path, kind: str, backend: str) -> None:
    a, b = (
        run(tmp_path / name, kind=kind, backend=name, of=cases.plan(rounds=2), dtype=torch.float64)
        for name in ("sequential", backend)
    )
    for t in (0, 1):
        for one, other in zip(a[0].observed[t], b[0].observed[t], strict=True):
            assert cases.distance(one.update, other.update) < 1e-10
    assert a[1].saved.keys() == b[1].saved.keys()
    assert all(cases.distance(private, b[1].saved[key]) < 1e-10 for key, private in a[1].saved.items())


def test_weight_zero_equals_the_undefended_run_and_more_does_not(tmp_path: Path) -> None:
    plain = cases.federated(of=cases.plan())
    off, _ = run(tmp_path / "off", defences=(SecretHead(bits=BITS, alpha2=0),))
    on, _ = run(tmp_path / "on")
    assert cases.distance(plain.globals[-1], off.globals[-1]) == 0
    assert cases.distance(plain.globals[-1], on.globals[-1]) > 1e-3


@pytest.mark.parametrize("backend", ["sequential", "vectorised:3"])
def test_undefended_roles_train_as_without_a_secret_head(tmp_path: Path, backend: str) -> None:
    of = cases.plan(rounds=1, cohort=8)
    plain = cases.federated(of=of, backend=backend)
    half, kept = run(tmp_path, of=of, roles=("anonymous",), backend=backend)
    changed = {"anonymous": 0.0, "prior": 0.0}
    for one, other in zip(plain.observed[0], half.observed[0], strict=True):
        changed[one.role] = max(changed[one.role], cases.distance(one.update, other.update))
    assert changed["prior"] < (1e-12 if backend == "sequential" else 1e-6) and changed["anonymous"] > 1e-3
    assert {device.rpartition("-")[2] for device, _ in kept.saved} == {"anonymous"}


def test_the_update_defences_act_on_the_public_update_too(tmp_path: Path) -> None:
    plain, _ = run(tmp_path / "a", of=cases.plan(rounds=1))
    noisy, _ = run(tmp_path / "b", of=cases.plan(rounds=1), defences=(SPN, Noise(sigma=0.1)))
    moved = algebra.flatten(algebra.add(noisy.observed[0][0].update, plain.observed[0][0].update, -1.0))
    assert float(moved.std()) == pytest.approx(0.1, rel=0.05)


def test_codes_without_a_place_for_the_head_are_refused() -> None:
    net = network()
    devices = defend_data(cases.devices(), [SPN], {}, 7)
    with pytest.raises(FedprintError, match="has a secret head, but no ClientState"):
        cases.run(devices, make_backend("sequential", net), cases.MemoryWriter(public(net)), cases.plan())


# ---- other ways to aggregate ---------------------------------------------------------------------------------------


def aggregated(aggregation: Any, rounds: int = 2, defences: Sequence[Any] = ()) -> cases.MemoryWriter:
    plan = FederationPlan(rounds=rounds, cohort=4, training=cases.TRAINING, seed=7, aggregation=aggregation)
    return cases.federated(of=plan, dtype=torch.float64, defences=defences)


def test_in_round_robin_each_client_starts_where_the_one_before_ended() -> None:
    recorded, backend = aggregated("round-robin"), make_backend("sequential", cases.model("cnn", torch.float64))
    data = {d.device_id: d.examples for d in cases.devices(dtype=torch.float64)}
    params = recorded.globals[0]
    for t in (0, 1):
        for seen, truth in zip(recorded.observed[t], recorded.truths[t], strict=True):
            name = truth.device_id
            job = ClientJob(device_id=name, examples=data[name], seed=seed_for(7, "client", t, name))
            (alone,) = backend.run([job], params, cases.TRAINING)
            assert cases.distance(seen.update, alone.update) == 0
            params = algebra.add(params, seen.update)
        assert cases.distance(params, recorded.globals[t + 1]) == 0
    assert cases.distance(params, aggregated("fedavg").globals[-1]) > 1e-2


def test_plain_mean_ignores_the_numbers_of_examples() -> None:
    weighted, plain = aggregated("fedavg", 1), aggregated("mean", 1)
    sent = [o.update for o in plain.observed[0]]
    assert len({o.num_examples for o in plain.observed[0]}) > 1
    expected = algebra.add(plain.globals[0], algebra.weighted_mean(sent, [1.0] * 4))
    assert cases.distance(plain.globals[1], expected) == 0
    assert cases.distance(plain.globals[1], weighted.globals[1]) > 1e-4


def test_server_noise_of_a_round_robin_is_fresh_for_every_client() -> None:
    recorded = aggregated("round-robin", 1, [DpFedAvg(clip=1e-9, z=1e6)])
    step = algebra.flatten(algebra.add(recorded.globals[1], recorded.globals[0], -1.0))
    assert float(step.std()) == pytest.approx(1e-3 * 4**0.5, rel=0.1)


def test_an_empty_round_robin_changes_nothing() -> None:
    plan = replace(cases.plan(rounds=30, cohort=1), sampling="poisson", aggregation="round-robin")
    recorded = cases.federated(of=replace(plan, slots=largest_cohort(8, plan)))
    empty = [t for t, observed in enumerate(recorded.observed) if not observed]
    assert empty and len(empty) < 30
    for t, observed in enumerate(recorded.observed):
        assert (cases.distance(recorded.globals[t + 1], recorded.globals[t]) == 0) is (not observed)


@pytest.mark.parametrize(("changes", "defences", "said"), [
    ({"momentum": 0.5}, [], "round-robin has no mean"),
    ({}, [DpFedAvg(clip=MedianClip(), z=1)], "no whole round for a rule"),
    ({"sampling": "poisson"}, [DpFedAvg(clip=1, z=1)], "shows how many clients take part"),
])  # fmt: skip
def test_what_needs_a_whole_round_is_refused_in_round_robin(changes: Any, defences: list[Any], said: str) -> None:
    plan = replace(cases.plan(), aggregation="round-robin", **changes)
    with pytest.raises(FedprintError, match=said):
        cases.federated(of=plan, defences=defences)
    values = {**TINY, "name": "x", "defences": [d.model_dump(mode="json") for d in defences]}
    federation = {**TINY["federation"], "aggregation": "round-robin", **changes}
    with pytest.raises(FedprintError, match=said):
        check_experiment({**values, "federation": federation}, "x.yaml")


def test_a_round_robin_is_paid_before_its_first_client_sends(tmp_path: Path) -> None:
    """A budget's line is there although the round dies in the middle: what is released is never ahead of it."""
    ledger = Ledger(tmp_path / "ledger.jsonl", "run")
    plan = replace(cases.plan(rounds=2), aggregation="round-robin")
    inner = make_backend("sequential", cases.model("cnn"))

    class Dying:
        name, calls = "dying", 0

        def run(self, *args: Any) -> Any:
            self.calls += 1
            if self.calls == plan.cohort + 2:
                raise Stop
            return inner.run(*args)

    writer = cases.MemoryWriter(public(network()))
    with pytest.raises(Stop):
        federate(
            devices=cases.devices(),
            plan=plan,
            backend=Dying(),
            defences=[DpFedAvg(clip=1.0, z=0.01)],
            writer=writer,
            utility=lambda t, params: {},
            report=lambda report: None,
            ledger=ledger,
        )
    assert [entry.round for entry in ledger.entries] == [0, 1] and len(writer.observed) == 1


@pytest.mark.parametrize("defences", [(), (SPN,)])
def test_standalone_clients_train_as_in_a_federation_of_one(tmp_path: Path, defences: Sequence[Any]) -> None:
    net, plan = network(), cases.plan(rounds=3)
    start = public(net)
    devices = defend_data(cases.devices(sizes=(7, 5)), defences, {}, plan.seed)
    trained = train_alone(devices, plan, make_backend("sequential", net), start, Kept(tmp_path / "a", net))
    for device, params in trained:
        writer = cases.MemoryWriter(start)
        federate(
            devices=[device],
            plan=cases.plan(rounds=3, cohort=1),
            backend=make_backend("sequential", net),
            defences=defences,
            writer=writer,
            utility=lambda t, params: {},
            report=lambda report: None,
            private=Kept(tmp_path / device.device_id, net),
        )
        assert cases.distance(params, writer.globals[-1]) == 0
        assert cases.distance(params, writer.globals[0]) > 1e-2


def test_the_search_for_secrets_would_see_an_update_that_holds_them() -> None:
    """The search of the first test, on a store that leaks."""
    private = {"w": torch.randn(50)}
    leak = io.BytesIO()
    np.save(leak, (private["w"].numpy()).astype("float32"))
    assert any(mark in leak.getvalue() for mark in fingerprints(private))
