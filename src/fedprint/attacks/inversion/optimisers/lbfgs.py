"""Limited-memory BFGS on many problems at once; each has its own step, memory and end."""

from __future__ import annotations

import torch
from torch import Tensor

from fedprint.attacks.inversion.optimisers.minimise import Endings, Function, Limits, Minimum, Watch

ARMIJO, SHORTEST, CURVATURE = 1e-4, 1e-8, 1e-9


class Lbfgs:
    """L-BFGS with backtracking line search (Nocedal and Wright, algorithm 7.5 and section 3.5), ``history`` pairs.

    Every call of the function is one trial step of every running problem. A problem whose step is refused tries a
    shorter one while others take their next step: no problem waits for another.
    """

    def __init__(self, history: int = 20) -> None:
        self.history = history

    def minimise(self, function: Function, start: Tensor, limits: Limits, watch: Watch | None = None) -> Minimum:
        """Minimise from ``start`` (v, d)."""
        problems = torch.arange(len(start), device=start.device)
        values, gradients = function(start, problems)
        points, lowest, used = start.clone(), values.clone(), torch.ones_like(problems)
        endings, running = Endings(limits, values), _Running(start, values, gradients, self.history)
        if watch is not None:
            watch(1, points, lowest)
        for count in range(2, limits.evaluations + 1):
            on = ~(endings.ended[problems] | running.stuck)
            if not bool(on.any()):
                break
            if not bool(on.all()):
                problems = problems[on]
                running.keep(on)
            running.advance(*function(running.trial(), problems))
            points[problems], lowest[problems], used[problems] = running.x, running.f, count
            endings.after(count, lowest)
            if watch is not None:
                watch(count, points, lowest)
        return Minimum(points=points, values=lowest, evaluations=used)


class _Running:
    """The k running problems: points x (k, d), values f (k,), gradients g, directions p, steps t, and memories."""

    def __init__(self, x: Tensor, f: Tensor, g: Tensor, history: int) -> None:
        self.x, self.f, self.g = x, f, g
        self.memory = _Memory(x, history)
        self.stuck = torch.zeros_like(f, dtype=torch.bool)
        self.p = -g
        self.t = _first_step(g)

    def keep(self, on: Tensor) -> None:
        """Leave out the problems where ``on`` (k,) is false."""
        for name in ("x", "f", "g", "p", "t", "stuck"):
            setattr(self, name, getattr(self, name)[on])
        self.memory.keep(on)

    def trial(self) -> Tensor:
        """Return the points (k, d) to try next."""
        return self.x + self.t[:, None] * self.p

    def advance(self, f: Tensor, g: Tensor) -> None:
        """Use the function at :meth:`trial`: accept each step that descends enough, shorten the others."""
        slope = (self.g * self.p).sum(1)
        taken = f <= self.f + ARMIJO * self.t * slope  # false for NaN
        self._shorten(~taken, f, slope)
        rows = taken.nonzero()[:, 0]
        step = self.t[rows, None] * self.p[rows]
        scaled = self.memory.after(rows, step, g[rows] - self.g[rows], g[rows])
        self.x = self.x.index_add(0, rows, step)
        self.f, self.g = torch.where(taken, f, self.f), torch.where(taken[:, None], g, self.g)
        self.p, self.t = self.p.clone(), self.t.clone()
        self.p[rows], self.t[rows] = self._downhill(rows, -scaled), 1.0
        first = rows[self.memory.count[rows] == 0]
        self.t[first] = _first_step(self.g[first])

    def _downhill(self, rows: Tensor, p: Tensor) -> Tensor:
        """Return the directions ``p`` (r, d) of the problems ``rows``; where they lead uphill, the steepest descent."""
        uphill = (p * self.g[rows]).sum(1) >= 0
        if bool(uphill.any()):
            self.memory.clear(rows[uphill])
            p[uphill] = -self.g[rows[uphill]]
        return p

    def _shorten(self, refused: Tensor, f: Tensor, slope: Tensor) -> None:
        """Set the steps of the ``refused`` (k,) to the minimum of a parabola, a tenth to a half of the last step.

        Where no step is short enough the memory is cleared; a problem with an empty memory is stuck.
        """
        parabola = -slope * self.t.square() / (2 * (f - self.f - slope * self.t))
        shorter = torch.where(f.isfinite(), parabola, self.t / 10).clamp(self.t / 10, self.t / 2)
        self.t = torch.where(refused, shorter, self.t)
        lost = refused & (self.t < SHORTEST)
        if bool(lost.any()):
            self.stuck |= lost & (self.memory.count == 0)
            again = lost.nonzero()[:, 0]
            self.memory.clear(again)
            self.p, self.t = self.p.clone(), self.t.clone()
            self.p[again], self.t[again] = -self.g[again], _first_step(self.g[again])


