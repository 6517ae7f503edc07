"""A peer's rounds and the plain loop's in turns, in one process: what both scripts of this folder share.

They run in the peer's own environment: this needs torch and psutil.
"""

from __future__ import annotations

import json
import time

import psutil
import torch

from benchmarks.workloads import PlainLoop, Workload


def processor_seconds() -> float:
    """Return the processor time of this process and of its children, whether they live or have ended."""
    own, spent = psutil.Process(), time.process_time()  # finer than the hundredths that the kernel counts
    spent += own.cpu_times().children_user + own.cpu_times().children_system
    for child in own.children(recursive=True):
        try:
            spent += sum(child.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return float(spent)


class Beside:
    """Times a peer's rounds and runs a round of the plain loop after each.

    The first round counts from the creation of this object, so it holds what the peer needs to start.
    """

    def __init__(self, work: Workload) -> None:
        torch.set_num_threads(1)
        self.work, self.loop = work, PlainLoop(work)
        self.clients = [work.client(number) for number in range(work.clients)]
        self.received = self.loop.weights()
        self.loop.round(self.received, self.clients[: work.cohort])  # a warm-up
        self.times: dict[str, list[float]] = {"loop": [], "peer": [], "peer_clock": []}
        self._restart()

    def ended(self) -> None:
        """Note that a round of the peer has ended, and run one of the loop."""
        self.times["peer"].append(processor_seconds() - self._processor)
        self.times["peer_clock"].append(time.perf_counter() - self._clock)
        began = time.thread_time()  # not that of the process: threads of the peer may live
        self.loop.round(self.received, [self.clients[number] for number in self.work.drawn(len(self.times["loop"]))])
        self.times["loop"].append(time.thread_time() - began)
        self._restart()

    def _restart(self) -> None:
        self._processor, self._clock = processor_seconds(), time.perf_counter()

    def print(self) -> None:
        """Print the seconds of every round, the first apart, as one line of JSON."""
        memory = [p.memory_full_info().pss for p in (psutil.Process(), *psutil.Process().children(recursive=True))]
        steady = {name: seconds[1:] for name, seconds in self.times.items()}
        first = {name: seconds[0] for name, seconds in self.times.items()}
        print(json.dumps({"first": first, "steady": steady, "mib": sum(memory) / 2**20}), flush=True)
