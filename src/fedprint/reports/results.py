"""Numbers and pictures of README and docs, written by ``make results`` from published experiments alone.

A block begins with ``<!-- results: KIND NAME ... -->`` and ends with ``<!-- end -->``. An experiment is published when
git holds ``experiments/<name>/`` and its ``dvc.lock`` names the same measurements; other names leave no row.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from fedprint.attacks.choices import HEADLINE
from fedprint.evaluation.inversion.capability import LEAKED
from fedprint.evaluation.rows import NUMBERS, POOLED, Row, read_measurements
from fedprint.evaluation.tradeoffs.planes import over_seeds
from fedprint.lab.project import find_root
from fedprint.reports.claims.evidence import unpaired
from fedprint.reports.figures.drawing import INK, finish, mark, percent_axis, style
from fedprint.reports.figures.panels import blank_figure
from fedprint.reports.numbers.clients import final
from fedprint.reports.numbers.evaluations import of_headline
from fedprint.reports.numbers.inversion import CUT, GRADIENT, LIRA, MAIN, named, row_where, rows_where
from fedprint.reports.numbers.plane import NO_DEFENCE
from fedprint.reports.wording import LINKAGES, METRIC_TITLES, MISSING, csv_text, people, ranged, shown, with_unit
from fedprint.types import FedprintError

PICTURE = Path("docs/images/recognition.png")
PLANES = Path("src/fedprint/reports/reference/planes.csv")
COSTS_OF = ("mnist-writers-linked-confirmation", "blog-plane")
"""The published planes whose costs are in :data:`PLANES`."""
NOT_YET = "Not published yet."
_BLOCK = re.compile(r"(<!-- results: (\w+)([^>]*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_APART = ("analysis", "chosen", "protected")
"""Columns that are set in rows about a part of the users, or by an analysis."""
_ACCURACY: Mapping[str, Any] = {"training": "federated", "attack": None, "metric": "accuracy"}
_COSTS = {
    "value": "", "lo": "_lo", "hi": "_hi", "chance": "_chance", "n_questions": "_n_questions", "n_users": "_n_users",
    "n_seeds": "_n_seeds",
}  # fmt: skip
"""Columns of a number in planes.csv, behind its name."""
_KNOWN = {
    "random": "a random half",
    "chrono": "the earlier half",
    "photoset": "whole albums",
    "iid": "control: mixed users",
}


@dataclass(frozen=True, kw_only=True)
class Published:
    """An experiment as git holds it: the command that made it, the day of its commit, its measurements.

    ``operating`` are a study's operating points, none of other experiments.
    """

    name: str
    command: str
    date: str
    rows: Sequence[Row]
    operating: Sequence[Mapping[str, str]] = ()

    @cached_property
    def _about_all(self) -> Sequence[Row]:
        return [row for row in self.rows if row["world"] == "closed" and not any(row.get(key) for key in _APART)]

    def where(self, **wanted: Any) -> list[Row]:
        """Return the rows with these values about all users."""
        return [row for row in self._about_all if all(row.get(key) == value for key, value in wanted.items())]

    def number(self, *, most: bool = False, **wanted: Any) -> Row:
        """Return a number over seeds: that of the adaptive adversary where there is one, or the largest of the rows."""
        every = self.where(**wanted)
        rows = sorted(every if most else of_headline(every), key=lambda row: float(row["value"]))
        by_seed = {row["seed"]: row for row in rows if row["seed"] != POOLED}
        if not by_seed:
            raise FedprintError(f"experiments/{self.name}/measurements.jsonl has no row with {wanted}")
        return over_seeds([{key: by_seed[seed].get(key) for key in (*NUMBERS, "seed")} for seed in sorted(by_seed)])

    def gain(self, **where: Any) -> Row | None:
        """Return what the last doubling of effort gained on all updates of a device; None if a seed does not know."""
        wanted = {"analysis": "effort", "metric": "ap_difference", "linkage": "device", "selected": True, **where}
        rows = [row for row in self.rows if all(row.get(key) == value for key, value in wanted.items())]
        single = [{key: row.get(key) for key in (*NUMBERS, "seed")} for row in rows if row["seed"] != POOLED]
        return over_seeds(single) if {row["seed"] for row in single} == self.seeds() else None

    def ap(self, **where: Any) -> list[Row]:
        """Return the AP of the attacker chosen on prior data: of one update, and of all updates of a device."""
        return [self.number(metric="ap", linkage=linkage, selected=True, **where) for linkage in LINKAGES]

    def utility(self, **of: Any) -> tuple[Row, str]:
        """Return the federated model's utility, and its name; with the epsilon where there is a budget."""
        rows = self.where(training="federated", attack=None, **of)
        utility = self.number(training="federated", attack=None, metric=rows[0]["metric"], **of)
        spent = next((row for row in rows if row.get("epsilon")), None)
        budget = f" at epsilon {spent['epsilon']:.2f} of a device (delta {spent['delta']:g})" if spent else ""
        return utility, METRIC_TITLES[utility["metric"]] + budget

    def priors(self) -> list[str]:
        """Return the priors in their order; the first is the headline's."""
        return list(dict.fromkeys(row["prior"] for row in self.where()))

    def parts(self) -> list[dict[str, Any]]:
        """Return member, of a suite, and prior of each part in their order."""
        pairs = dict.fromkeys((row.get("member"), row["prior"]) for row in self.where())
        return [{"member": member, "prior": prior} for member, prior in pairs]

    def found(self, accuracy: Row) -> list[Row | None]:
        """Return the rows of :data:`_FOUND` under the mechanism whose accuracy this is, None where not asked."""
        setting = {key: accuracy[key] for key in ("defence", "variant", "strength")}
        return [row_where(self.rows, **{"adversary": HEADLINE, **keys, **setting}) for _, keys in _FOUND]

    def points(self) -> list[dict[str, Any]]:
        """Return strategy and strength of each defended point of a plane; nothing of other experiments."""
        pairs = dict.fromkeys((row.get("strategy"), row.get("strength")) for row in self.where())
        return [{"strategy": name, "strength": x} for name, x in pairs if name not in (None, NO_DEFENCE)]

    def seeds(self) -> set[Any]:
        """Return the seeds that were measured."""
        return {row["seed"] for row in self._about_all} - {POOLED}

    def source(self, row: Row | None = None) -> str:
        """Return what stands with every number: command, day, n, seeds, and what the interval is over.

        Without a ``row`` of an attack, n is left out.
        """
        number = row["n_seeds"] if row else len(self.seeds())
        seeds = (", 1 seed", "") if number == 1 else (f", {number} seeds", " and seeds")
        n = f", {row['n_questions']:,} updates of {people(row['n_users'])}" if row else ""
        return f"`{self.command}`, {self.date}{n}{seeds[0]}, 95 % intervals over users{seeds[1]}"


