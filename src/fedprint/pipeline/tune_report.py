"""A finished study on a page: reports/study-<name>/, and the same in MLflow."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import yaml

from fedprint.pipeline.study_config import Ceiling, Study
from fedprint.pipeline.tune import Tuned, ceiling_of
from fedprint.pipeline.tune_tracking import log_study
from fedprint.reports.study import StudyHead, write_study


def publish(root: Path, tuned: Tuned) -> Path:
    """Write and log the report; return its folder."""
    folder = root / "reports" / f"study-{tuned.study.name}"
    write_study(
        head=head_of(tuned),
        searches=tuned.searches,
        points=tuned.operating_points,
        config_text=dump_study(tuned.study),
        out=folder,
    )
    log_study(root, tuned.study, folder, tuned.operating_points)
    return folder


def dump_study(study: Study) -> str:
    """Return the resolved study and its experiment as YAML."""
    content = {
        "study": study.settings.model_dump(mode="json", by_alias=True),
        "experiment": study.config.model_dump(mode="json"),
    }
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def head_of(tuned: Tuned) -> StudyHead:
    """Return what holds for the whole page; numbers without a defence are means over the fresh seeds."""
    study, settings = tuned.study, tuned.study.settings
    plain = [tuned.undefended[seed] for seed in settings.fresh_seeds]
    known = [point for point in tuned.operating_points if point.by_adversary]
    names = sorted({name for point in known for name in point.by_adversary} - {"strongest"}) or ["naive"]
    return StudyHead(
        name=study.name,
        title=settings.report.title,
        dataset=plain[0].dataset,
        prior=settings.prior,
        view=plain[0].strongest.view,
        defended=study.config.threat.defended,
        adversaries=tuple(names),
        ceiling=ceiling_text(settings.ceiling),
        ceiling_ap=ceiling_of(study, plain),
        utility_metric=plain[0].utility.metric,
        undefended_utility=fmean(point.utility.value for point in plain),
        undefended_ap=fmean(point.strongest.value for point in plain),
        seeds=settings.seeds,
        margin_seeds=settings.margin_seeds,
        fresh_seeds=settings.fresh_seeds,
        fast=study.config.fast,
        config_hash=study.config.digest(),
    )


def ceiling_text(ceiling: Ceiling) -> str:
    """Say what the ceiling is."""
    return f"AP {100 * ceiling.ap:g} %" if ceiling.ap is not None else f"{ceiling.times_chance:g} times chance"
