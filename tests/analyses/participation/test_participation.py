"""Who took part: the sum is made of the right parts, and candidates explain it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from fedprint.analyses.participation import cohorts as participation
from fedprint.analyses.participation import sums
from fedprint.analyses.participation.cohorts import QUESTIONS, Participation
from fedprint.analyses.participation.sums import (
    PENALTIES,
    Calibration,
    Candidates,
    Level,
    calibrated,
    level,
    rests,
    shared_directions,
)
from fedprint.analyses.trials import QuestionSet
from fedprint.attacks.adversary.shadow_devices import ShadowDevice, shadow_updates
from fedprint.attacks.updates import MemoryUpdates
from fedprint.attacks.view import AttackerView
from fedprint.kinds.federation.building.view import open_view
from fedprint.kinds.federation.stages.analyse import open_bench
from fedprint.lab.graph import Task
from fedprint.params import flatten
from fedprint.store.index import read_truth


def test_the_rest_is_the_weighted_sum_of_the_anonymous_updates(tiny_run: Task) -> None:
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
    assert sorted(np.argsort(Candidates.of(candidates).explain(rest, penalty))[-3:].tolist()) == members


def _sums_with_a_common_part(rng: np.random.Generator, shared: np.ndarray) -> tuple[float, float]:
    """Return AUCs of membership over 30 rounds of sums, without and with directions that a background shows."""
    own, member = rng.normal(size=(40, 200)), np.arange(40) < 20
    totals = np.zeros((2, 40))
    for _ in range(30):
        common = rng.normal(size=200)

        def sent(users: np.ndarray, common: np.ndarray = common) -> np.ndarray:
            mixed = rng.normal(size=(len(users), len(shared))) @ shared
            found: np.ndarray = 5 * common + mixed + users + 2 * rng.normal(size=users.shape)
            return found

        rest = sent(own[member & (rng.random(40) < 0.3)]).sum(0)
        updates, background = sent(own), sent(np.zeros((30, 200)))
        directions = np.linalg.svd(background, full_matrices=False)[2][:8]
        for row, found in zip(totals, (Candidates.of(updates), Candidates.of(updates, directions)), strict=True):
            row += found.explain(rest, 10.0)
    wins = totals[:, member][:, :, None] > totals[:, ~member][:, None, :]
    return float(wins[0].mean()), float(wins[1].mean())


def test_what_all_updates_share_says_nothing_about_members() -> None:
    """Centred candidates meet the common part of a sum with an offset each, in all rounds: AUC about one half."""
    rng = np.random.default_rng(3)
    found = [_sums_with_a_common_part(rng, np.zeros((0, 200)))[0] for _ in range(5)]
    assert np.mean(found) > 0.75


def test_directions_that_a_background_shows_are_taken_out() -> None:
    rng = np.random.default_rng(4)
    found = [_sums_with_a_common_part(rng, 3 * rng.normal(size=(4, 200))) for _ in range(5)]
    without, taken_out = np.mean(found, axis=0)
    assert taken_out > 0.7 > without + 0.1


def test_candidates_without_a_mean_are_explained_too() -> None:
    rng = np.random.default_rng(5)
    half = rng.normal(size=(6, 50))
    updates = np.concatenate([half, -half])
    assert Candidates.of(updates).updates == pytest.approx(updates)
    assert int(Candidates.of(updates).explain(updates[4], 1.0).argmax()) == 4
    assert not Candidates.of(np.zeros((3, 50))).explain(np.ones(50), 1.0).any()


def test_the_directions_are_the_backgrounds_leading_ones(tiny_run: Task) -> None:
    view, _ = open_view(tiny_run, "naive")
    found = shared_directions(view, 3)
    assert found.shape == (4, sum(view.store.sizes.values())), "of 8 background users at most half"
    assert found @ found.T == pytest.approx(np.eye(4), abs=1e-6)
    updates = sums._updates(view, {u.user_id: u.examples for u in view.background}, 3, "background")
    left = updates - (updates @ found.T) @ found
    singular = np.linalg.svd(updates, compute_uv=False)
    assert np.linalg.norm(left) == pytest.approx(np.linalg.norm(singular[4:]), rel=1e-6)
    assert shared_directions(replace(view, background=()), 3).shape == (0, found.shape[1])


def test_it_asks_about_every_user_and_knows_who_took_part(tiny_run: Task) -> None:
    bench = open_bench(tiny_run, lambda note: None)
    index = bench.view.store.index
    truth = read_truth(tiny_run.at("truth")).set_index("obs_id")
    owner = truth.loc[index["obs_id"], "user_id"].to_numpy(dtype=np.int64)

    class Facts:
        users = bench.everyone.options

    Facts.index, Facts.owner = index, owner  # type: ignore[attr-defined]
    ((asked, answers),) = Participation(rounds=4).ask(Facts())  # type: ignore[arg-type]
    assert len(asked.subjects) == len(set(asked.subjects[:, 0].tolist())) * len(Facts.users)
    for (t, user), answer in zip(asked.subjects.tolist(), answers.answers, strict=True):
        there = (index["round"] == t) & (index["role"] == "anonymous") & (owner == user)
        assert answer == there.any()


def test_released_models_are_those_of_the_next_round(tiny_run: Task) -> None:
    view, _ = open_view(tiny_run, "naive")
    before, after = view.store.global_params(0), view.store.global_params(1)
    moved = flatten({name: after[name] - before[name] for name in view.store.layers}).double().numpy()
    index = view.store.index
    rows = np.flatnonzero((index["round"] == 0).to_numpy())
    weights = index["num_examples"].to_numpy(dtype=np.float64)[rows]
    mean = weights @ view.store.matrix(rows=rows, dtype=np.float64) / weights.sum()
    assert np.linalg.norm(moved - mean) < 0.02 * np.linalg.norm(mean)


def test_no_two_candidates_share_the_randomness_of_a_defence(tiny_run: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were noise and background the same in both halves of a prior, the penalty would be chosen on them."""
    made: list[str] = []

    def spy(view: AttackerView, devices: Sequence[ShadowDevice]) -> MemoryUpdates:
        made.extend(f"{device.round}/{device.device_id}" for device in devices)
        return shadow_updates(view, devices)

    monkeypatch.setattr(sums, "shadow_updates", spy)
    view, _ = open_view(tiny_run, "naive")
    calibrated(view, 2, [Level(rate=0.5, members=4.0, noise=0.0)])
    assert len(made) > 2
    assert len(set(made)) == len(made)


