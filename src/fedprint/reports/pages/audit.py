"""The report of an audit: what the released models show of epsilon, beside what was accounted for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprint.evaluation.rows import Row
from fedprint.reports.figures.drawing import INK, SERIES, Drawing, finish, style
from fedprint.reports.figures.panels import WIDTH, blank_figure, shared_legend
from fedprint.reports.pages.html import Page, described, write_page
from fedprint.reports.tables.analyses import ResultTable, TableLine


@dataclass(frozen=True, kw_only=True)
class AuditHead:
    """What holds for the whole page."""

    name: str
    title: str
    dataset: str
    prior: str
    seeds: tuple[int, ...]
    fast: bool
    config_hash: str


def write_audit(
    *,
    head: AuditHead,
    audits: Sequence[Mapping[str, Any]],
    pooled: float | None,
    rows: Sequence[Row],
    config_text: str,
    out: Path,
) -> None:
    """Write the folder ``out``: index.html, measurements, table, figure, config.yaml and summary.json.

    ``audits``, one for each seed, have the values of an Audit as JSON's types (an epsilon of None is infinite), and
    ``holds`` and ``verdict``; ``pooled`` is the bound of all of them together, None where there is none. The folder
    appears as a whole; equal input gives equal bytes.
    """
    page = Page(
        template="audit",
        sentences=sentences(head, audits, pooled),
        drawings=[draw(head, audits)],
        tables=[audit_table(head, audits)],
        rows=rows,
        files=described("audit", head, config_text, audits=list(audits), pooled=pooled),
        values={"head": head, "broken": sum(not audit["holds"] for audit in audits)},
    )
    write_page(page, out)


def sentences(head: AuditHead, audits: Sequence[Mapping[str, Any]], pooled: float | None) -> list[str]:
    """Return the largest bound beside what was accounted for in that seed, and what the bounds say about it."""
    tight = [float(audit["tight"]) for audit in audits if audit["tight"] is not None]
    within = f"If the mechanism is the claimed one but for its noise, epsilon is at least {max(tight, default=0):.2f}"
    together = "" if pooled is None else f", and {pooled:.2f} by the guesses of all {len(audits)} runs together"
    worst = max(audits, key=lambda audit: float(audit["bound"]))
    seeds = f" (the largest of {len(audits)} seeds)" if len(audits) > 1 else ""
    return [
        f"The released models of {head.dataset} show an epsilon of at least {worst['bound']:.2f} at delta "
        f"{worst['accounted']['delta']:g}, with confidence {100 * worst['confidence']:g} %{seeds}. The epsilon "
        f"accounted for is {accounted(worst)}.",
        *([f"{within}{together}."] if tight else []),
        *dict.fromkeys(audit["verdict"] for audit in audits if not audit["holds"] or audit is worst),
    ]


def accounted(audit: Mapping[str, Any]) -> str:
    """Return the accounted epsilon in words."""
    value = audit["accounted"]["value"]
    return "infinite" if value is None else f"{value:.2f}"


def draw(head: AuditHead, audits: Sequence[Mapping[str, Any]]) -> Drawing:
    """Draw the bound and the accounted epsilon, a line per seed."""
    with style():
        figure = blank_figure(WIDTH, 1.2 + 0.35 * len(audits))
        axes = figure.subplots()
        for y, audit in enumerate(audits):
            axes.barh(y, audit["bound"], height=0.5, color=SERIES[0], label="at least (any mechanism)")
            if audit["tight"] is not None:
                axes.plot(audit["tight"], y, "D", color=SERIES[1], ms=6, label="at least (only the noise may be less)")
            if audit["accounted"]["value"] is not None:
                axes.plot(audit["accounted"]["value"], y, "|", color=INK, ms=18, mew=2, label="at most (accounted for)")
        axes.set_yticks(range(len(audits)), [f"seed {seed}" for seed in head.seeds])
        axes.set_ylim(len(audits) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.set_xlabel("epsilon")
        shared_legend(figure, [axes])
        look = (
            "Look at whether a bar ends left of its upright line: one that crosses it shows a fault in the mechanism."
        )
        caption = (
            "Bars: the lower bound by guesses about canaries. Diamonds: the same guesses, if the mechanism differs "
            "from the claimed one in its noise alone. No upright line: the accounted epsilon is infinite."
        )
        return finish(figure, "epsilon", "Epsilon: at least, and at most", look, caption)


def audit_table(head: AuditHead, audits: Sequence[Mapping[str, Any]]) -> ResultTable:
    """Return every audit with what its bound rests on."""
    columns: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
        "epsilon, at least": lambda audit: f"{audit['bound']:.3f}",
        "if only the noise may be less": lambda audit: "" if audit["tight"] is None else f"{audit['tight']:.3f}",
        "accounted for": accounted,
        "by": lambda audit: ", ".join(audit["accounted"][key] for key in ("accountant", "sampling", "adjacency")),
        "sampling rate": lambda audit: " to ".join(dict.fromkeys(f"{rate:.4g}" for rate in audit["q"])),
        "rounds": lambda audit: str(audit["rounds"]),
        "canaries": lambda audit: f"{audit['canaries']} ({audit['included']} took part)",
        "guesses": lambda audit: f"{audit['guesses']}, {audit['correct']} right",
        "right if all are guessed": lambda audit: f"{100 * audit['accuracy']:.1f} %",
    }
    return ResultTable(
        name="audits",
        title="Audits",
        note=f"The accounted epsilon does not cover: {'; '.join(audits[0]['accounted']['not_covered'])}.",
        labels=("audit",),
        heads=tuple(columns),
        lines=tuple(
            TableLine(labels=(f"seed {seed}",), cells=tuple(show(audit) for show in columns.values()))
            for seed, audit in zip(head.seeds, audits, strict=True)
        ),
    )
