"""The report of an experiment: one self-contained page, its figures and its table of measurements."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedprint.evaluation.rows import Row, plain_value, write_measurements
from fedprint.reports import wording
from fedprint.reports.claims.federation import Verdict, by_claim, judge_claims, verdict_csv, verdict_rows
from fedprint.reports.numbers.evaluations import (
    CONTROL,
    Evaluation,
    all_rows,
    final_rows,
    read_evaluations,
    read_samples,
)
from fedprint.reports.numbers.paired import paired_rows
from fedprint.reports.numbers.reference import CITATION, TITLES, published_users
from fedprint.reports.pages.sections import Section, analysis_sections
from fedprint.reports.tables.analyses import ResultTable, table_csv
from fedprint.reports.tables.client_dp import client_dp_table, single_seed_rows
from fedprint.reports.tables.federation import (
    AttackTable,
    UtilityLine,
    attack_tables,
    choice_lines,
    judged_checks,
    link_lines,
    no_link,
    utility_lines,
)
from fedprint.reports.wording import Estimate
from fedprint.types import FedprintError

if TYPE_CHECKING:
    from jinja2 import Environment

    from fedprint.reports.figures.drawing import Drawing

HEADLINE = ("ap", "ap_over_chance", "ap_over_prevalence", "top1", "top5")


@dataclass(frozen=True, kw_only=True)
class ReportSummary:
    """The headline of a report: the chosen attacker on the first prior that is no control.

    ``update`` and ``device`` map a metric to its :class:`Estimate` (fractions, ratios), empty without an attack;
    ``utility`` is the federated model's. ``verdict`` are full sentences. ``data`` counts users and examples.
    ``page`` is the written index.html.
    """

    experiment: str
    title: str
    dataset: str
    config_hash: str
    fast: bool
    arguments: str
    seeds: tuple[int, ...]
    priors: tuple[str, ...]
    prior: str
    attack: str | None
    verdict: tuple[str, ...]
    update: Mapping[str, Estimate]
    device: Mapping[str, Estimate]
    utility: Estimate | None
    sanity_passed: bool
    sanity: str
    data: Mapping[str, Any]
    page: Path


def write_report(
    *, experiment: str, title: str, evaluations: Sequence[Path], config_text: str, out: Path
) -> ReportSummary:
    """Write the report folder ``out``: index.html, measurements.jsonl and .csv, figures/, config.yaml, summary.json.

    ``evaluations`` are folders of the evaluate stage, one per prior and seed; ``config_text`` is the resolved config
    (YAML). The folder appears as a whole or not at all and replaces an older one. Equal input gives equal bytes.

    Raises:
        FedprintError: no evaluation, or one that is missing a file or damaged.
    """
    from fedprint.reports.figures.federation import draw_all

    found = read_evaluations(evaluations)
    rows = [*all_rows(found), *paired_rows(found)]
    final = final_rows(rows)
    tables, utility = attack_tables(final, rows), utility_lines(final)
    summary = _summary(experiment, title, found, tables, utility, Path(out) / "index.html")
    drawings = draw_all(tables, utility, found, summary.prior)
    beside = client_dp_table({experiment: (rows, config_text)})
    sections = analysis_sections(rows, found, {} if beside is None else {"privacy": (beside,)})
    verdicts = judge_claims(rows, experiment)
    page = _render(summary, found, final, tables, utility, (drawings, sections, verdicts), config_text)
    partial = fresh_folder(Path(out))
    try:
        _write_files(partial, page, [*rows, *single_seed_rows(rows)], config_text, summary)
        write_drawings(partial, [*drawings, *(drawing for section in sections for drawing in section.drawings)])
        write_claims(partial, verdicts)
        write_tables(partial, [table for section in sections for table in section.tables])
        swap(partial, Path(out))
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return summary


def summary_json(summary: ReportSummary) -> str:
    """Return the summary as JSON without the page's path, which would differ between machines."""
    content = plain_value({key: value for key, value in asdict(summary).items() if key != "page"})
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def read_summary(folder: Path) -> dict[str, Any]:
    """Return the content of a report folder's summary.json; FedprintError when there is none."""
    try:
        return dict(json.loads((folder / "summary.json").read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FedprintError(f"{folder} holds no report; run `make experiment NAME={folder.name}` first") from error
    except json.JSONDecodeError as error:
        raise FedprintError(f"{folder}/summary.json is damaged ({error.msg}); write the report again") from error


def environment() -> Environment:
    """Return the templates' environment: everything escaped, a missing value is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
    )
    found.filters.update(
        interval=wording.interval, number=wording.number, with_unit=wording.with_unit, share=_share, times=wording.times
    )
    found.globals["MISSING"] = wording.MISSING
    found.globals["state_classes"] = {"holds": "good", "unclear": "", "fails": "bad", "untested": "muted"}
    return found


UNATTACKED = "No attacker was chosen, so nothing is known about how recognisable users are."
"""The verdict of a run without attackers; random scores are none."""


def _summary(
    experiment: str,
    title: str,
    evaluations: Sequence[Evaluation],
    tables: Sequence[AttackTable],
    utility: Sequence[UtilityLine],
    page: Path,
) -> ReportSummary:
    dataset = str(evaluations[0].rows[0]["dataset"])
    prior = evaluations[0].prior
    best = next((table.best for table in tables if table.prior == prior), None)
    numbers = best.by_linkage if best else {}
    judged, _ = judged_checks(evaluations)
    details = [item.details for item in evaluations]
    return ReportSummary(
        experiment=experiment,
        title=title,
        dataset=dataset,
        config_hash=" + ".join(sorted({entry["config_hash"] for entry in details})),
        fast=any(entry.get("fast") for entry in details),
        arguments=next((entry["arguments"] for entry in details if entry.get("arguments")), ""),
        seeds=tuple(sorted({item.seed for item in evaluations})),
        priors=tuple(dict.fromkeys(item.prior for item in evaluations)),
        prior=prior,
        attack=best.attack if best else None,
        verdict=_sentences(dataset, prior, numbers, evaluations) if best and best.attack != "chance" else (UNATTACKED,),
        update=_headline(numbers.get("update", {})),
        device=_headline(numbers.get("device", {})),
        utility=_model_utility(utility, prior),
        sanity_passed=judged.passed,
        sanity=judged.text,
        data=next((item.details.get("data", {}) for item in evaluations if item.prior == prior), {}),
        page=page,
    )


def _model_utility(lines: Sequence[UtilityLine], prior: str) -> Estimate | None:
    """Return the federated model's utility itself, not its gain over a guess."""
    found = [line.found for line in lines if (line.prior, line.training) == (prior, "federated")]
    return next((each for each in found if each.metric != "mae_gain_over_median"), None)


def _headline(numbers: Mapping[str, Estimate]) -> Mapping[str, Estimate]:
    return {metric: numbers[metric] for metric in HEADLINE if metric in numbers}


def _sentences(
    dataset: str, prior: str, numbers: Mapping[str, Mapping[str, Estimate]], evaluations: Sequence[Evaluation]
) -> tuple[str, ...]:
    writers = {"update": lambda *found: wording.verdict(dataset, prior, *found), "device": wording.verdict_pooled}
    said = tuple(
        writer(numbers[linkage]["ap"], no_link(evaluations, prior, linkage))
        for linkage, writer in writers.items()
        if "ap" in numbers.get(linkage, {})
    )
    return said or (UNATTACKED,)


def _render(
    summary: ReportSummary,
    evaluations: Sequence[Evaluation],
    final: Sequence[Row],
    tables: Sequence[AttackTable],
    utility: Sequence[UtilityLine],
    shown: tuple[Sequence[Drawing], Sequence[Section], Sequence[Verdict]],
    config_text: str,
) -> str:
    headline = next(item for item in evaluations if item.prior == summary.prior)
    judged, checks = judged_checks(evaluations)
    return environment().get_template("page.html").render(
        summary=summary,
        setting=_setting(final),
        tables=tables,
        utility=utility,
        drawings=shown[0],
        sections=shown[1],
        verdicts=shown[2],
        claims=by_claim(shown[2]),
        links=link_lines(tables, evaluations),
        judged=judged,
        checks=checks,
        choices=choice_lines(evaluations),
        samples=_samples(headline),
        data=headline.details.get("data", {}),
        evaluations=evaluations,
        config_text=config_text,
        config_sha=hashlib.sha256(config_text.encode()).hexdigest(),
        wording=wording,
        control=CONTROL,
        citation=CITATION,
        dataset_titles=TITLES,
        published_users=published_users,
    )  # fmt: skip


def _setting(rows: Sequence[Row]) -> Mapping[str, tuple[str, ...]]:
    """Return the different values of the conditions that hold for the whole page, in order of appearance."""
    attacked = [row for row in rows if row.get("attack")]
    names = ("world", "view", "adversary", "defence")
    return {name: tuple(dict.fromkeys(str(row[name]) for row in attacked if row.get(name))) for name in names}


def _samples(evaluation: Evaluation) -> Mapping[str, Any]:
    samples = read_samples(evaluation)
    if samples["kind"] != "images":
        return samples
    # Only the name counts: a path out of the folder would smuggle other files into the page.
    picture = evaluation.folder / "samples" / Path(str(samples["file"])).name
    encoded = base64.b64encode(picture.read_bytes()).decode()
    return {**samples, "source": f"data:image/png;base64,{encoded}"}


def _write_files(folder: Path, page: str, rows: Sequence[Row], config_text: str, summary: ReportSummary) -> None:
    write_measurements(folder / "measurements.jsonl", folder / "measurements.csv", rows)
    (folder / "config.yaml").write_text(config_text, encoding="utf-8")
    (folder / "summary.json").write_text(summary_json(summary), encoding="utf-8")
    (folder / "index.html").write_text(page, encoding="utf-8")


def write_drawings(folder: Path, drawings: Sequence[Drawing]) -> None:
    """Write each figure to ``figures/`` as SVG and PNG."""
    (folder / "figures").mkdir(exist_ok=True)
    for drawing in drawings:
        (folder / "figures" / f"{drawing.name}.svg").write_bytes(drawing.svg)
        (folder / "figures" / f"{drawing.name}.png").write_bytes(drawing.png)


def write_claims(folder: Path, verdicts: Sequence[Verdict]) -> None:
    """Write claims.json and claims.csv."""
    rows = verdict_rows(verdicts)
    (folder / "claims.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "claims.csv").write_text(verdict_csv(verdicts), encoding="utf-8", newline="")


def write_tables(folder: Path, tables: Sequence[ResultTable]) -> None:
    """Write each table to ``tables/`` as CSV; no folder without tables."""
    for table in tables:
        (folder / "tables").mkdir(exist_ok=True)
        (folder / "tables" / f"{table.name}.csv").write_text(table_csv(table), encoding="utf-8", newline="")


def fresh_folder(out: Path) -> Path:
    """Return an empty folder beside ``out`` that :func:`swap` moves there when it is complete."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    return partial


def swap(partial: Path, out: Path) -> None:
    """Move ``partial`` to ``out``, replacing an older folder."""
    if out.exists():
        shutil.rmtree(out)
    os.replace(partial, out)


def _share(value: float | None) -> str:
    """Return a fraction as a CSS percentage within 0 and 100."""
    return f"{100 * min(max(value or 0.0, 0.0), 1.0):.2f}%"
