"""What computes: ``accelerator`` and ``devices``, the two keys that any file of settings may have.

No result is another experiment's because of them, so they are kept apart from all other settings, and no digest of a
configuration holds them. A result's key says whether a GPU made it (lab/keys.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from fedprint.component import Component
from fedprint.errors import FedprintError
from fedprint.kinds.config_files import apply_assignments, merge, one_line, read_yaml


class Hardware(Component):
    """Where everything that trains computes: ``gpu``, ``cpu``, or ``auto``, which is a GPU where there is one.

    ``devices`` is how many GPUs one command uses, by default all that there are; ``auto`` makes do with fewer.
    """

    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    devices: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _devices_are_gpus(self) -> Hardware:
        if self.accelerator == "cpu" and self.devices is not None:
            raise ValueError("devices counts GPUs: leave it out with accelerator: cpu (--jobs limits processes)")
        return self

    def gpus(self, there: int) -> int:
        """Return how many of the GPUs that are ``there`` to use. Raises FedprintError where ``gpu`` asks for more."""
        if self.accelerator == "cpu":
            return 0
        if self.accelerator == "gpu" and there < (self.devices or 1):
            raise FedprintError(
                f"accelerator: gpu, devices: {self.devices or 1}: there are {there} GPUs to use; check that torch is a "
                "CUDA build and CUDA_VISIBLE_DEVICES, or use accelerator: auto or cpu"
            )
        return min(there, self.devices or there)


AUTO = Hardware()
KEYS = tuple(Hardware.model_fields)


def read_settings(path: Path) -> dict[str, Any]:
    """Return a file's settings but for those of :class:`Hardware`."""
    return _without(read_yaml(path))


def hardware_for(
    root: Path, assignments: Sequence[str], path: Path | None = None, *, fast: bool = False
) -> tuple[Hardware, tuple[str, ...]]:
    """Return the hardware that assignments, else a file, else configs/defaults.yaml ask for, and other assignments.

    Of files that build on others, only the one at ``path`` is asked. Raises FedprintError (one line).
    """
    mine = [text for text in assignments if text.partition("=")[0] in KEYS]
    defaults, file = (
        read_yaml(each) if each is not None and each.is_file() else {}
        for each in (root / "configs" / "defaults.yaml", path)
    )
    layers = [defaults, file, (file.get("fast") or {}) if fast else {}]
    values: dict[str, Any] = {}
    for layer in layers:
        values = merge(values, {key: layer[key] for key in KEYS if key in layer})
    try:
        hardware = Hardware.model_validate(apply_assignments(values, mine))
    except ValidationError as error:
        raise FedprintError(one_line(error, str(path or "--set"), Hardware, mine)) from None
    return hardware, tuple(text for text in assignments if text not in mine)


def _without(values: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in values.items() if key not in KEYS}
    if isinstance(kept.get("fast"), Mapping):
        kept["fast"] = _without(kept["fast"])
    return kept
