"""Batched L-BFGS beside the textbook's two loops, on problems whose minima are known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedprint.attacks.inversion.optimisers.lbfgs import Lbfgs, _Memory
from fedprint.attacks.inversion.optimisers.minimise import Limits
from fedprint.rng import torch_rng


def two_loops(pairs: list[tuple[Tensor, Tensor]], g: Tensor) -> Tensor:
    """Algorithm 7.4 of Nocedal and Wright for one problem; ``pairs`` oldest first."""
    q, alphas = g.clone(), []
    for s, y in reversed(pairs):
        alpha = (s @ q) / (s @ y)
        alphas.append(alpha)
        q = q - alpha * y
    if pairs:
        s, y = pairs[-1]
        q = q * (s @ y) / (y @ y)
    for (s, y), alpha in zip(pairs, reversed(alphas), strict=True):
        q = q + s * (alpha - (y @ q) / (s @ y))
    return q


def test_the_memory_equals_the_two_loops_with_rings_of_different_fill() -> None:
    rng, h, d = torch_rng(0), 4, 12
    memory = _Memory(torch.zeros(3, d, dtype=torch.float64), h)
    pairs: list[list[tuple[Tensor, Tensor]]] = [[], [], []]
    a = torch.randn(d, d, generator=rng).double()
    hessian = a @ a.T + torch.eye(d)
    for turn in range(7):
        rows = torch.tensor([p for p in range(3) if turn % (p + 1) == 0])
        s = torch.randn(len(rows), d, generator=rng).double()
        y = s @ hessian
        g = torch.randn(len(rows), d, generator=rng).double()
        found = memory.after(rows, s, y, g)
        for row, pair in zip(rows.tolist(), zip(s, y, strict=True), strict=True):
            pairs[row] = [*pairs[row], pair][-h:]
        for i, p in enumerate(rows.tolist()):
            assert torch.allclose(found[i], two_loops(pairs[p], g[i]), rtol=1e-8, atol=1e-10), (turn, p)
    memory.clear(torch.tensor([1]))
    flat = torch.zeros(1, d, dtype=torch.float64)
    assert torch.equal(memory.after(torch.tensor([1]), flat, flat, g[:1]), g[:1])


def test_pairs_without_curvature_are_left_out() -> None:
    memory = _Memory(torch.zeros(2, 3), 2)
    s = torch.ones(2, 3)
    memory.after(torch.arange(2), s, torch.stack([s[0], -s[1]]), s)
    assert memory.count.tolist() == [1, 0]


def rosenbrocks(scales: Tensor) -> tuple[list[int], object]:
    """Rosenbrock's valley in 10 variables, of different steepness; calls are counted."""
    calls = [0]

    def function(x: Tensor, problems: Tensor) -> tuple[Tensor, Tensor]:
        calls[0] += 1
        x = x.detach().requires_grad_()
        steep = scales[problems][:, None]
        f = (steep * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(1)
        return f.detach(), torch.autograd.grad(f.sum(), x)[0]

    return calls, function


def test_each_problem_reaches_its_minimum_and_ends_on_its_own() -> None:
    scales = torch.tensor([1.0, 10.0, 100.0]).double()
    calls, function = rosenbrocks(scales)
    start = torch.zeros(3, 10).double()
    found = Lbfgs(history=8).minimise(function, start, Limits(evaluations=500, target=1e-16))  # type: ignore[arg-type]
    assert torch.allclose(found.points, torch.ones(3, 10).double(), atol=1e-6)
    assert found.evaluations[0] < found.evaluations[2] < 200
    assert calls[0] == int(found.evaluations.max())


def test_a_problem_alone_takes_the_same_path_as_among_others() -> None:
    scales = torch.tensor([1.0, 30.0, 100.0]).double()
    _, function = rosenbrocks(scales)
    limits = Limits(evaluations=60)
    together = Lbfgs().minimise(function, torch.zeros(3, 10).double(), limits)  # type: ignore[arg-type]
    for p in range(3):
        _, alone = rosenbrocks(scales[p : p + 1])
        found = Lbfgs().minimise(alone, torch.zeros(1, 10).double(), limits)  # type: ignore[arg-type]
        assert torch.allclose(found.points[0], together.points[p], rtol=1e-6)


def test_values_never_rise_and_the_watch_sees_every_evaluation() -> None:
    _, function = rosenbrocks(torch.tensor([100.0, 3.0]).double())
    seen: list[tuple[int, Tensor]] = []
    Lbfgs().minimise(  # type: ignore[arg-type]
        function, torch.zeros(2, 10).double(), Limits(evaluations=50),
        lambda count, points, values: seen.append((count, values.clone())),
    )  # fmt: skip
    assert [count for count, _ in seen] == list(range(1, 51))
    values = torch.stack([values for _, values in seen])
    assert bool((values[1:] <= values[:-1]).all()) and bool((values[-1] < 0.9 * values[0]).all())


def test_a_problem_without_progress_ends_and_one_that_is_nowhere_finite_too() -> None:
    def function(x: Tensor, problems: Tensor) -> tuple[Tensor, Tensor]:
        flat = torch.full((len(x),), 5.0)
        flat[(problems == 1) & (x.abs().sum(1) > 0)] = torch.nan
        return flat, torch.ones_like(x)

    found = Lbfgs().minimise(function, torch.zeros(2, 3), Limits(evaluations=1000, patience=20))
    assert found.values.tolist() == [5, 5]
    assert int(found.evaluations.max()) <= 40


@pytest.mark.parametrize("target", [1e-3, 1e-6])
def test_a_problem_ends_at_its_target(target: float) -> None:
    _, function = rosenbrocks(torch.tensor([10.0]).double())
    found = Lbfgs().minimise(function, torch.zeros(1, 10).double(), Limits(evaluations=500, target=target))  # type: ignore[arg-type]
    assert 0 < float(found.values) <= target
