"""What 1 million users x 1,000 rounds would cost, from costs that are measured at sizes a thousand times smaller.

Run: ``OMP_NUM_THREADS=1 python -m benchmarks.plan_large [--users 1000000] [--rounds 1000] [--cores 64]``; prices:
``--core-hour``, ``--gb-month``. About 3 minutes. Users are made up, of the size of MNIST writers: 60 digits each, the
CNN of mnist-writers. Each cost is processor time at three sizes, with the exponent e of cost ~ size^e fitted to them;
bytes are counted, not measured. It prints the tables of docs/planning-large.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.recording import setting
from fedprint.data.examples import take
from fedprint.federation.backends import make_backend, open_backend
from fedprint.federation.cohorts import FederationPlan, sample_cohort
from fedprint.federation.rounds import federate
from fedprint.lab.machine import machine
from fedprint.store.layout import StoreLayout, store_bytes
from fedprint.store.writer import StoreWriter
from fedprint.types import ClientJob, ClientResult, Device, LocalTraining, Params

WRITERS = setting("writers")
START: Params = {name: p.detach().clone() for name, p in WRITERS.model.named_parameters()}
UPDATE = sum(4 * p.numel() for p in START.values())
USER = sum(column.nbytes for column in WRITERS.devices[0].examples.values())
EXECUTOR = "vectorised:8"
SIZES = {
    "train": (8, 32, 128),
    "serve": (100, 400, 1600),
    "receive": (24, 96, 384),
    "draw": (10_000, 100_000, 1_000_000),
}
"""Clients of a cohort, and of ``draw`` users."""
TITLES = {
    "train": "train the cohort, on workers",
    "serve": "mean and store, on the driver",
    "receive": "send and receive, on the driver",
    "draw": "draw the cohort, on the driver",
}
DRIVER, LINK, DRIVER_CORES = 128e9, 25e9 / 8, 4
"""The machine that runs the federation: bytes of memory, bytes a second from the network, cores that are paid for."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Processor seconds per round at three ``sizes``."""

    sizes: Sequence[int]
    seconds: Sequence[float]

    @property
    def exponent(self) -> float:
        """Return the slope in logarithms."""
        return float(np.polyfit(np.log(self.sizes), np.log(self.seconds), 1)[0])

    def at(self, size: int) -> float:
        """Return seconds at a size, from the largest measured one; an exponent below 1 is a fixed cost, which ends."""
        return self.seconds[-1] * float((size / self.sizes[-1]) ** max(self.exponent, 1.0))


def measure(part: str, work: Callable[[int], Callable[[], object]]) -> Cost:
    """Return the least processor time of three calls at each size."""
    seconds = []
    for size in SIZES[part]:
        call, times = work(size), []
        for _ in range(3):
            started = time.process_time()
            call()
            times.append(time.process_time() - started)
        seconds.append(min(times))
    return Cost(sizes=SIZES[part], seconds=seconds)


def devices(count: int, examples: int = 60) -> list[Device]:
    """Return devices of which each 200th has the same examples."""
    data = [take(device.examples, slice(examples)) for device in WRITERS.devices[:count]]
    return [Device(device_id=str(i), user_id=i, role="anonymous", examples=data[i % len(data)]) for i in range(count)]


def clients(count: int, examples: int = 60) -> list[ClientJob]:
    return [ClientJob(device_id=d.device_id, examples=d.examples, seed=0) for d in devices(count, examples)]


def trains(cohort: int) -> Callable[[], object]:
    """Return local training on a worker."""
    backend, jobs = make_backend(EXECUTOR, WRITERS.model), clients(cohort)
    return lambda: list(backend.run(jobs, START, WRITERS.training))


class Trained:
    """A backend whose clients are trained already: what is left is the server's work."""

    name = "trained"

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        """Return the same small update for every job."""
        update = {name: 1e-3 * p for name, p in START.items()}
        return (ClientResult(device_id=job.device_id, update=update, num_examples=60, loss=1.0) for job in jobs)


def layout(rounds: int, cohort: int) -> StoreLayout:
    shapes = {name: tuple(p.shape) for name, p in START.items()}
    return StoreLayout(rounds=rounds, cohort=cohort, shapes=shapes, kept=tuple(shapes), fingerprint="plan")


def serves(cohort: int) -> Callable[[], object]:
    """Return a round of the server: norms, the mean, and every update to the disk as float16."""
    population = devices(cohort)

    def call() -> None:
        plan = FederationPlan(rounds=1, cohort=cohort, training=WRITERS.training, seed=0)
        with tempfile.TemporaryDirectory() as folder, StoreWriter.open(Path(folder), layout(1, cohort)) as writer:
            writer.set_initial(START)
            federate(
                devices=population,
                plan=plan,
                backend=Trained(),
                defences=(),
                writer=writer,
                utility=lambda t, params: {},
                report=lambda report: None,
            )

    return call


