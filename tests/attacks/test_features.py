from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import attack_cases as cases
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedprint.attacks import features
from fedprint.attacks.features import (
    ROW_WISE,
    TRANSFORMS,
    Transform,
    deal,
    in_span,
    kernel,
    layer_groups,
    matrix,
    products,
)
from fedprint.attacks.reidentification import workspace
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.attacks.updates import Joined, MemoryUpdates, RowsOf
from fedprint.params import select

FIT = np.arange(0, 40, 2)
BODY, HEAD = ("body.weight", "body.bias"), ("head.weight",)


@pytest.fixture
def updates() -> MemoryUpdates:
    """Updates (40, 60) with exact zeros, as of weights that a device never touched."""
    rng = np.random.default_rng(0)
    values = 1e-3 * rng.normal(size=(40, 60)) + 1e-3 * rng.normal(size=60)
    return MemoryUpdates(sizes=cases.SIZES, values=(values * (rng.random((40, 60)) < 0.8)).astype(np.float32))


def _columns(updates: MemoryUpdates, layers: Sequence[str]) -> NDArray[np.float64]:
    return np.concatenate(list(updates.blocks(layers)), axis=1).astype(np.float64)


def _transformed(updates: MemoryUpdates, layers: Sequence[str], transform: Transform) -> NDArray[np.float64]:
    """Transform the explicit matrix, as the docstring of TRANSFORMS says."""
    x = _columns(updates, layers)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    if transform == "std":
        spread = unit[FIT].std(0)
        return (unit - unit[FIT].mean(0)) / (spread + 1e-3 * np.sqrt(np.mean(spread**2)) + 1e-12)
    if transform == "sqrt":
        return np.sign(x) * np.sqrt(np.abs(x))
    return np.sign(x) if transform == "sign" else x


def _slow_kernel(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Normalise, centre on the fit rows, normalise again, multiply."""
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    z = z - z[FIT].mean(0)
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    return z @ z[FIT].T


@pytest.mark.parametrize("layers", [BODY, HEAD, (*BODY, *HEAD)], ids=["body", "head", "all"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_kernel_equals_the_slow_reference(
    updates: MemoryUpdates, transform: Transform, layers: tuple[str, ...]
) -> None:
    fast = kernel(products(updates, layers, FIT)[transform], FIT)
    np.testing.assert_allclose(fast, _slow_kernel(_transformed(updates, layers, transform)), atol=2e-5)


def test_transforms_differ(updates: MemoryUpdates) -> None:
    kernels = [kernel(found, FIT) for found in products(updates, BODY, FIT).values()]
    distances = [np.abs(a - b).max() for i, a in enumerate(kernels) for b in kernels[:i]]
    assert min(distances) > 0.05


@pytest.mark.parametrize("transform", ["sqrt", "sign"])
def test_products_of_two_layers_add_up(updates: MemoryUpdates, transform: Transform) -> None:
    parts = [products(updates, layers, FIT)[transform] for layers in (BODY, HEAD)]
    whole = products(updates, (*BODY, *HEAD), FIT)[transform]
    joined = parts[0] + parts[1]
    np.testing.assert_allclose(joined.cross, whole.cross, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(joined.squares, whole.squares, rtol=1e-4)


def test_workspace_joins_layers_as_the_sum_of_their_products(updates: MemoryUpdates) -> None:
    """Standardised coordinates: each layer's updates have length one before they meet."""
    z = np.concatenate([_transformed(updates, layers, "std") for layers in (BODY, HEAD)], axis=1)
    problem = replace(cases.problem(updates, labels=np.zeros(20, np.int64)), fit=FIT, ask=np.arange(len(z)))
    np.testing.assert_allclose(Workspace().kernel(problem, ((BODY, HEAD), "std")), _slow_kernel(z), atol=2e-5)
    few = replace(problem, ask=np.array([3, 30]))
    found, rows = Workspace().kernel(few, ((BODY, HEAD), "std")), np.union1d(FIT, few.ask)
    np.testing.assert_allclose(found[rows], _slow_kernel(z)[rows], atol=2e-5)
    assert np.isnan(np.delete(found, rows, axis=0)).all(), "other rows are not computed"


def test_workspace_tells_problems_with_other_fit_rows_apart(updates: MemoryUpdates) -> None:
    work, problem = Workspace(), replace(cases.problem(updates, labels=np.zeros(20, np.int64)), fit=FIT)
    first = work.kernel(problem, ((HEAD,), "l2"))
    other = work.kernel(replace(problem, fit=FIT + 1), ((HEAD,), "l2"))
    assert np.abs(first - other).max() > 0.01
    assert work.kernel(replace(problem, labels=problem.labels + 1), ((HEAD,), "l2")) is first, "labels must not matter"


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_prepared_workspace_answers_as_an_empty_one(updates: MemoryUpdates, transform: Transform) -> None:
    problem = replace(cases.problem(updates, labels=np.zeros(20, np.int64)), fit=FIT)
    work, block = Workspace(), ((BODY, HEAD), transform)
    work.prepare(problem, [block])
    for fit in (FIT, FIT[::2], FIT + 1):
        asked = replace(problem, fit=fit)
        np.testing.assert_allclose(work.kernel(asked, block), Workspace().kernel(asked, block), atol=2e-5)


def test_problems_on_the_same_rows_share_their_products(
    updates: MemoryUpdates, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, tuple[Transform, ...]]] = []
    real = products
    monkeypatch.setattr(workspace, "products", lambda *a: calls.append((len(a[2]), tuple(a[3]))) or real(*a))
    problem = replace(cases.problem(updates, labels=np.zeros(20, np.int64)), fit=FIT)
    work = Workspace()
    for fit in (FIT, FIT + 1):
        work.prepare(replace(problem, fit=fit), [((HEAD,), transform) for transform in TRANSFORMS])
        work.kernel(replace(problem, fit=fit), ((HEAD,), "sign"))
    rows = len(updates.values)
    assert calls == [(rows, ROW_WISE), (len(FIT), ("std",)), (len(FIT), ("std",))]


