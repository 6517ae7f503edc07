"""An unrecorded federation is the recorded one without its store."""

from __future__ import annotations

import federation_cases as cases
import pytest
import torch

from fedprint.data.examples import CODE
from fedprint.defences.on_update import TopK
from fedprint.defences.points import defend_data
from fedprint.defences.secret_head import SecretHead
from fedprint.federation.backends import make_backend
from fedprint.federation.client_state import ClientFiles, ClientMemory
from fedprint.federation.unrecorded import train_together
from fedprint.models.dual_head import DualHead
from fedprint.rng import torch_rng


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_the_model_is_that_of_the_recorded_federation(share: float) -> None:
    population = sorted(cases.devices(), key=lambda device: device.device_id)
    plan = cases.plan(rounds=3, cohort=len(population))
    defences = [TopK(share=share)]
    net = cases.model("cnn")
    params = train_together(population, plan, make_backend("sequential", net), cases.start(net), defences)
    recorded = cases.federated("cnn", of=plan, defences=defences)
    assert cases.distance(params, recorded.globals[-1]) < 1e-6
    assert cases.distance(params, recorded.globals[0]) > 1e-3


def test_secret_heads_last_over_the_rounds_in_memory_as_in_files(tmp_path) -> None:  # type: ignore[no-untyped-def]
    net = DualHead(cases.model("cnn"), bits=8)  # type: ignore[arg-type]
    net.reset(torch_rng(0))
    population = defend_data(cases.devices(sizes=(5, 4, 6)), [SecretHead(bits=8, alpha2=0.3)], {}, 0)
    assert all(CODE in device.examples for device in population)
    plan, initial = cases.plan(rounds=3, cohort=3), {n: p.detach().clone() for n, p in net.public_parameters().items()}

    def draw(device_id: str) -> dict[str, torch.Tensor]:
        return net.draw_private(torch_rng(0, device_id))

    backend = make_backend("sequential", net)
    memory = ClientMemory(draw)
    held = train_together(population, plan, backend, initial, private=memory)
    written = train_together(population, plan, backend, initial, private=ClientFiles(tmp_path, draw))
    assert cases.distance(held, written) == 0
    name = population[0].device_id
    assert cases.distance(memory.load(name, 3), draw(name)) > 1e-3
    forgetful = train_together(population, plan, backend, initial, private=_Forgetful(draw))
    assert cases.distance(held, forgetful) > 1e-6


class _Forgetful(ClientMemory):
    def save(self, device_id: str, t: int, private) -> None:  # type: ignore[no-untyped-def]
        """Keep nothing."""
