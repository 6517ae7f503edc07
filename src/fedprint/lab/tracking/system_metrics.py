"""Load of the machine while a run goes on: processor, memory, disk, network and, where its library is there, GPU."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

INTERVAL_S = 5.0
"""MLflow's default is 10 s; its variable MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL sets another."""
SAMPLES_PER_WRITE = 6

Sample = tuple[int, int, Mapping[str, float]]
"""Time in milliseconds since 1970, number of the sample in its run, values by their names in MLflow."""


@contextmanager
def system_metrics(run_id: str, uri: str, resumed: bool, write: Callable[[list[Sample]], None]) -> Iterator[None]:
    """Sample while the block runs, and give ``write`` the samples; a block of any length has one at its end.

    MLflow's monitor measures; its own thread is not used, because it writes without the database's lock and drops what
    it measured in a run that is shorter than its interval.
    """
    monitor = _monitor(run_id, uri, resumed)
    if monitor is None:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_sample, args=(monitor, ended, write), name=f"system {run_id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _monitor(run_id: str, uri: str, resumed: bool) -> Any | None:
    """Return MLflow's monitor, or None where the system hides its load (some containers)."""
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor as Monitor

    logging.getLogger("mlflow.system_metrics").setLevel(logging.WARNING)  # it logs for each run that there is no GPU
    make: Any = Monitor
    try:
        return make(run_id, sampling_interval=INTERVAL_S, resume_logging=resumed, tracking_uri=uri)
    except Exception as error:  # psutil may fail on /proc in many ways
        logging.getLogger(__name__).warning("no system metrics: %s", error)
        return None


def _sample(monitor: Any, ended: threading.Event, write: Callable[[list[Sample]], None]) -> None:
    import psutil

    psutil.cpu_percent()  # a thread's first call has nothing to compare with and returns 0
    step, waiting = monitor._logging_step, list[Sample]()
    while True:
        last = ended.wait(monitor.sampling_interval)
        monitor.collect_metrics()
        values = {f"system/{name}": float(value) for name, value in monitor.aggregate_metrics().items()}
        for each in monitor.monitors:
            each.clear_metrics()
        waiting.append((time.time_ns() // 1_000_000, step + len(waiting), values))
        if last or len(waiting) == SAMPLES_PER_WRITE:
            write(waiting)
            step, waiting = step + len(waiting), []
        if last:
            return
