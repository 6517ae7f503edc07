"""Curves of a fit that is reported: Lightning's own MLflow logger, in a process that may open no database.

The stage that trains is confined; it tells its points, and the process that runs the stages writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightning.pytorch.loggers import MLFlowLogger

Tell = Callable[[Mapping[str, Any]], None]

POINTS_PER_MESSAGE = 200
_NOWHERE = "http://localhost"
"""Lightning makes a client of this address before ours takes its place; making one opens no connection."""


class PipeLogger(MLFlowLogger):
    """Lightning's MLflow logger whose points are told as ``curves/<name>/<metric>``, by epoch."""

    LOGGER_JOIN_CHAR = "/"

    def __init__(self, tell: Tell, name: str) -> None:
        prefix = f"curves/{name}"
        super().__init__(tracking_uri=_NOWHERE, run_id=name, prefix=prefix)
        self._pipe = _PipeClient(tell=tell, prefix=prefix)
        self._mlflow_client: Any = self._pipe
        self._initialized = True

    def finalize(self, status: str = "success") -> None:
        """Tell what is left. The run goes on: it is the job's and not the fit's."""
        self._pipe.flush()


@dataclass(kw_only=True)
class Curves:
    """Makes the logger of each fit of a reported answer; the second under a name is ``<name>-2``."""

    tell: Tell
    name: str
    _made: int = 0

    def logger(self) -> PipeLogger:
        """Return the logger of the next fit."""
        self._made += 1
        return PipeLogger(self.tell, self.name if self._made == 1 else f"{self.name}-{self._made}")


@dataclass(kw_only=True)
class _PipeClient:
    """The part of MLflow's client that the logger uses."""

    tell: Tell
    prefix: str
    waiting: list[list[Any]] = field(default_factory=list)

    def log_batch(self, run_id: str, metrics: Iterable[Any] = (), params: Iterable[Any] = (), **_: Any) -> None:
        """Take metrics at their epoch, which Lightning gives as one of them; tell parameters at once."""
        found = {metric.key: (metric.value, metric.step) for metric in metrics}
        epoch = found.pop(f"{self.prefix}/epoch", None)
        steps = {key: int(epoch[0]) if epoch else step for key, (_, step) in found.items()}
        self.waiting += [[key, float(value), steps[key]] for key, (value, _) in found.items()]
        if len(self.waiting) >= POINTS_PER_MESSAGE:
            self.flush()
        if named := {f"{self.prefix}/{param.key}": param.value for param in params}:
            self.tell({"params": named})

    def flush(self) -> None:
        """Tell the points that wait."""
        if self.waiting:
            self.tell({"metrics": self.waiting})
            self.waiting = []
