"""Models by mode: which mode a device drew, which users are trained in it, and which model answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from attack_cases import SIZES, USERS, planted, problem, truth
from tiny_project import TINY, project_in

from fedprint.attacks.adversary import modes
from fedprint.attacks.adversary.adversaries import (
    Choice,
    Effort,
    TrainedShadows,
    TrainingMix,
    choose,
    train_shadows,
    training_mixes,
)
from fedprint.attacks.adversary.modes import (
    LIKELIEST,
    NAME,
    WORSE,
    devices_by_mode,
    have_modes,
    likeliest,
    recognise_modes,
    with_modes,
)
from fedprint.attacks.adversary.shadow_devices import ShadowDevice, shadow_updates
from fedprint.attacks.adversary.shadow_validation import DevicePlan, ShadowTable, prior_halves, train_plan
from fedprint.attacks.problem import NO_MODE, Modes, Problem
from fedprint.attacks.reidentification import workspace
from fedprint.attacks.reidentification.reidentify import answer, scores_of, tune
from fedprint.attacks.reidentification.ridge import Ridge
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.attacks.updates import MemoryUpdates
from fedprint.attacks.view import AttackerView
from fedprint.data.examples import CLUSTER, concat
from fedprint.defences.on_data import MmAug, RandAug
from fedprint.defences.on_update import Noise
from fedprint.defences.secure_aggregation import SecureAggregation
from fedprint.kinds.federation.building.view import open_view
from fedprint.rng import torch_rng
from fedprint.types import Questions

SETTINGS = {"blocks": ((((("body.weight", "body.bias"), ("head.weight",))), "l2"),), "penalty": 0.3}


# ---- problems with modes -------------------------------------------------------------------------------------------


def moded() -> Problem:
    """Ask about each user's updates in two modes; of the fit rows a third serves all."""
    asked = problem(planted(0.7))
    rows = np.arange(len(asked.fit))
    return replace(asked, modes=Modes(fit=rows % 3 - 1, ask=rows % 2))


def test_each_row_is_answered_from_its_own_mode_and_from_rows_of_none() -> None:
    asked = moded()
    assert asked.modes is not None
    answered = []
    for rows, part in asked.parts():
        (mode,) = set(asked.modes.ask[rows].tolist())
        assert part.modes is None
        assert part.ask.tolist() == asked.ask[rows].tolist()
        assert set(asked.modes.fit[part.fit].tolist()) == {NO_MODE, mode}
        assert part.labels.tolist() == asked.labels[part.fit].tolist()
        answered += rows.tolist()
    assert sorted(answered) == list(range(len(asked.ask)))


def test_a_problem_without_modes_is_one_part() -> None:
    ((rows, part),) = problem(planted(0.7)).parts()
    assert rows.tolist() == list(range(len(part.ask)))


def test_scores_by_mode_are_those_of_each_modes_own_problem() -> None:
    asked, rng = moded(), torch_rng(0, "t")
    together = scores_of(Ridge(), asked, SETTINGS, Workspace(), rng)
    for rows, part in asked.parts():
        alone = Ridge().scores(part, SETTINGS, Workspace(), rng)
        assert np.allclose(together[rows], alone, atol=1e-5)
    plain = Ridge().scores(replace(asked, modes=None), SETTINGS, Workspace(), rng)
    assert not np.allclose(together, plain, atol=1e-3)


def test_where_a_mode_changes_what_a_user_sends_its_own_model_names_more() -> None:
    rng = np.random.default_rng(0)
    d, count = sum(SIZES.values()), 6
    person, sign = rng.normal(size=(USERS, d)), rng.choice([-1.0, 1.0], size=(count, d))
    user, mode = (grid.ravel() for grid in np.meshgrid(np.arange(USERS), np.arange(count), indexing="ij"))

    def sent() -> np.ndarray:
        return person[user] * sign[mode] + 1.5 * rng.normal(size=(len(user), d))

    table = MemoryUpdates(sizes=SIZES, values=np.concatenate([sent(), sent()]).astype(np.float32))
    rows = np.arange(len(user))
    plain = Problem(updates=table, fit=rows, labels=user, ask=len(rows) + rows, options=USERS)
    named = [
        (scores_of(Ridge(), asked, SETTINGS, Workspace(), torch_rng(0, "t")).argmax(1) == user).mean()
        for asked in (plain, replace(plain, modes=Modes(fit=mode, ask=mode)))
    ]
    assert named[1] > named[0] + 0.1


def test_products_of_updates_are_computed_once_for_all_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    products = workspace.products

    def counted(*arguments: Any) -> Any:
        computed.append(len(arguments[2]))
        return products(*arguments)

    monkeypatch.setattr(workspace, "products", counted)
    asked = moded()
    scores_of(Ridge(), asked, SETTINGS, Workspace(), torch_rng(0, "t"))
    assert len(computed) == 2, "once for each layer"