def find_published(root: Path, name: str) -> Published | None:
    """Return an experiment, None where git has none; FedprintError where its lock names other measurements."""
    path = Path("experiments", name, "measurements.jsonl")
    git = ["git", "log", "-1", "--format=%as", "--", str(path)]
    date = subprocess.run(git, cwd=root, capture_output=True, text=True, check=True).stdout.strip()
    if not date or not (root / path).is_file():
        return None
    own = root / path.with_name("dvc.lock")
    stages = yaml.safe_load((own if own.is_file() else root / "dvc.lock").read_text(encoding="utf-8"))["stages"]
    recorded = {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs", ())}
    if recorded.get(str(path)) != hashlib.md5((root / path).read_bytes(), usedforsecurity=False).hexdigest():
        raise FedprintError(f"{path} is not what its dvc.lock names: publish '{name}' again")
    command = next(iter(stages.values()))["cmd"] if own.is_file() else f"fedprint run {name}"
    points = root / path.with_name("plots") / "operating-points.csv"
    operating = list(csv.DictReader(points.read_text(encoding="utf-8").splitlines())) if points.is_file() else []
    return Published(name=name, command=command, date=date, rows=read_measurements(root / path), operating=operating)


def _attacks(experiments: Sequence[Published]) -> str:
    rows = [("experiment", "prior", "utility", "AP of one update", "AP of all updates of a device", "measured by")]
    for one in experiments:
        for part in one.parts():
            use, name = one.utility(**part)
            single = one.where(metric="ap", linkage="update", selected=True, **part)
            asked = one.ap(**part) if single else []
            update, device = [_against(row) for row in asked] or ["not attacked"] * 2
            title = part["member"] or one.name
            rows.append((title, part["prior"], f"{name} {_against(use)}", update, device, one.source(*asked[:1])))
    return _table(rows)


def _epsilons(suites: Sequence[Published]) -> str:
    """Return a line per suite: the accuracy of its members, by the epsilon that each spent."""
    spent = [{f"{row['epsilon']:.2g}": row["member"] for row in one.where(**_ACCURACY)} for one in suites]
    heads = sorted({epsilon for members in spent for epsilon in members}, key=float)
    rows: list[Sequence[str]] = [("experiment", *(f"epsilon {epsilon}" for epsilon in heads), "chance", "measured by")]
    for one, members in zip(suites, spent, strict=True):
        known = {epsilon: one.number(member=member, **_ACCURACY) for epsilon, member in members.items()}
        cells = (shown(known[epsilon]) if epsilon in known else MISSING for epsilon in heads)
        first = next(iter(known.values()))
        chance = with_unit(first["chance"], first["unit"])
        rows.append((one.name, *cells, chance, f"{one.source()}, {people(first['n_users'])}"))
    return _table(rows)


def _plane(one: Published) -> str:
    single, pooled = one.ap(strategy=NO_DEFENCE)
    linked = f"AP of all {single['n_questions'] / pooled['n_questions']:.0f} updates of a device"
    heads = ("AP of one update", linked, "the same, any attack", "gain of the last doubling of effort")
    uses, added = _uses(one)
    rows: list[Sequence[str]] = [("defence", "strength", *uses.values(), *heads)]
    rows.append((NO_DEFENCE, "", *("" for _ in uses), *_columns(one, strategy=NO_DEFENCE)))
    for point in one.points():
        useful = (shown(one.number(metric=metric, **point)) for metric in uses)
        rows.append((point["strategy"], f"{point['strength']:g}", *useful, *_columns(one, **point)))
    adversary = HEADLINE if one.where(metric="ap", selected=True, adversary=HEADLINE) else "naive"
    who = f"the {adversary} adversary, fixed in advance; “any attack” is an upper estimate"
    return f"**{one.name}** ({one.source(single)}; {who}{added}):\n\n{_table(rows)}"


def _uses(one: Published) -> tuple[dict[str, str], str]:
    """Return the metrics of a plane's utility with their titles, and what private data add, where that is known."""
    uses = {"normalised_utility": "utility over no defence"}
    if one.where(metric="private_share"):
        uses["private_share"] = "share of what private data add"
    if not one.where(metric="private_gain"):
        return uses, ""
    gain = one.number(metric="private_gain", strategy=NO_DEFENCE)
    return uses, f"; private data add {shown(gain)} to the utility of public data alone"


def _columns(one: Published, **point: Any) -> list[str]:
    most, gain = one.number(most=True, metric="ap", linkage="device", **point), one.gain(**point)
    return [*map(_against, one.ap(**point)), shown(most), MISSING if gain is None else shown(gain)]


def _confirmed(planes: Sequence[Published]) -> str:
    """Set the first plane's APs beside those of the same points of the second, which has other users."""
    if len(planes) == 1:
        return NOT_YET
    here, other = planes
    rows: list[Sequence[str]] = [("defence", "strength", *(f"{what}: {who}" for what in _OF_AP for who in _WHOM))]
    shared = [{"strategy": NO_DEFENCE}, *(point for point in here.points() if point in other.points())]
    for point in shared:
        pairs = zip(here.ap(**point), other.ap(**point), strict=True)
        cells = (cell for a, b in pairs for cell in (shown(a), shown(b), ranged(unpaired(a, b), "+.1f", 100)))
        rows.append((point["strategy"], f"{point['strength']:g}" if "strength" in point else "", *cells))
    sources = " beside ".join(f"**{one.name}** ({one.source(one.ap(strategy=NO_DEFENCE)[0])})" for one in planes)
    return f"{sources}; the users are others, so the difference, in points, is unpaired:\n\n{_table(rows)}"


def _members(one: Published) -> str:
    """Return a line per point of a plane that asks who took part: its epsilon, its utility, and who is found."""
    rows: list[Sequence[str]] = [("defence", "noise multiplier", "epsilon", *(head for head, _ in _MEMBERSHIP))]
    numbers = final(one.rows)
    known: list[Row] = []
    for point in ({"strategy": NO_DEFENCE, "strength": None}, *one.points()):
        epsilon = next((row["epsilon"] for row in one.where(**point) if row.get("epsilon")), None)
        found = [row_where(numbers, **keys, **point) for _, keys in _MEMBERSHIP]
        cells = (MISSING if row is None else shown(row) for row in found)
        strength = "" if point["strength"] is None else f"{point['strength']:g}"
        rows.append((point["strategy"], strength, MISSING if epsilon is None else f"{epsilon:.2f}", *cells))
        known += [row for row in found if row is not None and row["metric"] == "membership_auc"]
    asked = f"AUC of who took part, of {known[0]['n_users']} users, chance {with_unit(known[0]['chance'], 'fraction')}"
    return f"**{one.name}** ({one.source()}; epsilon of a device; {asked}):\n\n{_table(rows)}"


_AUC = {"metric": "membership_auc", "adversary": HEADLINE}
_MEMBERSHIP: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("audit: epsilon at least", {"metric": "epsilon_lower"}),
    ("utility over no defence", {"metric": "normalised_utility"}),
    ("from released models, with the device's data", {**_AUC, "view": "central", "attack": "known-data"}),
    ("the same with the user's other data", {**_AUC, "view": "central", "attack": "candidates"}),
    ("from sums, with the device's data", {**_AUC, "view": "aggregate", "attack": "known-data"}),
    ("from raw updates", {**_AUC, "view": "local"}),
)
"""What is asked about each point of a plane by epsilon, with the keys of its rows."""


