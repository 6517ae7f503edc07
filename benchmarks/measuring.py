"""What every measurement shares: its result, turns in one process, ratios with intervals, fitted exponents.

Torch is imported where it is needed, so that the program that starts the parts is light.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number of a part's table, with the ends of its 95 % interval where it has one; the column names the unit."""

    row: str
    column: str
    value: float
    lo: float | None = None
    hi: float | None = None

    def text(self) -> str:
        """Return the number as tables print it."""
        interval = "" if self.lo is None or self.hi is None else f" [{short(self.lo)}, {short(self.hi)}]"
        return short(self.value) + interval


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Costs at several sizes of one thing, with the exponent e of cost ~ size^e and its 95 % interval.

    ``cost`` names what is counted and its unit. The interval is None with two sizes, the exponent too with one.
    """

    title: str
    size: str
    cost: str
    sizes: tuple[float, ...]
    costs: tuple[float, ...]
    exponent: float | None
    lo: float | None
    hi: float | None


@dataclass(frozen=True, kw_only=True)
class Section:
    """The result of one part of the benchmark."""

    cells: tuple[Cell, ...] = ()
    curves: tuple[Curve, ...] = ()
    notes: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """Return it as JSON's types."""
        return asdict(self)

    @classmethod
    def of(cls, read: Mapping[str, Any]) -> Section:
        """Invert :meth:`json`."""
        return cls(
            cells=tuple(Cell(**cell) for cell in read["cells"]),
            curves=tuple(
                Curve(**{**one, "sizes": tuple(one["sizes"]), "costs": tuple(one["costs"])}) for one in read["curves"]
            ),
            notes=tuple(read["notes"]),
        )


def short(number: float) -> str:
    """Return a number with three digits, thousands with separators."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def say(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


def one_core() -> None:
    """Keep this process to one thread on one core, so that ``auto`` too chooses for one; freed memory stays with it."""
    import torch

    from fedprint.lab.workers.allocator import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def now() -> float:
    """Return seconds of processor time; with a GPU those of the clock, after it has finished its work."""
    import torch

    if not torch.cuda.is_available():
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def seconds(work: Callable[[], object], clock: Callable[[], float] = now) -> float:
    """Return how long one call takes."""
    began = clock()
    work()
    return clock() - began


def in_turns(
    engines: Mapping[str, Callable[[int], object]], turns: int, clock: Callable[[], float] = now
) -> dict[str, list[float]]:
    """Return the seconds of each engine in each turn; a turn runs all of them, in a fresh order, with its number.

    A busy machine slows the engines of a turn alike, so it changes their ratios least. Warm up before.
    """
    spent: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(turns):
        for name in random.Random(turn).sample(list(engines), len(engines)):
            spent[name].append(seconds(lambda name=name, turn=turn: engines[name](turn), clock))  # type: ignore[misc]
    return spent


def median(row: str, column: str, values: Sequence[float]) -> Cell:
    """Return the median with its 95 % bootstrap interval; a single value has no interval."""
    known = np.asarray(values, dtype=float)
    if len(known) < 2:
        return Cell(row=row, column=column, value=float(known[0]))
    draws = np.random.default_rng(0).choice(known, (2000, len(known)))
    lo, hi = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return Cell(row=row, column=column, value=float(np.median(known)), lo=float(lo), hi=float(hi))


def ratio(row: str, column: str, above: Sequence[float], below: Sequence[float]) -> Cell:
    """Return the median over turns of ``above / below``, with its interval."""
    return median(row, column, (np.asarray(above) / np.asarray(below)).tolist())


def curve(title: str, size: str, cost: str, costs: Mapping[float, float]) -> Curve:
    """Fit cost ~ size^e to costs above 0 by least squares of their logarithms; the interval is Student's."""
    from scipy import stats

    sizes, values = tuple(map(float, costs)), tuple(map(float, costs.values()))
    if len(sizes) < 2:
        return Curve(title=title, size=size, cost=cost, sizes=sizes, costs=values, exponent=None, lo=None, hi=None)
    fit = stats.linregress(np.log(sizes), np.log(values))
    half = stats.t.ppf(0.975, len(sizes) - 2) * fit.stderr if len(sizes) > 2 else None
    lo, hi = (None, None) if half is None else (float(fit.slope - half), float(fit.slope + half))
    return Curve(title=title, size=size, cost=cost, sizes=sizes, costs=values, exponent=float(fit.slope), lo=lo, hi=hi)


def up_to(sizes: Sequence[int], budget_s: float, measure: Callable[[int], float]) -> dict[float, float]:
    """Measure one size after another; leave out sizes that the last growth puts above what is left of the budget.

    ``measure`` returns the cost of a size. The budget counts the clock.
    """
    costs: dict[float, float] = {}
    took: dict[int, float] = {}
    for size in sizes:
        done = list(took)
        growth = took[done[-1]] / took[done[-2]] if len(done) > 1 else 1.0
        if took and took[done[-1]] * max(growth, size / done[-1]) > budget_s - sum(took.values()):
            say(f"  {size}: left out, it would take too long")
            break
        began = time.perf_counter()
        costs[size] = measure(size)
        took[size] = time.perf_counter() - began
        say(f"  {size}: {short(costs[size])}")
    return costs


def peak_mib() -> float:
    """Return the peak resident memory of this process (ru_maxrss of a child would begin at its parent's)."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def in_child(*words: str) -> str:
    """Run ``python -m WORDS`` in a new process and return what it prints; its failure is a CalledProcessError."""
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
