"""Adam on many problems at once (Kingma and Ba 2015), as gradient inversion uses it (Geiping et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from fedprint.attacks.inversion.optimisers.minimise import Endings, Function, Limits, Minimum, Watch

DROPS = (3 / 8, 5 / 8, 7 / 8)
"""Shares of the evaluations after which the rate falls to a tenth (Geiping et al. 2020, appendix)."""
BETAS = (0.9, 0.999)


class Adam:
    """Adam of rate ``lr``; ``signed`` takes the signs of the gradients. Returns the lowest point of the search."""

    def __init__(self, lr: float = 0.1, *, signed: bool = False) -> None:
        self.lr, self.signed = lr, signed

    def minimise(self, function: Function, start: Tensor, limits: Limits, watch: Watch | None = None) -> Minimum:
        """Minimise from ``start`` (v, d)."""
        problems = torch.arange(len(start), device=start.device)
        x, first, second = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
        best, now = start.clone(), start.clone()
        lowest = start.new_full((len(start),), torch.inf)
        values, used = lowest.clone(), torch.zeros_like(problems)
        endings = Endings(limits, lowest)
        for count in range(1, limits.evaluations + 1):
            f, g = function(x, problems)
            now[problems], values[problems], used[problems] = x, f, count
            better = values < lowest
            best, lowest = torch.where(better[:, None], now, best), torch.where(better, values, lowest)
            if watch is not None:
                watch(count, now, values)
            endings.after(count, lowest)
            g = g.sign() if self.signed else g
            first = first.lerp(g, 1 - BETAS[0])
            second = second.lerp(g.square(), 1 - BETAS[1])
            rate = self.lr * 0.1 ** sum(count > drop * limits.evaluations for drop in DROPS)
            unbiased = (second / (1 - BETAS[1] ** count)).sqrt() + 1e-8
            x = x - rate * first / (1 - BETAS[0] ** count) / unbiased
            on = ~endings.ended[problems]
            if not bool(on.all()):
                problems, x, first, second = problems[on], x[on], first[on], second[on]
            if len(problems) == 0:
                break
        return Minimum(points=best, values=lowest, evaluations=used)
