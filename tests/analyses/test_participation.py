"""Who took part: the sum is made of the right parts, and candidates explain it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fedprint.analyses import participation
from fedprint.analyses.participation import PENALTIES, QUESTIONS, Participation, choose_penalty, explain, rests
from fedprint.analyses.trials import QuestionSet
from fedprint.attacks.shadow import ShadowDevice, shadow_updates
from fedprint.attacks.updates import MemoryUpdates
from fedprint.attacks.view import AttackerView
from fedprint.federation.store import read_truth
from fedprint.params import flatten
from fedprint.pipeline.stages.analyse import open_bench
from fedprint.pipeline.stages.attack import open_view
from fedprint.pipeline.stages.paths import Job


def test_the_rest_is_the_weighted_sum_of_the_anonymous_updates(tiny_run: Job) -> None:
    view, _ = open_view(tiny_run, "naive")
    index = view.store.index
    for t in (0, view.store.rounds - 1):
        rows = np.flatnonzero(((index["round"] == t) & (index["role"] == "anonymous")).to_numpy())
        weights = index["num_examples"].to_numpy(dtype=np.float64)[rows]
        expected = weights @ view.store.matrix(rows=rows, dtype=np.float64)
        found = rests(view, t)
        assert found["aggregate"] == pytest.approx(expected, abs=1e-9)
        # no noise on the server: the released models show the same sum, up to what the store rounds
        size = np.linalg.norm(found["aggregate"])
        assert np.linalg.norm(found["central"] - found["aggregate"]) < 0.02 * size


@pytest.mark.parametrize("penalty", PENALTIES)
def test_candidates_that_are_in_the_sum_score_highest(penalty: float) -> None:
    rng = np.random.default_rng(0)
    candidates = rng.normal(size=(20, 400))
    members = [3, 7, 11]
    rest = (candidates[members] + 0.5 * rng.normal(size=(3, 400))).sum(0)
    assert sorted(np.argsort(explain(rest, candidates, penalty))[-3:].tolist()) == members


def test_it_asks_about_every_user_and_knows_who_took_part(tiny_run: Job) -> None:
    bench = open_bench(tiny_run, lambda note: None)
    index = bench.view.store.index
    truth = read_truth(tiny_run.paths.updates / "truth").set_index("obs_id")
    owner = truth.loc[index["obs_id"], "user_id"].to_numpy(dtype=np.int64)

    class Facts:
        users = bench.everyone.options

    Facts.index, Facts.owner = index, owner  # type: ignore[attr-defined]
    ((asked, answers),) = Participation(rounds=4).ask(Facts())  # type: ignore[arg-type]
    assert len(asked.subjects) == len(set(asked.subjects[:, 0].tolist())) * len(Facts.users)
    for (t, user), answer in zip(asked.subjects.tolist(), answers.answers, strict=True):
        there = (index["round"] == t) & (index["role"] == "anonymous") & (owner == user)
        assert answer == there.any()


def test_released_models_are_those_of_the_next_round(tiny_run: Job) -> None:
    view, _ = open_view(tiny_run, "naive")
    before, after = view.store.global_params(0), view.store.global_params(1)
    moved = flatten({name: after[name] - before[name] for name in view.store.layers}).double().numpy()
    index = view.store.index
    rows = np.flatnonzero((index["round"] == 0).to_numpy())
    weights = index["num_examples"].to_numpy(dtype=np.float64)[rows]
    mean = weights @ view.store.matrix(rows=rows, dtype=np.float64) / weights.sum()
    assert np.linalg.norm(moved - mean) < 0.02 * np.linalg.norm(mean)


def test_no_two_candidates_share_the_randomness_of_a_defence(tiny_run: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were noise and background the same in both halves of a prior, the penalty would be chosen on them."""
    made: list[str] = []

    def spy(view: AttackerView, devices: Sequence[ShadowDevice]) -> MemoryUpdates:
        made.extend(f"{device.round}/{device.device_id}" for device in devices)
        return shadow_updates(view, devices)

    monkeypatch.setattr(participation, "shadow_updates", spy)
    choose_penalty(open_bench(tiny_run, lambda note: None), 2)
    assert len(made) > 2
    assert len(set(made)) == len(made)


def test_each_view_scores_every_pair_of_user_and_round(tiny_run: Job) -> None:
    bench = open_bench(tiny_run, lambda note: None)
    pairs = np.array([(t, user) for t in (0, 1) for user in bench.everyone.options], dtype=np.int64)
    asked = QuestionSet(name=QUESTIONS, kind="fits", subjects=pairs)
    found = list(Participation(rounds=2).trials(replace(bench, questions={QUESTIONS: asked})))
    assert [trial.keys["view"] for trial in found] == ["aggregate", "central"]
    for trial in found:
        assert trial.scores.shape == (len(pairs), 1)
        assert trial.scores.std() > 0
