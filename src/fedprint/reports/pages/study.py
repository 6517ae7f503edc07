"""The report of a study: one operating point per strategy, every trial, what mattered, and how the search went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprint.reports.figures.study import draw_search, draw_study
from fedprint.reports.pages.html import Page, described, write_page
from fedprint.reports.pages.study_privacy import guarantee_words, guarantees_table, search_note
from fedprint.reports.tables.analyses import ResultTable, TableLine
from fedprint.reports.wording import MISSING, Estimate, number, percent
from fedprint.tuning.result import OperatingPoint, SearchResult
from fedprint.tuning.score import Finished


@dataclass(frozen=True, kw_only=True)
class StudyHead:
    """What holds for the whole page: the data, the setting that every number is about, and how the search was set.

    ``search`` are the settings that only the search has, in words; empty where it has none of its own. ``updates`` is
    the number of linked updates of the ceiling and of ``undefended_linked_ap``. ``confirmed`` says whether confirmation
    users are declared.
    """

    name: str
    title: str
    dataset: str
    prior: str
    views: tuple[str, ...]
    defended: str
    learn_from: str
    adversaries: tuple[str, ...]
    ceiling: str
    ceiling_ap: float
    utility_metric: str
    undefended_utility: float
    undefended_ap: float
    undefended_linked_ap: float
    updates: int
    confirmed: bool
    seeds: tuple[int, ...]
    fresh_seeds: tuple[int, ...]
    search: str
    fast: bool
    config_hash: str

    @property
    def bounded(self) -> bool:
        """Whether the ceiling can bind: no AP is above 1, so that such a study asks for utility alone."""
        return self.ceiling_ap < 1


def write_study(
    *,
    head: StudyHead,
    searches: Sequence[SearchResult],
    points: Sequence[OperatingPoint],
    config_text: str,
    out: Path,
) -> None:
    """Write the folder ``out``: index.html, operating_points.json, trials.json, tables/, figures/ and config.yaml.

    The folder appears as a whole; equal input gives equal bytes.
    """
    budgets = guarantees_table(points)
    tables = [points_table(head, points), *([] if budgets is None else [budgets])]
    tables += [table for table in (importances_table(searches), trials_table(head, searches)) if table.lines]
    notes = [search_note(point, len(head.seeds)) for point in points]
    page = Page(
        template="study",
        sentences=sentences(head, points),
        drawings=draw_study(head.ceiling_ap, searches, points) if head.bounded else draw_search(searches),
        tables=tables,
        files={
            "operating_points.json": [
                {**point.as_json(), "search_privacy": note} for point, note in zip(points, notes, strict=True)
            ],
            "trials.json": {search.strategy: _trials(search) for search in searches},
            **described("study", head, config_text),
        },
        values={"head": head, "searches": searches, "search_notes": [note for note in notes if note]},
    )
    write_page(page, out)


def best_first(points: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """Return feasible operating points by falling utility, then the others so."""
    return sorted(points, key=lambda point: (not point.feasible, -(point.utility or 0.0)))


def sentences(head: StudyHead, points: Sequence[OperatingPoint]) -> list[str]:
    """Say what the study found, the most important first: that it found nothing, or its best operating point."""
    none = "No operating point: nothing that was measured keeps below the ceiling with its whole interval."
    said = [sentence(head, point) for point in best_first(points)]
    return said if any(point.feasible for point in points) else [none, *said]


def sentence(head: StudyHead, point: OperatingPoint) -> str:
    """Say what a strategy costs at its operating point, with the setting, or why it has none."""
    if point.utility is None or point.attack_ap is None:
        return f"{point.strategy}: {point.note}."
    private = (
        f" One training: {guarantee_words(point.guarantee)}; the search is not covered." if point.guarantee else ""
    )
    shown = point.confirmation or point
    who = f"{' and '.join(head.adversaries)} adversary, view {shown.view}, defended: {shown.defended}"
    users = "confirmation users" if point.confirmation else "development users" if head.confirmed else "users"
    setting = f"{point.strategy} ({parameters(point.parameters)})"
    if not head.bounded:
        return (
            f"{setting} keeps {_ranged(shown, 'utility')} of the utility; no ceiling on the attack ({shown.n_users} "
            f"{users}, {len(shown.seeds)} fresh seeds).{private}"
        )
    single = "" if point.updates == 1 else f" (of an update: {_ranged(shown, 'attack_ap')})"
    return (
        f"{setting} keeps {100 * (shown.utility or 0.0):.0f} % of the utility at "
        f"{linked_words(point.updates)} {_ranged(shown, 'linked_ap')}, chance {_percent(shown.linked_chance)}"
        f"{single}; ceiling {_percent(shown.ceiling)} ({who}; {shown.n_users} {users}, {len(shown.seeds)} fresh "
        f"seeds). {point.note}{private}"
    )


def linked_words(updates: int) -> str:
    """Return which AP is meant."""
    return "AP of an update" if updates == 1 else f"AP over {updates} linked updates"


def parameters(values: Mapping[str, Any]) -> str:
    """Return ``alpha = 2.5, clip = 0.013``."""
    return ", ".join(f"{name} = {value:.4g}" for name, value in values.items()) or MISSING


def points_table(head: StudyHead, points: Sequence[OperatingPoint]) -> ResultTable:
    """Return the operating points, best feasible utility first."""
    if not head.bounded:
        return _utility_table(points)
    names = [*head.adversaries] if len(head.adversaries) > 1 else []
    lines = [
        TableLine(
            labels=(point.strategy, parameters(point.parameters)),
            cells=(
                "yes" if point.feasible else "no",
                *_numbers(point.confirmation or point, names, head.updates),
                *(_difference(point) if head.confirmed else ()),
                f"{point.data_factor:.2f}",
                _measured(point),
            ),
        )
        for point in best_first(points)
    ]
    linked = () if head.updates == 1 else ("AP of an update",)
    return ResultTable(
        name="operating-points",
        title="Operating points, measured on fresh seeds",
        note="Utility is in per cent of that without a defence. AP is the strongest adversary's in each seed: the "
        "largest of all configured attacks, and so an upper estimate. Intervals (95 %) are over seeds and users. "
        "“Below the ceiling”: the upper end of the interval is. "
        + ("Numbers are of confirmation users where a candidate reached them; the columns on development users show "
           "how far theirs lie above." if head.confirmed else "No confirmation users are declared."),
        labels=("strategy", "parameters"),
        heads=(
            "below the ceiling", "users", "view", "utility", linked_words(head.updates), *linked,
            *(f"AP of an update, {name}" for name in names), "ceiling",
            *(("utility, development", "AP, development") if head.confirmed else ()),
            "data factor", "measured on fresh seeds",
        ),
        lines=tuple(lines),
    )  # fmt: skip


def _utility_table(points: Sequence[OperatingPoint]) -> ResultTable:
    return ResultTable(
        name="operating-points",
        title="Operating points, measured on fresh seeds",
        note="Utility is in per cent of that without a defence, with a 95 % interval over seeds and users. No ceiling "
        "on the attack was set.",
        labels=("strategy", "parameters"),
        heads=("users", "view", "utility", "data factor", "measured on fresh seeds"),
        lines=tuple(
            TableLine(
                labels=(point.strategy, parameters(point.parameters)),
                cells=(
                    str(point.n_users), point.view, _estimate(point, "utility", point.utility),
                    f"{point.data_factor:.2f}", _measured(point),
                ),
            )
            for point in best_first(points)
        ),
    )  # fmt: skip


def _measured(point: OperatingPoint) -> str:
    return f"{point.measured} of {sum(point.trials.values())} trials"


def _numbers(point: OperatingPoint, names: Sequence[str], updates: int) -> tuple[Estimate | str | None, ...]:
    linked = () if updates == 1 else (_estimate(point, "attack_ap", point.attack_ap, point.chance),)
    return (
        str(point.n_users),
        point.view,
        _estimate(point, "utility", point.utility),
        _estimate(point, "linked_ap", point.linked_ap, point.linked_chance),
        *linked,
        *(_of_adversary(point, name) for name in names),
        f"{_percent(point.ceiling)}",
    )


def _difference(point: OperatingPoint) -> tuple[str, str]:
    """Return how far the numbers of development users lie above those of confirmation users."""
    other = point.confirmation
    if other is None or None in (point.utility, point.linked_ap, other.utility, other.linked_ap):
        return MISSING, MISSING
    gaps = (point.utility - other.utility, point.linked_ap - other.linked_ap)  # type: ignore[operator]
    return f"{100 * gaps[0]:+.1f} points", f"{100 * gaps[1]:+.1f} points"


def importances_table(searches: Sequence[SearchResult]) -> ResultTable:
    """Return how much each parameter mattered for utility."""
    lines = [
        TableLine(labels=(search.strategy, name), cells=(f"{100 * share:.0f} %",))
        for search in searches
        for name, share in sorted(search.importances.items(), key=lambda item: -item[1])
    ]
    return ResultTable(
        name="importances",
        title="Parameter importances",
        note="Share of the variance of utility over the trials that a parameter explains (fANOVA); a strategy with one "
        "parameter has nothing to divide.",
        labels=("strategy", "parameter"),
        heads=("importance",),
        lines=tuple(lines),
    )


def trials_table(head: StudyHead, searches: Sequence[SearchResult]) -> ResultTable:
    """Return every trial of the search; its numbers come from the seeds of the search, without intervals."""
    lines = [
        TableLine(
            labels=(search.strategy, str(trial.number), parameters(trial.values)),
            cells=(
                trial.state if not trial.error else f"{trial.state}: {trial.error}",
                MISSING if trial.utility is None else f"{trial.utility:.3f}",
                *(_attacked(trial) if head.bounded else ()),
            ),
        )
        for search in searches
        for trial in search.trials
    ]
    note = (
        "AP is the one that the ceiling is about. A trial is feasible where the upper end of its interval is at most "
        "the ceiling."
    )
    return ResultTable(
        name="trials",
        title="All trials of the search",
        note=note if head.bounded else "",
        labels=("strategy", "trial", "parameters"),
        heads=("state", "utility", *(("AP", "upper end - ceiling") if head.bounded else ())),
        lines=tuple(lines),
        folded=True,
    )


def _attacked(trial: Finished) -> tuple[str, str]:
    excess = MISSING if trial.excess is None or trial.error else f"{100 * trial.excess:+.1f} points"
    return _percent(trial.attack_ap), excess


def _estimate(point: OperatingPoint, name: str, value: float | None, chance: float | None = None) -> Estimate | None:
    if value is None:
        return None
    lo, hi = point.intervals[name]
    metric = "normalised_utility" if name == "utility" else "ap"
    return Estimate(
        metric=metric, unit="fraction", value=value, lo=lo, hi=hi, chance=chance,
        n_questions=point.n_users, n_users=point.n_users, n_seeds=len(point.seeds),
    )  # fmt: skip


def _of_adversary(point: OperatingPoint, name: str) -> str | None:
    ap = point.by_adversary.get(name)
    return percent(ap, ".1f") if ap else None


def _ranged(point: OperatingPoint, name: str) -> str:
    lo, hi = point.intervals[name]
    return percent({"value": getattr(point, name), "lo": lo, "hi": hi}, ".1f")


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{number(value, 'fraction')} %"


def _trials(search: SearchResult) -> dict[str, Any]:
    trials = [{**vars(trial), "feasible": trial.feasible} for trial in search.trials]
    return {"importances": search.importances, "trials": trials}
