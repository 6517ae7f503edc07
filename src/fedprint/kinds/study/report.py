"""A finished study on a page: reports/study-<label>/, and the same in MLflow."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import yaml

from fedprint.evaluation.planes import strongest_row
from fedprint.kinds.federation.stages.tracking import flat
from fedprint.kinds.study.config import Ceiling, Study
from fedprint.kinds.study.search import Tuned, ceiling_of
from fedprint.kinds.study.tracking import EXPERIMENT, log_study
from fedprint.reports.study import LINKED, StudyHead, parameters, write_study
from fedprint.tuning.storage import without_password


def publish(root: Path, tuned: Tuned) -> Path:
    """Write and log the report; return its folder."""
    folder = root / "reports" / f"study-{tuned.study.label}"
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
    """Return the resolved study and its experiment as YAML, without the password of its storage: pages are shared."""
    settings = study.settings
    if settings.storage is not None:
        settings = settings.model_copy(update={"storage": without_password(settings.storage)})
    content = {
        "study": settings.model_dump(mode="json", by_alias=True),
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
        views=tuple(sorted({point.view for point in known if point.view})) or (plain[0].strongest.view,),
        defended=study.config.threat.defended,
        learn_from=study.config.threat.learn_from,
        adversaries=tuple(names),
        ceiling=ceiling_text(settings.ceiling),
        ceiling_ap=ceiling_of(study, plain),
        utility_metric=plain[0].utility.metric,
        undefended_utility=fmean(point.utility.value for point in plain),
        undefended_ap=fmean(point.strongest.value for point in plain),
        undefended_linked_ap=linked["value"] if (linked := strongest_row(plain, "device")) else None,
        seeds=settings.seeds,
        margin_seeds=settings.margin_seeds,
        fresh_seeds=settings.fresh_seeds,
        search=", ".join(f"{key}: {value}" for key, value in flat(settings.search)),
        fast=study.config.fast,
        config_hash=study.config.digest(),
    )


def ceiling_text(ceiling: Ceiling) -> str:
    """Say what the ceiling is, and on which AP."""
    level = f"AP {100 * ceiling.ap:g} %" if ceiling.ap is not None else f"{ceiling.times_chance:g} times chance"
    return f"{level}, {LINKED[ceiling.linkage]}"


def print_operating_points(root: Path, folder: Path, tuned: Tuned) -> None:
    """Print the result as a table, where the report is, and how to look at the trials."""
    from rich.console import Console
    from rich.table import Table

    from fedprint.tracking.runs import ui_hint

    columns = ("strategy", "parameters", "keeps below", "utility", "AP, %", "linked AP, %", "ceiling, %")
    about = LINKED[tuned.study.settings.ceiling.linkage]
    table = Table(*columns, title=f"study {tuned.study.name} (ceiling on {about})")
    for point in tuned.operating_points:
        utility = "-" if point.utility is None else f"{point.utility:.3f}"
        shares = (point.attack_ap, point.linked_ap, point.ceiling)
        numbers = ["-" if share is None else f"{100 * share:.1f}" for share in shares]
        keeps = "yes" if point.feasible else "no"
        table.add_row(point.strategy, parameters(point.parameters), keeps, utility, *numbers)
    console = Console(soft_wrap=True)
    console.print(table)
    for point in tuned.operating_points:
        if not point.feasible:
            console.print(f"{point.strategy}: {point.note}", highlight=False, markup=False)
    console.print(f"Report: {folder / 'index.html'}", highlight=False)
    console.print(f"MLflow: {ui_hint(root, EXPERIMENT)}", highlight=False, markup=False)
