"""Stage report: all measurements of an experiment, and one page that a person reads."""

from __future__ import annotations

from pathlib import Path

from fedprint.pipeline.config import Experiment, dump_yaml
from fedprint.pipeline.stages.paths import artifacts, write_json
from fedprint.reports.page import ReportSummary, write_report


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
    write_json(base / "metrics.json", summary.metrics)
    return summary
