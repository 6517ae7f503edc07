"""The spn paper's conclusions, each judged on the rows of one report, adversary by adversary (papers.md 4.5, 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from fedprint.evaluation.inversion.capability import LEAKED
from fedprint.evaluation.rows import Row
from fedprint.reports.claims.comparison import AllOf, AnyOf, Comparison, compared
from fedprint.reports.claims.evidence import mean_row, unpaired
from fedprint.reports.claims.verdict import UNTESTED, Claim, Finding, Judged, Verdict, by_claim, decide, together
from fedprint.reports.numbers.inversion import (
    ALIGNMENT,
    CUT,
    DEFENCES,
    GRADIENT,
    MAIN,
    PAPERS,
    RAW,
    READING,
    InversionHead,
    rows_where,
    scored,
    views,
)
from fedprint.reports.numbers.reference import SPN_DATA
from fedprint.reports.wording import percent, ranged

Judge = Callable[[InversionHead, Sequence[Row], str], Finding]
ALIKE = 0.05
"""Scores closer than this count as alike: less than half of what parts spn and the others in the published table."""

DEFEATED = 0.05
"""A share of images recovered beyond chance that still counts as none: no interval ends at chance itself."""

OF_THE_PAPERS = ("spn-reconstruction", "spn-membership", "spn-tracing")
"""Conclusions about published scores, which are of the papers' attacker."""

GREEN_DROP = {"cifar10": 0.20, "mnist": 0.05}
"""The papers' data set -> by how much accuracy falls in the green region, as published."""


def judge_inversion(head: InversionHead, rows: Sequence[Row]) -> list[Verdict]:
    """Return a verdict per conclusion and adversary; conclusions on accuracy know no adversary.

    What the papers' attacker found is judged beside (:data:`OF_THE_PAPERS`), as a member of its own.
    """
    return decide([
        Judged(
            claim=claim, finding=claim.judge(part, own, adversary),
            member=adversary if variant == MAIN else f"{adversary}, {variant}", dataset=head.dataset,
        )
        for claim in CONCLUSIONS
        for variant, part, own in views(head, rows)
        if variant == MAIN or (variant == PAPERS and claim.name in OF_THE_PAPERS)
        for adversary in part.adversaries
    ])  # fmt: skip


def spn_leads(metric: str, reading: Mapping[str, str] | None = None) -> Judge:
    """Return the judge of "spn has the highest CAP", on the attack named first, in every batch.

    The score is in the reading of headlines unless another is given.
    """
    keys = READING[metric] if reading is None else reading

    def judge(head: InversionHead, rows: Sequence[Row], adversary: str) -> Finding:
        attack, _, batches = head.attacks[0]
        findings = []
        for batch in batches:
            caps = scored(rows, metric, attack, batch, adversary, keys)
            if "spn" not in caps or len(caps) < 3:
                continue
            others = {name: row for name, row in caps.items() if name in DEFENCES and name != "spn"}
            place = {"attack": attack, "attack_batch": batch, "adversary": adversary, **keys}
            shown = ", ".join(f"{name} {ranged(row)}" for name, row in {"spn": caps["spn"], **others}.items())
            gaps = _leads(rows, place, caps["spn"], others.values())
            findings.append(Finding(test=AllOf(tuple(gaps)), numbers=f"batch {batch}: {shown}") if gaps else UNTESTED)
        return together(findings)

    return judge


def _leads(rows: Sequence[Row], place: Mapping[str, object], spn: Row, others: Iterable[Row]) -> list[Comparison]:
    """Compare spn with every other: paired where images allow, else from both intervals."""
    if spn["metric"] == "cap_reconstruction":
        gaps = rows_where(rows, metric="cap_difference", defence="spn", variant=MAIN, **place)
    else:
        gaps = [unpaired(spn, other) for other in others]
    return [compared(gap, 0.0) for gap in gaps]


