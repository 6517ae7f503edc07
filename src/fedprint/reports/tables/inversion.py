"""Tables of an inversion experiment, beside the papers' where there are any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from fedprint.evaluation.rows import Row
from fedprint.reports.numbers.inversion import (
    CUT,
    DEFENCES,
    GRADIENT,
    IMAGE,
    MAIN,
    PAPERS,
    RAW,
    InversionHead,
    attacked,
    attacker,
    named,
    of_variant,
    places,
    row_where,
    rows_where,
    scored,
)
from fedprint.reports.numbers.reference import SPN_DATA, reference_table
from fedprint.reports.tables.analyses import ResultTable, TableLine
from fedprint.reports.tables.inversion_details import (
    ablation_table,
    candidate_table,
    image_label_table,
    image_table,
    label_table,
    layer_table,
    tracing_table,
)
from fedprint.reports.wording import MISSING, number, percent, ranged

SCORES: tuple[tuple[str, str, Mapping[str, str], str], ...] = (
    ("reconstruction", "cap_reconstruction", RAW, "reconstruction"),
    ("reconstruction, cut to [0, 1]", "cap_reconstruction", CUT, ""),
    ("membership", "cap_membership", GRADIENT, "membership"),
    ("membership, from images", "cap_membership", IMAGE, ""),
    ("tracing", "cap_tracing", {"level": "participant"}, "tracing"),
    ("tracing to the image", "cap_tracing", {"level": "image"}, "tracing"),
)
"""Name of a score, its metric, the keys of its reading, and the papers' name of what it may stand beside, if any."""


def tables_of(head: InversionHead, rows: Sequence[Row]) -> list[ResultTable]:
    """Return all tables that have a line; scores, images and labels are those of every attacker."""
    main = of_variant(rows, MAIN)
    tables = [
        cap_table(head, rows),
        accuracy_table(head, main),
        region_table(head, main),
        label_table(head, rows),
        image_label_table(head, rows),
        candidate_table(rows),
        tracing_table(head, main),
        ablation_table(rows),
        image_table(head, rows),
        layer_table(main),
    ]
    return [table for table in tables if table.lines]


def cap_table(head: InversionHead, rows: Sequence[Row]) -> ResultTable:
    """Return the CAP scores, and below those of an attack and batch the published ones."""
    asked = list(attacked(head, rows))
    theirs = {place[:3] for variant, _, place in asked if variant == PAPERS}
    lines = []
    for score, metric, reading, published_as in SCORES:
        for (variant, attack, network, batch), places_of in groupby(asked, lambda one: (one[0], *one[2][:3])):
            known = [
                (adversary, caps)
                for _, own, (*_, adversary) in places_of
                if (caps := scored(own, metric, attack, batch, adversary, reading))
            ]
            if not known:
                continue
            some = next(iter(known[0][1].values()))
            among = f" among {some['participants']} participants" if reading.get("level") == "participant" else ""
            n = f"{batch} ({some['n_questions']} images, {some['n_users']} gradients)"
            setting = (score + among, attacker(attack, variant, network), n)
            lines += [TableLine(labels=(*setting, adversary), cells=_cap_cells(caps)) for adversary, caps in known]
            ours = variant == MAIN and attack == "gradient-matching" and (attack, network, batch) not in theirs
            published = published_cap(head.dataset, published_as, batch) if ours or variant == PAPERS else ()
            if published:
                lines.append(TableLine(labels=(*setting, "published"), cells=("", *published, "")))
    return ResultTable(
        name="cap",
        title="CAP beside the papers'",
        note="CAP = mean over strengths of accuracy times distance, higher protects better. Distances: relative error "
        "under the best assignment; share of labels missed; share of images traced to another participant than "
        "theirs, among as many in every batch, or to another image than itself: published distances of tracing are "
        "too large for ten participants, and stand below both. Intervals (95 %) over gradients and test images. "
        "Relative errors are the papers', of images as the search left them: pixels may lie outside [0, 1], and errors "
        "have no upper end, so that a search which runs away under noise decides a mean; “cut” is the same attack with "
        "its pixels cut to [0, 1], never worse for the adversary. "
        "Membership is by the labels of the last layer's gradient; “from images” gives the reconstructions to the "
        "model trained without a mechanism. No gradient: the CAP that spn would have against an adversary who sees "
        "nothing and answers with the mean test image. Published: against "
        "the papers' attacker, who starts from a pattern and finds labels with the image: below that one "
        f"({PAPERS}) where it ran, else below ours, who starts from grey and reads labels from the last layer. A "
        "dash: a strength is missing, or nothing was attacked.",
        labels=("score", "attack", "batch", "adversary"),
        heads=("none", *DEFENCES, "no gradient"),
        lines=tuple(lines),
        folded=len(lines) > 12,
        grouped=3,
    )


