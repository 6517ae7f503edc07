"""Stage evaluate: the first place where the scores meet the truth."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprint.data.dataset import Meta
from fedprint.data.formats.files import read_json, write_json
from fedprint.data.prepared import load_meta, load_users
from fedprint.evaluation.chance import expected_top_k
from fedprint.evaluation.measure import ap_by_round, ap_by_user, measure_reidentification
from fedprint.evaluation.metrics import METRICS
from fedprint.evaluation.rows import GUARANTEE, to_row
from fedprint.evaluation.shuffled import PermutationTest, permutation_test
from fedprint.evaluation.statistics import mean_ap_statistic
from fedprint.evaluation.tradeoffs.shares import Parts, jackknife_parts, mean_parts
from fedprint.evaluation.utility import absolute_errors, hit_rate, mae_gain, mean_absolute_error, mean_ap, top5_accuracy
from fedprint.kinds.federation.conditions import condition_of
from fedprint.kinds.federation.stages.attack_scores import AttackScores
from fedprint.kinds.federation.stages.evaluating.analyses import write_analyses
from fedprint.kinds.federation.stages.evaluating.crowds import measure_crowds
from fedprint.kinds.federation.stages.evaluating.diversity import measure_diversity
from fedprint.kinds.federation.stages.evaluating.effort import measure_effort
from fedprint.kinds.federation.stages.evaluating.linked import measure_linked
from fedprint.kinds.federation.stages.evaluating.strengths import measure_strengths
from fedprint.lab.graph import Task
from fedprint.rng import numpy_rng, seed_for
from fedprint.store.index import read_truth
from fedprint.types import AdversaryName, Ints, Linkage, Measurement

UTILITY = {
    "single_label": "accuracy",
    "multi_label": "mean_ap",
    "language_model": "top5_accuracy",
    "regression": "mae",
}


def run(task: Task) -> None:
    """Write all that the report needs of one prior and seed."""
    out = task.at("evaluation")
    out.mkdir(parents=True, exist_ok=True)
    meta = load_meta(task.at("meta"))
    adversaries = task.config.adversaries
    attacks = {name: read_json(task.at("attack") / name / "attack.json") for name in adversaries}
    all_scores = {name: AttackScores.load(task, name) for name in adversaries}
    attack, scores = attacks[adversaries[-1]], all_scores[adversaries[-1]]
    measured = (m for name in adversaries for m in _attacks(task, name, attacks[name], all_scores[name]))
    rows = [to_row(m) for m in (*_utility(task, meta), *measured)]
    (out / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    details = _details(task, meta, attacks, all_scores)
    write_json(out / "details.json", details)
    strengths = (replace(m, keys={**condition(task), **m.keys}) for m in measure_strengths(task, attack, scores))
    moved = (replace(m, keys={**condition(task), **m.keys}) for m in measure_diversity(task))
    linked = (replace(m, keys={**condition(task), **m.keys}) for m in measure_linked(task, attacks, all_scores))
    effort = (replace(m, keys={**condition(task), **m.keys}) for m in measure_effort(task, attack, scores))
    crowds = (replace(m, keys={**condition(task), **m.keys}) for m in measure_crowds(task, attack, scores))
    added = [*strengths, *_privacy(task), *moved, *_adversaries(task, attacks, all_scores), *linked, *effort, *crowds]
    write_analyses(
        task, meta, condition(task), {u["user_id"]: u["ap"] for u in details["by_user"]["update"]}, out, added
    )
    if "embedding" in task.paths:
        _write_tsne(task, out)
    shutil.copytree(task.at("samples"), out / "samples", dirs_exist_ok=True)


def condition(task: Task, adversary: AdversaryName | None = None) -> dict[str, Any]:
    """Return the columns that all rows of this task share; the adversary is by default the one of the headlines."""
    return condition_of(task.config, task.prior, task.seed, adversary)


def _utility(task: Task, meta: Meta) -> Iterator[Measurement]:
    with np.load(task.at("utility") / "predictions.npz", allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    users, labels = arrays.pop("users"), arrays.pop("labels", np.empty(0))
    seed, confidence = seed_for(task.seed, "utility"), task.config.evaluation.confidence
    for training, values in arrays.items():
        utility = _utility_of(meta, values, labels, users, seed, confidence)
        spent = _guarantee(task) if training == "federated" else {}
        yield replace(utility, keys={**condition(task), "training": training, **spent})
        if training == "federated" and utility.chance is not None:
            exact = replace(utility, value=utility.chance, lo=utility.chance, hi=utility.chance)
            yield replace(exact, keys={**condition(task), "training": "chance"})
        if meta.scale and training != "median":
            truth, scale = np.clip(labels, *meta.scale), meta.scale
            gain = mae_gain(values, arrays["median"], truth, users, seed, scale=scale, confidence=confidence)
            yield replace(gain, keys={**condition(task), "training": training})


def _utility_of(
    meta: Meta, values: NDArray[Any], labels: NDArray[Any], users: Ints, seed: int, confidence: float
) -> Measurement:
    """Return the task's utility of per-example results; ``labels`` are needed for multi-label and regression."""
    classes = len(meta.class_names)
    if meta.scale:
        truth = np.clip(labels, *meta.scale)  # float32 may stand a rounding outside
        return mean_absolute_error(values, truth, users, seed, scale=meta.scale, confidence=confidence)
    if meta.task == "multi_label":
        return mean_ap(values, labels, users, seed, confidence=confidence)
    if meta.task == "language_model":
        owners = np.repeat(users, values.shape[1])
        return top5_accuracy(values.ravel(), owners, classes, seed, confidence=confidence)
    chance = float(expected_top_k(1, classes))
    return hit_rate("accuracy", values, users, seed, chance=chance, confidence=confidence)


