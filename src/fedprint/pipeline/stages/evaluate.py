"""Stage evaluate: the first place where answers meet the truth."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprint.data.prepared import Meta, load_meta, load_users
from fedprint.defences.secure_aggregation import server_view
from fedprint.evaluation.chance import expected_top_k
from fedprint.evaluation.measure import ap_by_round, ap_by_user, measure_reidentification
from fedprint.evaluation.metrics import METRICS
from fedprint.evaluation.rows import GUARANTEE, Row, to_row
from fedprint.evaluation.shuffled import PermutationTest, permutation_test
from fedprint.evaluation.utility import hit_rate, mae_gain, mean_absolute_error, mean_ap, top5_accuracy
from fedprint.federation.store import read_truth
from fedprint.pipeline.config import Experiment
from fedprint.pipeline.stages.answers import Answers
from fedprint.pipeline.stages.evaluate_analyses import write_analyses
from fedprint.pipeline.stages.evaluate_diversity import measure_diversity
from fedprint.pipeline.stages.evaluate_strengths import measure_strengths
from fedprint.pipeline.stages.paths import Job, read_json, write_json
from fedprint.rng import numpy_rng, seed_for
from fedprint.types import AdversaryName, Ints, Measurement

UTILITY = {
    "single_label": "accuracy",
    "multi_label": "mean_ap",
    "language_model": "top5_accuracy",
    "regression": "mae",
}


def run(job: Job) -> list[Row]:
    """Write all that the report needs of one prior and seed; return the rows of the main attack and of the utility."""
    out = job.paths.evaluation
    out.mkdir(parents=True, exist_ok=True)
    meta = load_meta(job.paths.prepared)
    adversaries = job.config.adversaries
    attacks = {name: read_json(job.paths.attack_of(name) / "attack.json") for name in adversaries}
    replies = {name: Answers.load(job, name) for name in adversaries}
    attack, answers = attacks[adversaries[-1]], replies[adversaries[-1]]
    measured = (m for name in adversaries for m in _attacks(job, name, attacks[name], replies[name]))
    rows = [to_row(m) for m in (*_utility(job, meta), *measured)]
    (out / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    details = _details(job, meta, attacks, replies)
    write_json(out / "details.json", details)
    strengths = (replace(m, keys={**condition(job), **m.keys}) for m in measure_strengths(job, attack, answers))
    moved = (replace(m, keys={**condition(job), **m.keys}) for m in measure_diversity(job))
    added = [*strengths, *_privacy(job), *moved, *_adversaries(job, attacks, replies)]
    write_analyses(job, meta, condition(job), {u["user_id"]: u["ap"] for u in details["by_user"]["update"]}, out, added)
    if job.pictures:
        _write_tsne(job, out)
    shutil.copytree(job.paths.prepared / "samples", out / "samples", dirs_exist_ok=True)
    return rows


def condition(job: Job, adversary: AdversaryName | None = None) -> dict[str, Any]:
    """Return the columns that all rows of this job share; the adversary is by default the one of the headlines."""
    config = job.config
    return {
        "experiment": config.name,
        "dataset": config.data.name,
        "prior": job.prior,
        "world": "closed",
        "training": "federated",
        "defence": "+".join(d.name for d in config.defences) or "none",
        "defence_params": defence_params(config),
        "defended": config.threat.defended if config.defences else None,
        "adversary": adversary or config.adversaries[-1],
        "view": server_view(config.defences),
        "seed": job.seed,
    }


def defence_params(config: Experiment) -> str | None:
    """Return the defences' settings as JSON, None without a defence."""
    if not config.defences:
        return None
    return json.dumps([d.model_dump(mode="json", exclude={"name"}) for d in config.defences])


