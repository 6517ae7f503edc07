"""Tables of an inversion experiment that go setting by setting: images, labels, tracing, ablations, layers."""

from __future__ import annotations

from collections.abc import Sequence

from fedprint.evaluation.rows import Row
from fedprint.reports.numbers.inversion import (
    AGAINST,
    ALIGNMENT,
    BEST,
    CUT,
    GRADIENT,
    IMAGE,
    MAIN,
    RAW,
    InversionHead,
    attacked,
    attacker,
    named,
    places,
    row_where,
    rows_where,
    seen_places,
)
from fedprint.reports.tables.analyses import ResultTable, TableLine
from fedprint.reports.wording import MISSING, percent, ranged

PUBLISHED_COSINES = (-0.0033, 0.1760, 0.0243, 0.1861)
"""Between the gradients of cross-entropy and polarization, four layers that the paper does not name (spn, 4.2)."""


def label_table(head: InversionHead, rows: Sequence[Row]) -> ResultTable:
    """Return the labels recovered, an axis of its own: mechanism and strength by attack."""
    return _by_setting(
        head, rows, "labels", "Labels recovered",
        "Share of labels that the adversary has right, whatever their order: the papers' membership. They come from "
        "the last layer's gradient, which no secret head touches; deep-leakage finds them with the image.",
        {"metric": "label_accuracy", **GRADIENT},
    )  # fmt: skip


def image_label_table(head: InversionHead, rows: Sequence[Row]) -> ResultTable:
    """Return the labels that a trained model reads from the reconstructed images: the papers' second reading."""
    return _by_setting(
        head, rows, "labels-image", "Labels of the reconstructed images",
        "Share of images whose reconstruction, cut to [0, 1] and best assigned, the model trained without a mechanism "
        "classifies as what it is. That model has seen the true images: they belong to the training set.",
        {"metric": "label_accuracy", **IMAGE},
    )  # fmt: skip


def candidate_table(rows: Sequence[Row]) -> ResultTable:
    """Return, without a reconstruction, which images in hand are found in messages, and in whose."""
    asked = rows_where(rows, metric="example_membership_auc")
    aucs = sorted(asked, key=lambda r: (str(r["network"]), int(r["attack_batch"]), r["adversary"] != "naive"))
    return ResultTable(
        name="sought",
        title="Images in hand: whether they are in a gradient, and in whose",
        note="No reconstruction, by an adversary who has an image and its label. Alignment: its own gradient is "
        "held against what was sent, whitened by gradients of public images; loss: by how much the message lowers the "
        "image's. Both are asked of every pair of a candidate (all attacked images, and strangers) and a gradient. "
        "Lira: the likelihood ratio of that alignment under shadow clients with the image and without, who do as the "
        "adversary believes that clients do; of some members and strangers of each gradient, with the others beside "
        "it on the same pairs (drawn). The area under the ROC curve has chance .5; the true positive "
        "rate is at a false positive rate of at most .1 % of the pairs that are not in. Fewer than 1,000 of these, n, "
        "cannot resolve a rate below 1 / n: the threshold then lies above all of them, and the false positive rate of "
        "the attack may be anything up to the end of its interval, beside it. Traced: among all victims. Intervals "
        "over gradients.",
        labels=("network", "batch", "adversary", "mechanism", "strength", "by"),
        heads=("AUC", "TPR at FPR .1 %", "TPR by chance", "FPR up to", "traced", "traced by chance", "pairs"),
        lines=tuple(_candidate_line(rows, auc) for auc in aucs),
        folded=len(aucs) > 40,
        grouped=3,
    )  # fmt: skip


def _candidate_line(rows: Sequence[Row], auc: Row) -> TableLine:
    same = ("attack", "network", "attack_batch", "adversary", "local_steps", "defence", "variant", "strength", "pairs")
    here = rows_where(rows, **{key: auc.get(key) for key in same})
    (tpr,) = rows_where(here, metric="example_membership_tpr")
    traced = rows_where(here, metric="tracing_accuracy")
    last = max(traced, key=lambda row: int(row["participants"])) if traced else None
    network = str(auc["network"]) + (f", {auc['local_steps']} local steps" if auc.get("local_steps") else "")
    by = str(auc["attack"]) + (" (drawn)" if auc.get("pairs") else "")
    setting = (str(auc["attack_batch"]), str(auc["adversary"]), named(auc), f"{auc['strength']:g}")
    return TableLine(
        labels=(network, *setting, by),
        cells=(
            ranged(auc, ".3f"),
            percent(tpr),
            fine_percent(tpr["chance"]),
            fine_percent(tpr["fpr_bound"]),
            percent(last),
            fine_percent(last["chance"]) if last else MISSING,
            f"{auc['members']} in, {auc['others']} not; {auc['n_users']} gradients",
        ),
    )