def _utility_by_user(task: Task, meta: Meta) -> Parts:
    """Return what each user's test examples contribute to the utility of the federated model."""
    with np.load(task.at("utility") / "predictions.npz", allow_pickle=False) as archive:
        users, values = archive["users"], archive["federated"]
        labels = archive["labels"] if "labels" in archive.files else np.empty(0)
    if meta.scale:
        return mean_parts(absolute_errors(values, np.clip(labels, *meta.scale), meta.scale), users)
    if meta.task == "multi_label":
        return jackknife_parts(mean_ap_statistic(values.astype(float), labels.astype(bool)), users)
    if meta.task == "language_model":
        return mean_parts(values.ravel(), np.repeat(users, values.shape[1]))
    return mean_parts(values, users)


def _attacks(
    task: Task, adversary: AdversaryName, attack: Mapping[str, Any], scores: AttackScores
) -> Iterator[Measurement]:
    evaluation = task.config.evaluation
    for name, tuned in attack["attacks"].items():
        for linkage in task.config.selection.linkages:
            truth = scores.truth[linkage]
            keys = {
                **condition(task, adversary),
                "linkage": linkage,
                "attack": name,
                "layers": ",".join(tuned["layers"]) if tuned["layers"] else "all",
                "selected": name == attack["selected"],
            }
            measured = measure_reidentification(
                scores.of(linkage, name),
                truth,
                truth,
                seed_for(task.seed, "interval", name, linkage),
                confidence=evaluation.confidence,
                resamples=evaluation.resamples,
                permutations=evaluation.permutations,
            )
            for measurement in measured:
                yield replace(measurement, keys=keys)


def _guarantee(task: Task) -> dict[str, Any]:
    """Return the keys (rows.GUARANTEE) of a number that was reached within a finite privacy budget, else none."""
    path = task.at("utility") / "privacy.json"
    spent = read_json(path) if path.is_file() else {"epsilons": []}
    bound: dict[str, Any] = next(iter(spent["epsilons"]), {"value": None})
    if bound["value"] is None:
        return {}
    kept = {name: bound[name] for name in GUARANTEE if name in bound}
    of_user = next((each["value"] for each in spent["epsilons"] if each.get("protects") == "user"), None)
    return {
        **kept,
        "epsilon": bound["value"],
        "epsilon_user": of_user,
        "communication": spent["cost"],
        "not_covered": "; ".join(bound["not_covered"]),
    }


