"""The bootstrap over users beside a plain loop that computes the same: milliseconds of processor time, and their ratio.

Run: ``python benchmarks/intervals.py [users] [resamples]``. Both run in turns in one process, so that the ratio holds
on a busy machine too. A report needs such an interval for every attacker, prior and condition.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from fedprint.evaluation.intervals import mean_interval
from fedprint.rng import numpy_rng

TURNS = 11


def by_loop(values: np.ndarray, resamples: int) -> np.ndarray:
    """Return the percentiles of the mean over ``resamples`` draws of all users with replacement."""
    rng = numpy_rng(0, "loop")
    means = [values[rng.integers(0, len(values), len(values))].mean() for _ in range(resamples)]
    return np.asarray(np.percentile(means, [2.5, 97.5]))


def seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def main() -> None:
    users, resamples = (int(text) for text in (sys.argv[1:] + ["600", "2000"][len(sys.argv) - 1 :]))
    values = numpy_rng(0, "values").random(users)
    engines: dict[str, Callable[[], object]] = {
        "mean_interval": lambda: mean_interval(values, numpy_rng(0), resamples=resamples),
        "loop": lambda: by_loop(values, resamples),
    }
    spent: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(TURNS):
        for name, run in engines.items():
            spent[name].append(seconds(run))
    ours, loop = (1000 * median(spent[name]) for name in engines)
    print(f"{users} users, {resamples} resamples: {ours:.1f} ms, a loop {loop:.1f} ms, ratio {ours / loop:.2f}")


if __name__ == "__main__":
    main()
