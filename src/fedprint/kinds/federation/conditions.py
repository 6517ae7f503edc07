"""Under what conditions a row of measurements was made, from the configuration alone."""

from __future__ import annotations

import json
from typing import Any

from fedprint.defences.secure_aggregation import server_view
from fedprint.kinds.federation.config import Experiment
from fedprint.types import AdversaryName


def condition_of(config: Experiment, prior: str, seed: int, adversary: AdversaryName | None = None) -> dict[str, Any]:
    """Return the columns that all rows of a prior and seed share."""
    return {
        "experiment": config.name,
        "dataset": config.data.name,
        "prior": prior,
        "world": "closed",
        "training": "federated",
        "defence": "+".join(d.name for d in config.defences) or "none",
        "defence_params": defence_params(config),
        "defended": config.threat.defended if config.defences else None,
        "adversary": adversary or config.adversaries[-1],
        "view": server_view(config.defences),
        "seed": seed,
    }


def defence_params(config: Experiment) -> str | None:
    """Return the defences' settings as JSON, None without a defence."""
    if not config.defences:
        return None
    return json.dumps([d.model_dump(mode="json", exclude={"name"}) for d in config.defences])
