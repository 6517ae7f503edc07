"""A federation recorded in Flower's own environment, and the same one run natively: they meet in recorded files."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import peers
import pytest
import recordings
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.beside_peers import PEERS
from fedprint.federation.backends import make_backend
from fedprint.federation.rounds import FederationPlan, federate, pseudonym
from fedprint.models.base import FedModule
from fedprint.store.layout import StoreLayout
from fedprint.store.reader import UpdateStore
from fedprint.store.writer import StoreWriter
from fedprint.types import Device, Examples, LocalTraining, Measurement

EXAMPLE = peers.ROOT / "examples" / "flower"


@pytest.fixture(scope="module")
def flower() -> Path:
    return peers.python_of("flwr")


@pytest.mark.slow
def test_recording_and_protecting_messages(flower: Path) -> None:
    peers.test_file(flower, "test_flower.py")


@pytest.mark.slow
def test_recording_in_pfl() -> None:
    peers.test_file(peers.python_of("pfl"), "test_pfl.py")


def pins(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def test_the_constraints_of_flower_fit_the_package_and_the_benchmark() -> None:
    project = tomllib.loads((peers.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = pins(EXAMPLE / "constraints.txt")
    wanted = [*project["dependencies"], *project["optional-dependencies"]["flower"], PEERS["flwr"]]
    for requirement in map(Requirement, wanted):
        assert pinned[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def digits() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flower_digits", EXAMPLE / "digits.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["flower_digits"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


class Native(FedModule):
    """The example's network as the engine trains it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def scores(self, x: Tensor) -> Tensor:
        scores: Tensor = self.network(x)
        return scores

    def per_example_loss(self, batch: Examples) -> Tensor:
        return functional.cross_entropy(self.scores(batch["x"]), batch["y"], reduction="none")

    def per_example_utility(self, batch: Examples) -> Tensor:
        return (self.scores(batch["x"]).argmax(1) == batch["y"]).float()


def natively(folder: Path, example: Any, data_dir: Path) -> recordings.Asked:
    """Run the example's federation by fedprint's engine."""
    everyone, model = example.load_people(data_dir), Native(example.network())
    devices = [
        Device(device_id=f"client-{k}", user_id=k // 2, role="anonymous" if k % 2 else "prior", examples=data)
        for k, data in enumerate(everyone.clients)
    ]
    plan = FederationPlan(
        rounds=example.ROUNDS,
        cohort=len(devices),
        training=LocalTraining(epochs=1, batch_size=example.BATCH, lr=example.LR),
        seed=0,
    )
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    layout = StoreLayout(
        rounds=plan.rounds, cohort=plan.cohort, shapes=shapes, kept=tuple(shapes), fingerprint="0" * 64
    )
    with StoreWriter.open(folder, layout) as writer:
        writer.set_initial(weights)
        federate(
            devices=devices,
            plan=plan,
            backend=make_backend("sequential", model),
            defences=(),
            writer=writer,
            utility=lambda t, params: {},
            report=lambda report: None,
        )
    store = UpdateStore.open(folder / "observed", partial=True)
    owner = {pseudonym(plan.seed, device.device_id): device.user_id for device in devices}
    fit, ask = (np.flatnonzero(store.index["role"] == role) for role in ("prior", "anonymous"))
    senders = store.index["pseudonym"].map(owner).to_numpy(dtype=np.int64)
    return recordings.Asked(updates=store, fit=fit, labels=senders[fit], ask=ask, answers=senders[ask])


def simulated(python: Path, out: Path, data_dir: Path, *more: str) -> Measurement:
    peers.run_in(python, str(EXAMPLE / "simulate.py"), "--out", str(out), "--data-dir", str(data_dir), *more)
    return recordings.ap(recordings.recorded(out, out.with_suffix(".scratch")))


@pytest.fixture(scope="module")
def undefended(flower: Path, data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Measurement:
    return simulated(flower, tmp_path_factory.mktemp("flower") / "recorded", data_dir)


@pytest.mark.slow
def test_a_federation_recorded_through_flower_has_the_ap_of_the_same_one_run_natively(
    undefended: Measurement, data_dir: Path, tmp_path: Path
) -> None:
    example = digits()
    native = recordings.ap(natively(tmp_path / "store", example, data_dir))
    assert undefended.n_questions == native.n_questions == example.USERS * example.ROUNDS
    assert undefended.n_users == native.n_users == example.USERS
    assert native.lo <= undefended.value <= native.hi, (undefended, native)
    assert undefended.lo <= native.value <= undefended.hi, (undefended, native)
    assert native.lo > 3 * native.chance, "an attack that finds nothing agrees with anything"


@pytest.mark.slow
def test_augmentation_protects_the_clients_of_a_flower_federation(
    undefended: Measurement, flower: Path, data_dir: Path, tmp_path: Path
) -> None:
    protected = simulated(flower, tmp_path / "protected", data_dir, "--protect", "augmentation")
    assert protected.hi < undefended.lo, (protected, undefended)