def labels_leak(names: Sequence[str], *, safe: bool) -> Judge:
    """Return the judge of "most labels of these mechanisms are (not, where ``safe``) recovered" from single images."""

    def judge(head: InversionHead, rows: Sequence[Row], adversary: str) -> Finding:
        attack = head.attacks[0][0]
        place = {"metric": "label_accuracy", **GRADIENT, "attack": attack, "attack_batch": 1}
        accuracies = [r for r in rows_where(rows, adversary=adversary, variant=MAIN, **place) if r["defence"] in names]
        if not accuracies:
            return UNTESTED
        lowest = min(accuracies, key=lambda row: float(row["value"]))
        highest = max(accuracies, key=lambda row: float(row["value"]))
        shown = f"{len(accuracies)} settings, from {percent(lowest)} to {percent(highest)}; chance {percent_of(lowest)}"
        most = tuple(compared(row, 0.5, above=not safe) for row in accuracies)
        return Finding(test=AllOf(most), numbers=shown)

    return judge


def labels_by_batch(head: InversionHead, rows: Sequence[Row], adversary: str) -> Finding:
    """Judge "membership distance rises with the batch", smallest against largest, mechanism by mechanism.

    The paper says so of classes as well: that compares data sets, and so reports.
    """
    attack, _, batches = head.attacks[0]
    ends = [scored(rows, "cap_membership", attack, batch, adversary) for batch in (min(batches), max(batches))]
    names = [name for name in DEFENCES if all(name in end for end in ends)]
    if len(set(batches)) < 2 or not names:
        return UNTESTED
    pairs = [(ends[0][name], ends[1][name]) for name in names]
    shown = "; ".join(f"{name} {ranged(a)} to {ranged(b)}" for name, (a, b) in zip(names, pairs, strict=True))
    rises = AllOf(tuple(compared(unpaired(b, a), 0.0) for a, b in pairs))
    return Finding(test=rises, numbers=f"CAP from batch {min(batches)} to {max(batches)}, unpaired: {shown}")


def percent_of(row: Row) -> str:
    """Return a row's chance in per cent."""
    return f"{100 * float(row['chance'] or 0):.0f} %"


def green_is_safe(head: InversionHead, rows: Sequence[Row], adversary: str) -> Finding:
    """Judge "a perturbation larger than the gradient defeats every reconstruction", over all attacks.

    No more images may come out than a mean test image happens to be close to, within :data:`DEFEATED`.
    """
    successes = rows_where(rows, metric="reconstruction_success", region="green", adversary=adversary)
    if not successes:
        return UNTESTED
    above = [row for row in successes if row["value"] > (row["chance"] or 0)]
    images = sum(int(row["n_questions"]) for row in successes)
    safe = AllOf(tuple(compared(row, float(row["chance"] or 0) + DEFEATED, above=False) for row in successes))
    if not above:
        return Finding(test=safe, numbers=f"of {images} images no more recovered to below 0.2 than by chance")
    parts = [
        f"{row['attack']}, batch {row['attack_batch']}, {row['defence']}: {percent(row)} of {row['n_questions']} "
        f"images, chance {percent_of(row)}"
        for row in above
    ]
    return Finding(test=safe, numbers="recovered to below 0.2: " + "; ".join(parts))


def green_costs(head: InversionHead, rows: Sequence[Row], adversary: str) -> Finding:
    """Judge "dp and ppdl lose much accuracy in the green region"."""
    drop = GREEN_DROP.get(SPN_DATA.get(head.dataset, ""))
    network = head.attacks[0][1]
    plain = rows_where(rows, metric="accuracy", network=network, defence="none")
    if drop is None or not plain or adversary != head.adversaries[0]:
        return UNTESTED
    lost = []
    for row in rows_where(rows, metric="accuracy", network=network, variant=MAIN):
        same = {"network": network, "defence": row["defence"], "strength": row["strength"], "variant": MAIN}
        ratios = [
            r
            for r in rows_where(rows, metric="perturbation_ratio", attack_batch=1, layers=None, **same)
            if not r.get("region")
        ]
        if row["defence"] in ("dp", "ppdl_0.05", "ppdl_0.3") and ratios and ratios[0]["value"] < 1:
            lost.append((row, unpaired(plain[0], row)))
    if not lost:
        return UNTESTED
    shown = "; ".join(
        f"{row['defence']} at {row['strength']:g} loses {ranged(gap, '.1f', 100.0)} points" for row, gap in lost
    )
    return Finding(
        test=AllOf(tuple(compared(gap, drop) for _, gap in lost)),
        numbers=f"{shown}, unpaired (published: more than {100 * drop:.0f})",
    )