def _stopped(task: Task) -> bool:
    """Return whether the privacy budget ended the training before the planned last round."""
    path = task.at("utility") / "privacy.json"
    return path.is_file() and bool(read_json(path)["stopped_by_budget"])


def _privacy(task: Task) -> Iterator[Measurement]:
    """Yield what was spent of a privacy budget: an epsilon of a device per accountant, and that of a user with both.

    They are bounds, so without an interval.
    """
    path = task.at("utility") / "privacy.json"
    if not path.is_file():
        return
    users = len(load_users(task.at("private")))
    clients = task.config.federation.device_count(users)
    for bound in read_json(path)["epsilons"]:
        if bound["value"] is None:
            continue
        names = ("protects", "accountant", "delta", "sampling", "adjacency", "rounds")
        keys = {"analysis": "privacy", "training": "federated", **{name: bound[name] for name in names}}
        protected = clients if bound["protects"] == "device" else clients - users  # users whose second device is there
        yield Measurement(
            metric="epsilon",
            unit=METRICS["epsilon"].unit,
            value=bound["value"],
            lo=bound["value"],
            hi=bound["value"],
            chance=None,
            n_questions=bound["rounds"],
            n_users=protected,
            keys={**condition(task), **keys, "view": "central", "not_covered": "; ".join(bound["not_covered"])},
        )


def _adversaries(
    task: Task, attacks: Mapping[AdversaryName, Mapping[str, Any]], all_scores: Mapping[AdversaryName, AttackScores]
) -> Iterator[Measurement]:
    """Yield the selected attack's measurements of each adversary side by side, where there are several."""
    if len(attacks) == 1:
        return
    for name, attack in attacks.items():
        keys = {"analysis": "adversaries", "recipe": attack["recipe"]}
        chosen = {**attack, "attacks": {attack["selected"]: attack["attacks"][attack["selected"]]}}
        for measurement in _attacks(task, name, chosen, all_scores[name]):
            yield replace(measurement, keys={**measurement.keys, **keys})


def _ap_of_users(scores: AttackScores, linkage: Linkage, attack: str, options: Sequence[int]) -> dict[str, float]:
    rows = ap_by_user(scores.of(linkage, attack), scores.truth[linkage], options)
    return {str(row.user_id): row.ap for row in rows}


def _details(
    task: Task,
    meta: Meta,
    attacks: Mapping[AdversaryName, Mapping[str, Any]],
    all_scores: Mapping[AdversaryName, AttackScores],
) -> dict[str, Any]:
    """Return what the page needs besides measurements; most is about the last of the adversaries."""
    config, attack = task.config, attacks[task.config.adversaries[-1]]
    scores = all_scores[task.config.adversaries[-1]]
    selected = attack["selected"]
    history = read_json(task.at("utility") / "history.json")
    return {
        "prior": task.prior,
        "seed": task.seed,
        "config_hash": config.digest(),
        "fast": config.fast,
        "task": meta.task,
        "utility_metric": UTILITY[meta.task],
        "utility_by_user": _utility_by_user(task, meta),
        "history": history["rounds"],
        "store_checksum": history["store_checksum"],
        "budget": _guarantee(task),
        "stopped_by_budget": _stopped(task),
        "data_overhead": history["data_overhead"],
        "attacks": {
            name: {**tuned, "settings": readable_settings(tuned["settings"])}
            for name, tuned in attack["attacks"].items()
        },
        "selected": selected,
        "adversary": attack["adversary"],
        "recipes": {
            name: {key: result[key] for key in ("recipe", "recipe_ap", "recipe_weights", "selected")}
            for name, result in attacks.items()
        },
        "chance_log_loss": attack["chance_log_loss"],
        "by_user": {
            linkage: [asdict(row) for row in ap_by_user(scores.of(linkage, selected), truth, attack["options"])]
            for linkage, truth in scores.truth.items()
        },
        "ap_by_user": {
            adversary: {
                name: _ap_of_users(all_scores[adversary], "update", name, result["options"])
                for name in result["attacks"]
            }
            for adversary, result in attacks.items()
        },
        "linked_by_user": {
            adversary: {
                (chosen := result["selected"]): _ap_of_users(all_scores[adversary], "device", chosen, result["options"])
            }
            for adversary, result in attacks.items()
            if "device" in all_scores[adversary].truth
        },
        "by_round": _by_round(task, attack, scores),
        "checks": {
            f"{name}/{linkage}": _tested(task, scores, name, linkage, shuffled=True)
            for name in attack["attacks"]
            for linkage in config.selection.linkages
        },
        "null": {
            linkage: _tested(task, scores, selected, linkage, shuffled=False) for linkage in config.selection.linkages
        },
        "data": _describe(task, meta),
    }


