"""The report of an inversion experiment: CAP and PPC, images by region, and which conclusions survive."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from fedprint.evaluation.rows import Row, plain_value, write_measurements
from fedprint.reports import wording
from fedprint.reports.claims.federation import Verdict
from fedprint.reports.claims.inversion import CONCLUSIONS, judge_inversion, sentences
from fedprint.reports.figures.inversion import draw_inversion
from fedprint.reports.numbers.inversion import MAIN, InversionHead, Layers, Sample, Trail, of_variant
from fedprint.reports.pages.federation import (
    environment,
    fresh_folder,
    swap,
    write_claims,
    write_drawings,
    write_tables,
)
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
    said, tables = sentences(head, main, verdicts), tables_of(head, rows)
    drawings = draw_inversion(head, main, samples, trails, layers)
    page = environment().get_template("inversion.html").render(
        head=head,
        tables=tables,
        drawings=drawings,
        sentences=said,
        verdicts=verdicts,
        claims=_grouped(verdicts),
        config_text=config_text,
        wording=wording,
    )  # fmt: skip
    partial = fresh_folder(Path(out))
    try:
        write_measurements(partial / "measurements.jsonl", partial / "measurements.csv", rows)
        summary = {"inversion": head.name, **asdict(head), "verdict": said}
        text = json.dumps(plain_value(summary), indent=1, ensure_ascii=False) + "\n"
        (partial / "summary.json").write_text(text, encoding="utf-8")
        (partial / "index.html").write_text(page, encoding="utf-8")
        (partial / "config.yaml").write_text(config_text, encoding="utf-8")
        write_drawings(partial, drawings)
        write_tables(partial, tables)
        write_claims(partial, verdicts)
        swap(partial, Path(out))
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _grouped(verdicts: Sequence[Verdict]) -> list[tuple[Verdict, list[Verdict]]]:
    groups = [[each for each in verdicts if each.claim == name] for name, *_ in CONCLUSIONS]
    return [(group[0], group) for group in groups if any(each.state != "untested" for each in group)]
