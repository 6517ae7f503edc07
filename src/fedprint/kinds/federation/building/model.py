"""A trained global model, back from where MLflow keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from fedprint.data.formats.files import read_json
from fedprint.errors import FedprintError
from fedprint.kinds.federation.building import federation as build
from fedprint.kinds.federation.config import check_experiment
from fedprint.lab.tracking.runs import load_model
from fedprint.models.base import FedModule

WEIGHTS, DESCRIPTION = "weights.safetensors", "model.json"
BUILT_FROM = ("model", "federation", "defences")
"""Sections of the configuration that a network depends on."""

_OTHERS: Mapping[str, Any] = {
    "name": "model",
    "data": {"name": "albums"},
    "attacks": [{"name": "chance"}],
    "report": {"title": "model"},
}
"""Sections that a configuration must have and a network does not read."""


def model_of_run(root: Path, run_id: str) -> FedModule:
    """Return the global model that an MLflow run of a federation or a point logged, ready to evaluate.

    Raises FedprintError where there is none, or one of another kind.
    """
    return read_model(load_model(root, run_id))


def read_model(folder: Path) -> FedModule:
    """Return the model in a folder that the stage federate wrote: weights, and the configuration that rebuilds it."""
    description = read_json(folder / DESCRIPTION)
    if "settings" not in description:
        raise FedprintError(f"{folder / DESCRIPTION}: no model of a federation; load its weights with safetensors")
    config = check_experiment({**_OTHERS, **description["settings"]}, str(folder / DESCRIPTION))
    model = build.network(config, tuple(description["shape"]), len(description["class_names"]), description["task"])
    build.load_parameters(model, load_file(folder / WEIGHTS))
    return model.eval()
