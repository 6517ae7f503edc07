"""Stage report: all measurements of an experiment, and one page that a person reads."""

from __future__ import annotations

from pathlib import Path

from fedprint.pipeline.config import Experiment, dump_yaml
from fedprint.pipeline.stages.paths import artifacts, write_json
from fedprint.reports.page import ReportSummary, write_report
from fedprint.reports.wording import Estimate


def run(config: Experiment) -> ReportSummary:
    """Write reports/<experiment>/ and the metrics that DVC shows."""
    base = artifacts(config.name)
    items = [f"{prior}-{seed}" for prior in config.split.priors for seed in config.seeds]
    summary = write_report(
        experiment=config.name,
        title=config.report.title,
        evaluations=[base / "evaluation" / item for item in items],
        config_text=dump_yaml(config),
        out=Path("reports") / config.name,
    )
    write_json(base / "metrics.json", headline(summary))
    return summary


def headline(summary: ReportSummary) -> dict[str, float]:
    """Return the few numbers that DVC's and MLflow's tables show, with their intervals."""
    found = {f"{metric}_{linkage}": e for linkage in ("update", "device") for metric, e in _of(summary, linkage)}
    if summary.utility is not None:
        found["utility"] = summary.utility
    ends = ((f"{name}{end}", value) for name, e in found.items() for end, value in _ends(e))
    return {name: value for name, value in ends if value is not None}


def _of(summary: ReportSummary, linkage: str) -> list[tuple[str, Estimate]]:
    estimates = summary.update if linkage == "update" else summary.device
    return [(metric, estimates[metric]) for metric in ("ap", "ap_over_chance", "top1") if metric in estimates]


def _ends(estimate: Estimate) -> list[tuple[str, float | None]]:
    return [("", estimate.value), ("_lo", estimate.lo), ("_hi", estimate.hi)]
