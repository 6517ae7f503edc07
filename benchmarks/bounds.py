"""What bounds the engine: the time of products and convolutions alone, beside all of a round and beside the loop's."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence

from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

from benchmarks.engine import Federation, auto, round_by
from benchmarks.measuring import Cell, Section, in_turns, one_core, ratio, say
from benchmarks.workloads import WORKLOADS, Workload

KERNELS = re.compile(r"aten::(addmm|mm|bmm|baddbmm|mkldnn_\w+|convolution_backward|\w*pool\w*|\w*rnn\w*|\w*lstm\w*)_?$")
"""Operators of PyTorch that call a library: products, convolutions, pooling, recurrent layers, and their gradients."""

ROUNDS = 10
"""Rounds whose operators are timed."""


def measure(quick: bool) -> Section:
    """Profile the executor that ``auto`` chooses for W1 to W3."""
    one_core()
    cells = [cell for name, work in WORKLOADS.items() for cell in bounded(name, work, 6 if quick else 30)]
    note = (
        "One thread. `auto`: the loop's processor time over that of the executor that `backend: auto` chooses. Kernels "
        "are products, convolutions, pooling and recurrent layers, as torch.profiler counts them on the clock, so the "
        "machine has to be idle. At most: the loop's time over that of these kernels, which would be the ratio if all "
        "else cost nothing. What shares lack of 1 is Python."
    )
    return Section(cells=tuple(cells), notes=(note,))


def bounded(name: str, work: Workload, turns: int) -> Sequence[Cell]:
    """Return the row of a workload."""
    ready = Federation.of(name, work, turns)
    rounds, params = ready.rounds, ready.params
    chosen, _ = auto(ready.model, rounds[0], params, ready.training)
    run = round_by(chosen, ready.model, ready.training)
    ready.by_loop(0), run(rounds[0], params)  # the warm-up
    spent = in_turns({"loop": ready.by_loop, "auto": lambda turn: run(rounds[turn], params)}, turns)
    threads = _ExperimentalConfig(profile_all_threads=True)  # clients train in one of their own
    with profile(activities=[ProfilerActivity.CPU], experimental_config=threads) as profiled:
        for turn in range(ROUNDS):
            run(rounds[turn % turns], params)
    times = {event.key: event.self_cpu_time_total / 1e6 / ROUNDS for event in profiled.key_averages()}
    kernels = sum(seconds for key, seconds in times.items() if KERNELS.match(key))
    whole, plain = statistics.median(spent["auto"]), statistics.median(spent["loop"])
    row = f"{name}, {chosen}"
    say(f"{row}: kernels have {kernels / whole:.0%}, at most {plain / kernels:.2f} times the loop")
    shares = {"kernels": kernels, "other operators": sum(times.values()) - kernels}
    return (
        ratio(row, "auto", spent["loop"], spent["auto"]),
        *(Cell(row=row, column=f"{key}, share of its time", value=seconds / whole) for key, seconds in shares.items()),
        Cell(row=row, column="auto, at most", value=plain / kernels),
    )
