"""Tables of an inversion experiment that go setting by setting: images, labels, tracing, ablations, layers."""

from __future__ import annotations

from collections.abc import Sequence

from fedprint.evaluation.rows import Row
from fedprint.reports.analysis_tables import ResultTable, TableLine
from fedprint.reports.inversion_rows import (
    BEST,
    MAIN,
    InversionHead,
    named,
    numbers,
    percent,
    places,
    row_where,
    rows_where,
)

PUBLISHED_COSINES = (-0.0033, 0.1760, 0.0243, 0.1861)
"""Between the gradients of cross-entropy and polarization, four layers that the paper does not name (spn, 4.2)."""


def label_table(head: InversionHead, rows: Sequence[Row]) -> ResultTable:
    """Return the labels recovered, an axis of its own: mechanism and strength by attack."""
    return _by_setting(
        head, rows, "labels", "Labels recovered",
        "Share of labels that the adversary has right, whatever their order: the papers' membership. They come from "
        "the last layer's gradient, which no secret head touches.",
        {"metric": "label_accuracy", "matching": BEST},
    )  # fmt: skip


def tracing_table(head: InversionHead, rows: Sequence[Row]) -> ResultTable:
    """Return tracing by the number of participants."""
    lines = []
    for attack, network, batch, adversary in places(head):
        found = rows_where(rows, metric="tracing_accuracy", attack=attack, attack_batch=batch, adversary=adversary)
        for row in found:
            asked = "the image" if row["level"] == "image" else f"{row['participants']} participants"
            labels = (f"{attack}, {network}", str(batch), adversary, named(row), f"{row['strength']:g}", asked)
            lines.append(
                TableLine(labels=labels, cells=(percent(row), f"{100 * row['chance']:.0f} %", str(row["n_questions"])))
            )
    return ResultTable(
        name="tracing",
        title="Tracing by the number of participants",
        note="An image in hand is traced to the participant who holds the nearest reconstruction (mean squared error); "
        "“the image” asks for the very reconstruction of that image.",
        labels=("attack", "batch", "adversary", "mechanism", "strength", "among"),
        heads=("traced", "chance", "images"),
        lines=tuple(lines),
        folded=True,
    )  # fmt: skip


def ablation_table(head: InversionHead, rows: Sequence[Row]) -> ResultTable:
    """Return every variant beside the papers' grid."""
    lines = []
    caps = [r for r in rows if r["metric"] == "cap_reconstruction" and r.get("matching") == BEST]
    varied = {row["defence"] for row in caps if row["variant"] != MAIN}
    for row in sorted(
        caps, key=lambda r: (str(r["attack"]), int(r["attack_batch"]), str(r["adversary"]), str(r["defence"]))
    ):
        if row["defence"] in varied:
            place = {key: row[key] for key in ("attack", "attack_batch", "adversary", "defence", "variant")}
            labels = row_where(rows, metric="cap_membership", matching=BEST, **place)
            cells = (str(row["strengths"]), numbers(row), numbers(labels))
            lines.append(
                TableLine(
                    labels=(str(row["attack"]), str(row["attack_batch"]), str(row["adversary"]), named(row)),
                    cells=cells,
                )
            )
    return ResultTable(
        name="ablations",
        title="Ablations",
        note="Other noise, other numbers of private bits, and sharing without noise: CAP over the strengths of each.",
        labels=("attack", "batch", "adversary", "mechanism"),
        heads=("strengths", "CAP reconstruction", "CAP membership"),
        lines=tuple(lines),
        folded=len(lines) > 40,
    )  # fmt: skip


def image_table(head: InversionHead, rows: Sequence[Row]) -> ResultTable:
    """Return every measure of the reconstructed images, setting by setting."""
    lines = []
    for attack, network, batch, adversary in places(head):
        here = rows_where(rows, attack=attack, attack_batch=batch, adversary=adversary, matching=BEST, region=None)
        for error in rows_where(here, metric="reconstruction_rmse"):
            own = rows_where(here, defence=error["defence"], variant=error["variant"], strength=error["strength"])
            success = [percent(row_where(own, metric="reconstruction_success", threshold=at)) for at in (0.1, 0.2)]
            others = [
                numbers(row_where(own, metric=metric), digits)
                for metric, digits in (("reconstruction_relative_mse", 2), ("psnr", 1), ("ssim", 2))
            ]
            labels = (f"{attack}, {network}", str(batch), adversary, named(error), f"{error['strength']:g}")
            lines.append(
                TableLine(
                    labels=labels,
                    cells=(*success, numbers(error), *others, f"{error['n_questions']}, {error['n_users']} victims"),
                )
            )
    return ResultTable(
        name="images",
        title="Reconstructed images, setting by setting",
        note="Under the best assignment. Pixels lie in [0, 1]; chance in measurements.csv is a mean test image's.",
        labels=("attack", "batch", "adversary", "mechanism", "strength"),
        heads=("< 0.1", "< 0.2", "rMSE", "relative MSE", "PSNR, dB", "SSIM", "images"),
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
    columns = list(places(head))
    found = [row for row in rows_where(rows, **keys) if row.get("region") is None]
    settings = list(dict.fromkeys((named(row), float(row["strength"])) for row in found))
    lines = []
    for mechanism, strength in settings:
        own = [row for row in found if (named(row), float(row["strength"])) == (mechanism, strength)]
        cells = tuple(
            percent(row_where(own, attack=attack, attack_batch=batch, adversary=adversary))
            for attack, _, batch, adversary in columns
        )
        lines.append(TableLine(labels=(mechanism, f"{strength:g}"), cells=cells))
    heads = tuple(f"{attack}, {batch}, {adversary}" for attack, _, batch, adversary in columns)
    return ResultTable(
        name=name,
        title=title,
        note=note,
        labels=("mechanism", "strength"),
        heads=heads,
        lines=tuple(lines),
        folded=True,
    )
