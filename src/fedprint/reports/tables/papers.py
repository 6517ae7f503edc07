"""The papers' tables with the published numbers beside those of a suite's members (reports/reference/*.csv).

Our data stand in for the published ones, so a published number tells the order of magnitude and is no target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from fedprint.evaluation.rows import Row
from fedprint.reports.numbers.evaluations import CONTROL, final_analyses, final_rows, prior_rank
from fedprint.reports.numbers.order import TRAINING_ORDER, attack_rank, rank
from fedprint.reports.numbers.reference import (
    TITLES,
    comparable,
    published_prior,
    published_row,
    published_utility,
    reference_table,
)
from fedprint.reports.tables.analyses import Cell, ResultTable, TableLine, cell, label, result_table
from fedprint.reports.wording import METRIC_TITLES, TRAININGS, estimate

NO_TARGET = "Published: other people's data, without intervals; an order of magnitude and no target."
LAYER_STEMS: Mapping[str, str] = {"embedding": "embedding", "lstm": "lstm", "head": "fc"}
"""Our layer -> the papers' (table 5)."""


class Member(Protocol):
    """What a table needs of a suite's member."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def rows(self) -> Sequence[Row]:
        """All its measurements."""

    @property
    def summary(self) -> Mapping[str, Any]:
        """Its summary.json."""

    @property
    def model(self) -> str:
        """The name of its model."""


def paper_tables(members: Sequence[Member]) -> tuple[ResultTable, ...]:
    """Return every table of the papers to which a member has numbers, in the papers' order."""
    tables = (datasets(members), utility(members), reidentification(members), attributes(members), layers(members),
              background(members), matching(members), *others(members))  # fmt: skip
    return tuple(table for table in tables if table is not None and table.lines)


def datasets(members: Sequence[Member]) -> ResultTable:
    """Table 1: our data sets and those they stand in for."""
    lines = []
    for member in members:
        data, dataset = member.summary.get("data", {}), str(member.summary["dataset"])
        names = comparable(dataset)
        published = [row for row in reference_table("table1_datasets") if row["dataset"] in names]
        cells: tuple[Cell, ...] = (
            str(data.get("users", "")),
            _beside({row["dataset"]: row["users"] for row in published}),
            str(data.get("examples", "")),
            _beside({row["dataset"]: row["examples"] for row in published}),
            member.model,
            _beside({row["dataset"]: row["model"] for row in published}),
        )
        lines.append(TableLine(labels=(member.name, dataset, stands_for(dataset)), cells=cells))
    return ResultTable(
        name="data-sets",
        title="Table 1: data sets",
        note="Our data sets stand in for published ones of their kind. Blog is the published corpus, another sample.",
        labels=("member", "data set", "stands in for"),
        heads=("users", "published users", "examples", "published examples", "model", "published model"),
        lines=tuple(lines),
    )


def background(members: Sequence[Member]) -> ResultTable:
    """Table 6: public data that no user owns, from which defences draw."""
    lines = []
    for member in members:
        ours = member.summary.get("data", {}).get("background", {})
        if not ours.get("examples"):
            continue
        published = [row for row in reference_table("table6_background") if row["dataset"] in _published_for(member)]
        cells: tuple[Cell, ...] = (
            str(ours["users"]),
            str(ours["examples"]),
            _beside({row["dataset"]: f"{row['background_examples']} ({row['background']})" for row in published}),
            _beside({row["dataset"]: row["mm_aug_clusters"] for row in published}),
        )
        lines.append(TableLine(labels=(member.name, str(member.summary["dataset"])), cells=cells))
    return ResultTable(
        name="background",
        title="Table 6: background data",
        note="Ours is public data beside the users (background users, or texts), checked to be disjoint from them.",
        labels=("member", "data set"),
        heads=("background users", "examples", "published examples", "published clusters of mm-aug"),
        lines=tuple(lines),
    )


def utility(members: Sequence[Member]) -> ResultTable:
    """Table 2: what the models achieve."""
    lines = []
    for member in members:
        for row in _utilities(member):
            papers = {name: published_utility(name, row["prior"], row["training"]) for name in _published_for(member)}
            same = {name: f"{pair[1]:g}" for name, pair in papers.items() if pair and _ours(pair[0]) == row["metric"]}
            training = TRAININGS.get(row["training"], row["training"])
            labels = (member.name, row["prior"], METRIC_TITLES.get(row["metric"], row["metric"]), training)
            lines.append(TableLine(labels=labels, cells=(estimate(row), _beside(same))))
    return ResultTable(
        name="utility",
        title="Table 2: utility",
        note=f"Federated training beside centralised training and simple guesses. {NO_TARGET}",
        labels=("member", "prior", "metric", "training"),
        heads=("ours", "published"),
        lines=tuple(lines),
    )


