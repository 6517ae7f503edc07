"""Synthetic evaluation folders, as the evaluate stage writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedprint.evaluation.rows import COLUMNS, write_measurements

STRENGTH = {"chance": 0.0, "knn": 0.15, "svm": 0.27, "mlp": 0.3, "mlp-tuned": 0.62, "ridge": 0.84}
PRIOR_FACTOR = {"random": 1.0, "chrono": 0.6, "iid": 0.008}
RATIOS = {"ap_over_chance", "ap_over_prevalence"}


def _row(**values: Any) -> dict[str, Any]:
    constant = {
        "experiment": "demo", "world": "closed", "training": "federated", "defence": "none", "defence_params": None,
        "adversary": "naive", "view": "local",
    }  # fmt: skip
    return {**dict.fromkeys(COLUMNS), **constant, **values}


def _numbers(metric: str, value: float, half: float, chance: float, n: int, users: int) -> dict[str, Any]:
    ratio = metric in RATIOS
    high = np.inf if ratio else 1.0
    return {
        "metric": metric,
        "unit": "ratio" if ratio else "fraction",
        "value": value,
        "lo": max(value - half, 0.0),
        "hi": float(min(value + half, high)),
        "chance": chance,
        "n_questions": n,
        "n_users": users,
    }


def _attack_rows(keys: dict[str, Any], users: int, selected: str, shift: float) -> list[dict[str, Any]]:
    rows = []
    for linkage, chance, n in (("update", 1.7 / users, users * 10), ("device", 5.2 / users, users)):
        for attack, strength in STRENGTH.items():
            gain = (strength + shift * (strength > 0)) * PRIOR_FACTOR.get(keys["prior"], 0.5)
            ap = min(chance + gain * (1.1 if linkage == "device" else 1.0), 0.999)
            numbers = {
                "ap": (ap, 0.04, chance), "ap_over_chance": (ap / chance, 0.04 / chance, 1.0),
                "ap_over_prevalence": (ap * users, 4.0, chance * users), "top1": (ap * 0.95, 0.05, 1 / users),
                "top5": (min(1.0, ap * 1.2), 0.03, 5 / users),
            }  # fmt: skip
            rows += [
                _row(**keys, linkage=linkage, attack=attack, layers="head", selected=attack == selected, seconds=1.5)
                | _numbers(metric, *found, n, users)
                for metric, found in numbers.items()
            ]
    return rows


def _utility_rows(keys: dict[str, Any], metric: str) -> list[dict[str, Any]]:
    values = {"federated": 0.962, "centralised": 0.975, "knn": 0.93, "chance": 0.1}
    return [
        _row(**{**keys, "training": training}) | _numbers(metric, value, 0.006, 0.1, 5000, 100)
        for training, value in values.items()
    ]


def _check(rng: np.random.Generator, chance: float, users: int) -> dict[str, Any]:
    value = chance * rng.uniform(0.9, 1.6)
    high = float(rng.uniform(0.1, 0.9))
    return {
        "value": value, "p_high": high, "p_low": 1 - high, "p_two_sided": min(1, 2 * min(high, 1 - high)),
        "null_mean": chance * 1.25, "null_lo": chance * 0.8, "null_hi": chance * 1.9, "n_users": users,
        "permutations": 9999,
    }  # fmt: skip


def _details(rng: np.random.Generator, keys: dict[str, Any], users: int, selected: str, metric: str) -> dict[str, Any]:
    prior = keys["prior"]
    aps = np.clip(rng.beta(4, 1.2, users) * PRIOR_FACTOR.get(prior, 0.5) + 0.01, 0, 1)
    chance = 1.7 / users
    by_user = [{"user_id": i, "ap": float(a), "n_updates": 10, "chance": chance} for i, a in enumerate(aps)]
    bins = [
        {"first": 10 * i, "last": 10 * i + 9, "ap": float(aps.mean() * (0.8 + 0.02 * i)), "lo": float(aps.mean() * 0.7),
         "hi": float(min(1, aps.mean() * 1.1)), "chance": 4 * chance, "n": users}
        for i in range(10)
    ]  # fmt: skip
    bins[3] = {**bins[3], "ap": None, "lo": None, "hi": None, "chance": None, "n": 0}
    history = [
        {"round": i, "loss": 2.3 * 0.97**i, "update_norm": 1.0, "utility": 0.96 * (1 - 0.93 ** (i + 1))}
        for i in range(100)
    ]
    return {
        "prior": prior, "seed": keys["seed"], "config_hash": "1f0c9a2b77de", "fast": False, "arguments": "",
        "store_checksum": "b3a1" * 16, "task": "single_label", "history": history, "utility_metric": metric,
        "by_user": {"update": by_user, "device": by_user}, "by_round": bins,
        "attacks": {
            name: {"settings": {"alpha": 0.1, "layers": ["fc", "head"], "transform": "signed_sqrt"},
                   "temperature": 0.7, "log_loss": 4.6 - 4 * strength, "seconds": 12.0}
            for name, strength in STRENGTH.items()
        },
        "selected": selected, "chance_log_loss": 4.605,
        "checks": {f"{a}/{k}": _check(rng, c, users) for a in STRENGTH for k, c in
                   (("update", chance), ("device", 5.2 / users))},
        "null": {k: {"null_mean": c * 1.3, "p_high": 0.41 if prior == "iid" else 0.0001}
                 for k, c in (("update", chance), ("device", 5.2 / users))},
        "data": {"users": users, "examples": users * 120, "per_user_min": 80, "per_user_median": 118.0,
                 "per_user_max": 402, "licence": "CC-BY 4.0", "shareable": False, "title": "Digits by writer"},
    }  # fmt: skip


def _write_scatter(path: Path, rng: np.random.Generator, spread: float, users: int = 12) -> None:
    user = np.repeat(np.arange(users), 20)
    centres = rng.normal(0, 10, (users, 2)) * spread
    xy = centres[user] + rng.normal(0, 2, (len(user), 2))
    np.savez(path, xy=xy.astype(np.float32), user=user, role=np.tile([0, 1], len(user) // 2))


def write_evaluation(
    folder: Path,
    *,
    prior: str = "random",
    seed: int = 0,
    dataset: str = "mnist_writers",
    users: int = 100,
    selected: str = "ridge",
    shift: float = 0.0,
    metric: str = "accuracy",
    samples: dict[str, Any] | None = None,
    **details: Any,
) -> Path:
    """Write one evaluation folder; ``details`` overrides entries of details.json."""
    rng = np.random.default_rng([seed, len(prior), users])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "samples").mkdir(exist_ok=True)
    keys = {"dataset": dataset, "prior": prior, "seed": seed}
    rows = _utility_rows(keys, metric) + _attack_rows(keys, users, selected, shift + 0.01 * seed)
    write_measurements(folder / "rows.jsonl", folder / "rows.csv", rows)
    content = _details(rng, keys, users, selected, metric) | details
    (folder / "details.json").write_text(json.dumps(content))
    _write_scatter(folder / "tsne.npz", rng, PRIOR_FACTOR.get(prior, 0.5))
    chosen = samples or {"kind": "withheld", "reason": "The sidecar marks the samples as private."}
    (folder / "samples" / "samples.json").write_text(json.dumps(chosen))
    if chosen["kind"] == "images":
        pixels = rng.integers(0, 255, (64, 256, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "samples" / chosen["file"])
    return folder


def write_evaluations(
    base: Path, priors: tuple[str, ...] = ("random",), seeds: tuple[int, ...] = (0,), **more: Any
) -> list[Path]:
    """Write one folder per prior and seed."""
    return [
        write_evaluation(base / f"{prior}-{seed}", prior=prior, seed=seed, **more) for prior in priors for seed in seeds
    ]