def spn_keeps_accuracy(head: InversionHead, rows: Sequence[Row], adversary: str) -> Finding:
    """Judge "spn keeps accuracy where dp collapses": at every strength it exceeds dp at one and the same strength."""
    network = head.attacks[0][1]
    own = rows_where(rows, metric="accuracy", network=network, defence="spn", variant=MAIN)
    others = rows_where(rows, metric="accuracy", network=network, defence="dp", variant=MAIN)
    plain = rows_where(rows, metric="accuracy", network=network, defence="none")
    if not own or not others or not plain or adversary != head.adversaries[0]:
        return UNTESTED
    if any(len(accuracies) < head.strengths.get(name, 0) for name, accuracies in (("spn", own), ("dp", others))):
        return UNTESTED  # the worst strength may be one that diverged
    worst, noisy = (min(accuracies, key=lambda row: float(row["value"])) for accuracies in (own, others))
    shown = f"worst of spn {percent(worst)}, worst of dp {percent(noisy)}, no mechanism {percent(plain[0])}; unpaired"
    kept = AnyOf(tuple(AllOf(tuple(compared(unpaired(row, other), 0.0) for row in own)) for other in others))
    return Finding(test=kept, numbers=shown)


def more_bits(head: InversionHead, rows: Sequence[Row], adversary: str) -> Finding:
    """Judge "protection grows with the number of bits": each ablation against the grid, on the same images (cut)."""
    attack = head.attacks[0][0]
    place = {**CUT, "attack": attack, "attack_batch": 1, "defence": "spn", "adversary": adversary}
    errors = [row for row in rows_where(rows, metric="reconstruction_rmse", **place) if row.get("region") is None]
    grid = {row["strength"]: row for row in errors if row["variant"] == MAIN}
    gaps, parts = [], []
    for row in sorted(rows_where(rows, metric="rmse_difference", **place), key=_bits):
        beside = grid.get(row["strength"])
        if beside is None or _bits(row) == _bits(beside):
            continue
        more = _bits(row) > _bits(beside)
        gaps.append(compared(row, 0.0, above=more))
        parts.append(f"{_bits(row)} bits: rMSE {ranged(row)} above that of {_bits(beside)} bits, {ranged(beside)}")
    return Finding(test=AllOf(tuple(gaps)), numbers="; ".join(parts)) if gaps else UNTESTED


def laplace_alike(head: InversionHead, rows: Sequence[Row], adversary: str) -> Finding:
    """Judge "Laplacian noise behaves as Gaussian": their paired CAP differs by less than :data:`ALIKE`."""
    place = {"metric": "cap_difference", **CUT, "attack": head.attacks[0][0], "attack_batch": 1, "defence": "dp"}
    differences = rows_where(rows, adversary=adversary, variant="laplace", **place)
    if not differences:
        return UNTESTED
    (row,) = differences
    return Finding(
        test=AllOf((compared(row, -ALIKE), compared(row, ALIKE, above=False))),
        numbers=f"CAP of Laplacian above Gaussian noise {ranged(row, '.3f')}, margin {ALIKE:g}",
    )