def _inversion(one: Published) -> str:
    """Return what each mechanism leaves of accuracy, and what an adversary who knows it finds in single gradients."""
    tried = [(row, one.found(row)) for row in rows_where(one.rows, metric="accuracy", network=NETWORK)]
    rows: list[Sequence[str]] = [("mechanism", "strength", "accuracy", *(head for head, _ in _FOUND))]
    for accuracy, found in tried:
        cells = (MISSING if row is None else shown(row) for row in (accuracy, *found))
        rows.append((named(accuracy), f"{accuracy['strength']:g}", *cells))
    images, some = tried[0]
    asked = "; ".join(
        f"{head}: {row['n_questions']:,} in {row['n_users']:,} gradients, chance "
        + with_unit(row["chance"], row["unit"])
        for (head, _), row in zip(_FOUND, some, strict=True)
        if row is not None
    )
    trained = f"accuracy over {images['n_questions']:,} test images and {images['runs']} federations"
    who = "found by the adaptive adversary unless said"
    return f"**{one.name}** (`{one.command}`, {one.date}, 95 % intervals; {trained}; {who}; {asked}):\n\n{_table(rows)}"


NETWORK = "dlnet"
"""The papers' network, on which gradients are matched."""
_SINGLE = {"network": NETWORK, "attack": "gradient-matching", "attack_variant": MAIN, "attack_batch": 1}
_FOUND: tuple[tuple[str, Mapping[str, Any]], ...] = (
    (
        "images recovered, naive",
        {**_SINGLE, **CUT, "metric": "reconstruction_success", "threshold": LEAKED, "adversary": "naive"},
    ),
    ("images recovered", {**_SINGLE, **CUT, "metric": "reconstruction_success", "threshold": LEAKED}),
    ("labels", {**_SINGLE, **GRADIENT, "metric": "label_accuracy"}),
    ("traced among a thousand", {"attack_variant": "thousand", "metric": "tracing_accuracy", "level": "image"}),
    (
        "members at an FPR of .1 %",
        {"network": NETWORK, "attack": LIRA, "metric": "example_membership_tpr", "attack_batch": 8},
    ),
)
"""What is found under a mechanism, with the keys of its rows; by the adaptive adversary unless said."""

