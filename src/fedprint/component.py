"""A component is its own configuration: what the YAML holds is what runs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

MOST, LARGEST, LARGEST_SEED = 10**7, 1e12, 2**63 - 1
"""Limits of whole numbers, of others, and of seeds: above them memory or arithmetic fails long after the start."""


class Component(BaseModel):
    """Base of every configurable part: frozen, unknown keys refused, ``name`` discriminates the union it belongs to.

    Numbers have limits (:data:`MOST`, :data:`LARGEST`, :data:`LARGEST_SEED`), beside those of their fields.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="after")
    @classmethod
    def _numbers_are_possible(cls, value: Any, info: ValidationInfo) -> Any:
        whole = LARGEST_SEED if "seed" in (info.field_name or "") else MOST
        numbers = [each for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, (int, float))]
        for number in numbers:
            most = whole if isinstance(number, int) else LARGEST
            if abs(number) > most:
                raise ValueError(f"{number:.4g} is beyond +-{most:.4g}; give a smaller number")
        return value

    @property
    def reads(self) -> tuple[str, ...]:
        """Files and folders that the settings name; cache keys hold their contents (named_files.py)."""
        return ()
