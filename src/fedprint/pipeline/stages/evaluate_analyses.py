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
from fedprint.analyses.trials import Trial, load_answers, load_trials
from fedprint.data.prepared import Meta, load_users
from fedprint.evaluation.judge import Setting, judge
from fedprint.evaluation.rows import Row, plain_value, to_row
from fedprint.federation.store import UpdateStore, read_truth
from fedprint.pipeline import recipes
from fedprint.pipeline.stages.paths import Job
from fedprint.rng import seed_for
from fedprint.types import Floats, Measurement, User


def write_analyses(
    job: Job,
    meta: Meta,
    condition: Mapping[str, Any],
    ap: Mapping[int, float],
    out: Path,
    more: Sequence[Measurement] = (),
) -> None:
    """Write analysis_rows.jsonl, one measurement per line, ``more`` last, and exhibits.json: analysis -> what it shows.

    ``ap`` (user id -> average precision) is the selected attack's.
    """
    rows = [to_row(m) for m in (*_measure(job, condition), *more)]
    (out / "analysis_rows.jsonl").write_text("".join(_line(row) for row in rows), encoding="utf-8")
    exhibits = dict(_exhibits(job, meta, ap))
    text = json.dumps(plain_value(exhibits), indent=1, sort_keys=True, allow_nan=False)
    (out / "exhibits.json").write_text(text + "\n", encoding="utf-8")


def _line(row: Row) -> str:
    return json.dumps({key: plain_value(value) for key, value in row.items()}) + "\n"


def _measure(job: Job, condition: Mapping[str, Any]) -> Iterator[Measurement]:
    answers = load_answers(job.paths.updates / "answers")
    evaluation = job.config.evaluation
    knowing = {analysis.name for analysis in job.analyses if analysis.knows_defences}
    for trial in load_trials(job.paths.analysis):
        setting = Setting(
            seed=seed_for(job.seed, "interval", *_path(trial)),
            confidence=evaluation.confidence,
            resamples=evaluation.resamples,
        )
        keys = {**condition, "linkage": "update", "layers": None, "selected": None}
        if job.config.defences and trial.keys["analysis"] not in knowing:
            keys |= {"adversary": "naive", "recipe": "recorded"}
        keys |= trial.keys
        for found in judge(trial, answers[trial.questions], setting):
            yield replace(found, keys=keys)


def _path(trial: Trial) -> list[str]:
    return [trial.questions, json.dumps(dict(trial.keys), sort_keys=True)]


def _exhibits(job: Job, meta: Meta, ap: Mapping[int, float]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not job.analyses:
        return
    scene = open_scene(job, meta, ap)
    for analysis in job.analyses:
        found = analysis.exhibit(scene)
        if found is not None:
            yield analysis.name, found


def open_scene(job: Job, meta: Meta, ap: Mapping[int, float]) -> Scene:
    """Return everything known about the run."""
    prepared = job.paths.prepared
    store = UpdateStore.open(job.paths.updates / "observed", verify=False)
    truth = read_truth(job.paths.updates / "truth").set_index("obs_id")
    private = load_users(prepared / "private")
    return Scene(
        store=store,
        owner=truth.loc[store.index["obs_id"], "user_id"].to_numpy(dtype=np.int64),
        prior=load_users(prepared / "prior"),
        private=private,
        class_names=meta.class_names,
        task=meta.task,
        features=_features(job, meta, store, private),
        ap=ap,
        trials=lambda name: tuple(t for t in load_trials(job.paths.analysis) if t.keys["analysis"] == name),
        seed=job.seed,
    )


def _features(job: Job, meta: Meta, store: UpdateStore, users: tuple[User, ...]) -> Callable[[User], Floats] | None:
    """Return the penultimate activations of the final global model, for models that have some."""
    dtype = recipes.DTYPES[job.config.federation.dtype]
    one = recipes.ready(users[:1], dtype, model=job.config.model)
    model = recipes.build_model(job.config, meta, one, recipes.federation_seed(job.seed))
    compute = getattr(model, "features", None)
    if compute is None:
        return None
    recipes.load_parameters(model, store.global_params(store.rounds))

    def features(user: User) -> Floats:
        x = recipes.to_model_input(user.examples, dtype, model=job.config.model)["x"]
        with torch.no_grad():
            parts = [compute(part).float().numpy() for part in torch.split(x, 512)]
        return np.concatenate(parts)

    return features
