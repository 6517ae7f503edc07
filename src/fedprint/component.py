"""A component is its own configuration: what the YAML holds is what runs."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Component(BaseModel):
    """Base of every configurable part: frozen, unknown keys refused, ``name`` discriminates the union it belongs to."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @property
    def reads(self) -> tuple[str, ...]:
        """Files and folders that the settings name; cache keys hold their contents (named_files.py)."""
        return ()
