"""A postprocessor of pfl-research that records every update for ``fedprint audit`` (pfl 0.6, one process).

Put it last, so that it sees what leaves the device::

    with Recorder("recorded") as recorder:
        backend = SimulatedBackend(training_data=..., val_data=None, postprocessors=[..., Recording(recorder)])
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pfl.context import CentralContext, UserContext
from pfl.metrics import Metrics
from pfl.postprocessor.base import Postprocessor

from fedprint.record import Recorder


class Recording(Postprocessor):
    """Records each user's statistics: the trained less the received weights. It changes nothing."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.round = recorder, 0

    def postprocess_one_user(self, *, stats: Any, user_context: UserContext) -> tuple[Any, Metrics]:
        """Record a device under pfl's user id. pfl multiplies statistics by their weight: it is divided out."""
        update = {name: np.asarray(value.cpu()) / stats.weight for name, value in stats.items()}
        self.recorder.record(self.round, str(user_context.user_id), update, user_context.num_datapoints)
        return stats, Metrics()

    def postprocess_server(
        self, *, stats: Any, central_context: CentralContext, aggregate_metrics: Metrics
    ) -> tuple[Any, Metrics]:
        """Count the round: a device is not told which one it is."""
        self.round = central_context.current_central_iteration + 1
        return stats, Metrics()
