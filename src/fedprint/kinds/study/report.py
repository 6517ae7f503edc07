"""A finished study on a page, with the numbers behind its operating points."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from fedprint.data.sources.registry import label_of
from fedprint.evaluation.rows import Row, read_measurements, write_measurements
from fedprint.kinds.federation.points import STAGE
from fedprint.kinds.study.config import Ceiling
from fedprint.kinds.study.points import CONFIRMATION
from fedprint.kinds.study.search import Tuned, ceiling_of, judged
from fedprint.lab.tracking.origin import flat
from fedprint.reports.pages.study import StudyHead, linked_words, write_study


def publish(tuned: Tuned, out: Path) -> None:
    """Write the report to ``out``, with all rows of the points on fresh seeds."""
    write_study(
        head=head_of(tuned),
        searches=tuned.searches,
        points=tuned.operating_points,
        config_text=tuned.study.text(),
        out=out,
    )
    write_measurements(out / "measurements.jsonl", out / "measurements.csv", list(rows_of(tuned)))


def rows_of(tuned: Tuned) -> Iterator[Row]:
    """Yield all measurements on fresh seeds: without a defence, and of every candidate, with its parameters."""
    for done in sorted(tuned.done, key=lambda done: done.job.label):
        if tuned.study.is_fresh(done.job.seed):
            varies = {key: value for key, value in done.job.varies.items() if key != "strategy"}
            described = {
                "strategy": done.job.varies["strategy"],
                "parameters": ", ".join(f"{k}={v:g}" for k, v in varies.items()),
                "users": CONFIRMATION if done.job.label.endswith(CONFIRMATION) else None,
            }
            for row in read_measurements(done.outputs[STAGE] / "rows.jsonl"):
                yield {**row, "experiment": tuned.study.name, **described}


def head_of(tuned: Tuned) -> StudyHead:
    """Return the facts about the whole study; numbers without a defence are means over the fresh seeds."""
    study, settings = tuned.study, tuned.study.settings
    plain = [tuned.undefended[seed] for seed in settings.fresh_seeds]
    known = [point for point in tuned.operating_points if point.by_adversary]
    names = sorted({name for point in known for name in point.by_adversary} - {"strongest"}) or ["naive"]
    return StudyHead(
        name=study.name,
        title=settings.report.title,
        dataset=label_of(study.config.data),
        prior=settings.prior,
        views=tuple(sorted({point.view for point in known if point.view})) or (plain[0].strongest.view,),
        defended=study.config.threat.defended,
        learn_from=study.config.threat.learn_from,
        adversaries=tuple(names),
        ceiling=ceiling_text(settings.ceiling),
        ceiling_ap=ceiling_of(study, plain),
        utility_metric=plain[0].utility.metric,
        undefended_utility=fmean(point.utility.value for point in plain),
        undefended_ap=fmean(point.strongest.value for point in plain),
        undefended_linked_ap=fmean(judged(study, point).value for point in plain),
        updates=settings.ceiling.updates,
        confirmed=study.confirmation is not None,
        seeds=settings.seeds,
        fresh_seeds=settings.fresh_seeds,
        search=", ".join(f"{key}: {value}" for key, value in flat(settings.search)),
        fast=study.config.fast,
        config_hash=study.config.digest(),
    )


def ceiling_text(ceiling: Ceiling) -> str:
    """Return the ceiling in words, with the AP that it limits."""
    level = f"AP {100 * ceiling.ap:g} %" if ceiling.ap is not None else f"{ceiling.times_chance:g} times chance"
    return f"{level}, {linked_words(ceiling.updates)}"