@pytest.mark.parametrize("width", [1, 7, 60])
def test_bounded_blocks_equal_one_block(updates: MemoryUpdates, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = products(updates, (*BODY, *HEAD), FIT)
    monkeypatch.setattr(features, "_COLUMNS", width)
    parts = products(updates, (*BODY, *HEAD), FIT)
    for transform in TRANSFORMS:
        # std: what keeps a coordinate that hardly moves from blowing up is taken over the block
        tolerance = 1e-3 if transform == "std" else 2e-5
        np.testing.assert_allclose(kernel(parts[transform], FIT), kernel(whole[transform], FIT), atol=tolerance)


def test_two_lanes_give_the_same_bits_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "_COLUMNS", 32)
    values = np.random.default_rng(0).normal(size=(60, 1000)).astype(np.float32)
    wide = MemoryUpdates(sizes={"a.weight": 1000}, values=values)
    first = products(wide, ["a.weight"], FIT)
    for _ in range(10):
        again = products(wide, ["a.weight"], FIT)
        for transform in TRANSFORMS:
            assert again[transform].cross.equal(first[transform].cross)
            assert again[transform].squares.equal(first[transform].squares)


def test_a_silent_device_gives_finite_kernels(updates: MemoryUpdates) -> None:
    """An update of zeros (a defence may send one) has no direction; no other row's kernel may become NaN."""
    values = updates.values.copy()
    values[3] = 0
    for found in products(replace(updates, values=values), BODY, FIT).values():
        assert np.isfinite(kernel(found, FIT)).all()


def test_scaling_an_update_changes_nothing(updates: MemoryUpdates) -> None:
    scaled = replace(updates, values=updates.values * np.linspace(0.5, 20, 40, dtype=np.float32)[:, None])
    for transform in TRANSFORMS:
        before, after = (kernel(products(u, HEAD, FIT)[transform], FIT) for u in (updates, scaled))
        np.testing.assert_allclose(after, before, atol=2e-5)


def test_matrix_is_normalised_over_the_chosen_layers_together(updates: MemoryUpdates) -> None:
    x = matrix(updates, ["body"])
    assert x.shape == (40, 36)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-6)
    raw = _columns(updates, BODY)
    np.testing.assert_allclose(x, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-6)


