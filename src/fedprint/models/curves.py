"""Curves of a reported fit: Lightning's MLflow logger in a process that may not open a database.

The stage that trains is confined. It sends its points to the process that runs the stages, which writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightning.pytorch.loggers import MLFlowLogger

Send = Callable[[Mapping[str, Any]], None]

POINTS_PER_MESSAGE = 200
_NOWHERE = "http://localhost"
"""Lightning creates a client for this address before ours replaces it; that opens no connection."""


class PipeLogger(MLFlowLogger):
    """Lightning's MLflow logger that sends its points as ``curves/<name>/<metric>``, by epoch."""

    LOGGER_JOIN_CHAR = "/"

    def __init__(self, send: Send, name: str) -> None:
        prefix = f"curves/{name}"
        super().__init__(tracking_uri=_NOWHERE, run_id=name, prefix=prefix)
        self._pipe = _PipeClient(send=send, prefix=prefix)
        self._mlflow_client: Any = self._pipe
        self._initialized = True

    def finalize(self, status: str = "success") -> None:
        """Send the points that are left. The MLflow run stays open, because it belongs to the job."""
        self._pipe.flush()


@dataclass(kw_only=True)
class Curves:
    """Makes a logger for each fit behind a reported answer; the second one of a name is called ``<name>-2``."""

    send: Send
    name: str
    _made: int = 0

    def logger(self) -> PipeLogger:
        """Return the logger of the next fit."""
        self._made += 1
        return PipeLogger(self.send, self.name if self._made == 1 else f"{self.name}-{self._made}")


@dataclass(kw_only=True)
class _PipeClient:
    """The methods of MLflow's client that the logger calls."""

    send: Send
    prefix: str
    waiting: list[list[Any]] = field(default_factory=list)

    def log_batch(self, run_id: str, metrics: Iterable[Any] = (), params: Iterable[Any] = (), **_: Any) -> None:
        """Collect metrics by epoch, which Lightning gives as one of the metrics; send parameters at once."""
        points = {metric.key: (metric.value, metric.step) for metric in metrics}
        epoch = points.pop(f"{self.prefix}/epoch", None)
        steps = {key: int(epoch[0]) if epoch else step for key, (_, step) in points.items()}
        self.waiting += [[key, float(value), steps[key]] for key, (value, _) in points.items()]
        if len(self.waiting) >= POINTS_PER_MESSAGE:
            self.flush()
        if named := {f"{self.prefix}/{param.key}": param.value for param in params}:
            self.send({"params": named})

    def flush(self) -> None:
        """Send the points that wait."""
        if self.waiting:
            self.send({"metrics": self.waiting})
            self.waiting = []