def reidentification(members: Sequence[Member]) -> ResultTable:
    """Table 3: re-identification from single updates."""
    lines = []
    for member in members:
        groups: dict[tuple[str, str], dict[str, Row]] = {}
        for row in _attacks(member):
            groups.setdefault((row["prior"], row["attack"]), {})[row["metric"]] = row
        for (prior, attack), by_metric in groups.items():
            papers = {data: published_row(data, prior, attack) for data in _published_for(member)}
            shown = {
                data: f"{paper.ap:.1f} ({paper.over_chance:.0f}× 1/U), {paper.top1:.1f}, {paper.top5:.1f}"
                for data, paper in papers.items()
                if paper
            }
            numbers = (cell(by_metric.get(metric)) for metric in ("ap", "ap_over_chance", "top1", "top5"))
            mark = " (chosen)" if any(row.get("selected") is True for row in by_metric.values()) else ""
            lines.append(TableLine(labels=(member.name, prior, f"{attack}{mark}"), cells=(*numbers, _beside(shown))))
    return ResultTable(
        name="re-identification",
        title="Table 3: re-identification, one update at a time",
        note=f"Chosen: by validation on prior data alone. {NO_TARGET}",
        labels=("member", "prior", "attack"),
        heads=("AP", "× chance", "top-1", "top-5", "published AP, top-1, top-5"),
        lines=tuple(lines),
    )


def attributes(members: Sequence[Member]) -> ResultTable | None:
    """Table 4: attribute inference alone and together with identity; known users, as published."""
    rows = [row for row in _analysis(members, "attributes") if row["metric"] in {"attribute_top1", "top1", "mtl_gain"}]
    table = result_table(rows, "attributes", "Table 4: attribute inference", NO_TARGET)
    if table is None:
        return None
    lines = [TableLine(labels=line.labels, cells=(*line.cells, None)) for line in table.lines]
    for paper in reference_table("table4_attribute_inference"):
        text = (
            f"attribute {paper['stl_attribute_top1']} alone, {paper['mtl_attribute_top1']} together; "
            f"user {paper['stl_reid_top1']} alone, {paper['mtl_reid_top1']} together"
        )
        values = {"member": "PIPA, published", "attribute": paper["attribute"], "attack": "mlp"}
        labels = tuple(values.get(head, "") for head in table.labels)
        lines.append(TableLine(labels=labels, cells=(*(None for _ in table.heads), text)))
    heads = (*table.heads, "published top-1")
    return replace(table, heads=heads, lines=tuple(lines), folded=len(lines) > 30)


def layers(members: Sequence[Member]) -> ResultTable:
    """Table 5: AP from one layer alone."""
    lines = [
        TableLine(
            labels=(member.name, row["prior"], row["attack"], str(row["layer"]), f"{int(row['parameters']):,}"),
            cells=(estimate(row), _beside(_layer(member, row))),
        )
        for member in members
        for row in _analysis_by_attack(member, "layers", "ap", lambda row: int(row["depth"]))
    ]
    return ResultTable(
        name="layers",
        title="Table 5: layers",
        note=f"Every attack is tuned anew on each layer alone, on prior data. {NO_TARGET}",
        labels=("member", "prior", "attack", "layer", "parameters"),
        heads=("AP", "published AP"),
        lines=tuple(lines),
        folded=len(lines) > 40,
    )


def matching(members: Sequence[Member]) -> ResultTable:
    """The matching table: closed world, the published matcher is the MLP product."""
    lines = [
        TableLine(
            labels=(member.name, row["prior"], row["attack"], label("linkage", row["linkage"])),
            cells=(estimate(row), _beside(_matched(member, row))),
        )
        for member in members
        for row in _analysis_by_attack(member, "matching", "matching_ap", lambda row: str(row["linkage"]))
    ]
    return ResultTable(
        name="matching",
        title="Matching: AP over balanced pairs",
        note=f"Closed world; chance 50 %. {NO_TARGET}",
        labels=("member", "prior", "attack", "linkage"),
        heads=("AP over pairs", "published AP"),
        lines=tuple(lines),
    )


