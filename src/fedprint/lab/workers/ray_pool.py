"""A pool on a Ray cluster: a call runs on any node with room, in a fork of a server there.

Nodes share the project's folder, the data and the Python environment, each under the same path on all of them. Ray
places calls and reports lost nodes. Confinement, results and resuming are the same as on one machine: a call is the
same JSON, its stage writes the same unfinished entry, and the process that runs the lab alone completes it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from fedprint.lab.gpus import only
from fedprint.lab.workers.pool import (
    Crashed,
    LocalPool,
    Lost,
    Send,
    Stopped,
    conversation,
    received,
    request_of,
    server_environment,
)
from fedprint.lab.workers.ray_cluster import ADDRESS, connect

PASSED = ("FEDPRINT_DATA", "FEDPRINT_ROOT", "DVC_STAGE", "DVC_ROOT")
"""Variables of the environment that calls take along to other nodes."""


@dataclass
class RayPool:
    """Calls on the Ray cluster at ``address`` ("auto": the one of this machine), or on a local one that it starts.

    A call takes one core and, where it may use GPUs, one that Ray picks. ``modules`` are imported once in each worker.
    """

    modules: Sequence[str]
    address: str | None = None
    cpus: int = 0
    gpus: int = 0
    _running: set[Any] = field(default_factory=set, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _stopped: bool = False

    def __enter__(self) -> RayPool:
        """Connect to the cluster. Raises FedprintError where Ray or the cluster is missing."""
        connect(self.address)
        import ray

        found = ray.cluster_resources()  # type: ignore[no-untyped-call]
        self.cpus, self.gpus = int(found.get("CPU", 0)), int(found.get("GPU", 0))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what still runs and leave the cluster; one that was started here ends."""
        import ray

        self.stop()
        ray.shutdown()

    def run(
        self,
        function: str,
        call: Mapping[str, Any],
        send: Send,
        log: Path | None = None,
        gpus: Sequence[int] | None = None,
    ) -> Any:
        """Run one call on some node. Raises :class:`Lost` where the node or its worker was lost."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        passed = {name: os.environ[name] for name in PASSED if name in os.environ}
        if gpus is not None and not gpus:
            passed |= only(gpus)  # else Ray names the GPU of each call
        # Ray does not start a lost call again: the runner does, because it also has to reset the unfinished entry.
        remote: Any = ray.remote(num_cpus=1, num_gpus=1 if gpus else 0, max_retries=0)(perform_here)
        with self._lock:
            if self._stopped:
                raise Stopped("it was stopped")
            stream = remote.remote(tuple(self.modules), request_of(function, call, log, passed))
            self._running.add(stream)
        try:
            return received((ray.get(message) for message in stream), send)
        except RayTaskError as error:
            raise Crashed(str(error)) from None
        except RayError as error:
            if self._stopped:
                raise Stopped("it was stopped") from None
            raise Lost(f"its worker was lost ({type(error).__name__})") from None
        finally:
            with self._lock:
                self._running.discard(stream)

    def stop(self) -> None:
        """End all calls that run now, for good."""
        import ray

        with self._lock:
            self._stopped = True
            running = tuple(self._running)
        for stream in running:
            ray.cancel(stream, force=True)


def perform_here(modules: tuple[str, ...], request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """In a worker of Ray: run one call in a fork of this worker's server and yield its messages, the result last.

    A call that uses Ray itself finds this cluster by the environment.
    """
    import ray

    environment = {**server_environment(), **request["environment"], ADDRESS: ray.get_runtime_context().gcs_address}
    with LocalPool(modules) as pool:  # its server stays as long as this worker
        messages = conversation(pool.connected(), {**request, "environment": environment})
        for message in messages:  # noqa: UP028 (Ray sends to what it iterates)
            yield message