def test_each_view_scores_every_pair_of_user_and_round(tiny_run: Task) -> None:
    bench = open_bench(tiny_run, lambda note: None)
    pairs = np.array([(t, user) for t in (0, 1) for user in bench.everyone.options], dtype=np.int64)
    asked = QuestionSet(name=QUESTIONS, kind="fits", subjects=pairs)
    found = list(Participation(rounds=2).trials(replace(bench, questions={QUESTIONS: asked})))
    assert [trial.keys["view"] for trial in found] == ["aggregate", "central"]
    for trial in found:
        assert trial.scores.shape == (len(pairs), 1)
        assert trial.scores.std() > 0


def test_the_penalty_is_chosen_on_sums_like_those_that_are_seen(
    tiny_run: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many members as anonymous devices are expected, with the noise of the released models where that is seen."""
    asked: list[Level] = []

    def seen(view: AttackerView, rounds: int, levels: Iterable[Level]) -> dict[Level, Calibration]:
        asked.extend(levels)
        return dict.fromkeys(asked, Calibration(penalty=1.0, inside=(1.0, 1.0), outside=(0.0, 1.0)))

    monkeypatch.setattr(participation, "calibrated", seen)
    bench = open_bench(tiny_run, lambda note: None)
    # 8 users, of whose anonymous devices 4 stayed away; half of all come
    rule = replace(bench.view.rule, devices=12, noise=(0.3,) * bench.view.store.rounds)
    view = replace(bench.view, rule=rule, defences=())
    pairs = np.array([(t, user) for t in (0, 1) for user in bench.everyone.options], dtype=np.int64)
    asked_about = QuestionSet(name=QUESTIONS, kind="fits", subjects=pairs)
    list(Participation(rounds=2).trials(replace(bench, view=view, questions={QUESTIONS: asked_about})))
    assert asked == [Level(rate=0.5, members=2.0, noise=0.0), Level(rate=0.5, members=2.0, noise=0.3)]
    assert level(view, 0, "aggregate", groups=2).members == 1.0
