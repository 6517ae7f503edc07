"""Linear support vector machines of many classes at once, one class against the rest.

scikit-learn fits one class after another in scalar loops; here the same Newton steps are products of matrices.
Letters: n rows, d features, m classes.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from fedprint.types import Doubles, Floats, Ints

_CLASSES, _LANES = 128, 2
_TOLERANCE, _NEWTON, _CONJUGATE, _HALVINGS = 1e-3, 100, 200, 30


def one_vs_rest_margins(x: Floats, labels: Ints, ask: Floats, c: float, device: str = "cpu") -> Doubles:
    """Return the margins (q, m) of ``ask`` (q, d) for the classes ``np.unique(labels)`` of rows ``x`` (n, d).

    The problem is that of liblinear's L2-regularised squared hinge loss with a bias among the weights (Fan et al. 2008,
    section A.1), solved to its tolerance: ``|w|^2 / 2 + c sum(max(0, 1 - y (w x + b))^2)``. Some classes at a time, on
    two threads: bits do not depend on the machine's cores. ``device`` is cpu or cuda.
    """
    rows, asked = _with_bias(x, device), _with_bias(ask, device)
    known = torch.from_numpy(labels).to(device)
    classes = torch.unique(known)

    def margins_of(some: Tensor) -> Tensor:
        signs = torch.where(known[:, None] == some, 1.0, -1.0).double()
        return (asked @ _fit(rows, signs, c)).cpu()

    with ThreadPoolExecutor(_LANES) as pool:
        margins: Doubles = torch.cat(list(pool.map(margins_of, classes.split(_CLASSES))), dim=1).numpy()
    return margins


def _with_bias(x: Floats, device: str) -> Tensor:
    wide = torch.from_numpy(np.ascontiguousarray(x)).to(device, torch.float64)
    return torch.cat([wide, torch.ones_like(wide[:, :1])], dim=1)


def _fit(x: Tensor, y: Tensor, c: float) -> Tensor:
    """Return weights (d, m) for signs ``y`` (n, m): Newton's method with conjugate gradients, each class by itself."""
    weights, outputs = x.new_zeros(x.shape[1], y.shape[1]), torch.zeros_like(y)
    rarer = torch.minimum((y > 0).sum(0), (y < 0).sum(0)) / len(y)
    first, cost = None, _cost(weights, outputs, y, c)
    for _ in range(_NEWTON):
        short = (1 - y * outputs).clamp_min(0)
        gradient = weights - 2 * c * (x.T @ (y * short))
        size = gradient.norm(dim=0)
        first = size if first is None else first
        going = size > _TOLERANCE * rarer.clamp_min(1 / len(y)) * first
        if not going.any():
            break
        step = _newton_step(x, (short > 0) * (2 * c), gradient, going)
        weights, outputs, cost = _searched(weights, outputs, cost, step, x @ step, gradient, y, c)
    return weights


def _cost(weights: Tensor, outputs: Tensor, y: Tensor, c: float) -> Tensor:
    return 0.5 * weights.square().sum(0) + c * (1 - y * outputs).clamp_min(0).square().sum(0)


def _newton_step(x: Tensor, curvature: Tensor, gradient: Tensor, going: Tensor) -> Tensor:
    """Solve ``(I + x' diag(curvature) x) s = -gradient`` per class to a tenth of the gradient; 0 for classes that end.

    ``curvature`` (n, m) is 2 c for rows inside the margin and 0 for others.
    """
    step = torch.zeros_like(gradient)
    rest = torch.where(going, -gradient, 0.0)
    direction, square = rest.clone(), rest.square().sum(0)
    enough = 0.01 * square
    for _ in range(_CONJUGATE):
        if (square <= enough).all():
            break
        bent = direction + x.T @ (curvature * (x @ direction))
        along = (direction * bent).sum(0)
        length = torch.where(square > enough, square / along.clamp_min(1e-300), 0.0)
        step += length * direction
        rest -= length * bent
        before, square = square, torch.where(length > 0, rest.square().sum(0), square)
        direction = rest + direction * (square / before.clamp_min(1e-300))
    return step


def _searched(
    weights: Tensor, outputs: Tensor, cost: Tensor, step: Tensor, change: Tensor, gradient: Tensor, y: Tensor, c: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Halve each class's step until its cost falls enough (Armijo); a class whose cost cannot fall stays."""
    slope, length = (gradient * step).sum(0), cost.new_ones(y.shape[1])
    for _ in range(_HALVINGS):
        new = _cost(weights + length * step, outputs + length * change, y, c)
        fails = new > cost + 0.01 * length * slope
        if not fails.any():
            break
        length = torch.where(fails, length / 2, length)
    length = torch.where(new <= cost, length, 0.0)
    return weights + length * step, outputs + length * change, torch.minimum(new, cost)