def tracing_by_participants(head: InversionHead, rows: Sequence[Row], adversary: str) -> Finding:
    """Judge "tracing gets harder with more participants": mean over dp's strengths, single images."""
    attack = head.attacks[0][0]
    place = {"metric": "tracing_accuracy", "level": "participant", "attack": attack, "attack_batch": 1}
    traced = rows_where(rows, adversary=adversary, variant=MAIN, defence="dp", **place)
    counts = sorted({int(row["participants"]) for row in traced})
    if len(counts) < 2:
        return UNTESTED
    means = [mean_row([row for row in traced if row["participants"] == count]) for count in counts]
    known = [row for row in means if row is not None]
    shown = ", ".join(f"{n} participants {percent(row)}" for n, row in zip(counts, known, strict=True))
    return Finding(
        test=compared(unpaired(known[0], known[-1]), 0.0),
        numbers=f"traced among {shown} (dp, mean of strengths), unpaired",
    )


def _bits(row: Row) -> int:
    import json

    return int(next(one["bits"] for one in json.loads(str(row["defence_params"])) if one["name"] == "spn"))


CONCLUSIONS: tuple[Claim[Judge], ...] = (
    Claim("spn-reconstruction",
          "spn leads CAP against reconstruction (published: CIFAR-10 yes, MNIST batch 1 and 4 no)", "4.5",
          spn_leads("cap_reconstruction", RAW)),
    Claim("spn-reconstruction-cut", "spn leads CAP against reconstruction where pixels are cut to [0, 1] (ours)",
          "4.5", spn_leads("cap_reconstruction", CUT)),
    Claim("spn-membership", "spn leads CAP against membership", "4.5", spn_leads("cap_membership")),
    Claim("spn-tracing", "spn leads CAP against tracing", "4.5", spn_leads("cap_tracing")),
    Claim("green-safe", "a perturbation larger than the gradient defeats every reconstruction", "4.2", green_is_safe),
    Claim("green-costs", "in the green region dp and ppdl lose > 20 points on CIFAR-10, > 5 on MNIST", "4.5",
          green_costs),
    Claim("spn-accuracy", "spn keeps accuracy where dp collapses", "4.5", spn_keeps_accuracy),
    Claim("labels-leak", "labels of dp and ppdl are recovered (membership distance about 0)", "4.5",
          labels_leak(("dp", "ppdl_0.05", "ppdl_0.3"), safe=False)),
    Claim("labels-spn", "spn hides labels of single images (published CAP .24 to .60)", "4.5",
          labels_leak(("spn",), safe=True)),
    Claim("membership-batch", "membership distance rises with the batch", "4.5", labels_by_batch),
    Claim("tracing-participants", "tracing gets harder with more participants", "4.4", tracing_by_participants),
    Claim("more-bits", "protection grows with the number of bits", "4.5", more_bits),
    Claim("laplace", "Laplacian noise behaves as Gaussian", "4.4", laplace_alike),
)  # fmt: skip


KEPT = 0.9
"""The verdict names the best setting that keeps this share of the accuracy without a defence."""


def sentences(head: InversionHead, rows: Sequence[Row], verdicts: Sequence[Verdict]) -> list[str]:
    """Return the verdict of the page: what is recovered, which conclusions hold, whether labels and images leak."""
    recovered = [text for adversary in reversed(head.adversaries) for text in _recovered(head, rows, adversary)]
    return [*recovered, _conclusions(head, verdicts), *_labels(head, verdicts), *_members(head, rows)]


def _recovered(head: InversionHead, rows: Sequence[Row], adversary: str) -> list[str]:
    """Say which share of the images an adversary recovers without a defence and under the best ones."""
    attack, network, batches = head.attacks[0]
    place = {"attack": attack, "attack_batch": batches[0], "adversary": adversary, "variant": MAIN, **CUT}
    success = rows_where(rows, metric="reconstruction_success", threshold=LEAKED, region=None, **place)
    accuracy = {
        (row["defence"], row["strength"]): row
        for row in rows_where(rows, metric="accuracy", network=network, variant=MAIN)
    }
    settings = [(row, accuracy.get((row["defence"], row["strength"]))) for row in success]
    plain = next(((row, acc) for row, acc in settings if row["defence"] == "none" and acc), None)
    defended = [(row, acc) for row, acc in settings if row["defence"] != "none" and acc]
    if plain is None or plain[1] is None or not defended:
        return []
    (bare, base), sent = plain, "one image" if batches[0] == 1 else f"a batch of {batches[0]} images"
    plainly = (
        f"From the gradient of {sent} of {head.dataset} the {adversary} adversary recovers {percent(bare)} of "
        f"{bare['n_questions']} images without a defence, at test accuracy {percent(base)}."
    )
    useful = [(row, acc) for row, acc in defended if acc["value"] >= KEPT * base["value"]]
    best, best_useful = _fewest(defended), _fewest(useful) if useful else None
    said = f"The defence that hides most images from the {adversary} adversary, {_setting(best)}."
    if best_useful is None:
        said += f" No defence keeps {100 * KEPT:.0f} % of that accuracy."
    elif best_useful != best:
        said += f" Of those that keep {100 * KEPT:.0f} % of that accuracy, the best, {_setting(best_useful)}."
    return [plainly, said]


