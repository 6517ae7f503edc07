"""Rounded products in local training: nearly the same updates, and nothing of it remains afterwards."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import federation_cases as cases
import pytest
import torch
from pydantic import ValidationError

from fedprint import params as algebra
from fedprint.federation.backends import make_backend
from fedprint.federation.precision import products_in
from fedprint.kinds.federation.config import FederationConfig
from fedprint.types import ClientJob, Params, Precision

JOBS = tuple(range(len(cases.SIZES)))


def updates(kind: str, backend: str, precision: Precision) -> list[Params]:
    net = cases.model(kind)
    jobs = [ClientJob(device_id=f"d{i}", examples=cases.examples(kind, cases.SIZES[i], seed=i), seed=i) for i in JOBS]
    training = replace(cases.TRAINING, lr=0.02, precision=precision)
    return [result.update for result in make_backend(backend, net).run(jobs, cases.start(net), training)]


@pytest.mark.parametrize("kind", cases.KINDS)
@pytest.mark.parametrize("name", ["sequential", "threaded:2", "vectorised:3"])
def test_bf16_moves_an_update_a_little(name: str, kind: str) -> None:
    away = []
    for full, rounded in zip(updates(kind, "sequential", "full"), updates(kind, name, "bf16"), strict=True):
        assert all(tensor.dtype == torch.float32 for tensor in rounded.values())
        away.append(algebra.norm(algebra.add(rounded, full, -1.0)) / algebra.norm(full))
    assert min(away) > 1e-4
    assert median(away) < 0.1  # one client's ReLU may switch


def test_tf32_is_allowed_inside_only() -> None:
    def allowed() -> list[bool]:
        return [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]

    before = allowed()
    with pytest.raises(RuntimeError, match="stop"), products_in("tf32"):
        assert allowed() == [True, True]
        raise RuntimeError("stop")
    assert allowed() == before
    with products_in("full"):
        assert allowed() == [False, False]
    assert allowed() == before


def test_the_configuration_rounds_float32_only() -> None:
    assert FederationConfig(precision="bf16").local_training().precision == "bf16"
    with pytest.raises(ValidationError, match="precision bf16 rounds products of float32; use it with dtype: float32"):
        FederationConfig(precision="bf16", dtype="float64")
