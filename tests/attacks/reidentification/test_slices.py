from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from attack_cases import planted, problem

from fedprint.attacks.features import TRANSFORMS, Block, Transform
from fedprint.attacks.problem import Problem
from fedprint.attacks.reidentification import slices
from fedprint.attacks.reidentification.slices import SlicedWorkspace
from fedprint.attacks.reidentification.workspace import Workspace

BODY, HEAD = ("body.weight", "body.bias"), ("head.weight",)


def _part(whole: Problem, seed: int = 0) -> Problem:
    """A third of the fit rows, in another order."""
    chosen = np.random.default_rng(seed).permutation(len(whole.fit))[: len(whole.fit) // 3]
    return replace(whole, fit=whole.fit[chosen], labels=whole.labels[chosen])


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("layers", [(HEAD,), (BODY, HEAD)], ids=["one", "all"])
def test_a_slice_is_the_kernel_computed_for_itself(layers: tuple[tuple[str, ...], ...], transform: Transform) -> None:
    whole = problem(planted(1.0))
    block: Block = (layers, transform)
    part = _part(whole)
    found = SlicedWorkspace(whole).kernel(part, block)
    assert found.shape == (len(whole.fit) + len(whole.ask), len(part.fit))
    np.testing.assert_allclose(found, Workspace().kernel(part, block), atol=2e-5)


def test_products_are_computed_once_for_all_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = slices.products
    monkeypatch.setattr(slices, "products", lambda *args, **named: calls.append(args[2]) or real(*args, **named))
    whole = problem(planted(1.0))
    work = SlicedWorkspace(whole)
    for seed in range(4):
        work.kernel(_part(whole, seed), ((HEAD,), "sign"))
    assert [len(fit) for fit in calls] == [len(whole.fit)]


def test_other_updates_and_rows_are_computed_for_themselves() -> None:
    whole, other = problem(planted(1.0)), problem(planted(1.0, seed=5))
    work, block = SlicedWorkspace(whole), ((HEAD,), "sqrt")
    turned = replace(whole, fit=whole.ask, ask=whole.fit)
    for unrelated in (other, turned):
        np.testing.assert_array_equal(work.kernel(unrelated, block), Workspace().kernel(unrelated, block))
