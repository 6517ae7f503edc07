"""Stage attack: what the adversary makes of the records. It never opens truth/ or a private example."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.manifold  # noqa: F401  (what is loaded later would escape the limit on threads)
import torch
from threadpoolctl import threadpool_limits

from fedprint.attacks.embed import two_dimensions
from fedprint.attacks.reidentify import Tuned, Workspace, answer, pool, tune
from fedprint.attacks.shadow import Problem, Validation, attack_problem, validations
from fedprint.attacks.view import AttackerView, ask_all
from fedprint.data.prepared import load_meta, load_users
from fedprint.data.text_columns import CAPTION
from fedprint.federation.store import UpdateStore
from fedprint.pipeline import recipes
from fedprint.pipeline.clustering import with_clusters
from fedprint.pipeline.progress import meter
from fedprint.pipeline.registry import Attack
from fedprint.pipeline.stages.paths import Job, read_json, write_json
from fedprint.rng import numpy_rng, torch_rng
from fedprint.types import Questions, User


def run(job: Job) -> None:
    """Choose and fit every attack, answer the questions, and answer them once more with shuffled labels."""
    # Bits must not depend on the machine's cores; kernels bring their own two lanes.
    torch.set_num_threads(1)
    with threadpool_limits(1):
        _run(job)


def _run(job: Job) -> None:
    out = job.paths.attack
    out.mkdir(parents=True, exist_ok=True)
    view, questions = open_view(job)
    work = Workspace()
    rounds = min(job.config.selection.shadow_rounds, view.store.rounds)
    with meter(f"attack {job.paths.item}: shadow devices", rounds * len(view.prior_users)) as bar:
        folds = validations(view, questions, rounds=rounds, progress=bar.update)
    found: dict[str, dict[str, Any]] = {}
    scores: dict[str, np.ndarray] = {}
    real = attack_problem(view, questions)
    permuted = attack_problem(view.shuffled(permutation(job, questions)), questions)
    with meter(f"attack {job.paths.item}", len(job.config.attacks)) as bar:
        for i, attack in enumerate(job.config.attacks):
            found[attack.name] = _run_attack(attack, job, real, permuted, folds, work, scores)
            bar.update(i + 1, attack.name)
    selected = min(found, key=lambda name: (found[name]["log_loss"], name))
    _write(out, job, view, questions, scores, {"attacks": found, "selected": selected})
    row = found[selected]
    print(f"selected {selected}: {row['settings']}, log-loss {row['log_loss']:.3f}", file=sys.stderr, flush=True)


def open_view(job: Job) -> tuple[AttackerView, Questions]:
    """Return all that the adversary may know, and what it is asked."""
    prepared, updates = job.paths.prepared, job.paths.updates
    meta = load_meta(prepared)
    dtype = recipes.DTYPES[job.config.federation.dtype]
    prior = readable(load_users(prepared / "prior"), dtype)
    store = UpdateStore.open(updates / "observed")
    model = recipes.build_model(job.config, meta, prior, recipes.federation_seed(job.seed))
    view = AttackerView(
        store=store,
        prior_users=prior,
        background=readable(with_clusters(load_users(prepared / "background"), updates / "public"), dtype),
        model=model,
        training=job.config.federation.local_training(),
        chronological=job.prior == "chrono",
        by_album=job.prior == "photoset",
        defences=None,
        seed=job.seed,
        labels={user.user_id: user.user_id for user in prior},
    )
    options = tuple(read_json(updates / "questions" / "questions.json")["options"])
    return view, ask_all(store, options)


def readable(users: Sequence[User], dtype: torch.dtype) -> tuple[User, ...]:
    """Return the users as model input, with the captions that the adversary can read and no device trains on."""
    return tuple(
        replace(ready, examples={**ready.examples, CAPTION: user.examples[CAPTION]})
        if CAPTION in user.examples
        else ready
        for user, ready in zip(users, recipes.ready(users, dtype), strict=True)
    )


def permutation(job: Job, questions: Questions) -> dict[int, int]:
    """Return the users exchanged at random, for the shuffled-label check."""
    exchanged = numpy_rng(job.seed, "shuffled-labels", job.prior).permutation(questions.options)
    return dict(zip(questions.options, exchanged.tolist(), strict=True))


def _run_attack(
    attack: Attack,
    job: Job,
    real: Problem,
    permuted: Problem,
    folds: tuple[Validation, ...],
    work: Workspace,
    scores: dict[str, np.ndarray],
) -> dict[str, Any]:
    """Fill ``scores`` under ``<attack>`` and ``<attack>.shuffled``; return what was chosen."""
    started = time.perf_counter()
    tuned: Tuned = tune(attack, folds, work, torch_rng(job.seed, "attack", attack.name, "tune"))
    for name, problem in ((attack.name, real), (f"{attack.name}.shuffled", permuted)):
        scores[name] = answer(attack, problem, tuned, work, torch_rng(job.seed, "attack", name)).scores
    # times are for the eye: in a file they would make equal runs differ
    print(f"{attack.name}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
    return {
        "settings": dict(tuned.settings),
        "temperature": tuned.temperature,
        "log_loss": tuned.log_loss,
        "layers": list(getattr(attack, "layers", None) or ()) or None,
    }


def _write(
    out: Path,
    job: Job,
    view: AttackerView,
    questions: Questions,
    scores: Mapping[str, np.ndarray],
    summary: Mapping[str, Any],
) -> None:
    index = view.store.index.iloc[view.anonymous_rows]
    senders = index["pseudonym"].tolist()
    pooled = {name: pool(values, senders) for name, values in scores.items()}
    arrays = {f"update/{name}": values for name, values in scores.items()}  # float32 would bring back the ties
    arrays |= {f"device/{name}": values for name, (values, _) in pooled.items()}
    np.savez(out / "scores.npz", **arrays)  # type: ignore[arg-type]
    shown = two_dimensions(view.store, np.arange(len(view.store.index)), seed=job.seed)
    np.savez(out / "embedding.npz", xy=shown, obs_id=view.store.index["obs_id"].to_numpy())
    write_json(
        out / "attack.json",
        {
            **summary,
            "options": list(questions.options),
            "subjects": [int(s) for s in questions.subjects],
            "rounds": index["round"].tolist(),
            "senders": senders,
            "devices": sorted(set(senders)),
            "chance_log_loss": float(np.log(len(questions.options))),
            "store_checksum": view.store.checksum(),
        },
    )
