"""How alike a run's clients became, where its rounds recorded it (client-dp, section 3: V_c and U_s)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedprint.data.formats.files import read_json
from fedprint.data.prepared import load_users
from fedprint.evaluation.diversity import doublings
from fedprint.evaluation.metrics import measured
from fedprint.lab.graph import Task
from fedprint.types import Measurement

ANALYSIS = "diversity"
RECORDED: Mapping[str, str] = {
    "between_clients_variance_change": "between_clients_variance",
    "update_scale_change": "update_scale",
}
"""Metric -> what a round recorded (federation/diagnostics.py)."""


def measure_diversity(task: Task) -> Iterator[Measurement]:
    """Yield how V_c and U_s moved over training; nothing where no round recorded them, or too few did.

    Rounds without updates recorded none, and one of value 0 has no logarithm. Keys: ``analysis``, ``view`` (local, as
    it needs raw updates), ``training``.
    """
    rounds = read_json(task.at("utility") / "history.json")["rounds"]
    recorded = {
        metric: [float(entry[name]) for entry in rounds if entry.get(name, 0) > 0] for metric, name in RECORDED.items()
    }
    if not any(recorded.values()):
        return
    clients = task.config.federation.device_count(len(load_users(task.at("private"))))
    for metric, values in recorded.items():
        if (moved := doublings(values, task.config.evaluation.confidence)) is not None:
            keys = {"analysis": ANALYSIS, "training": "federated", "view": "local"}
            yield measured(metric, moved, None, n_questions=len(values), n_users=clients, keys=keys)