def draws(users: int) -> Callable[[], object]:
    """Return the draw of a cohort of 100."""
    population = devices(users)
    plan = FederationPlan(rounds=1, cohort=100, training=WRITERS.training, seed=0)
    return lambda: sample_cohort(population, plan, 0)


def costs() -> Mapping[str, Cost]:
    """Measure; what Ray costs the driver is its own processor time while workers train one example per client."""
    found = {"train": measure("train", trains), "serve": measure("serve", serves), "draw": measure("draw", draws)}
    with open_backend(f"ray:1:{EXECUTOR}", WRITERS.model) as backend:

        def receives(cohort: int) -> Callable[[], object]:
            jobs = clients(cohort, examples=1)
            list(backend.run(jobs, START, WRITERS.training))  # the first round carries the examples
            return lambda: list(backend.run(jobs, START, WRITERS.training))

        return found | {"receive": measure("receive", receives)}


def plan(found: Mapping[str, Cost], cohort: int, wanted: argparse.Namespace) -> dict[str, str]:
    """Return the costs of all rounds with one cohort."""
    driver = found["serve"].at(cohort) + found["receive"].at(cohort) + found["draw"].at(wanted.users)
    train = found["train"].at(cohort)
    disk, sent = store_bytes(layout(wanted.rounds, cohort)), wanted.rounds * cohort * UPDATE
    hours = wanted.rounds * (driver + train / wanted.cores) / 3600
    dollars = hours * (wanted.cores + DRIVER_CORES) * wanted.core_hour, disk / 1e9 * wanted.gb_month
    return {
        "updates recorded": f"{wanted.rounds * cohort:,}",
        "store, float16, all layers": f"{disk / 1e12:,.2f} TB",
        "from workers to the driver": f"{sent / 1e12:,.1f} TB",
        "local training": f"{wanted.rounds * train / 3600:,.0f} core hours",
        "the driver's own work": f"{wanted.rounds * driver / 3600:,.1f} h",
        f"whole run, {wanted.cores} cores for workers": f"{hours:,.1f} h",
        "memory of the driver": f"{(wanted.users * USER + 2 * cohort * UPDATE) / 1e9:,.0f} GB",
        "cores, and the store for a month": f"${dollars[0]:,.0f} + ${dollars[1]:,.0f}",
    }


def limits(found: Mapping[str, Cost]) -> Iterator[str]:
    """Yield where each resource is full."""
    cohort = 1000
    driver = (found["serve"].at(cohort) + found["receive"].at(cohort)) / cohort
    train, draw = found["train"].at(cohort) / cohort, found["draw"].at(1_000_000)
    network, memory = f"{8 * LINK / 1e9:.0f} Gbit/s", f"{DRIVER / 1e9:.0f} GB"
    yield f"| the driver's core | {train / driver:,.0f} worker cores keep it busy, with {1 / driver:,.0f} updates/s |"
    yield f"| its network, {network} | {LINK / UPDATE:,.0f} updates/s |"
    yield f"| its memory, {memory} | {DRIVER / USER:,.0f} users, or a cohort of {DRIVER / 2 / UPDATE:,.0f} |"
    yield f"| the draw, at 1 million users | costs the driver as much as {draw / driver:,.0f} updates |"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    for name, value in (("--users", 1_000_000), ("--rounds", 1000), ("--cores", 64)):
        parser.add_argument(name, type=int, default=value)
    for name, price in (("--core-hour", 0.04), ("--gb-month", 0.02)):
        parser.add_argument(name, type=float, default=price)
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    found = costs()
    print(f"{time.strftime('%Y-%m-%d')}, {machine()} cores, PyTorch {torch.__version__}, one thread, processor time.")
    print(f"{sum(p.numel() for p in START.values()):,} parameters; an update is {UPDATE:,} bytes, a user {USER:,}.\n")
    measured = [
        [title, *(f"{1000 * s:.1f} ms at {n:,}" for n, s in zip(found[part].sizes, found[part].seconds, strict=True)),
         f"{found[part].exponent:.2f}"]
        for part, title in TITLES.items()
    ]  # fmt: skip
    print(table(["a round", "small", "middle", "large", "e"], measured))
    cohorts = [max(1, round(share * wanted.users)) for share in (0.001, 0.01, 0.1)]
    plans = [plan(found, cohort, wanted) for cohort in cohorts]
    title = f"{wanted.users:,} users, {wanted.rounds:,} rounds"
    print("\n" + table([title, *(f"cohort {cohort:,}" for cohort in cohorts)],
                        [[name, *(one[name] for one in plans)] for name in plans[0]]))  # fmt: skip
    print("\n" + "\n".join(["| resource | where it is full |", "|---|---|", *limits(found)]))


if __name__ == "__main__":
    main()