def fine_percent(value: float) -> str:
    """Return a fraction in per cent with a decimal."""
    return f"{100 * value:.1f} %"


def tracing_table(head: InversionHead, rows: Sequence[Row]) -> ResultTable:
    """Return tracing by the number of participants, by reconstructions and by gradients."""
    asked = [*places(head), *((ALIGNMENT, *place) for place in seen_places(head))]
    lines = []
    for attack, network, batch, adversary in asked:
        place = {"attack": attack, "network": network, "attack_batch": batch, "adversary": adversary}
        for row in rows_where(rows, metric="tracing_accuracy", **place):
            among = "the image" if row["level"] == "image" else f"{row['participants']} participants"
            labels = (f"{attack}, {network}", str(batch), adversary, named(row), f"{row['strength']:g}", among)
            lines.append(
                TableLine(labels=labels, cells=(percent(row), f"{100 * row['chance']:.0f} %", str(row["n_questions"])))
            )
    return ResultTable(
        name="tracing",
        title="Tracing by the number of participants",
        note="An image in hand is traced to the participant who holds the nearest reconstruction (mean squared error); "
        "“the image” asks for the very reconstruction of that image. By alignment: to whose gradient the image's own "
        "points.",
        labels=("attack", "batch", "adversary", "mechanism", "strength", "among"),
        heads=("traced", "chance", "images"),
        lines=tuple(lines),
        folded=True,
        grouped=3,
    )  # fmt: skip


def ablation_table(rows: Sequence[Row]) -> ResultTable:
    """Return every variant of a mechanism beside the papers' grid, and attacks on updates beside those on gradients."""
    place = ("attack", "attack_variant", "attack_batch", "adversary", "defence")
    caps = rows_where(rows, metric="cap_reconstruction", **CUT)
    varied = {row["defence"] for row in caps if row["variant"] != MAIN}
    shown = [
        row
        for row in caps
        if row.get("local_steps") or (row["defence"] in varied and row.get("attack_variant") in (None, MAIN))
    ]
    lines = []
    for row in sorted(shown, key=lambda r: [str(r.get(key)) for key in place]):
        here = {key: row.get(key) for key in (*place, "variant")}
        labels = row_where(rows, metric="cap_membership", **GRADIENT, **here)
        against = {"against": AGAINST} if row.get("local_steps") else {}
        varies = row["variant"] != MAIN or against
        apart = row_where(rows, metric="cap_difference", **CUT, **here, **against) if varies else None
        cells = (str(row["strengths"]), ranged(row), ranged(apart, ".3f"), _strengths(apart), ranged(labels))
        attack = str(row["attack"]) + (f", {row['local_steps']} local steps" if row.get("local_steps") else "")
        lines.append(
            TableLine(labels=(attack, str(row["attack_batch"]), str(row["adversary"]), named(row)), cells=cells)
        )
    return ResultTable(
        name="ablations",
        title="Ablations",
        note="Other noise, other numbers of private bits, sharing without noise, and attacks that unroll updates of "
        "several local steps: CAP over the strengths of each, of images cut to [0, 1]. The difference is from the "
        "mechanism of the grid or, of updates, from the attack on one gradient of the same images, which may have "
        "other evaluations; it is paired image by image, over the strengths that both have.",
        labels=("attack", "batch", "adversary", "mechanism"),
        heads=("strengths", "CAP reconstruction", "above what it varies", "over strengths", "CAP membership"),
        lines=tuple(lines),
        folded=len(lines) > 40,
    )  # fmt: skip


def _strengths(row: Row | None) -> str:
    return str(row["strengths"]) if row else MISSING