_OF_AP = ("one update", "all updates of a device")
_WHOM = ("confirmation users", "development users", "difference")


def _line(one: Published) -> str:
    prior = one.priors()[0]
    (use, name), (single, pooled) = one.utility(prior=prior), one.ap(prior=prior)
    pair = f"AP of one update is {_against(single)}, of all updates of a device {_against(pooled)}"
    return f"Result: {pair}; {name}: {_against(use)}. ({one.source(single)}; {prior} prior.)"


def _plane_line(one: Published) -> str:
    single, pooled = one.ap(strategy=NO_DEFENCE)
    public = {"strategy": "bkg-repl", "strength": 1.0}
    defended = [point for point in one.points() if point != public]
    best = min(defended, key=lambda point: float(one.ap(**point)[1]["value"]))
    alone = f" Public data alone have {_left(one, public)}." if public in one.points() else ""
    return (
        f"Result: without a defence AP of one update is {_against(single)}, of all updates of a device "
        f"{_against(pooled)}. Of the defences with private data, {best['strategy']} {best['strength']:g} has the "
        f"lowest measured AP of all updates: {_left(one, best)}.{alone} ({one.source(single)}.)"
    )


def _left(one: Published, point: Mapping[str, Any]) -> str:
    single, pooled = one.ap(**point)
    use = one.number(metric="normalised_utility", **point)
    return f"{shown(single)} and {shown(pooled)}, at {shown(use)} the utility"