# ---- which mode, and who -------------------------------------------------------------------------------------------


def world(strength: float, seed: int = 0) -> tuple[Problem, np.ndarray, np.ndarray]:
    """Return clean rows of users to learn from, rows that a mode was added to, the modes' own rows, and both modes."""
    rng = np.random.default_rng(seed)
    d, count = sum(SIZES.values()), 6
    person, mode = 4 * rng.normal(size=(USERS, d)), rng.normal(size=(count, d))
    common = 3 * rng.normal(size=d)

    def sent(means: np.ndarray) -> np.ndarray:
        return common + means + 0.3 * rng.normal(size=means.shape)

    clean, drawn = np.repeat(person, 4, axis=0), rng.integers(count, size=USERS)
    known = np.tile(np.arange(count), 2) + 10
    values = np.concatenate([sent(clean), sent(person + strength * mode[drawn]), sent(strength * mode[known - 10])])
    fit, asked = np.arange(len(clean)), len(clean) + np.arange(USERS)
    found = Problem(
        updates=MemoryUpdates(sizes=SIZES, values=values.astype(np.float32)),
        fit=fit,
        labels=truth(len(fit)),
        ask=asked,
        options=USERS,
        nuisance=np.arange(asked[-1] + 1, len(values)),
    )
    return found, known, drawn + 10


def test_the_mode_is_told_from_beside_what_users_send() -> None:
    right, by_cosine = [], []
    for seed in range(5):
        found, known, drawn = world(1.0, seed)
        right.append((recognise_modes(found, known, Workspace()) == drawn).mean())
        rows = np.concatenate(list(found.updates.blocks()), axis=1)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        by_cosine.append((known[(rows[found.ask] @ rows[found.nuisance].T).argmax(1)] == drawn).mean())
    assert np.mean(right) > 0.85
    assert np.mean(by_cosine) < 0.7, "else the test shows nothing"


def test_the_mode_cannot_be_told_where_none_was_added() -> None:
    hits = []
    for seed in range(5):
        found, known, drawn = world(0.0, seed)
        hits.append((recognise_modes(found, known, Workspace()) == drawn).mean())
    assert np.mean(hits) < 0.5


def test_the_likeliest_users_of_a_mode_are_those_of_each_of_its_updates() -> None:
    rng = np.random.default_rng(0)
    scores, drawn = rng.normal(size=(12, 40)), np.arange(12) % 3
    found = likeliest(scores, drawn)
    assert sorted(found) == [0, 1, 2]
    for mode, options in found.items():
        assert len(set(options.tolist())) == len(options) == LIKELIEST
        assert set(scores[drawn == mode].argmax(1)) <= set(options.tolist())


# ---- a federation --------------------------------------------------------------------------------------------------

MM_AUG: dict[str, Any] = {**TINY, "analyses": [], "defences": [{"name": "mm-aug", "alpha": 1, "clusters": 3}]}
Bench = tuple[AttackerView, Questions, TrainedShadows]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with project_in(tmp_path_factory.mktemp("modes")) as project:
        view, questions = open_view(project.run("mm-aug", MM_AUG, until="ask"), "adaptive")
        effort = Effort(clean_rounds=3, defended_rounds=2, draws=1, validation_rounds=4)
        yield view, questions, train_shadows(view, questions, effort)


def test_models_by_mode_need_mm_aug_alone_and_an_adversary_who_knows_it(bench: Bench) -> None:
    view, *_ = bench
    assert have_modes(view)
    assert not have_modes(replace(view, defences=None))
    assert not have_modes(replace(view, background=()))
    mm_aug, noise = MmAug(alpha=1, clusters=3), Noise(sigma=0.1)
    assert not have_modes(replace(view, defences=(mm_aug, noise)))
    assert not have_modes(replace(view, defences=(mm_aug, RandAug(alpha=1))))
    assert not have_modes(replace(view, defences=(mm_aug, SecureAggregation(size=2))))


def test_what_is_trained_by_mode_is_at_most_what_was_announced(bench: Bench) -> None:
    view, questions, devices = bench
    mixes, work, rng = training_mixes("adaptive", *bench), Workspace(), torch_rng(0, "t")
    (clean,) = (mix for mix in mixes if mix.name == "clean")
    counts: list[int] = []

    def train(plan: DevicePlan) -> ShadowTable:
        listed = list(plan)
        counts.append(len(listed))
        return train_plan(view, questions, listed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modes, "standard_errors", lambda gains: 0.0)
        with_modes(choose(mixes, work, rng), clean, view, questions, devices, train, work, rng, validation_rounds=4)
    validation, real = devices_by_mode(view.defences or (), len(view.prior_users), 4)
    assert 0 < sum(counts[:2]) <= validation
    assert 0 < counts[2] <= real
    assert devices_by_mode((RandAug(alpha=1),), 10, 4) == (0, 0)