def others(members: Sequence[Member]) -> tuple[ResultTable | None, ...]:
    """Return what the papers print as figures or in the text: our numbers, and theirs in the note."""
    wanted = {
        "cross-modal": ("Cross-modal matching", "The paper reports AP 76.3 over 10,000 balanced pairs (chance 50)."),
        "profile": ("Profile", "The paper gives an example without a number."),
        "data-space": ("Data space", "The paper: an update beats one image 1.5 to 2.5 times, large sets beat updates."),
        "prior-examples": ("Amount of prior data", "The paper: one example gave 7 times chance on PIPA."),
        "training-updates": ("Number of labelled updates", "The paper: one labelled update gave 3 to 22 times chance."),
        "open-world": (
            "Open world",
            "The paper, PIPA: AP 67 to 43 as the seen share grows, 3 to 14 times chance; matching without any seen "
            "user 1.5 (PIPA) and 1.8 (OpenImages) times chance.",
        ),
    }
    return tuple(
        result_table(_analysis(members, name), name, title, note, folded=name not in {"cross-modal", "profile"})
        for name, (title, note) in wanted.items()
    )


def stands_for(dataset: str) -> str:
    """Return the published data sets in words."""
    return ", ".join(TITLES[name] for name in comparable(dataset)) or "none"


def _attacks(member: Member) -> list[Row]:
    """Return the main rows on single updates, by prior and attack; none of a member whose only scores are random."""
    if not member.summary["attack"]:
        return []
    rows = [row for row in final_rows(member.rows) if row.get("attack") and row.get("linkage") == "update"]
    return sorted(rows, key=lambda row: (prior_rank(row["prior"]), attack_rank(row["attack"])))


def _utilities(member: Member) -> list[Row]:
    """Return the main rows on utility, without the control: by prior, metric and training."""
    rows = [row for row in final_rows(member.rows) if row.get("training") and not row.get("attack")]
    return sorted(
        (row for row in rows if row["prior"] != CONTROL),
        key=lambda row: (
            prior_rank(row["prior"]),
            METRIC_TITLES.get(row["metric"], row["metric"]),
            rank(TRAINING_ORDER, row["training"]),
        ),
    )


def _analysis(members: Sequence[Member], name: str) -> list[Row]:
    return [
        {**row, "member": member.name}
        for member in members
        for row in final_analyses(member.rows)
        if row["analysis"] == name and row["prior"] != CONTROL
    ]


def _analysis_by_attack(member: Member, name: str, metric: str, then: Callable[[Row], Any]) -> list[Row]:
    """Return a member's numbers of an analysis by prior, by attack, and ``then`` by a key of their own."""
    rows = [row for row in _analysis([member], name) if row["metric"] == metric]
    return sorted(rows, key=lambda row: (prior_rank(row["prior"]), attack_rank(row["attack"]), then(row)))


def _published_for(member: Member) -> tuple[str, ...]:
    return comparable(str(member.summary["dataset"]))


def _layer(member: Member, row: Row) -> dict[str, str]:
    """Return the published AP of a layer, which is under the random prior."""
    if row["prior"] != "random":
        return {}
    stem = next((paper for ours, paper in LAYER_STEMS.items() if str(row["layer"]).startswith(ours)), None)
    return {
        entry["dataset"]: entry["ap"]
        for entry in reference_table("table5_layers")
        if entry["layer"] == stem and entry["dataset"] in _published_for(member)
    }


def _matched(member: Member, row: Row) -> dict[str, str]:
    """Return the published AP of the paper's matcher, the product of the MLP's probabilities, and of chance."""
    attack = {"mlp-product": "mlp", "chance": "chance"}.get(row["attack"], "")
    return {
        entry["dataset"]: entry["ap"]
        for entry in reference_table("table_matching")
        if (entry["prior"], entry["attack"]) == (published_prior(entry["dataset"], row["prior"]), attack)
        and entry["dataset"] in _published_for(member)
    }


def _beside(values: Mapping[str, str]) -> str | None:
    """Return ``PIPA 91.0; OpenImages 53.7``, None without a published value."""
    return "; ".join(f"{TITLES[name]} {value}" for name, value in values.items()) or None


def _ours(metric: str) -> str:
    return {"AP": "mean_ap", "MAE": "mae"}.get(metric, metric)