def _study_line(one: Published) -> str:
    found = sorted((point for point in one.operating if point["feasible"] == "yes"), key=lambda p: -float(p["utility"]))
    none = [point["strategy"] for point in one.operating if point["feasible"] != "yes"]
    said = [
        f"{point['strategy']} ({point['parameters']}) keeps {_ends(point, 'utility')} of the utility at AP "
        f"{_ends(point, 'ap')} over {point['updates']} linked updates"
        for point in found
    ]
    said += [f"no strength of {' or '.join(none)} keeps below the ceiling"] if none else []
    first = (found or list(one.operating))[0]
    whom = f"{first['n_users']} {first['users']} users".replace("  ", " ")
    return (
        f"Result: {'; '.join(said)}. (`{one.command}`, {one.date}, ceiling {100 * float(first['ceiling']):.1f} %, "
        f"chance {100 * float(first['chance']):.1f} %, {whom}, {first['n_seeds']} fresh seeds, 95 % intervals over "
        "users and seeds.)"
    )


def _ends(point: Mapping[str, str], name: str) -> str:
    value, lo, hi = (100 * float(point[key]) for key in (name, f"{name}_lo", f"{name}_hi"))
    return f"{value:.0f} % [{lo:.0f}, {hi:.0f}]"


def plane_costs(planes: Sequence[Published]) -> str:
    """Return as CSV what each point of the planes left to the fixed adversary, and the utility that it kept.

    An installed package holds it as ``reference/planes.csv``: audits of other federations show it as what was measured
    here.
    """
    lines = [dict(line) for one in planes for line in _plane_costs(one)]
    return csv_text([lines[0], *(line.values() for line in lines)])


