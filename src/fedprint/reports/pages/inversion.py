"""The report of an inversion experiment: CAP and PPC, images by region, and which conclusions survive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedprint.evaluation.rows import Row
from fedprint.reports.claims.inversion import judge_inversion, sentences
from fedprint.reports.figures.inversion import draw_inversion
from fedprint.reports.numbers.inversion import MAIN, InversionHead, Layers, Sample, Trail, of_variant
from fedprint.reports.pages.html import Page, described, write_page
from fedprint.reports.tables.inversion import tables_of


def write_inversion(
    *,
    head: InversionHead,
    rows: Sequence[Row],
    samples: Sequence[Sample],
    trails: Sequence[Trail],
    layers: Layers | None,
    config_text: str,
    out: Path,
) -> None:
    """Write the folder ``out``: index.html, measurements, claims, tables/, figures/, config.yaml, summary.json.

    The folder appears as a whole; equal input gives equal bytes.
    """
    verdicts = judge_inversion(head, rows)
    main = of_variant(rows, MAIN)
    said = sentences(head, main, verdicts)
    page = Page(
        template="inversion",
        sentences=said,
        drawings=draw_inversion(head, main, samples, trails, layers),
        tables=tables_of(head, rows),
        verdicts=verdicts,
        rows=rows,
        files=described("inversion", head, config_text, verdict=said),
        values={"head": head},
    )
    write_page(page, out)