def test_a_device_in_a_mode_draws_its_background_from_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    view, *_ = bench
    pool = concat([user.examples for user in view.background])
    drawn: list[list[int]] = []
    choose_from = MmAug.choose

    def noted(self: MmAug, count: int, examples: Any, background: Any, every: Any, rng: torch.Generator) -> Any:
        found = choose_from(self, count, examples, background, every, rng)
        drawn.append(sorted(set(background[CLUSTER][found].tolist())))
        return found

    monkeypatch.setattr(MmAug, "choose", noted)
    user = view.prior_users[0]
    plain = ShadowDevice(user_id=user.user_id, examples=user.examples, round=1, defended=True)
    wanted = sorted(set(pool[CLUSTER].tolist()))
    assert len(wanted) == 3
    made = shadow_updates(view, [replace(plain, tag=f"mode-{mode}", mode=mode) for mode in wanted]).values
    assert drawn == [[mode] for mode in wanted]
    assert not np.allclose(made[0], made[1])


def test_models_by_mode_are_asked_alone_or_beside_the_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    view, questions, devices = bench
    mixes, work, rng = training_mixes("adaptive", *bench), Workspace(), torch_rng(0, "t")
    first = choose(mixes, work, rng)
    (clean,) = (mix for mix in mixes if mix.name == "clean")
    trained: list[ShadowTable] = []

    def train(plan: DevicePlan) -> ShadowTable:
        trained.append(train_plan(view, questions, plan))
        return trained[-1]

    def run(gain: float) -> Choice:
        trained.clear()
        monkeypatch.setattr(modes, "standard_errors", lambda gains: gain)
        return with_modes(first, clean, view, questions, devices, train, work, rng, validation_rounds=4)

    assert [mix.name for mix in run(-WORSE).mixes] == [NAME]
    beside = run(-WORSE - 0.1)
    *before, last = beside.mixes
    assert (tuple(before), last.name) == (first.mixes, NAME)
    assert beside.weights[-1] == 0.5 and sum(beside.weights) == pytest.approx(1)
    assert set(run(0.0).aps) == {*first.aps, NAME}
    assert len(trained) == 3, "one validation for each half, and the real attack"
    check_models(last, clean, trained[-1])
    scores = answer(Ridge(), last.problem, tune(Ridge(), last.folds, work, rng), work, rng).scores
    assert scores.shape == (len(view.anonymous_rows), len(questions.options))
    assert np.allclose(np.exp(scores).sum(1), 1, atol=0.01)


def table_of(problem: Problem) -> np.ndarray:
    return np.concatenate(list(problem.updates.blocks()), axis=1)


def check_models(mix: TrainingMix, clean: TrainingMix, trained: ShadowTable) -> None:
    """The real problem asks about all updates; each mode that is asked about has the rows that were trained in it."""
    asked = mix.problem
    assert asked.modes is not None
    own = asked.modes.fit != NO_MODE
    table, before = table_of(asked), table_of(clean.problem)
    np.testing.assert_array_equal(table[asked.ask], before[clean.problem.ask])
    np.testing.assert_array_equal(table[asked.fit[~own]], before[clean.problem.fit])
    np.testing.assert_array_equal(table[asked.fit[own]], trained.updates.values)
    assert len(table) == len(asked.fit) + len(asked.ask), "no row without a use"
    assert asked.modes.fit[own].tolist() == trained.mode.tolist()
    assert asked.labels[own].tolist() == trained.labels.tolist()
    assert set(trained.mode.tolist()) == set(asked.modes.ask.tolist())
    assert sum(len(fold.answers) for fold in mix.folds) == sum(len(fold.answers) for fold in mix.compared)


def test_validation_devices_have_the_half_that_is_not_asked_about(bench: Bench) -> None:
    view, questions, devices = bench
    mixes, work, rng = training_mixes("adaptive", *bench), Workspace(), torch_rng(0, "t")
    (clean,) = (mix for mix in mixes if mix.name == "clean")
    plans: list[list[tuple[ShadowDevice, int]]] = []

    def train(plan: DevicePlan) -> ShadowTable:
        plans.append(list(plan))
        return train_plan(view, questions, plans[-1])

    with_modes(choose(mixes, work, rng), clean, view, questions, devices, train, work, rng, validation_rounds=4)
    halves = prior_halves(view)
    for side in (0, 1):
        assert plans[side]
        for device, _ in plans[side]:
            assert device.defended and device.mode != NO_MODE
            assert torch.equal(device.examples["x"], halves[device.user_id][side]["x"])
    rounds = [{device.round for device, _ in plan} for plan in plans[:2]]
    assert not rounds[0] & rounds[1], "the two halves learn from different global models"
