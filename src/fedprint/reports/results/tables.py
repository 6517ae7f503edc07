"""Tables of published experiments, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedprint.attacks.choices import HEADLINE
from fedprint.evaluation.inversion.capability import LEAKED
from fedprint.evaluation.rows import POOLED, Row
from fedprint.reports.claims.evidence import unpaired
from fedprint.reports.claims.verdict import State, Verdict, count
from fedprint.reports.numbers.clients import accuracies, final
from fedprint.reports.numbers.inversion import ALIGNMENT, CUT, DRAWN, GRADIENT, LIRA, MAIN, named, row_where, rows_where
from fedprint.reports.numbers.plane import NO_DEFENCE, decides
from fedprint.reports.results.published import SIDES, WITH_SIDES, Published, against, sent
from fedprint.reports.tables.federation import NO_ATTACKER
from fedprint.reports.wording import LINKAGES, MISSING, people, ranged, seeds, shown, still_rises, with_unit

NOT_YET = "Not published yet."
_ACCURACY: Mapping[str, Any] = {"training": "federated", "attack": None, "metric": "accuracy"}


def attacks(experiments: Sequence[Published]) -> str:
    """Return a line per experiment and prior: utility, the AP of the attacker chosen on prior data, side channels."""
    linked = "AP of all updates of a device"
    heads = ("AP of one update", linked, "the same with side channels", "side channels alone, at most")
    rows = [("experiment", "prior", "utility", "attack", *heads, "measured by")]
    for one in experiments:
        for part in one.parts():
            use, name = one.utility(**part)
            single = one.where(metric="ap", linkage="update", selected=True, **part)
            single = [row for row in single if row["attack"] != NO_ATTACKER]
            asked = one.ap(**part) if single else []
            update, device = [against(row) for row in asked] or ["not attacked"] * 2
            sides = [one.largest(each, **part) for each in (WITH_SIDES, SIDES)]
            title = part["member"] or one.name
            names = ", ".join(sorted({row["attack"] for row in single})) or MISSING
            n = "" if asked else f", {use['n_questions']:,} test examples of {people(use['n_users'])}"
            told = (shown(row) if row else MISSING for row in sides)
            cells = (f"{name} {against(use)}", names, update, device, *told, one.source(*asked[:1]) + n)
            rows.append((title, part["prior"], *cells))
    return _table(rows)


def epsilons(suites: Sequence[Published]) -> str:
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


def plane(one: Published) -> str:
    """Return a line per point of a plane: what a defence keeps of utility, and what it leaves to attacks."""
    single, pooled = one.ap(strategy=NO_DEFENCE)
    linked = f"AP of {sent(single, pooled)}"
    effort = "gain of the last doubling of effort"
    heads = ("AP of one update", linked, "the same, any attack", f"{effort}, one update", f"{effort}, all updates")
    uses, added = _uses(one)
    rows: list[Sequence[str]] = [("defence", "strength", *uses.values(), *heads)]
    rows.append((NO_DEFENCE, "", *("" for _ in uses), *_columns(one, strategy=NO_DEFENCE)))
    for point in one.points():
        useful = (
            shown(one.number(metric=metric, **point)) if one.where(metric=metric, **point) else "" for metric in uses
        )
        rows.append((point["strategy"], f"{point['strength']:g}", *useful, *_columns(one, **point)))
    adversary = HEADLINE if one.where(metric="ap", selected=True, adversary=HEADLINE) else "naive"
    most = "“any attack” is the largest that was tried, picked after the fact"
    who = f"the {adversary} adversary, fixed in advance; {most}"
    return f"**{one.name}** ({one.source(single)}; {who}{added}):\n\n{_table(rows)}"


def _uses(one: Published) -> tuple[dict[str, str], str]:
    """Return the metrics of a plane's utility with their titles, and what private data add, where that is known."""
    titles = {
        "normalised_utility": "utility over no defence",
        "private_share": "share of what private data add",
        "utility_lost": "utility lost",
        "worst_users": "worst tenth of users",
    }
    uses = {metric: title for metric, title in titles.items() if one.where(metric=metric)}
    gain = one.private_gain()
    if gain is None:
        return uses, ""
    told = "" if decides(gain) else ": utility is not discriminating here"
    return uses, f"; private data add {shown(gain)} to the utility of public data alone{told}"


