"""Synthetic rows of every analysis, as the evaluate stage writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedprint.evaluation.metrics import METRICS
from fedprint.evaluation.rows import COLUMNS, Row

CHANCE = {"matching_ap": 0.5, "cross_modal_ap": 0.5, "unseen_auroc": 0.5, "ap_over_chance": 1.0, "attribute_ap": 0.3,
          "attribute_top1": 0.5, "mtl_gain": 0.0, "mtl_gain_ap": 0.0}  # fmt: skip


def analysis_row(analysis: str, value: float, *, metric: str = "ap", half: float = 0.03, **keys: Any) -> Row:
    """Return one measurement of an analysis; the interval reaches ``half`` to both sides."""
    info = METRICS[metric]
    constant = {
        "experiment": "demo", "dataset": "mnist_writers", "prior": "random", "world": "closed", "seed": 0,
        "training": "federated", "defence": "none", "adversary": "naive", "view": "local", "linkage": "update",
        "attack": "ridge",
    }  # fmt: skip
    numbers = {
        "metric": metric, "unit": info.unit, "value": value, "lo": max(value - half, info.low),
        "hi": min(value + half, info.high), "chance": CHANCE.get(metric, 0.02), "n_questions": 1000, "n_users": 100,
    }  # fmt: skip
    return {**dict.fromkeys(COLUMNS), **constant, "analysis": analysis, **keys, **numbers}


def all_analyses(prior: str = "random", seed: int = 0) -> list[Row]:
    """Return rows of every analysis that measures something."""
    factor = 1.0 if prior == "random" else 0.7
    return [{**row, "prior": prior, "seed": seed, "value": row["value"]} for row in _rows(factor)]


def _rows(factor: float) -> Iterator[Row]:
    for amount in (1, 2, 4, 8, 16, 32, 50):
        for attack, share in (("ridge", 0.9), ("mlp", 0.4)):
            value = factor * share * amount / (amount + 6)
            yield analysis_row("prior-examples", value, prior_examples=amount, attack=attack)
            yield analysis_row("training-updates", value, training_updates=amount, attack=attack)
    for depth, (layer, size) in enumerate((("conv1", 160), ("conv2", 4640), ("fc1", 100416), ("head", 650)), 1):
        for attack in ("ridge", "knn"):
            value = factor * (0.2 + 0.15 * depth)
            keys = {"layer": layer, "depth": depth, "parameters": size, "attack": attack}
            yield analysis_row("layers", value, layers=f"{layer}.weight,{layer}.bias", **keys)
    for i in range(10):
        for j in range(10):
            keys = {"train_bin": i, "test_bin": j, "train_first": 10 * i, "test_first": 10 * j}
            yield analysis_row("epochs", factor * (0.8 - 0.02 * abs(i - j)), **keys)
    for size in range(10, 101, 10):
        for repeat in range(3 if size < 100 else 1):
            yield analysis_row("users", factor * (1 - size / 400) - 0.01 * repeat, options=size, repeat=repeat)
    yield from _open(factor)
    yield from _tables(factor)


def _open(factor: float) -> Iterator[Row]:
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        keys = {"world": "open", "seen_share": share, "split": 0}
        for attack in ("mlp", "open-strong") if share else ():
            strong = attack == "open-strong"
            ap = factor * (0.95 - 0.2 * share) * (1.0 if strong else 0.6)
            yield analysis_row("open-world", ap, attack=attack, **keys)
            yield analysis_row("open-world", 60 * share + 5, metric="ap_over_chance", half=2, attack=attack, **keys)
            yield analysis_row("open-world", 0.7, metric="top1", attack=attack, **keys)
            if share < 1:
                yield analysis_row("open-world", 0.8, metric="unseen_auroc", attack=attack, **keys)
        for subset in ("unseen", "all"):
            if subset == "all" or share < 1:
                found = {"metric": "matching_ap", "attack": "match-strong", "subset": subset}
                yield analysis_row("open-world", 0.9 * factor, **found, **keys)


def _tables(factor: float) -> Iterator[Row]:
    for attack, value in (("chance", 0.5), ("mlp-product", 0.8), ("siamese", 0.75), ("match-strong", 0.97)):
        yield analysis_row("matching", 0.5 + (value - 0.5) * factor, metric="matching_ap", attack=attack)
        yield analysis_row("cross-modal", 0.5 + (value - 0.5) / 2, metric="cross_modal_ap", attack=attack)
    for attribute in ("age", "glasses"):
        for heads in ("stl", "mtl"):
            keys = {"attribute": attribute, "target": "attribute", "heads": heads, "users": "known", "attack": "mlp"}
            gain = 0.03 * (heads == "mtl")
            yield analysis_row("attributes", 0.7 + gain, metric="attribute_ap", **keys)
            yield analysis_row("attributes", 0.8 + gain, metric="attribute_top1", **keys)
            keys["target"] = "user"
            yield analysis_row("attributes", 0.5 + gain, metric="top1", **keys)
            for target in ("attribute", "user") if heads == "mtl" else ():
                found = {**keys, "target": target, "metric": "mtl_gain"}
                yield analysis_row("attributes", 0.03, half=0.01, **found)
        keys = {"attribute": attribute, "target": "attribute", "heads": "stl", "users": "new", "attack": "ridge"}
        yield analysis_row("attributes", 0.6, metric="attribute_top1", **keys)
    for size in (1, 2, 4, 8, 16, 32, 64):
        yield analysis_row("data-space", factor * size / (size + 8), space="data", set_size=size, attack="logistic")
    yield analysis_row("data-space", 0.3 * factor, space="update", attack="mlp")
    yield analysis_row("profile", 0.6, metric="fits_ap", profile="guitars", attack="ridge")


def add_analyses(folder: Path, rows: list[Row], exhibits: Mapping[str, Any] | None = None) -> Path:
    """Write the analyses' files into an evaluation folder."""
    (folder / "analysis_rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "exhibits.json").write_text(json.dumps(dict(exhibits or {})))
    return folder


def all_exhibits() -> dict[str, Any]:
    """Return what every analysis exhibits, in the form of its docstring."""
    users = [{"user_id": i, "intra": 0.6 + 0.01 * i, "inter": 0.8 + 0.005 * i, "examples": 50} for i in range(20)]
    device = {"updates": 10, "norm": [0.1, 0.4, 0.2], "share": [0.2, 0.5, 0.3]}
    biased = [
        {"user_id": i, "ap": 0.9 - 0.2 * i, "group": group, "prior": device, "private": device}
        for i, group in enumerate(("most", "most", "least", "least"))
    ]
    top = [{"label": "seven", "share": 0.3, "population": 0.1}]
    reason = {"meaning": "bits of the labels", "correlation": 0.4, "lo": 0.1, "hi": 0.7, "p": 0.01}
    empty = {"meaning": "constant", "correlation": None, "lo": None, "hi": None, "p": None}
    points = [
        {"x": float(i % 7), "y": float(i % 5), "user_id": i % 4, "role": ("prior", "private")[i % 2]} for i in range(40)
    ]
    found = {"rank": 1, "device": "d1", "score": 0.91, "user": 3, "share": 0.4, "fits": True, "holds": ["amp"],
             "classes": [{"name": "guitar", "deviations": 3.2}]}  # fmt: skip
    return {
        "distances": {"kind": "pixels", "users": users, "share_closer": {"value": 1.0, "lo": 0.83, "hi": 1.0}, "n": 20},
        "class-bias": {"kind": "classes", "classes": ["a", "b", "c"], "layer": "head.weight", "users": biased},
        "recognisable": {
            "users": [{"user_id": i, "ap": 0.02 * i, "divergence": 0.1 * i} for i in range(20)],
            "reasons": {"divergence": reason, "updates": empty},
            "most": [{"user_id": 19, "ap": 0.38, "top": top}],
            "least": [{"user_id": 0, "ap": 0.0, "top": []}],
        },
        "raw-features": {"kind": "pixels", "raw": points, "updates": points},
        "profile": {"profile": "guitar", "labels": ["guitar"], "devices": [found], "fitting": 4, "asked": 40},
    }


def word_bias() -> dict[str, Any]:
    """Return the class bias of a language model."""
    words = {"updates": 9, "words": [{"word": "lighthouse", "change": 0.2, "used": True},
                                     {"word": "harbour", "change": 0.1, "used": False}]}  # fmt: skip
    users = [{"user_id": 7, "ap": 0.8, "group": "most", "prior": words, "private": words}]
    return {"class-bias": {"kind": "words", "layer": "head.bias", "users": users}}
