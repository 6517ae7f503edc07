"""What augmentation hides from who knows which public examples a device added: a bound for attacks that look for them.

Run: ``FEDPRINT_DATA=... python -m benchmarks.known_additions [DEFENCE ...] [--alpha 4] [--fast]``, for example ``python
-m benchmarks.known_additions rand-aug repeat-aug``. The federation is that of ``mnist-writers-linked``. Two ridges
learn from the same clean shadow devices and name the sender of every update. One reads updates as they are. The other
subtracts from each update that of a reference device, which trains from the same global model on the added examples
and, in place of the user's, on as many of all priors; from a shadow device it subtracts a reference without additions.
It is told what was added, so it is nobody's attack: an adversary with the same public examples would have to find them.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from benchmarks.measuring import ROOT
from benchmarks.precision import mean
from benchmarks.stages import run_stage, task_of
from fedprint.attacks.adversary.shadow_devices import ShadowDevice, rows_of, shadow_updates, spread_rounds
from fedprint.attacks.features import layer_groups
from fedprint.attacks.problem import Problem
from fedprint.attacks.reidentification.ridge import Ridge
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.attacks.updates import MemoryUpdates
from fedprint.attacks.view import NOBODY, AttackerView
from fedprint.data.examples import concat
from fedprint.data.prepared import load_users
from fedprint.defences.points import defend_data
from fedprint.kinds.federation.building import federation as build
from fedprint.kinds.federation.building.view import open_view, readable
from fedprint.lab.graph import Task
from fedprint.ranking import average_precision
from fedprint.rng import torch_rng
from fedprint.types import Doubles, Examples, Floats, Ints, Scores

WORDS = (
    "data.users=60", "data.background_users=300", "federation.rounds=30", "federation.fraction=1.0",
    "federation.central_epochs=0", "federation.evaluate_every=30",
)  # fmt: skip
FASTER = ("data.users=12", "data.background_users=20", "federation.rounds=4")
SHADOWS, ASKED, PENALTY = 10, 10, 1.0
"""From how many global models shadow devices train, how many updates of a device are asked about, and ridge's penalty,
which is fixed as in audits."""


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("defences", nargs="*", default=["rand-aug", "repeat-aug", "counter-aug"])
    parser.add_argument("--alpha", type=float, default=4.0)
    parser.add_argument("--fast", action="store_true", help="12 users and 4 rounds")
    return parser.parse_args()


Additions = Mapping[int, Examples]
"""User id -> examples."""


def additions(task: Task, view: AttackerView) -> Additions:
    """Return user id -> the public examples that the user's anonymous device added: the truth."""
    private = readable(load_users(task.at("private")), torch.float32, task.config.model)
    before = build.make_devices((), private)
    pool = concat([user.examples for user in view.background])
    after = defend_data(before, task.config.defences, pool, build.federation_seed(task.seed))
    pairs = zip(before, after, strict=True)
    return {one.user_id: {c: two.examples[c][len(one.examples["y"]) :] for c in ("x", "y")} for one, two in pairs}


def references(view: AttackerView, kind: str, users: Ints, rounds: Ints, added: Additions) -> Floats:
    """Return the update (n, d) of a reference device for each row; without additions where none are known.

    In place of the user's examples it holds as many of all priors, others in every row, so that they cancel over a
    device's rows. Neither these nor the order of its batches follow from the user: either would tell the user.
    """
    priors = concat([{c: user.examples[c] for c in ("x", "y")} for user in view.prior_users])
    own = {user.user_id: len(user.examples["y"]) for user in view.prior_users}
    plan = []
    for row, (user, t) in enumerate(zip(users.tolist(), rounds.tolist(), strict=True)):
        order = torch.randperm(len(priors["y"]), generator=torch_rng(view.seed, "reference", kind, row))
        held = concat([rows_of(priors, order[: own[user]]), *([added[user]] if user in added else [])])
        plan.append(ShadowDevice(user_id=NOBODY, examples=held, round=t, tag=f"reference-{kind}-{row}"))
    return shadow_updates(view, plan).values


def scores(sizes: dict[str, int], known: Floats, labels: Ints, asked: Floats, options: int) -> Scores:
    """Return the scores (q, m) of ridge on signed square roots of all layers."""
    updates = MemoryUpdates(sizes=sizes, values=np.concatenate([known, asked]))
    ask = len(known) + np.arange(len(asked))
    problem = Problem(updates=updates, fit=np.arange(len(known)), labels=labels, ask=ask, options=options)
    settings = {"blocks": ((layer_groups(updates), "sqrt"),), "penalty": PENALTY}
    return Ridge().scores(problem, settings, Workspace(), torch_rng(0, "known-additions"))


def measure(base: Path, words: Sequence[str]) -> dict[str, tuple[Doubles, Doubles]]:
    """Return, of one update and of all, the AP by user without and with the knowledge of what was added."""
    for stage in ("prepare", "choose", "federate"):
        run_stage(stage, base, "mnist-writers", words)
    task = task_of(base, "mnist-writers", words)
    view, questions = open_view(task, "adaptive")
    rows = view.anonymous_rows
    rows = rows[np.isin(view.store.index["round"].to_numpy()[rows], spread_rounds(view, ASKED))]
    index = view.store.index.iloc[rows]
    truth = pd.read_parquet(task.at("truth") / "index.parquet").set_index("obs_id")["user_id"]
    sender, rounds = truth.loc[index["obs_id"]].to_numpy(), index["round"].to_numpy()
    turns = spread_rounds(view, SHADOWS)
    plan = [ShadowDevice(user_id=u.user_id, examples=u.examples, round=t) for t in turns for u in view.prior_users]
    sizes, known = dict(view.store.sizes), shadow_updates(view, plan).values
    users, of_round = np.array([one.user_id for one in plan]), np.array([one.round for one in plan])
    labels = np.searchsorted(questions.options, users)
    asked = np.concatenate([np.asarray(block, np.float32) for block in view.store.blocks(None, rows)], axis=1)
    plain = scores(sizes, known, labels, asked, len(questions.options))
    known -= references(view, "known", users, of_round, {})
    asked -= references(view, "asked", sender, rounds, additions(task, view))
    told = scores(sizes, known, labels, asked, len(questions.options))
    answers = np.searchsorted(questions.options, sender)
    linked = [[one[answers == u].mean(0) for u in range(len(questions.options))] for one in (plain, told)]
    every = np.arange(len(questions.options))
    return {
        "one update": (average_precision(plain, answers), average_precision(told, answers)),
        "all": (average_precision(np.array(linked[0]), every), average_precision(np.array(linked[1]), every)),
    }


def main() -> None:
    given = options()
    for defence in given.defences:
        words = (*WORDS, *(FASTER if given.fast else ()), f"defences=[{{name: {defence}, alpha: {given.alpha:g}}}]")
        folder = Path(tempfile.mkdtemp(prefix="fedprint-additions-", dir=ROOT / "work"))
        try:
            found = measure(folder, words)
        finally:
            shutil.rmtree(folder)
        for what, (plain, told) in found.items():
            cells = {"AP": plain, "AP of who is told": told, "more": told - plain}
            shown = ", ".join(f"{name} {mean('', name, values).text()}" for name, values in cells.items())
            print(f"{defence} {given.alpha:g}, {what}: {shown}", flush=True)


if __name__ == "__main__":
    main()
