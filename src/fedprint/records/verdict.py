"""The verdict in words: how large the risk is by stated rules, what leaks, and what to change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fedprint.evaluation.rows import Row
from fedprint.records.attack import Attacked
from fedprint.records.examples import ReadExamples
from fedprint.records.judge import Judged, number
from fedprint.records.search import SearchedExamples

Risk = Literal["low", "moderate", "high"]

ALPHA = 0.05
HIGH_RATIO, HIGH_SHARE = 5.0, 0.5
RULES = (
    "An attack finds something where its AP over all users is above chance: the lower end of the 95 % interval, and a "
    f"permutation test at {ALPHA:g} over the number of attacks. The risk is high where that lower end is at least "
    f"{HIGH_RATIO:g} times chance, or at least {100 * HIGH_SHARE:g} %; moderate where it is above chance; else low."
)
SIDES = {"count": "the number of examples", "norm": "the length of the update", "participation": "who takes part when"}
"""Side channels -> what gives the sender away."""
REMEDIES = {
    "count": "Do not send the number of examples: weigh all devices alike, or let each train on a fixed number of "
    "batches of equal size.",
    "norm": "Scale or clip every update to one length, and let all devices take the same number of steps.",
    "participation": "Draw each round's devices at random and independently, and give devices a new pseudonym every "
    "round.",
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """``conclusive`` is false where the risk is low but the interval does not exclude a high one.

    ``sentences`` are the verdict, the first its headline; ``leaks`` and ``changes`` are lists for the reader.
    """

    risk: Risk
    conclusive: bool
    sentences: tuple[str, ...]
    leaks: tuple[str, ...]
    changes: tuple[str, ...]


def verdict(found: Attacked, judged: Judged, examples: ReadExamples | str, searched: SearchedExamples | str) -> Verdict:
    """Return the verdict; what it would cost to change something is not measured here."""
    aps = [row for row in judged.rows if row["metric"] == "ap" and row["analysis"] is None]
    leaking = [row for row in aps if _leaks(row, len(aps))]
    risk: Risk = "high" if any(map(_is_high, leaking)) else "moderate" if leaking else "low"
    reach = max(aps, key=lambda row: float(row["hi"]))
    conclusive = risk != "low" or not (reach["hi"] >= HIGH_RATIO * reach["chance"] or reach["hi"] >= HIGH_SHARE)
    told = _examples_in_words(examples, searched)
    return Verdict(
        risk=risk,
        conclusive=conclusive,
        sentences=(*_sentences(found, judged, risk, reach if not conclusive else None), *told),
        leaks=tuple(_leaks_in_words(found, judged, leaking, told)),
        changes=tuple(_changes(found, judged, leaking, told)),
    )


def _leaks(row: Row, tests: int) -> bool:
    p = row["p_chance"]
    return bool(row["lo"] > row["chance"] and (p is None or p * tests < ALPHA))


def _is_high(row: Row) -> bool:
    return bool(row["lo"] >= HIGH_RATIO * row["chance"] or row["lo"] >= HIGH_SHARE)


def _sentences(found: Attacked, judged: Judged, risk: Risk, reach: Row | None) -> Iterator[str]:
    single = number(judged.rows, "ap", linkage="update", attack=found.selected)
    device = number(judged.rows, "ap", linkage="device", attack=found.selected)
    what = "being linked across time" if found.scene.split else "being recognised"
    if single is not None:
        yield (
            f"The risk of {what} is {risk}: the attacker that validation chose ({found.selected}) names the sender of "
            f"one update with average precision {shown(single)}; random guessing gets {percent(single['chance'])} "
            f"({single['n_questions']} updates of {single['n_users']} users)."
        )
    if device is not None:
        yield f"All updates of a device together: {shown(device)}; random guessing gets {percent(device['chance'])}."
    if reach is not None:
        yield (
            f"So few users and updates cannot exclude a high risk: the interval of {reach['attack']} reaches "
            f"{percent(reach['hi'])}. Record more rounds, and more users."
        )
    yield from _basis(found, judged)
    yield from _claimed(judged)


def _examples_in_words(examples: ReadExamples | str, searched: SearchedExamples | str) -> tuple[str, ...]:
    """Return what updates show of examples; nothing where they show none."""
    words = []
    if isinstance(examples, ReadExamples) and examples.share:
        words.append(
            f"Examples themselves: {int(examples.counts.sum())} were read from {int((examples.counts > 0).sum())} of "
            f"{examples.updates} updates, in closed form from {examples.layer}. The risk does not count that."
        )
    if isinstance(searched, SearchedExamples) and searched.recovered:
        words.append(
            f"A search recovered the images of {searched.recovered} of {len(searched.of)} updates that were tried. The "
            "risk does not count that."
        )
    return tuple(words)


def _basis(found: Attacked, judged: Judged) -> Iterator[str]:
    scene = found.scene
    if scene.split:
        yield (
            "No truth was given. So each known user's earlier updates are the prior, and the later ones of the same "
            "device were asked about. Device and data are the same: this is an upper estimate of how far updates can "
            "be linked across time. It says nothing of recognising a user from another device or from other data."
        )
    if scene.basis == "rounds":
        fixed = "" if scene.split else " The settings of ridge were fixed in advance."
        yield (
            "The attacker was chosen by validation on the auditor's own recorded updates of the same devices. That is "
            f"optimistic, because it rewards what is peculiar to a device.{fixed} The AP above was not used for any "
            "choice."
        )
    if scene.basis == "devices":
        yield "The attacker was chosen by validation between different known devices of the same users."
    if scene.basis == "nothing":
        yield (
            "Known users have too few updates to validate on: settings were fixed in advance, and better ones may "
            "exist."
        )
    if judged.strangers:
        yield f"{judged.strangers} updates of users without a known update were left out of every number."
    if judged.unknown:
        yield f"{judged.unknown} updates whose device the truth does not name were left out of every number."
    if scene.unasked:
        yield f"{scene.unasked} further updates, of devices drawn at random, were not asked about: there are too many."


def _claimed(judged: Judged) -> Iterator[str]:
    bound, claim = judged.bound, judged.claim
    if claim.epsilon is None:
        return
    what = {"update": "one update", "device": "all updates of a device"}[claim.of]
    if bound is None:
        yield f"The claimed epsilon of {what} could not be tested: no round has updates of two users."
        return
    basis = f"delta {bound.delta:g}, confidence {100 * bound.confidence:g} %"
    least = f"epsilon of {what} is at least {bound.epsilon:.2f} ({basis})"
    if bound.epsilon > claim.epsilon:
        yield f"The claimed epsilon of {claim.epsilon:g} does not hold: {least}."
    else:
        yield (
            f"The claimed epsilon of {claim.epsilon:g} was not refuted: {least}. That is no proof. So many users can "
            f"refute nothing above {bound.ceiling:.2f}."
        )


def _leaks_in_words(found: Attacked, judged: Judged, leaking: Sequence[Row], examples: Sequence[str]) -> Iterator[str]:
    for row in sorted(leaking, key=lambda row: -float(row["value"])):
        if row["attack"] in SIDES:
            how = {"update": "from one update", "device": "from all updates of a device"}[row["linkage"]]
            yield f"{SIDES[row['attack']].capitalize()}, {how}: AP {shown(row)}. It needs no number of the update."
    content = [row for row in leaking if row["attack"] not in SIDES and row["linkage"] == "update"]
    if content:
        best = max(content, key=lambda row: float(row["value"]))
        yield f"The numbers of the update: AP {shown(best)} by {best['attack']}."
    layers = [row for row in judged.rows if row["analysis"] == "layers"]
    if layers and content:
        best = max(layers, key=lambda row: float(row["value"]))
        yield f"The layer {best['layer']} ({best['parameters']:,} parameters) leaks most: AP {shown(best)} alone."
    gain = _gain(judged, found.selected)
    if gain:
        yield f"Pseudonyms that persist: linked updates of a device have AP {shown(gain[1])}, one has {shown(gain[0])}."
    yield from examples
    if not leaking and not examples:
        yield "Nothing was shown to leak."


def _gain(judged: Judged, attack: str) -> tuple[Row, Row] | None:
    """Return AP of one update and of linked ones where linking clearly helps: the intervals do not meet."""
    single = number(judged.rows, "ap", linkage="update", attack=attack)
    device = number(judged.rows, "ap", linkage="device", attack=attack)
    return (single, device) if single and device and device["lo"] > single["hi"] else None


def _changes(found: Attacked, judged: Judged, leaking: Sequence[Row], examples: Sequence[str]) -> Iterator[str]:
    if examples:
        yield (
            "Let no single update reach the server, or let every device train on many more examples in each step: "
            "updates of few examples show the examples themselves."
        )
    names = {row["attack"] for row in leaking}
    yield from (remedy for name, remedy in REMEDIES.items() if name in names)
    if _gain(judged, found.selected):
        yield "Give every device a new pseudonym in each round, so that its updates cannot be linked."
    if names - set(SIDES):
        yield (
            "Let the server see sums alone (secure aggregation), or change what a device sends: defences and what they "
            "cost are below."
        )
        yield (
            "If others than the server read the models, bound what these show by differential privacy on the sum; it "
            "hides no single update from the server."
        )
    if judged.bound is not None and judged.claim.epsilon is not None and judged.bound.epsilon > judged.claim.epsilon:
        yield (
            "Look for the fault in the mechanism whose epsilon is claimed: clipping, noise scale, or what the claim "
            "covers."
        )
    if not leaking and not examples:
        yield (
            "Nothing has to change for what was measured here. Repeat the audit with more users, and after each change."
        )


def percent(value: float) -> str:
    """Return ``84.2 %``."""
    return f"{100 * value:.1f} %"


def shown(row: Row) -> str:
    """Return ``84.2 % [79.1, 88.0]``."""
    return f"{percent(row['value'])} [{100 * row['lo']:.1f}, {100 * row['hi']:.1f}]"
