"""Dense linear algebra on a device (cpu, cuda), from and to NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedprint.types import Doubles, Floats, Ints

_ROWS, _SQUARE = 1 << 12, 1 << 10
_RESIDUAL = 1e-10
"""The residual at which refinement ends, as a share of the largest target."""


def matrix_product(left: NDArray[np.floating], right: NDArray[np.floating], device: str) -> NDArray[np.floating]:
    """Return ``left right``."""
    if device == "cpu":
        return left @ right
    product: NDArray[np.floating] = (_on(left, device) @ _on(right, device)).cpu().numpy()
    return product


def row_squares(z: Tensor) -> Tensor:
    """Return each row's sum of squares (n,); on a CPU without a copy of ``z``."""
    if z.device.type != "cpu":
        return z.square().sum(1)
    return torch.from_numpy(np.einsum("ij,ij->i", z.numpy(), z.numpy()))


def nearest_rows(known: Floats, asked: Floats, k: int, device: str) -> Ints:
    """Return the positions (q, k) of the ``k`` known rows (p, d) that are nearest to each asked one (q, d)."""
    other = _on(known, device)
    squares = row_squares(other)

    def parts() -> Iterator[Tensor]:
        for first in range(0, len(asked), _ROWS):
            rows = _on(asked[first : first + _ROWS], device)
            yield torch.addmm(-squares, rows, other.T, alpha=2).topk(k).indices.cpu()

    nearest: Ints = torch.cat(list(parts())).numpy()
    return nearest


def positive_solution(matrix: Doubles, targets: Doubles, device: str) -> Doubles:
    """Solve ``matrix x = targets`` for a symmetric positive definite matrix (p, p): x (p, m). It may overwrite both."""
    if device == "cpu":
        from scipy.linalg import cho_factor, cho_solve

        # Its transpose is the same matrix in the order of columns that LAPACK wants: nothing is copied.
        factor = cho_factor(matrix.T, overwrite_a=True, check_finite=False)
        x: Doubles = cho_solve(factor, targets, overwrite_b=True, check_finite=False)
        return x
    lower = torch.linalg.cholesky(_on(matrix, device))
    solved: Doubles = torch.cholesky_solve(_on(targets, device), lower).cpu().numpy()
    return solved


def refined_solution(matrix: Floats, shift: float, targets: Doubles) -> Doubles:
    """Solve ``(matrix + shift I) x = targets`` on the CPU, for a symmetric positive semidefinite matrix: x (p, m).

    The factor is of float32 and its answer refined by residuals in float64 (Higham 2002, section 12.1): half of the
    memory of a float64 factor, and the same answer. Where rounding spoils it, a float64 factor answers.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    system = matrix.copy()
    system[np.diag_indices_from(system)] += np.float32(shift)
    try:
        factor = cho_factor(system.T, overwrite_a=True, check_finite=False)
    except LinAlgError:
        factor = None
    x, residual, before = np.zeros_like(targets), targets, np.inf
    small = _RESIDUAL * np.abs(targets).max()
    while factor is not None:
        x += cho_solve(factor, residual.astype(np.float32), check_finite=False)
        residual = targets - shift * x
        for first in range(0, len(matrix), _SQUARE):
            rows = slice(first, first + _SQUARE)
            residual[rows] -= matrix[rows].astype(np.float64) @ x
        left = np.abs(residual).max()
        if left <= small:
            return x
        if not left < before / 2:
            break
        before = left
    whole = matrix.astype(np.float64)
    whole[np.diag_indices_from(whole)] += shift
    return positive_solution(whole, targets.copy(), "cpu")


def symmetrise(matrix: Floats) -> None:
    """Replace a matrix (p, p) by the mean of itself and its transpose, without a second one."""
    for first in range(0, len(matrix), _SQUARE):
        rows, rest = slice(first, first + _SQUARE), slice(first, None)
        mean = (matrix[rows, rest] + matrix[rest, rows].T) / 2
        matrix[rows, rest], matrix[rest, rows] = mean, mean.T


def eigenpairs(matrix: Doubles, device: str) -> tuple[Doubles, Doubles]:
    """Return all eigenvalues (p,), ascending, and vectors (p, p) of a symmetric matrix (p, p)."""
    if device == "cpu":
        return np.linalg.eigh(matrix)
    found = torch.linalg.eigh(_on(matrix, device))
    return found.eigenvalues.cpu().numpy(), found.eigenvectors.cpu().numpy()


def leading_eigenpairs(matrix: Doubles, count: int, device: str) -> tuple[Doubles, Doubles]:
    """Return the ``count`` largest eigenvalues (k,), ascending, and vectors (p, k) of a symmetric matrix (p, p).

    It may overwrite the matrix.
    """
    last = len(matrix) - 1
    first = max(0, last - count + 1)
    if device == "cpu":
        from scipy.linalg import eigh

        values, vectors = eigh(matrix, subset_by_index=(first, last), overwrite_a=True, check_finite=False)
        return values, vectors
    values, vectors = eigenpairs(matrix, device)
    return values[first:], vectors[:, first:]


def _on(array: NDArray[np.floating], device: str) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