def _utility(job: Job, meta: Meta) -> Iterator[Measurement]:
    with np.load(job.paths.updates / "utility" / "predictions.npz", allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    users, labels = arrays.pop("users"), arrays.pop("labels", np.empty(0))
    seed, confidence = seed_for(job.seed, "utility"), job.config.evaluation.confidence
    for training, values in arrays.items():
        found = _utility_of(meta, values, labels, users, seed, confidence)
        spent = _guarantee(job) if training == "federated" else {}
        yield replace(found, keys={**condition(job), "training": training, **spent})
        if training == "federated" and found.chance is not None:
            exact = replace(found, value=found.chance, lo=found.chance, hi=found.chance)
            yield replace(exact, keys={**condition(job), "training": "chance"})
        if meta.scale and training != "median":
            truth, scale = np.clip(labels, *meta.scale), meta.scale
            gain = mae_gain(values, arrays["median"], truth, users, seed, scale=scale, confidence=confidence)
            yield replace(gain, keys={**condition(job), "training": training})


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


def _attacks(job: Job, adversary: AdversaryName, attack: Mapping[str, Any], answers: Answers) -> Iterator[Measurement]:
    evaluation = job.config.evaluation
    for name, found in attack["attacks"].items():
        for linkage in job.config.selection.linkages:
            truth = answers.truth[linkage]
            keys = {
                **condition(job, adversary),
                "linkage": linkage,
                "attack": name,
                "layers": ",".join(found["layers"]) if found["layers"] else "all",
                "selected": name == attack["selected"],
            }
            measured = measure_reidentification(
                answers.scores(linkage, name),
                truth,
                truth,
                seed_for(job.seed, "interval", name, linkage),
                confidence=evaluation.confidence,
                resamples=evaluation.resamples,
            )
            for measurement in measured:
                yield replace(measurement, keys=keys)


def _guarantee(job: Job) -> dict[str, Any]:
    """Return the keys (rows.GUARANTEE) of a number that was reached within a finite privacy budget, else none."""
    path = job.paths.updates / "utility" / "privacy.json"
    spent = read_json(path) if path.is_file() else {"epsilons": []}
    found: dict[str, Any] = next(iter(spent["epsilons"]), {"value": None})
    if found["value"] is None:
        return {}
    kept = {name: found[name] for name in GUARANTEE if name in found}
    of_user = next((each["value"] for each in spent["epsilons"] if each.get("protects") == "user"), None)
    return {
        **kept,
        "epsilon": found["value"],
        "epsilon_user": of_user,
        "communication": spent["cost"],
        "not_covered": "; ".join(found["not_covered"]),
    }


def _stopped(job: Job) -> bool:
    """Return whether the privacy budget ended the training before the planned last round."""
    path = job.paths.updates / "utility" / "privacy.json"
    return path.is_file() and bool(read_json(path)["stopped_by_budget"])


def _privacy(job: Job) -> Iterator[Measurement]:
    """Yield what was spent of a privacy budget: an epsilon of a device per accountant, and that of a user with both.

    They are bounds, so without an interval.
    """
    path = job.paths.updates / "utility" / "privacy.json"
    if not path.is_file():
        return
    users = len(load_users(job.paths.prepared / "private"))
    clients = job.config.federation.device_count(users)
    for found in read_json(path)["epsilons"]:
        if found["value"] is None:
            continue
        names = ("protects", "accountant", "delta", "sampling", "adjacency", "rounds")
        keys = {"analysis": "privacy", "training": "federated", **{name: found[name] for name in names}}
        protected = clients if found["protects"] == "device" else clients - users  # users whose second device is there
        yield Measurement(
            metric="epsilon",
            unit=METRICS["epsilon"].unit,
            value=found["value"],
            lo=found["value"],
            hi=found["value"],
            chance=None,
            n_questions=found["rounds"],
            n_users=protected,
            keys={**condition(job), **keys, "view": "central", "not_covered": "; ".join(found["not_covered"])},
        )


def _adversaries(
    job: Job, attacks: Mapping[AdversaryName, Mapping[str, Any]], replies: Mapping[AdversaryName, Answers]
) -> Iterator[Measurement]:
    """Yield the selected attack's measurements of each adversary side by side, where there are several."""
    if len(attacks) == 1:
        return
    for name, attack in attacks.items():
        keys = {"analysis": "adversaries", "recipe": attack["recipe"]}
        for found in _attacks(job, name, attack, replies[name]):
            if found.keys["selected"]:
                yield replace(found, keys={**found.keys, **keys})


def _ap_of_users(answers: Answers, attack: str, options: Sequence[int]) -> dict[str, float]:
    rows = ap_by_user(answers.scores("update", attack), answers.truth["update"], options)
    return {str(row.user_id): row.ap for row in rows}


def _details(
    job: Job,
    meta: Meta,
    attacks: Mapping[AdversaryName, Mapping[str, Any]],
    replies: Mapping[AdversaryName, Answers],
) -> dict[str, Any]:
    """Return what the page needs besides measurements; most is about the last of the adversaries."""
    config, attack = job.config, attacks[job.config.adversaries[-1]]
    answers = replies[job.config.adversaries[-1]]
    selected = attack["selected"]
    history = read_json(job.paths.updates / "utility" / "history.json")
    return {
        "prior": job.prior,
        "seed": job.seed,
        "config_hash": config.digest(),
        "fast": config.fast,
        "task": meta.task,
        "utility_metric": UTILITY[meta.task],
        "history": history["rounds"],
        "store_checksum": history["store_checksum"],
        "budget": _guarantee(job),
        "stopped_by_budget": _stopped(job),
        "data_overhead": history["data_overhead"],
        "attacks": {
            name: {**found, "settings": readable_settings(found["settings"])}
            for name, found in attack["attacks"].items()
        },
        "selected": selected,
        "adversary": attack["adversary"],
        "recipes": {
            name: {key: found[key] for key in ("recipe", "recipe_ap", "recipe_weights", "selected")}
            for name, found in attacks.items()
        },
        "chance_log_loss": attack["chance_log_loss"],
        "by_user": {
            linkage: [asdict(row) for row in ap_by_user(answers.scores(linkage, selected), truth, attack["options"])]
            for linkage, truth in answers.truth.items()
        },
        "ap_by_user": {
            adversary: {name: _ap_of_users(replies[adversary], name, found["options"]) for name in found["attacks"]}
            for adversary, found in attacks.items()
        },
        "by_round": _by_round(job, attack, answers),
        "checks": {
            f"{name}/{linkage}": _tested(job, answers, name, linkage, shuffled=True)
            for name in attack["attacks"]
            for linkage in config.selection.linkages
        },
        "null": {
            linkage: _tested(job, answers, selected, linkage, shuffled=False) for linkage in config.selection.linkages
        },
        "data": _describe(job, meta),
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


def _by_round(job: Job, attack: Mapping[str, Any], answers: Answers) -> list[dict[str, Any]]:
    evaluation = job.config.evaluation
    bins = ap_by_round(
        answers.scores("update", attack["selected"]),
        answers.truth["update"],
        attack["rounds"],
        evaluation.round_bins,
        seed_for(job.seed, "interval", "rounds"),
        confidence=evaluation.confidence,
        resamples=evaluation.resamples,
    )
    rows: list[dict[str, Any]] = []
    for found in bins:
        ap = found.ap
        numbers: dict[str, Any] = {"ap": None, "lo": None, "hi": None, "chance": None, "n": 0}
        if ap is not None:
            numbers = {"ap": ap.value, "lo": ap.lo, "hi": ap.hi, "chance": ap.chance, "n": ap.n_questions}
        rows.append({"first": found.first, "last": found.last, **numbers})
    return rows


def _tested(job: Job, answers: Answers, name: str, linkage: str, *, shuffled: bool) -> dict[str, Any]:
    rng = numpy_rng(job.seed, "permutation-test", job.prior, name, linkage, shuffled)
    permutations = job.config.evaluation.permutations
    test: PermutationTest = permutation_test(
        answers.scores(linkage, name, shuffled=shuffled), answers.truth[linkage], rng, permutations
    )
    return {**asdict(test), "p_two_sided": test.p_two_sided}


def _describe(job: Job, meta: Meta) -> dict[str, Any]:
    sizes = [
        sum(len(user.examples["y"]) for user in parts)
        for parts in zip(*(load_users(job.paths.prepared / n) for n in ("prior", "private", "test")), strict=True)
    ]
    return {
        "name": meta.name,
        "title": job.config.report.title,
        "users": len(sizes),
        "examples": int(np.sum(sizes)),
        "per_user_min": int(np.min(sizes)),
        "per_user_median": float(np.median(sizes)),
        "per_user_max": int(np.max(sizes)),
        "licence": meta.licence,
        "shareable": meta.shareable,
        "sha256": meta.sha256,
        "background": read_json(job.paths.prepared / "samples" / "background.json"),
    }


def _write_tsne(job: Job, out: Path) -> None:
    """Keep the embedded updates of the users with most of them, with owner and role (1 = prior device)."""
    with np.load(job.paths.attack / "embedding.npz", allow_pickle=False) as archive:
        xy, obs_id = archive["xy"], archive["obs_id"]
    table = read_truth(job.paths.updates / "truth").set_index("obs_id").loc[obs_id]
    user = table["user_id"].to_numpy(dtype=np.int64)
    role = table["device_id"].str.endswith("prior").to_numpy().astype(np.int64)
    embedded = ~np.isnan(xy[:, 0])
    users, counts = np.unique(user[embedded], return_counts=True)
    shown = users[np.lexsort((users, -counts))][: job.config.evaluation.shown_users]
    keep = embedded & np.isin(user, shown)
    np.savez(out / "tsne.npz", xy=xy[keep], user=user[keep], role=role[keep])