def _first_step(g: Tensor) -> Tensor:
    """Return steps (k,) along -g of total length 1, for use without any knowledge of the curvature."""
    return torch.reciprocal(g.norm(dim=1).clamp(min=1e-30))


class _Memory:
    """The last h pairs (s, y) of each problem in rings, with their inner products."""

    def __init__(self, x: Tensor, history: int) -> None:
        k, d = x.shape
        self.s, self.y = x.new_zeros(k, history, d), x.new_zeros(k, history, d)
        self.sy, self.yy = x.new_zeros(k, history, history), x.new_zeros(k, history, history)
        self.count = torch.zeros(k, dtype=torch.long, device=x.device)
        """Pairs ever added since the memory was clear."""

    def keep(self, on: Tensor) -> None:
        """Leave out the problems where ``on`` (k,) is false."""
        for name in ("s", "y", "sy", "yy", "count"):
            setattr(self, name, getattr(self, name)[on])

    def clear(self, rows: Tensor) -> None:
        """Forget the pairs of the problems ``rows``."""
        self.count[rows] = 0

    def after(self, rows: Tensor, s: Tensor, y: Tensor, g: Tensor) -> Tensor:
        """Add pairs (r, d) to the problems ``rows`` (r,), and return their inverse Hessians times ``g`` (r, d).

        Pairs without curvature are left out. Memories are larger than caches: one reading makes all inner products.
        """
        good = (s * y).sum(1) > CURVATURE * s.norm(dim=1) * y.norm(dim=1)
        kept, s, y = rows[good], s[good], y[good]
        slot = self.count[kept] % self.s.shape[1]
        self.s[kept, slot], self.y[kept, slot] = s, y
        step, change, gradient = self._everywhere(kept, s), self._everywhere(kept, y), self._everywhere(rows, g)
        of_s = torch.einsum("khd,kxd->kxh", self.s, torch.stack([change, gradient], 1))
        of_y = torch.einsum("khd,kxd->kxh", self.y, torch.stack([step, change, gradient], 1))
        self.sy[kept, :, slot] = of_s[kept, 0]
        self.sy[kept, slot], self.yy[kept, slot], self.yy[kept, :, slot] = of_y[kept, 0], of_y[kept, 1], of_y[kept, 1]
        self.count[kept] += 1
        return self._times(rows, g, of_s[rows, 1], of_y[rows, 2])

    def _everywhere(self, rows: Tensor, values: Tensor) -> Tensor:
        """Return ``values`` (r, ...) of the problems ``rows`` as rows among all problems (k, ...), zero elsewhere.

        Nearly all problems step at once: products for all cost less than a copy of some problems' memories.
        """
        return values.new_zeros(len(self.count), *values.shape[1:]).index_copy(0, rows, values)

    def _times(self, rows: Tensor, g: Tensor, sg: Tensor, yg: Tensor) -> Tensor:
        """Return the inverse Hessians times ``g``; ``sg`` and ``yg`` (r, h) are its inner products with the pairs.

        The two loops of algorithm 7.4 are two triangular systems in the inner products; the newest pair comes first.
        """
        h = self.s.shape[1]
        back = torch.arange(h, device=g.device)
        order = (self.count[rows, None] - 1 - back) % h
        known = back < self.count[rows, None]
        sy, yy = (_ordered(gram[rows], order, known) for gram in (self.sy, self.yy))
        sg, yg = (products.gather(1, order) * known for products in (sg, yg))
        newest = sy[:, 0, 0] / yy[:, 0, 0].clamp(min=1e-30)
        scale = torch.where(known[:, 0], newest, torch.ones_like(newest))[:, None]
        lower = torch.tril(sy) + torch.diag_embed((~known).to(sy))
        alpha = torch.linalg.solve_triangular(lower, sg[..., None], upper=False)[..., 0]
        rest = lower.diagonal(dim1=1, dim2=2) * alpha - scale * (yg - torch.einsum("rij,rj->ri", yy, alpha))
        c = torch.linalg.solve_triangular(lower.mT, rest[..., None], upper=True)[..., 0]
        along_y = torch.zeros_like(alpha).scatter(1, order, alpha)
        along_s = torch.zeros_like(c).scatter(1, order, c)
        back_along = (self._everywhere(rows, weights) for weights in (along_y, along_s))
        in_y, in_s = (torch.einsum("kh,khd->kd", w, m)[rows] for w, m in zip(back_along, (self.y, self.s), strict=True))
        return scale * (g - in_y) + in_s


def _ordered(gram: Tensor, order: Tensor, known: Tensor) -> Tensor:
    """Return inner products (r, h, h) in ``order`` (r, h) both ways, zeros where a pair is not ``known``."""
    h = gram.shape[1]
    rows = gram.gather(1, order[:, :, None].expand(-1, -1, h))
    return rows.gather(2, order[:, None, :].expand(-1, h, -1)) * known[:, :, None] * known[:, None, :]
