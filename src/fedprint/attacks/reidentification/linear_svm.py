"""Linear support vector machines of many classes at once, one class against the rest.

scikit-learn fits one class after another in scalar loops; here the same Newton steps are products of matrices.
Letters: n rows, d features, m classes.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from fedprint.types import Doubles, Floats, Ints

_CLASSES, _LANES = 128, 2
_TOLERANCE, _NEWTON, _CONJUGATE, _HALVINGS = 1e-3, 100, 200, 30


def one_vs_rest_margins(x: Floats, labels: Ints, ask: Floats, c: float) -> Doubles:
    """Return the margins (q, m) of ``ask`` (q, d) for the classes ``np.unique(labels)`` of rows ``x`` (n, d).

    The problem is that of liblinear's L2-regularised squared hinge loss with a bias among the weights (Fan et al. 2008,
    section A.1), solved to its tolerance: ``|w|^2 / 2 + c sum(max(0, 1 - y (w x + b))^2)``. Some classes at a time, on
    two threads: bits do not depend on the machine's cores.
    """
    rows, asked = _with_bias(x), _with_bias(ask)
    classes = np.unique(labels)
    parts = np.array_split(classes, -(-len(classes) // _CLASSES))
    with ThreadPoolExecutor(_LANES) as pool:
        margins = pool.map(lambda part: asked @ _fit(rows, np.where(labels[:, None] == part, 1.0, -1.0), c), parts)
        return np.concatenate(list(margins), axis=1)


def _with_bias(x: Floats) -> Doubles:
    return np.concatenate([x.astype(np.float64), np.ones((len(x), 1))], axis=1)


def _fit(x: Doubles, y: Doubles, c: float) -> Doubles:
    """Return weights (d, m) for signs ``y`` (n, m): Newton's method with conjugate gradients, each class by itself."""
    weights, outputs = np.zeros((x.shape[1], y.shape[1])), np.zeros(y.shape)
    rarer = np.minimum((y > 0).sum(0), (y < 0).sum(0)) / len(y)
    first, cost = None, _cost(weights, outputs, y, c)
    for _ in range(_NEWTON):
        short = np.maximum(0.0, 1 - y * outputs)
        gradient = weights - 2 * c * (x.T @ (y * short))
        size = np.linalg.norm(gradient, axis=0)
        first = size if first is None else first
        going = size > _TOLERANCE * np.maximum(rarer, 1 / len(y)) * first
        if not going.any():
            break
        step = _newton_step(x, (short > 0) * (2 * c), gradient, going)
        weights, outputs, cost = _searched(weights, outputs, cost, step, x @ step, gradient, y, c)
    return weights


def _cost(weights: Doubles, outputs: Doubles, y: Doubles, c: float) -> Doubles:
    cost: Doubles = 0.5 * (weights**2).sum(0) + c * (np.maximum(0.0, 1 - y * outputs) ** 2).sum(0)
    return cost


def _newton_step(x: Doubles, curvature: NDArray[np.floating], gradient: Doubles, going: NDArray[np.bool_]) -> Doubles:
    """Solve ``(I + x' diag(curvature) x) s = -gradient`` per class to a tenth of the gradient; 0 for classes that end.

    ``curvature`` (n, m) is 2 c for rows inside the margin and 0 for others.
    """
    step = np.zeros_like(gradient)
    rest = np.where(going, -gradient, 0.0)
    direction, square = rest.copy(), (rest**2).sum(0)
    enough = 0.01 * square
    for _ in range(_CONJUGATE):
        if (square <= enough).all():
            break
        bent = direction + x.T @ (curvature * (x @ direction))
        along = (direction * bent).sum(0)
        length = np.where(square > enough, square / np.maximum(along, 1e-300), 0.0)
        step += length * direction
        rest -= length * bent
        before, square = square, np.where(length > 0, (rest**2).sum(0), square)
        direction = rest + direction * (square / np.maximum(before, 1e-300))
    return step


def _searched(
    weights: Doubles,
    outputs: Doubles,
    cost: Doubles,
    step: Doubles,
    change: Doubles,
    gradient: Doubles,
    y: Doubles,
    c: float,
) -> tuple[Doubles, Doubles, Doubles]:
    """Halve each class's step until its cost falls enough (Armijo); a class whose cost cannot fall stays."""
    slope, length = (gradient * step).sum(0), np.ones(y.shape[1])
    for _ in range(_HALVINGS):
        new = _cost(weights + length * step, outputs + length * change, y, c)
        fails = new > cost + 0.01 * length * slope
        if not fails.any():
            break
        length = np.where(fails, length / 2, length)
    length = np.where(new <= cost, length, 0.0)
    return weights + length * step, outputs + length * change, np.minimum(new, cost)