def _fewest(settings: Sequence[tuple[Row, Row]]) -> tuple[Row, Row]:
    """Return the setting with the fewest images recovered, of equals the most accurate one."""
    return min(settings, key=lambda pair: (pair[0]["value"], -pair[1]["value"]))


def _setting(pair: tuple[Row, Row]) -> str:
    success, accuracy = pair
    where = f"{success['defence']} at strength {success['strength']:g}"
    return f"{where}, leaves {percent(success)} recovered, at accuracy {percent(accuracy)}"


def _conclusions(head: InversionHead, verdicts: Sequence[Verdict]) -> str:
    """Say how many of the papers' conclusions hold, fail, or hold against the weaker adversary only."""
    tested = [[verdict for verdict in group if verdict.state != "untested"] for _, group in by_claim(verdicts)]
    groups = [group for group in tested if group]
    hold, fail = (sum(all(v.state == state for v in group) for group in groups) for state in ("holds", "fails"))
    said = (
        f"Of the papers' {len(groups)} conclusions tested here {hold} hold and {fail} fail against every adversary; "
        f"{sum(any(v.state == 'undecided' for v in group) for group in groups)} are undecided against one or more."
    )
    lost = [group[0].text for group in groups if _lost(group, head.headline)]
    if lost:
        said += f" These hold against a weaker adversary and fail against the {head.headline} one: "
        said += f"{'; '.join(lost)}."
    return said


def _labels(head: InversionHead, verdicts: Sequence[Verdict]) -> list[str]:
    """Say whether the secret head hides labels from the adversary who knows most."""
    labels = next((v for v in verdicts if v.claim == "labels-spn" and v.member == head.headline), None)
    if labels is None or labels.state == "untested":
        return []
    verb = {"fails": "does not hide", "holds": "hides"}.get(labels.state, "may or may not hide")
    who = f"the {head.headline} adversary"
    return [f"spn {verb} the labels of single images from {who} (labels read correctly: {labels.numbers})."]


def _members(head: InversionHead, rows: Sequence[Row]) -> list[str]:
    """Say how well the adversary who knows most tells whether an image that it holds is in a gradient."""
    _, network, batches = head.attacks[0]
    place = {"attack": ALIGNMENT, "network": network, "attack_batch": batches[0], "adversary": head.headline}
    aucs = rows_where(rows, metric="example_membership_auc", variant=MAIN, pairs=None, **place)
    defended = [row for row in aucs if row["defence"] in DEFENCES]
    if not defended:
        return []
    bare = next((f" {ranged(row)} without a defence and" for row in aucs if row["defence"] == "none"), "")
    best = min(defended, key=lambda row: float(row["value"]))
    return [
        f"Whether an image that it holds is in a gradient, the {head.headline} adversary tells with an AUC of{bare} "
        f"{ranged(best)} under the best defence, {best['defence']} at strength {best['strength']:g} (guessing: 0.50)."
    ]


def _lost(group: Sequence[Verdict], last: str) -> bool:
    states = {verdict.member: verdict.state for verdict in group}
    return states.get(last) == "fails" and "holds" in states.values()
