"""The plain loop is what the engine is compared with: it must train as the engine does."""

from __future__ import annotations

import pytest
import torch

from benchmarks.engine import OURS, drawn, jobs_of, module_loop, round_by
from benchmarks.workloads import WORKLOADS, PlainLoop
from fedprint.models.networks import build_network
from fedprint.types import LocalTraining


@pytest.mark.parametrize("name", ["W1", "W2", "W3"])
def test_both_plain_loops_give_the_mean_update_of_sequential(name: str) -> None:
    config, shape, classes, names = OURS[name]
    work, model = WORKLOADS[name], build_network(config, shape, classes, False)
    params, clients = drawn(model), [work.client(number) for number in work.drawn(0)[:2]]
    training = LocalTraining(epochs=1, batch_size=work.batch, lr=work.lr)
    jobs = jobs_of([{"x": x, "y": y} for x, y in clients])
    mean = round_by("sequential", model, training)(jobs, params)
    by_hand = dict(zip(names, PlainLoop(work).round([params[n] for n in names], clients), strict=True))
    by_module = module_loop(model, training)(jobs, params)
    for key, value in mean.items():
        torch.testing.assert_close(by_hand[key], value, atol=1e-4, rtol=0)
        torch.testing.assert_close(by_module[key], value, atol=1e-4, rtol=0)
    assert max(float(value.abs().max()) for value in mean.values()) > 1e-3
