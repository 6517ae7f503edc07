"""Tables of what analyses exhibit: who is recognised and why, words of devices, devices that fit a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedprint.reports.numbers.evaluations import CONTROL, Evaluation, Exhibit, exhibits_of
from fedprint.reports.numbers.order import prior_title
from fedprint.reports.numbers.people import hides_words
from fedprint.reports.tables.analyses import ResultTable, TableLine
from fedprint.reports.wording import number

WITHHELD = "withheld: words of real people"


def tabulate_exhibits(evaluations: Sequence[Evaluation]) -> dict[str, tuple[ResultTable, ...]]:
    """Return the tables of every exhibit, by analysis; words of texts only where the data may be shared."""
    hidden = any(hides_words(item.details) for item in evaluations)
    makers = {"recognisable": _ends, "class-bias": _words, "profile": _profile}
    by_analysis = {}
    for name, make in makers.items():
        exhibits = {prior: shown for prior, shown in exhibits_of(evaluations, name).items() if prior != CONTROL}
        tables = tuple(table for prior, shown in exhibits.items() if (table := make(shown, prior, hidden)).lines)
        if tables:
            by_analysis[name] = tables
    return by_analysis


def _ends(shown: Exhibit, prior: str, hidden: bool) -> ResultTable:
    lines = [
        TableLine(
            labels=(group, f"user {row['user_id']}"),
            cells=(f"{number(row['ap'], 'fraction')} %", WITHHELD if hidden else _labels(row.get("top", []))),
        )
        for group in ("most", "least")
        for row in shown.get(group, [])
    ]
    return ResultTable(
        name=f"recognisable-{prior}",
        title=f"The most and the least recognisable users ({prior_title(prior)})",
        note="Labels that set a user apart: their share of the user's examples, and of everybody's.",
        labels=("recognised", "user"),
        heads=("AP", "labels that set the user apart"),
        lines=tuple(lines),
    )


def _words(shown: Exhibit, prior: str, hidden: bool) -> ResultTable:
    lines = []
    for row in shown.get("users", []) if shown.get("kind") == "words" else ():
        words = {device: {entry["word"] for entry in row[device]["words"]} for device in ("prior", "private")}
        common = len(words["prior"] & words["private"])
        texts = [WITHHELD if hidden else _bias(row[device]["words"]) for device in ("prior", "private")]
        ap = f"{number(row['ap'], 'fraction')} %"
        lines.append(TableLine(labels=(row["group"], f"user {row['user_id']}"), cells=(ap, str(common), *texts)))
    return ResultTable(
        name=f"class-bias-{prior}",
        title=f"Words whose output bias rises most ({prior_title(prior)})",
        note="A star marks a word that the device does not hold. Common: words in the lists of both devices.",
        labels=("recognised", "user"),
        heads=("AP", "common", "prior device", "private device"),
        lines=tuple(lines),
    )


def _profile(shown: Exhibit, prior: str, hidden: bool) -> ResultTable:
    lines = [
        TableLine(
            labels=(str(row["rank"]), f"user {row['user']}"),
            cells=(
                f"{row['score']:.3g}",
                "yes" if row["fits"] else "no",
                f"{number(row['share'], 'fraction')} %",
                WITHHELD if hidden else ", ".join(_moved(entry) for entry in row.get("classes", [])),
                WITHHELD if hidden else ", ".join(map(str, row.get("holds", []))),
            ),
        )
        for row in shown.get("devices", [])
    ]
    return ResultTable(
        name=f"profile-{prior}",
        title=f"Devices that seem to fit “{shown.get('profile', '')}” ({prior_title(prior)})",
        note=f"The best of {shown.get('asked', len(lines))} devices, of which {shown.get('fitting', 'some')} fit. The "
        "adversary sees score and evidence; whether a device fits and what it holds is known to the evaluation only. "
        "False positives hold what goes along with the profile.",
        labels=("rank", "sender"),
        heads=("score", "fits", "its share", "evidence: classes moved most (deviations)", "holds most beyond others"),
        lines=tuple(lines),
    )


def _labels(top: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{entry['label']} {number(entry['share'], 'fraction')} % (all {number(entry['population'], 'fraction')} %)"
        for entry in top
    )


def _bias(words: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{entry['word']}{'' if entry.get('used') else '*'}" for entry in words)


def _moved(entry: Mapping[str, Any]) -> str:
    return f"{entry['name']} ({entry['deviations']:.1f})"