def test_coordinates_in_the_span_keep_inner_products_with_the_fit_rows() -> None:
    x = np.random.default_rng(0).normal(size=(50, 300)).astype(np.float32)
    fit = np.arange(20)
    low = in_span(x, fit)
    assert low.shape[1] <= 20
    np.testing.assert_allclose(low @ low[fit].T, x @ x[fit].T, atol=2e-3)
    assert in_span(x[:, :10], fit) is not low
    np.testing.assert_array_equal(in_span(x[:, :10], fit), x[:, :10])


def test_layers_are_weights_with_their_bias_but_a_long_bias_stands_alone() -> None:
    sizes = {
        "conv.weight": 50,
        "conv.bias": 5,
        "lstm.weight_ih": 9,
        "lstm.weight_hh": 9,
        "head.weight": 8,
        "head.bias": 5000,
    }
    empty = MemoryUpdates(sizes=sizes, values=np.zeros((1, sum(sizes.values())), np.float32))
    assert layer_groups(empty) == (
        ("conv.weight", "conv.bias"),
        ("lstm.weight_ih", "lstm.weight_hh"),
        ("head.weight",),
        ("head.bias",),
    )


def test_memory_updates_yield_the_chosen_layers_in_order(updates: MemoryUpdates) -> None:
    assert select(updates.layers, ["head"]) == HEAD
    np.testing.assert_array_equal(_columns(updates, ["head"]), updates.values[:, 36:])
    narrow = np.concatenate(list(updates.blocks(["body"], columns=7)), axis=1)
    np.testing.assert_array_equal(narrow, updates.values[:, :36])


def test_some_rows_of_a_table_are_those_of_all_its_rows() -> None:
    first, second = cases.planted(1.0, seed=1), cases.planted(1.0, seed=2)
    joined = Joined(first=first, second=RowsOf(updates=second, rows=np.arange(3, 20)))
    rows = np.array([0, 200, 5, 195, 5, 207])
    every = np.concatenate(list(joined.blocks(columns=16)), axis=1)
    np.testing.assert_array_equal(np.concatenate(list(joined.blocks(rows=rows, columns=16)), axis=1), every[rows])
    last = RowsOf(updates=joined, rows=rows)
    np.testing.assert_array_equal(np.concatenate(list(last.blocks(rows=np.array([3, 1]))), axis=1), every[rows[[3, 1]]])


@pytest.mark.parametrize("as_bytes", [True, False])
@pytest.mark.parametrize("square", [3, 1024])
def test_products_of_signs_are_exact_on_any_processor(
    square: int, as_bytes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "_multiplies_bytes", lambda: as_bytes)
    monkeypatch.setattr(features, "_SQUARE", square)
    rng = np.random.default_rng(0)
    values = rng.integers(-1, 2, (11, 70)).astype(np.float32) * rng.random((11, 70), dtype=np.float32)
    updates, fit = MemoryUpdates(sizes={"layer": 70}, values=values), np.array([9, 2, 5, 0, 7, 4, 1])
    found = products(updates, ["layer"], fit, ["sign"])["sign"]
    signs = np.sign(values)
    np.testing.assert_array_equal(found.cross.numpy(), signs @ signs[fit].T)
    np.testing.assert_array_equal(found.squares.numpy(), (signs**2).sum(1))
    assert found.cross.dtype == torch.float32


def test_blocks_are_read_once_and_dealt_in_turn() -> None:
    read: list[int] = []

    def blocks() -> Iterator[np.ndarray]:
        for number in range(5):
            read.append(number)
            yield np.full(1, number)

    held: tuple[list[int], list[int]] = ([], [])
    deal(blocks(), [lambda block, own=own: own.append(int(block[0])) for own in held])  # type: ignore[misc]
    assert read == [0, 1, 2, 3, 4] and held == ([0, 2, 4], [1, 3])


def test_what_fails_in_a_lane_is_raised() -> None:
    def lane(block: np.ndarray) -> None:
        raise ValueError("a lane")

    with pytest.raises(ValueError, match="a lane"):
        deal(iter([np.zeros(1)] * 3), [lane, lane])