def _plane_costs(one: Published) -> Iterator[Mapping[str, Any]]:
    for point in [{"strategy": NO_DEFENCE}, *one.points()]:
        single, pooled = one.ap(**point)
        use = one.number(metric="normalised_utility", **point) if "strength" in point else None
        line = {"experiment": one.name, "strategy": point["strategy"], "strength": point.get("strength")}
        for name, row in (("ap", single), ("ap_linked", pooled), ("utility", use)):
            for key, ending in _COSTS.items():
                line[f"{name}{ending}"] = None if row is None else row[key]
        yield {**line, "source": one.source(single)}


def _result_line(one: Published) -> str:
    return _study_line(one) if one.operating else _plane_line(one) if one.points() else _line(one)


def _picture(experiments: Sequence[Published]) -> str:
    image = f"![Average precision of the chosen attacker, by what the adversary knows of a user's data]({PICTURE})"
    (one,) = experiments
    return (
        f"{image}\n\n*Average precision (AP) with which the chosen attacker names the sender, by what it knows of a "
        f"user's data. Upright lines are chance. {one.source(one.ap(prior=one.priors()[0])[0])}.*"
    )


def recognition(one: Published) -> bytes:
    """Return the picture as PNG: AP with interval and chance by prior, of one update and of all of a device."""
    with style():
        figure = blank_figure(7.2, 2.4)
        axes = figure.subplots()
        for position, prior in enumerate(one.priors()):
            for which, row in enumerate(one.ap(prior=prior)):
                y, (colour, marker) = position + 0.3 * which - 0.15, mark(which)
                label = ("one update", "all updates of a device")[which] if position == 0 else None
                axes.plot([row["lo"], row["hi"]], [y, y], color=colour)
                axes.plot(row["value"], y, marker, color=colour, label=label)
                axes.plot([row["chance"]] * 2, [y - 0.13, y + 0.13], color=INK, lw=1.2)
        axes.set_yticks(range(len(one.priors())), [_KNOWN[prior] for prior in one.priors()])
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.grid(visible=False, axis="y")
        percent_axis(axes, "x", "average precision")
        figure.legend(loc="outside upper right", ncols=2)
        return finish(figure, "recognition", "", "", "").png


def _table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (rows[0], ["---"] * len(rows[0]), *rows[1:]))


def _against(row: Row) -> str:
    return f"{shown(row)} (chance {with_unit(row['chance'], row['unit'])})"


KINDS: Mapping[str, Callable[[Sequence[Published]], str]] = {
    "attacks": _attacks,
    "confirmed": _confirmed,
    "epsilons": _epsilons,
    "inversions": lambda experiments: "\n\n".join(map(_inversion, experiments)),
    "members": lambda experiments: "\n\n".join(map(_members, experiments)),
    "planes": lambda experiments: "\n\n".join(map(_plane, experiments)),
    "lines": lambda experiments: "\n".join(map(_result_line, experiments)),
    "picture": _picture,
}


def rendered(root: Path, path: Path) -> str:
    """Return the text of a file with its blocks written anew."""

    def block(match: re.Match[str]) -> str:
        begin, kind, names, _, end = match.groups()
        experiments = [one for name in names.split() if (one := find_published(root, name)) is not None]
        body = KINDS[kind](experiments) if experiments else NOT_YET
        return f"{begin}{body.replace(str(PICTURE), os.path.relpath(root / PICTURE, path.parent))}\n{end}"

    return _BLOCK.sub(block, path.read_text(encoding="utf-8"))


def documents(root: Path) -> list[Path]:
    """Return the files that may hold blocks."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def main() -> None:
    """Write the blocks of README and docs, the picture, and the costs of planes anew."""
    root = find_root()
    for path in documents(root):
        path.write_text(rendered(root, path), encoding="utf-8")
    if (quickstart := find_published(root, "quickstart")) is not None:
        (root / PICTURE).write_bytes(recognition(quickstart))
    if planes := [one for name in COSTS_OF if (one := find_published(root, name)) is not None]:
        (root / PLANES).write_text(plane_costs(planes), encoding="utf-8")


if __name__ == "__main__":
    main()