def _columns(one: Published, **point: Any) -> list[str]:
    most = one.number(most=True, metric="ap", linkage="device", **point)
    return [*map(against, one.ap(**point)), shown(most), *(_gain(one.gain(linkage, **point)) for linkage in LINKAGES)]


def _gain(gain: Row | None) -> str:
    if gain is None:
        return MISSING
    return shown(gain) + (": a lower bound" if still_rises(gain["value"]) else "")


def curves(one: Published) -> str:
    """Return a line per point of a plane: what the fixed adversary finds in more and more updates of one device."""
    asked = {"analysis": "linked", "metric": "ap", "selected": True}
    counts = sorted({row["linked_updates"] for row in one.rows if row.get("analysis") == "linked"})
    rows: list[Sequence[str]] = [("defence", "strength", *(f"AP of {count}" for count in counts))]
    chances: dict[int, str] = {}
    for point in ({"strategy": NO_DEFENCE, "strength": None}, *one.points()):
        found = {count: one.over_seeds(linked_updates=count, **asked, **point) for count in counts}
        chances |= {count: with_unit(row["chance"], row["unit"]) for count, row in found.items() if row}
        cells = (MISSING if row is None else shown(row) for row in found.values())
        rows.append((point["strategy"], "" if point["strength"] is None else f"{point['strength']:g}", *cells))
    said = ", ".join(f"{chance} of {count}" for count, chance in chances.items())
    source = one.source(one.ap(strategy=NO_DEFENCE)[0])
    return f"**{one.name}** ({source}; AP of so many linked updates of a device; chance {said}):\n\n{_table(rows)}"


def crowds(one: Published) -> str:
    """Return a line per number of users: who is recognised among them, measured and predicted."""
    known = [row for row in one.rows if row.get("analysis") == "crowds" and row["selected"]]
    heads = [(linkage, metric) for linkage in LINKAGES for metric in ("ap", "tpr_01", "tpr_1")]
    titles = {"ap": "AP", "tpr_01": "TPR at an FPR of .1 %", "tpr_1": "TPR at an FPR of 1 %"}
    rows: list[Sequence[str]] = [
        ("users", "number", *(f"{titles[metric]}, {_OF_AP[linkage]}" for linkage, metric in heads), "chance of AP")
    ]
    for users, number in dict.fromkeys((row["options"], row["number"]) for row in known):
        here = {(row["linkage"], row["metric"]): row for row in known
                if (row["options"], row["number"]) == (users, number)}  # fmt: skip
        chances = [f"{100 * here[linkage, 'ap']['chance']:.2g} %" for linkage in LINKAGES]
        cells = (shown(here[head]) if head in here else MISSING for head in heads)
        rows.append((f"{users:,}", number, *cells, " and ".join(chances)))
    return f"**{one.name}** ({one.source(one.ap()[0])}):\n\n{_table(rows)}"


