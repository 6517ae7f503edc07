"""How long each accountant takes for the epsilon of client-dp's rounds, and what it returns."""

from __future__ import annotations

import time

from benchmarks.measuring import Cell, Section, median, seconds
from fedprint.accounting.accountants import accountants_for, epsilon_of
from fedprint.accounting.events import PoissonGaussian, repeated

ROUNDS, RATE, SIGMA, DELTA = 412, 0.0508, 1.0926, 1e-6
"""client-dp with 10,000 clients: m = 508, the noise that lets 412 rounds through at epsilon 8."""


def measure(quick: bool) -> Section:
    """Time a first call, with its imports, and further ones."""
    event, cells = repeated(PoissonGaussian(q=RATE, sigma=SIGMA), ROUNDS), []
    able, absent = accountants_for("poisson")
    for accountant in able:
        times = [
            seconds(lambda a=accountant: epsilon_of(a, event, DELTA), time.process_time)  # type: ignore[misc]
            for _ in range(4 if quick else 12)
        ]
        cells += [
            Cell(row=accountant.name, column="epsilon", value=epsilon_of(accountant, event, DELTA)),
            Cell(row=accountant.name, column="first call s", value=times[0]),
            median(accountant.name, "CPU s", times[1:]),
        ]
    setting = f"{ROUNDS} rounds, rate {RATE}, noise multiplier {SIGMA}, delta {DELTA:g}, Poisson sampling."
    return Section(cells=tuple(cells), notes=(setting, *(f"{name} is not installed" for name in absent)))
