"""The report of an experiment: one self-contained page, its figures and its table of measurements."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedprint.evaluation.rows import Row, plain_value
from fedprint.reports import wording
from fedprint.reports.claims.federation import judge_claims
from fedprint.reports.numbers.evaluations import (
    CONTROL,
    Evaluation,
    all_rows,
    final_analyses,
    final_rows,
    read_evaluations,
    read_samples,
)
from fedprint.reports.numbers.paired import paired_rows
from fedprint.reports.numbers.reference import CITATION, TITLES, published_users
from fedprint.reports.pages.html import Page, write_page
from fedprint.reports.pages.sections import analysis_sections
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

HEADLINE = ("ap", "ap_over_chance", "ap_over_prevalence", "top1", "top5", "tpr_1", "tpr_01")


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
    users: str | None
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
    *,
    experiment: str,
    title: str,
    evaluations: Sequence[Path],
    config_text: str,
    out: Path,
    users: str | None = None,
) -> ReportSummary:
    """Write the report folder ``out``: index.html, measurements.jsonl and .csv, figures/, config.yaml, summary.json.

    ``evaluations`` are folders of the evaluate stage, one per prior and seed; ``config_text`` is the resolved config
    (YAML). ``users`` says whether its users are for development, for confirmation or both, if that is declared. The
    folder appears as a whole or not at all and replaces an older one. Equal input gives equal bytes.

    Raises:
        FedprintError: no evaluation, or one that is missing a file or damaged.
    """
    from fedprint.reports.figures.federation import draw_all

    evaluated = read_evaluations(evaluations)
    rows = [*all_rows(evaluated), *paired_rows(evaluated)]
    final = final_rows(rows)
    tables, utility = attack_tables(final, rows), utility_lines(final)
    gains = [row for row in final_analyses(rows) if row["analysis"] == "effort" and row["selected"]]
    summary = _summary(experiment, title, evaluated, tables, utility, gains, users, Path(out) / "index.html")
    budgets = client_dp_table({experiment: (rows, config_text)})
    headline = next(item for item in evaluated if item.prior == summary.prior)
    judged, checks = judged_checks(evaluated)
    page = Page(
        template="experiment",
        sentences=summary.verdict,
        drawings=draw_all(tables, utility, evaluated, summary.prior),
        sections=analysis_sections(rows, evaluated, {} if budgets is None else {"privacy": (budgets,)}),
        verdicts=judge_claims({experiment: rows}),
        rows=[*rows, *single_seed_rows(rows)],
        files={"config.yaml": config_text, "summary.json": _portable(summary)},
        values={
            "head": summary,
            "setting": _setting(final),
            "attack_tables": tables,
            "utility": utility,
            "links": link_lines(tables, evaluated),
            "judged": judged,
            "checks": checks,
            "choices": choice_lines(evaluated),
            "samples": _samples(headline),
            "data": headline.details.get("data", {}),
            "evaluations": evaluated,
            "control": CONTROL,
            "citation": CITATION,
            "dataset_titles": TITLES,
            "published_users": published_users,
        },
    )
    write_page(page, Path(out))
    return summary


def _portable(summary: ReportSummary) -> Any:
    """Return the summary without the page's path, which would differ between machines."""
    return plain_value({key: value for key, value in asdict(summary).items() if key != "page"})


UNATTACKED = "No attacker was chosen, so nothing is known about how recognisable users are."
"""The verdict of a run without attackers; random scores are none."""


def _summary(
    experiment: str,
    title: str,
    evaluations: Sequence[Evaluation],
    tables: Sequence[AttackTable],
    utility: Sequence[UtilityLine],
    gains: Sequence[Row],
    users: str | None,
    page: Path,
) -> ReportSummary:
    data = evaluations[0].details.get("data", {})
    dataset = str(data.get("name") or evaluations[0].rows[0]["dataset"])  # rows call every folder "folder"
    prior = evaluations[0].prior
    table = next((table for table in tables if table.prior == prior), None)
    best = table.best if table else None
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
        users=users,
        attack=best.attack if best else None,
        verdict=_sentences(dataset, table, evaluations, gains),
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
    federated = [line.estimate for line in lines if (line.prior, line.training) == (prior, "federated")]
    return next((each for each in federated if each.metric != "mae_gain_over_median"), None)


def _headline(numbers: Mapping[str, Estimate]) -> Mapping[str, Estimate]:
    return {metric: numbers[metric] for metric in HEADLINE if metric in numbers}


def _sentences(
    dataset: str, table: AttackTable | None, evaluations: Sequence[Evaluation], gains: Sequence[Row]
) -> tuple[str, ...]:
    chosen = table.best if table else None
    if table is None or chosen is None:
        return (UNATTACKED,)
    sentences = []
    for linkage, numbers in chosen.by_linkage.items():
        if "ap" not in numbers:
            continue
        ap, null = numbers["ap"], no_link(evaluations, table.prior, linkage)
        if linkage == "update":
            said = wording.verdict(dataset, table.prior, ap, null)
        else:
            said = wording.verdict_pooled(ap, null)
        raised = [row for row in gains if (row["prior"], row["linkage"]) == (table.prior, linkage)]
        gain = wording.estimate(raised[0]) if raised else None
        sentences.append(f"{said} {wording.verdict_beyond(ap, _largest(table, linkage), gain)}".rstrip())
    return tuple(sentences) or (UNATTACKED,)


def _largest(table: AttackTable, linkage: str) -> tuple[str, Estimate] | None:
    """Return the attack with the largest AP and that AP."""
    known = [(line.attack, line.by_linkage[linkage]["ap"]) for line in table.lines if linkage in line.by_linkage]
    return max(known, key=lambda each: each[1].value or 0.0, default=None)


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