def clients(one: Published) -> str:
    """Return a line per partition and number of clients: the accuracy of every method."""
    known = accuracies(final(one.rows))
    methods = list(dict.fromkeys(row["method"] for row in known))
    rows: list[Sequence[str]] = [("images dealt out", "clients", *methods)]
    for partition, n in dict.fromkeys((row["partition"], row["clients"]) for row in known):
        here = {row["method"]: row for row in known if (row["partition"], row["clients"]) == (partition, n)}
        rows.append((partition, f"{n:g}", *(shown(here[method]) if method in here else MISSING for method in methods)))
    runs = len({row["seed"] for row in one.rows} - {POOLED})
    images = max(int(row["n_questions"]) // int(row.get("n_seeds") or 1) for row in known)
    about = f"accuracy over {images:,} test images, chance {with_unit(known[0]['chance'], known[0]['unit'])}"
    return f"**{one.name}** (`{one.command}`, {one.date}, {seeds(runs)}, 95 % intervals; {about}):\n\n{_table(rows)}"


def verdicts(one: Published) -> str:
    """Return a line per claim and whom it is judged before: the verdict, the numbers, and what it rests on."""
    tested = _tested(one)
    rows: list[Sequence[str]] = [("claim", "judged on", "verdict", "numbers", "rests on")]
    rows += [(said.text, said.member, said.result, said.numbers, said.basis) for said in tested]
    return _with_tally(one, tested, _about_plane(one) if one.points() else "", rows)


def claims(one: Published) -> str:
    """Return a line per claim with its verdict on each member of a suite, without the numbers."""
    tested = _tested(one)
    found = {(said.text, said.member): said.result for said in tested}
    members = list(dict.fromkeys(said.member for said in tested))
    rows: list[Sequence[str]] = [("claim", "in papers.md", *members)]
    for text, source in dict.fromkeys((said.text, said.source) for said in one.verdicts):  # in the papers' order
        cells = [found.get((text, member), MISSING) for member in members]
        rows += [(text, source, *cells)] if set(cells) != {MISSING} else []
    return _with_tally(one, tested, f"; {MISSING}: not tested there", rows)


def _tested(one: Published) -> list[Verdict]:
    return [said for said in one.verdicts if said.state != "untested"]


def _with_tally(one: Published, tested: Sequence[Verdict], about: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a table of verdicts below the command, the day and how many there are of each kind."""
    told = ", ".join(f"{count(tested, state)} {word}" for state, word in _TALLY.items())
    corrected = f"Holm's correction over all of them{about}"
    return f"**{one.name}** (`{one.command}`, {one.date}; {told}; {corrected}):\n\n{_table(rows)}"


def _about_plane(one: Published) -> str:
    """Return how its claims are to be read: of how many linked updates, and whether utility tells defences apart."""
    told = "; AP is of one update where a claim does not say of all"
    gain = one.private_gain()
    return (
        told
        if gain and decides(gain)
        else f"{told}; utility is not shown to discriminate, so that claims on utility say little"
    )


_TALLY: Mapping[State, str] = {"holds": "hold", "fails": "fail", "undecided": "undecided"}


def confirmed(planes: Sequence[Published]) -> str:
    """Set the first plane's APs beside those of the same points of the second, which has other users."""
    if len(planes) == 1:
        return NOT_YET
    here, other = planes
    rows: list[Sequence[str]] = [
        ("defence", "strength", *(f"{what}: {who}" for what in _OF_AP.values() for who in _WHOM))
    ]
    shared = [{"strategy": NO_DEFENCE}, *(point for point in here.points() if point in other.points())]
    for point in shared:
        pairs = zip(here.ap(**point), other.ap(**point), strict=True)
        cells = (cell for a, b in pairs for cell in (shown(a), shown(b), ranged(unpaired(a, b), "+.1f", 100)))
        rows.append((point["strategy"], f"{point['strength']:g}" if "strength" in point else "", *cells))
    sources = " beside ".join(f"**{one.name}** ({one.source(one.ap(strategy=NO_DEFENCE)[0])})" for one in planes)
    return f"{sources}; the users are others, so the difference, in points, is unpaired:\n\n{_table(rows)}"


def members(one: Published) -> str:
    """Return a line per point of a plane that asks who took part: its epsilon, its utility, and who is found."""
    rows: list[Sequence[str]] = [("defence", "noise multiplier", "epsilon", *(head for head, _ in _MEMBERSHIP))]
    numbers = final(one.rows)
    known: list[Row] = []
    for point in ({"strategy": NO_DEFENCE, "strength": None}, *one.points()):
        epsilon = next((row["epsilon"] for row in one.where(**point) if row.get("epsilon")), None)
        found = [row_where(numbers, **keys, **point) for _, keys in _MEMBERSHIP]
        cells = (_bound_or_number(row) for row in found)
        strength = "" if point["strength"] is None else f"{point['strength']:g}"
        rows.append((point["strategy"], strength, MISSING if epsilon is None else f"{epsilon:.2f}", *cells))
        known += [row for row in found if row is not None and row["metric"] == "membership_auc"]
    asked = f"AUC of who took part, of {known[0]['n_users']} users, chance {with_unit(known[0]['chance'], 'fraction')}"
    return f"**{one.name}** ({one.source()}; epsilon of a device; {asked}):\n\n{_table(rows)}"


def _bound_or_number(row: Row | None) -> str:
    """Return a number with its interval; the mean of lower bounds has none, because each is the end of one."""
    if row is None:
        return MISSING
    return with_unit(row["value"], row["unit"]) if row["metric"] == "epsilon_lower" else shown(row)


_AUC = {"metric": "membership_auc", "adversary": HEADLINE}
_MEMBERSHIP: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("audit: epsilon at least, mean of the seeds' bounds", {"metric": "epsilon_lower"}),
    ("utility over no defence", {"metric": "normalised_utility"}),
    ("from released models, with the device's data", {**_AUC, "view": "central", "attack": "known-data"}),
    ("the same with the user's other data", {**_AUC, "view": "central", "attack": "candidates"}),
    ("from sums, with the device's data", {**_AUC, "view": "aggregate", "attack": "known-data"}),
    ("from raw updates", {**_AUC, "view": "local"}),
)
"""What is asked about each point of a plane by epsilon, with the keys of its rows."""


def inversion(one: Published) -> str:
    """Return what each mechanism leaves of accuracy, and what an adversary who knows it finds in single gradients."""
    tried = [(row, _found(one, row)) for row in rows_where(one.rows, metric="accuracy", network=NETWORK)]
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


def _found(one: Published, accuracy: Row) -> list[Row | None]:
    """Return the rows of :data:`_FOUND` under the mechanism whose accuracy this is, None where not asked."""
    setting = {key: accuracy[key] for key in ("defence", "variant", "strength")}
    return [
        row_where(one.matching(metric=keys["metric"]), **{"adversary": HEADLINE, **keys, **setting})
        for _, keys in _FOUND
    ]


NETWORK = "dlnet"
"""The papers' network, on which gradients are matched."""
_SINGLE = {"network": NETWORK, "attack": "gradient-matching", "attack_variant": MAIN, "attack_batch": 1}
_MEMBERS = {"network": NETWORK, "metric": "example_membership_tpr", "attack_batch": 8, "pairs": DRAWN}
_FOUND: tuple[tuple[str, Mapping[str, Any]], ...] = (
    (
        "images recovered, naive",
        {**_SINGLE, **CUT, "metric": "reconstruction_success", "threshold": LEAKED, "adversary": "naive"},
    ),
    ("images recovered", {**_SINGLE, **CUT, "metric": "reconstruction_success", "threshold": LEAKED}),
    ("labels", {**_SINGLE, **GRADIENT, "metric": "label_accuracy"}),
    ("traced among a thousand", {"attack_variant": "thousand", "metric": "tracing_accuracy", "level": "image"}),
    ("members at an FPR of .1 %, by gradient alignment", {**_MEMBERS, "attack": ALIGNMENT}),
    ("the same by likelihood ratios", {**_MEMBERS, "attack": LIRA}),
)
"""What is found under a mechanism, with the keys of its rows; by the adaptive adversary unless said."""

_OF_AP: Mapping[str, str] = {"update": "one update", "device": "all updates of a device"}
_WHOM = ("confirmation users", "development users", "difference")


def _table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (rows[0], ["---"] * len(rows[0]), *rows[1:]))