def readable_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as short text: blocks as ``layer:transform + ...``."""
    shown = {name: str(value) for name, value in settings.items() if name != "blocks"}
    if "blocks" in settings:
        shown["blocks"] = " + ".join(
            f"{'/'.join(name for layer in layers for name in layer)}:{transform}"
            for layers, transform in settings["blocks"]
        )
    return shown


def _by_round(task: Task, attack: Mapping[str, Any], scores: AttackScores) -> list[dict[str, Any]]:
    evaluation = task.config.evaluation
    bins = ap_by_round(
        scores.of("update", attack["selected"]),
        scores.truth["update"],
        attack["rounds"],
        evaluation.round_bins,
        seed_for(task.seed, "interval", "rounds"),
        confidence=evaluation.confidence,
        resamples=evaluation.resamples,
    )
    rows: list[dict[str, Any]] = []
    for part in bins:
        ap = part.ap
        numbers: dict[str, Any] = {"ap": None, "lo": None, "hi": None, "chance": None, "n": 0}
        if ap is not None:
            numbers = {"ap": ap.value, "lo": ap.lo, "hi": ap.hi, "chance": ap.chance, "n": ap.n_questions}
        rows.append({"first": part.first, "last": part.last, **numbers})
    return rows


def _tested(task: Task, scores: AttackScores, name: str, linkage: str, *, shuffled: bool) -> dict[str, Any]:
    rng = numpy_rng(task.seed, "permutation-test", task.prior, name, linkage, shuffled)
    permutations = task.config.evaluation.permutations
    test: PermutationTest = permutation_test(
        scores.of(linkage, name, shuffled=shuffled), scores.truth[linkage], rng, permutations
    )
    return {**asdict(test), "p_two_sided": test.p_two_sided}


def _describe(task: Task, meta: Meta) -> dict[str, Any]:
    sizes = [
        sum(len(user.examples["y"]) for user in parts)
        for parts in zip(*(load_users(task.at(n)) for n in ("prior", "private", "test")), strict=True)
    ]
    return {
        "name": meta.name,
        "title": task.config.report.title,
        "users": len(sizes),
        "examples": int(np.sum(sizes)),
        "per_user_min": int(np.min(sizes)),
        "per_user_median": float(np.median(sizes)),
        "per_user_max": int(np.max(sizes)),
        "licence": meta.licence,
        "shareable": meta.shareable,
        "sha256": meta.sha256,
        "background": read_json(task.at("samples") / "background.json"),
    }


def _write_tsne(task: Task, out: Path) -> None:
    """Keep the embedded updates of the users with most of them, with owner and role (1 = prior device)."""
    with np.load(task.at("embedding") / "embedding.npz", allow_pickle=False) as archive:
        xy, obs_id = archive["xy"], archive["obs_id"]
    table = read_truth(task.at("truth")).set_index("obs_id").loc[obs_id]
    user = table["user_id"].to_numpy(dtype=np.int64)
    role = table["device_id"].str.endswith("prior").to_numpy().astype(np.int64)
    embedded = ~np.isnan(xy[:, 0])
    users, counts = np.unique(user[embedded], return_counts=True)
    shown = users[np.lexsort((users, -counts))][: task.config.evaluation.shown_users]
    keep = embedded & np.isin(user, shown)
    np.savez(out / "tsne.npz", xy=xy[keep], user=user[keep], role=role[keep])
