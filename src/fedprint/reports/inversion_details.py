"""Tables of an inversion experiment that go setting by setting: images, labels, tracing, ablations, layers."""

from __future__ import annotations

from collections.abc import Sequence

from fedprint.evaluation.rows import Row
from fedprint.reports.analysis_tables import ResultTable, TableLine
from fedprint.reports.inversion_rows import (
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
    numbers,
    percent,
    places,
    row_where,
    rows_where,
    seen_places,
)
from fedprint.reports.wording import MISSING

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


def sought_table(head: InversionHead, rows: Sequence[Row]) -> ResultTable:
    """Return, without a reconstruction, which images in hand are found in gradients, and in whose."""
    lines = []
    for network, batch, adversary in seen_places(head):
        place = {"attack": ALIGNMENT, "network": network, "attack_batch": batch, "adversary": adversary}
        here = rows_where(rows, **place)
        for auc in rows_where(here, metric="example_membership_auc"):
            setting = {key: auc[key] for key in ("defence", "variant", "strength")}
            tpr = row_where(here, metric="example_membership_tpr", **setting)
            traced = rows_where(here, metric="tracing_accuracy", **setting)
            last = max(traced, key=lambda row: int(row["participants"]))
            lines.append(
                TableLine(
                    labels=(network, str(batch), adversary, named(auc), f"{auc['strength']:g}"),
                    cells=(
                        numbers(auc, 3),
                        *((percent(tpr), fine_percent(tpr["chance"])) if tpr else (MISSING, MISSING)),
                        percent(last),
                        fine_percent(last["chance"]),
                        f"{auc['members']} in, {auc['others']} not; {auc['n_users']} gradients",
                    ),
                )
            )
    return ResultTable(
        name="sought",
        title="Images in hand: whether they are in a gradient, and in whose",
        note="No reconstruction: the gradient of a single image is held against what was sent, whitened by gradients "
        "of public images, by an adversary who has the image and its label. Membership asks every pair of a candidate "
        "(all attacked images, and strangers) and a gradient; the area under the ROC curve has chance .5, and the true "
        "positive rate is that at a false positive rate of at most .1 %. Traced: among all victims. Intervals over "
        "gradients.",
        labels=("network", "batch", "adversary", "mechanism", "strength"),
        heads=("AUC", "TPR at FPR .1 %", "TPR by chance", "traced", "traced by chance", "pairs"),
        lines=tuple(lines),
        folded=len(lines) > 40,
    )  # fmt: skip


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
    )  # fmt: skip


def ablation_table(head: InversionHead, rows: Sequence[Row]) -> ResultTable:
    """Return every variant beside the papers' grid."""
    lines = []
    caps = rows_where(rows, metric="cap_reconstruction", **CUT)
    varied = {row["defence"] for row in caps if row["variant"] != MAIN}
    for row in sorted(
        caps, key=lambda r: (str(r["attack"]), int(r["attack_batch"]), str(r["adversary"]), str(r["defence"]))
    ):
        if row["defence"] in varied:
            place = {key: row[key] for key in ("attack", "attack_batch", "adversary", "defence", "variant")}
            labels = row_where(rows, metric="cap_membership", **GRADIENT, **place)
            apart = row_where(rows, metric="cap_difference", **CUT, **place) if row["variant"] != MAIN else None
            shared = str(apart["strengths"]) if apart else MISSING
            cells = (str(row["strengths"]), numbers(row), numbers(apart, 3), shared, numbers(labels))
            lines.append(
                TableLine(
                    labels=(str(row["attack"]), str(row["attack_batch"]), str(row["adversary"]), named(row)),
                    cells=cells,
                )
            )
    return ResultTable(
        name="ablations",
        title="Ablations",
        note="Other noise, other numbers of private bits, and sharing without noise: CAP over the strengths of each, "
        "of images cut to [0, 1]. The difference from the mechanism of the grid is paired image by image, over the "
        "strengths that both have.",
        labels=("attack", "batch", "adversary", "mechanism"),
        heads=("strengths", "CAP reconstruction", "above the grid's", "over strengths", "CAP membership"),
        lines=tuple(lines),
        folded=len(lines) > 40,
    )  # fmt: skip


def image_table(head: InversionHead, rows: Sequence[Row]) -> ResultTable:
    """Return every measure of the reconstructed images, setting by setting."""
    lines = []
    for variant, own, (attack, network, batch, adversary) in attacked(head, rows):
        here = rows_where(own, attack=attack, attack_batch=batch, adversary=adversary, matching=BEST, region=None)
        for error in rows_where(here, metric="reconstruction_rmse", **RAW):
            alike = rows_where(here, defence=error["defence"], variant=error["variant"], strength=error["strength"])
            success = [percent(row_where(alike, metric="reconstruction_success", threshold=at)) for at in (0.1, 0.2)]
            others = [
                numbers(row_where(alike, metric=metric, **pixels), digits)
                for metric, digits, pixels in (
                    ("reconstruction_rmse", 2, CUT),
                    ("reconstruction_relative_mse", 2, RAW),
                    ("psnr", 1, CUT),
                    ("ssim", 2, CUT),
                )
            ]
            labels = (attacker(attack, variant, network), str(batch), adversary, named(error), f"{error['strength']:g}")
            n = f"{error['n_questions']}, {error['n_users']} victims"
            lines.append(TableLine(labels=labels, cells=(*success, numbers(error), *others, n)))
    return ResultTable(
        name="images",
        title="Reconstructed images, setting by setting",
        note="Under the best assignment. rMSE and relative MSE are the papers', of images as the search left them; all "
        "else, and “cut”, of pixels cut to [0, 1]. Chance in measurements.csv is a mean test image's.",
        labels=("attack", "batch", "adversary", "mechanism", "strength"),
        heads=("< 0.1", "< 0.2", "rMSE", "rMSE, cut", "relative MSE", "PSNR, dB", "SSIM", "images"),
        lines=tuple(lines),
        folded=True,
    )  # fmt: skip


def layer_table(rows: Sequence[Row]) -> ResultTable:
    """Return, for the secret head, size and direction of what it adds to the gradient, layer by layer."""
    lines = []
    for cosine in rows_where(rows, metric="gradient_cosine", variant=MAIN):
        place = {key: cosine[key] for key in ("network", "attack_batch", "strength", "layers", "defence")}
        ratio = row_where(rows, metric="perturbation_ratio", variant=MAIN, **place)
        labels = (str(cosine["network"]), str(cosine["attack_batch"]), f"{cosine['strength']:g}", str(cosine["layers"]))
        lines.append(TableLine(labels=labels, cells=(numbers(ratio), numbers(cosine, 3), str(cosine["n_users"]))))
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
    found = [row for row in rows_where(rows, **keys) if row.get("region") is None]
    settings = list(dict.fromkeys((named(row), float(row["strength"])) for row in found))
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
