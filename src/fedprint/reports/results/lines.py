"""What a published experiment found, in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedprint.reports.claims.plane import ADAPTIVE, OURS, leaves_less
from fedprint.reports.numbers.plane import NO_DEFENCE
from fedprint.reports.results.published import WITH_SIDES, Published, against, sent
from fedprint.reports.wording import shown, still_rises


def result_line(one: Published) -> str:
    """Return the line of a run, of a plane, or of a study."""
    return _study_line(one) if one.operating else _plane_line(one) if one.points() else _line(one)


def _line(one: Published) -> str:
    prior = one.priors()[0]
    (use, name), (single, pooled) = one.utility(prior=prior), one.ap(prior=prior)
    pair = f"AP of one update is {against(single)}, of {sent(single, pooled)} {against(pooled)}"
    sides = one.largest(WITH_SIDES, prior=prior)
    more = f", with side channels {shown(sides)}" if sides else ""
    return f"Result: {pair}{more}; {name}: {against(use)}. ({one.source(single)}; {prior} prior.)"


def _plane_line(one: Published) -> str:
    single, pooled = one.ap(strategy=NO_DEFENCE)
    public = {"strategy": "bkg-repl", "strength": 1.0}
    defended = [point for point in one.points() if point != public]
    best = min(defended, key=lambda point: float(one.ap(**point)[1]["value"]))
    alone = f" Public data alone leave {_left(one, public)}." if public in one.points() else ""
    return (
        f"Result: without a defence AP of one update is {against(single)}, of {sent(single, pooled)} "
        f"{against(pooled)}. Of defences with private data, {best['strategy']} {best['strength']:g} leaves least by "
        f"its estimate: {_left(one, best)}"
        f"{_beyond(one, best)}.{_beside_control(one, best)}{alone} ({one.source(single)}.)"
    )


def _beyond(one: Published, point: Mapping[str, Any]) -> str:
    """Return what the fixed adversary's AP of all updates does not say: any other attack's, and the want of effort."""
    most = one.number(most=True, metric="ap", linkage="device", **point)
    gain = one.gain("device", **point)
    effort = ""
    if gain is not None and still_rises(gain["value"]):
        effort = f"; twice the effort raised the AP of the fixed adversary by {shown(gain)}: a lower bound"
    return f"; of all attacks, side channels among them, the largest, picked after the fact, has {shown(most)}{effort}"


def _beside_control(one: Published, point: Mapping[str, Any]) -> str:
    """Return what the plainest defence at equal cost leaves, where the point has one, and the verdict on the two."""
    control = {**point, "strategy": OURS.get(point["strategy"])}
    if control not in one.points():
        return ""
    claim = leaves_less(point["strategy"], control["strategy"], "device")
    judged = [said for said in one.verdicts if (said.claim, said.member) == (claim, ADAPTIVE) and said.numbers]
    verdict = "".join(
        f" The claim “{said.text}”: {said.result} ({said.numbers}; paired over users)." for said in judged
    )
    name = f"{control['strategy']} {control['strength']:g}"
    return f" Its control at equal cost, {name}, leaves {shown(one.ap(**control)[1])} of all updates.{verdict}"


def _left(one: Published, point: Mapping[str, Any]) -> str:
    single, pooled = one.ap(**point)
    use = one.number(metric="normalised_utility", **point)
    return f"{shown(single)} and {shown(pooled)}, at {shown(use)} the utility"


def _study_line(one: Published) -> str:
    found = sorted((point for point in one.operating if point["feasible"] == "yes"), key=lambda p: -float(p["utility"]))
    others = [point for point in one.operating if point["feasible"] != "yes"]
    first = one.operating[0]
    if float(first["ceiling"]) == 1:  # no AP is larger, so that the study asks for utility alone
        kept = "; ".join(
            f"{point['strategy']} ({point['parameters']}) keeps {_ends(point, 'utility')}" for point in found
        )
        return (
            f"Result: {kept} of the utility, no ceiling on the attack. (`{one.command}`, {one.date}, "
            f"{first['n_users']} users, {first['n_seeds']} fresh seeds, 95 % intervals over users and seeds.)"
        )
    said = [
        f"{point['strategy']} ({point['parameters']}) holds with {_ends(point, 'utility')} of the utility, "
        f"{_linked(point)}"
        for point in found
    ]
    said += [
        f"{point['strategy']} ({point['parameters']}) "
        f"{'fails' if float(point['ap_lo']) > float(point['ceiling']) else 'is undecided'}, {_linked(point)}"
        for point in others
    ]
    ceiling = 100 * float(first["ceiling"])
    most = "AP is the largest of any adversary's and attack's that was tried"
    if others:
        most += ". Of a strategy that does not hold, the strength is shown that came nearest to the ceiling"
    return (
        f"Result: {'; '.join(said)}. {most}. (`{one.command}`, {one.date}, ceiling {ceiling:.1f} % over "
        f"{first['updates']} linked updates, chance {100 * float(first['chance']):.1f} %, {first['n_seeds']} fresh "
        "seeds, 95 % intervals over users and seeds, each strategy by itself.)"
    )


def _linked(point: Mapping[str, str]) -> str:
    """Return the AP of a point and on whom it was measured: only a strategy that holds sees confirmation users."""
    return f"AP {_ends(point, 'ap')} on {point['n_users']} {point['users']} users".replace("  ", " ")


def _ends(point: Mapping[str, str], name: str) -> str:
    value, lo, hi = (100 * float(point[key]) for key in (name, f"{name}_lo", f"{name}_hi"))
    return f"{value:.0f} % [{lo:.0f}, {hi:.0f}]"