def image_table(head: InversionHead, rows: Sequence[Row]) -> ResultTable:
    """Return every measure of the reconstructed images, setting by setting."""
    lines = []
    for variant, own, (attack, network, batch, adversary) in attacked(head, rows):
        here = rows_where(own, attack=attack, attack_batch=batch, adversary=adversary, matching=BEST, region=None)
        for error in rows_where(here, metric="reconstruction_rmse", **RAW):
            alike = rows_where(here, defence=error["defence"], variant=error["variant"], strength=error["strength"])
            success = [percent(row_where(alike, metric="reconstruction_success", threshold=at)) for at in (0.1, 0.2)]
            others = [
                ranged(row_where(alike, metric=metric, **pixels), spec)
                for metric, spec, pixels in (
                    ("reconstruction_rmse", ".2f", CUT),
                    ("reconstruction_relative_mse", ".2f", RAW),
                    ("psnr", ".1f", CUT),
                    ("ssim", ".2f", CUT),
                )
            ]
            labels = (attacker(attack, variant, network), str(batch), adversary, named(error), f"{error['strength']:g}")
            n = f"{error['n_questions']}, {error['n_users']} victims"
            lines.append(TableLine(labels=labels, cells=(*success, ranged(error), *others, n)))
    return ResultTable(
        name="images",
        title="Reconstructed images, setting by setting",
        note="Under the best assignment. rMSE and relative MSE are the papers', of images as the search left them; all "
        "else, and “cut”, of pixels cut to [0, 1]. Chance in measurements.csv is a mean test image's.",
        labels=("attack", "batch", "adversary", "mechanism", "strength"),
        heads=("< 0.1", "< 0.2", "rMSE", "rMSE, cut", "relative MSE", "PSNR, dB", "SSIM", "images"),
        lines=tuple(lines),
        folded=True,
        grouped=3,
    )  # fmt: skip


def layer_table(rows: Sequence[Row]) -> ResultTable:
    """Return, for the secret head, size and direction of what it adds to the gradient, layer by layer."""
    lines = []
    for cosine in rows_where(rows, metric="gradient_cosine", variant=MAIN):
        place = {key: cosine[key] for key in ("network", "attack_batch", "strength", "layers", "defence")}
        ratio = row_where(rows, metric="perturbation_ratio", variant=MAIN, **place)
        labels = (str(cosine["network"]), str(cosine["attack_batch"]), f"{cosine['strength']:g}", str(cosine["layers"]))
        lines.append(TableLine(labels=labels, cells=(ranged(ratio), ranged(cosine, ".3f"), str(cosine["n_users"]))))
    shown = ", ".join(f"{value:.4f}" for value in PUBLISHED_COSINES)
    return ResultTable(
        name="layers",
        title="Secret head: what it adds, layer by layer",
        note="The gradient of the cross-entropy beside what the polarization loss adds to it: |B| / |E_B| and the "
        f"cosine of both. Published cosines, for layers without names: {shown}. Nothing is added to the public head.",
        labels=("network", "batch", "alpha2", "layer"),
        heads=("|B| / |E_B|", "cosine", "victims"),
        lines=tuple(lines),
        folded=True,
    )


def _by_setting(
    head: InversionHead, rows: Sequence[Row], name: str, title: str, note: str, keys: dict[str, str]
) -> ResultTable:
    parts = list(attacked(head, rows_where(rows, **keys)))
    asked = [row for row in rows_where(rows, **keys) if row.get("region") is None]
    settings = list(dict.fromkeys((named(row), float(row["strength"])) for row in asked))
    lines = []
    for mechanism, strength in settings:
        cells = []
        for _, own, (attack, _, batch, adversary) in parts:
            here = rows_where(
                own, attack=attack, attack_batch=batch, adversary=adversary, strength=strength, region=None
            )
            cells.append(percent(next((row for row in here if named(row) == mechanism), None)))
        lines.append(TableLine(labels=(mechanism, f"{strength:g}"), cells=tuple(cells)))
    heads = tuple(
        f"{attacker(attack, variant, network)}, {batch}, {adversary}"
        for variant, _, (attack, network, batch, adversary) in parts
    )
    return ResultTable(
        name=name,
        title=title,
        note=note,
        labels=("mechanism", "strength"),
        heads=heads,
        lines=tuple(lines),
        folded=True,
    )