def _cap_cells(caps: Mapping[str, Row]) -> tuple[str, ...]:
    """Return a score by mechanism, and last what spn would have against who sees no gradient."""
    blind = caps.get("spn", next(iter(caps.values())))["chance"]
    return (*(ranged(caps.get(name)) for name in ("none", *DEFENCES)), number(blind, "", 2))


def published_cap(dataset: str, score: str, batch: int) -> tuple[str, ...]:
    """Return the papers' four scores, in the order of :data:`DEFENCES`; none where they have none."""
    wanted = (SPN_DATA.get(dataset), score, str(batch))
    for row in reference_table("spn_cap"):
        if (row["dataset"], row["attack"], row["batch_size"]) == wanted:
            return tuple(row[name] for name in DEFENCES)
    return ()


def accuracy_table(head: InversionHead, rows: Sequence[Row]) -> ResultTable:
    """Return the accuracies beside the published ones."""
    lines = []
    for row in rows_where(rows, metric="accuracy"):
        published = published_accuracy(head.dataset, row) if row["network"] == "dlnet" else MISSING
        labels = (str(row["network"]), named(row), f"{row['strength']:g}")
        lines.append(
            TableLine(
                labels=labels,
                cells=(
                    ranged(row, ".1f", 100.0),
                    f"{100 * row['chance']:.0f}",
                    str(row["n_questions"]),
                    str(row["runs"]),
                    published,
                ),
            )
        )
    return ResultTable(
        name="accuracy",
        title="Accuracy under each mechanism",
        note="Test accuracy in per cent, the mean over runs (training.seeds) of a federation per mechanism and "
        "strength. Intervals over test images and, where there are several, runs: that of one run says nothing of "
        "how another would end. Published: DLNet on the whole data set and many more gradients.",
        labels=("network", "mechanism", "strength"),
        heads=("accuracy, %", "chance", "test images", "runs", "published"),
        lines=tuple(lines),
    )  # fmt: skip


def published_accuracy(dataset: str, row: Row) -> str:
    """Return the papers' accuracy of a mechanism at a strength."""
    column = SPN_DATA.get(dataset)
    name = {"ppdl_0.05": "ppdl_0.05+dp", "ppdl_0.3": "ppdl_0.3+dp"}.get(str(row["defence"]), str(row["defence"]))
    for entry in reference_table("spn_accuracy_dlnet"):
        if (
            row["variant"] == MAIN
            and column
            and (entry["mechanism"], float(entry["parameter"])) == (name, row["strength"])
        ):
            return f"{100 * float(entry[column]):.1f}"
    return MISSING


def region_table(head: InversionHead, rows: Sequence[Row]) -> ResultTable:
    """Return what happened in each region of the PPC figures."""
    lines = []
    for attack, network, batch, adversary in places(head):
        for defence in DEFENCES:
            for region in ("green", "white", "red"):
                place = {
                    "attack": attack,
                    "attack_batch": batch,
                    "adversary": adversary,
                    "defence": defence,
                    "region": region,
                }
                raw, cut = (row_where(rows, metric="reconstruction_rmse", **place, **pixels) for pixels in (RAW, CUT))
                if raw is None:
                    continue
                ratio = row_where(rows, metric="perturbation_ratio", **place)
                success = row_where(rows, metric="reconstruction_success", **place)
                n = f"{raw['n_questions']}, {raw['n_users']} victims"
                cells = (ranged(ratio), ranged(raw), ranged(cut), percent(success), n)
                labels = (f"{attack}, {network}", str(batch), adversary, defence, region)
                lines.append(TableLine(labels=labels, cells=cells))
    return ResultTable(
        name="regions",
        title="Regions of the figure",
        note="green: the perturbation is larger than the gradient, |B| / |E_B| < 1; red: it is not, and the image was "
        "recovered to a relative error below 0.2 (pixels cut to [0, 1]); white: the rest. Labels of the figure, not "
        "theorems: how many images of the green region were recovered stands beside it.",
        labels=("attack", "batch", "adversary", "mechanism", "region"),
        heads=("mean |B| / |E_B|", "mean rMSE", "mean rMSE, cut", "recovered (< 0.2)", "images"),
        lines=tuple(lines),
        folded=len(lines) > 40,
        grouped=3,
    )  # fmt: skip
