"""The part of evaluate that scores analyses and describes data and updates with everything known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedprint.analyses.base import Scene
from fedprint.analyses.trials import load_answers, load_trials
from fedprint.data.dataset import Meta
from fedprint.data.prepared import load_users
from fedprint.evaluation.judge import Setting, judge
from fedprint.evaluation.rows import Row, plain_value, to_row
from fedprint.kinds.federation.building import federation as build
from fedprint.lab.graph import Task
from fedprint.models.inputs import model_input, model_users
from fedprint.rng import seed_for
from fedprint.store.index import read_truth
from fedprint.store.reader import UpdateStore
from fedprint.types import Floats, Measurement, User


def write_analyses(
    task: Task,
    meta: Meta,
    condition: Mapping[str, Any],
    ap: Mapping[int, float],
    out: Path,
    more: Sequence[Measurement] = (),
) -> None:
    """Write analysis_rows.jsonl, one measurement per line, ``more`` last, and exhibits.json, by analysis.

    ``ap`` (user id -> average precision) is the selected attack's.
    """
    rows = [to_row(m) for m in (*_measure(task, condition), *more)]
    (out / "analysis_rows.jsonl").write_text("".join(_line(row) for row in rows), encoding="utf-8")
    exhibits = dict(_exhibits(task, meta, ap))
    text = json.dumps(plain_value(exhibits), indent=1, sort_keys=True, allow_nan=False)
    (out / "exhibits.json").write_text(text + "\n", encoding="utf-8")


def _line(row: Row) -> str:
    return json.dumps({key: plain_value(value) for key, value in row.items()}) + "\n"


def _measure(task: Task, condition: Mapping[str, Any]) -> Iterator[Measurement]:
    answers = load_answers(task.at("answers"))
    evaluation = task.config.evaluation
    knowing = {analysis.name for analysis in task.config.analyses_under(task.prior) if analysis.knows_defences}
    for trial in load_trials(task.at("analysis")):
        setting = Setting(
            seed=seed_for(task.seed, "interval", trial.questions, json.dumps(dict(trial.keys), sort_keys=True)),
            confidence=evaluation.confidence,
            resamples=evaluation.resamples,
            permutations=evaluation.permutations,
        )
        keys = {**condition, "linkage": "update", "layers": None, "selected": None}
        if task.config.defences and trial.keys["analysis"] not in knowing:
            keys |= {"adversary": "naive", "recipe": "recorded"}
        keys |= trial.keys
        for measured in judge(trial, answers[trial.questions], setting):
            yield replace(measured, keys=keys)


def _exhibits(task: Task, meta: Meta, ap: Mapping[int, float]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not task.config.analyses_under(task.prior) or "observed" not in task.paths:  # nothing is drawn of a point
        return
    scene = open_scene(task, meta, ap)
    for analysis in task.config.analyses_under(task.prior):
        exhibit = analysis.exhibit(scene)
        if exhibit is not None:
            yield analysis.name, exhibit


def open_scene(task: Task, meta: Meta, ap: Mapping[int, float]) -> Scene:
    """Return everything known about the run."""
    store = UpdateStore.open(task.at("observed"), verify=False)
    truth = read_truth(task.at("truth")).set_index("obs_id")
    private = load_users(task.at("private"))
    return Scene(
        store=store,
        owner=truth.loc[store.index["obs_id"], "user_id"].to_numpy(dtype=np.int64),
        prior=load_users(task.at("prior")),
        private=private,
        class_names=meta.class_names,
        task=meta.task,
        features=_features(task, meta, store, private),
        ap=ap,
        trials=lambda name: tuple(t for t in load_trials(task.at("analysis")) if t.keys["analysis"] == name),
        seed=task.seed,
    )


def _features(task: Task, meta: Meta, store: UpdateStore, users: tuple[User, ...]) -> Callable[[User], Floats] | None:
    """Return the penultimate activations of the final global model, for models that have some."""
    dtype = build.DTYPES[task.config.federation.dtype]
    one = model_users(users[:1], dtype, model=task.config.model)
    model = build.build_model(task.config, meta, one, build.federation_seed(task.seed))
    compute = getattr(model, "features", None)
    if compute is None:
        return None
    build.load_parameters(model, store.global_params(store.rounds))

    def features(user: User) -> Floats:
        x = model_input(user.examples, dtype, model=task.config.model)["x"]
        with torch.no_grad():
            parts = [compute(part).float().numpy() for part in torch.split(x, 512)]
        return np.concatenate(parts)

    return features
