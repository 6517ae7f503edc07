"""Figures of what analyses exhibit: descriptions of data and updates, made with everything known (papers.md 2.5)."""

from __future__ import annotations

from collections.abc import Sequence

from fedprint.reports.drawing import Drawing
from fedprint.reports.evaluations import Evaluation


def draw_exhibits(evaluations: Sequence[Evaluation]) -> dict[str, tuple[Drawing, ...]]:
    """Return the figures of every exhibit, by analysis."""
    return {}
