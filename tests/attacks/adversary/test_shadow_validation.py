from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
import pytest
import torch

from fedprint.attacks.adversary.shadow_devices import ShadowDevice, shadow_updates
from fedprint.attacks.adversary.shadow_validation import validation_ap, validations
from fedprint.attacks.problem import Problem, Validation, attack_problem
from fedprint.attacks.updates import MemoryUpdates
from fedprint.attacks.view import AttackerView, ask_all
from fedprint.store.reader import UpdateStore
from fedprint.types import ClientJob, ClientResult, FedprintError, LocalTraining, Params, Questions

if TYPE_CHECKING:
    from fedprint.lab.graph import Task


@dataclass
class Spy:
    """Stands in for local training: remembers who trained on what from which global model; its updates are blank."""

    jobs: list[ClientJob] = field(default_factory=list)
    models: list[str] = field(default_factory=list)

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        for job in jobs:
            self.jobs.append(job)
            self.models.append(hashlib.sha256(params["head.bias"].numpy().tobytes()).hexdigest())
            blank = {name: torch.zeros_like(tensor) for name, tensor in params.items()}
            yield ClientResult(device_id=job.device_id, update=blank, num_examples=1, loss=0.0)

    def halves(self) -> dict[str, dict[str, ClientJob]]:
        """User -> side -> the last job."""
        found: dict[str, dict[str, ClientJob]] = defaultdict(dict)
        for job in self.jobs:
            _, user, _, side, _ = job.device_id.split("-")  # shadow-USER-half-SIDE-clean
            found[user][side] = job
        return found


@pytest.fixture
def asked(tiny_run: Task) -> tuple[AttackerView, Questions]:
    from fedprint.kinds.federation.building.view import open_view

    return open_view(tiny_run, "naive")


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    found = Spy()
    monkeypatch.setattr("fedprint.federation.backends.Threaded", lambda model, workers: found)
    return found


def _validations(asked: tuple[AttackerView, Questions], rounds: int = 4) -> tuple[Validation, ...]:
    view, questions = asked
    return validations(view, questions, rounds=rounds, progress=lambda done: None)


def _rows(job: ClientJob) -> set[bytes]:
    return {row.numpy().tobytes() for row in job.examples["x"]}


def test_devices_off_line_train_at_the_learning_rate_of_their_round(
    asked: tuple[AttackerView, Questions], spy: Spy, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, _ = asked
    rates: list[float] = []
    plain = spy.run

    def run(jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        rates.append(training.lr)
        return plain(jobs, params, training)

    monkeypatch.setattr(spy, "run", run)
    rounds = view.store.rounds
    scheduled = replace(view, training=tuple(replace(view.training[0], lr=float(t + 1)) for t in range(rounds)))
    examples = view.prior_users[0].examples
    devices = [ShadowDevice(user_id=0, examples=examples, round=t) for t in (rounds - 1, 0, 2)]
    shadow_updates(scheduled, devices)
    assert rates == [1.0, 3.0, float(rounds)]


def test_the_two_halves_are_disjoint_and_hold_the_whole_prior(asked: tuple[AttackerView, Questions], spy: Spy) -> None:
    _validations(asked)
    view, _ = asked
    for user in view.prior_users:
        first, second = (_rows(job) for job in spy.halves()[str(user.user_id)].values())
        whole = {row.numpy().tobytes() for row in user.examples["x"]}
        assert len(whole) > 2
        assert first | second == whole
        assert not first & second


def test_fit_and_ask_share_no_global_model(asked: tuple[AttackerView, Questions], spy: Spy) -> None:
    """Two updates from one global model resemble each other, also those of different users."""
    folds = _validations(asked)
    assert len(folds) == 2
    for fold in folds:
        fit, ask = ({spy.models[row] for row in rows} for rows in (fold.problem.fit, fold.problem.ask))
        assert len(fit) == len(ask) == 2
        assert not fit & ask


def test_the_second_fold_is_the_first_one_backwards(asked: tuple[AttackerView, Questions], spy: Spy) -> None:
    first, second = _validations(asked)
    np.testing.assert_array_equal(first.problem.fit, second.problem.ask)
    np.testing.assert_array_equal(first.problem.labels, second.answers)
    users = [spy.jobs[row].device_id.split("-")[1] for row in first.problem.ask]
    assert users == [str(asked[1].options[answer]) for answer in first.answers]


def test_chronological_halves_are_in_order_of_time(asked: tuple[AttackerView, Questions], spy: Spy) -> None:
    view, questions = asked
    _validations((replace(view, chronological=True), questions))
    for first, second in (pair.values() for pair in spy.halves().values()):
        assert first.examples["t"].max() <= second.examples["t"].min()


def test_halves_by_album_share_no_album(asked: tuple[AttackerView, Questions], spy: Spy) -> None:
    view, questions = asked
    single = view.prior_users[0]
    lone = replace(single, examples={**single.examples, "album": torch.zeros(len(single.examples["y"]))})
    _validations((replace(view, by_album=True, prior_users=(lone, *view.prior_users[1:])), questions))
    shared = {
        user: {*pair["0"].examples["album"].tolist()} & {*pair["1"].examples["album"].tolist()}
        for user, pair in spy.halves().items()
    }
    assert [user for user, albums in shared.items() if albums] == [str(lone.user_id)], "one album is cut at random"


def test_random_halves_mix_the_times(asked: tuple[AttackerView, Questions], spy: Spy) -> None:
    _validations(asked)
    ordered = [pair["0"].examples["t"].max() <= pair["1"].examples["t"].min() for pair in spy.halves().values()]
    assert not all(ordered)


def test_shadow_devices_carry_the_labels_that_the_adversary_believes(
    asked: tuple[AttackerView, Questions], spy: Spy
) -> None:
    view, questions = asked
    turned = dict(zip(questions.options, np.roll(questions.options, 1).tolist(), strict=True))
    (first, _), (believed, _) = _validations(asked), _validations((view.shuffled(turned), questions))
    np.testing.assert_array_equal(believed.answers, (first.answers - 1) % len(questions.options))


def test_with_one_prior_example_each_rounds_are_the_folds(asked: tuple[AttackerView, Questions], spy: Spy) -> None:
    view, questions = asked
    single = tuple(replace(u, examples={k: v[:1] for k, v in u.examples.items()}) for u in view.prior_users)
    folds = _validations((replace(view, prior_users=single), questions))
    assert spy.jobs == []
    rounds = view.store.index["round"].to_numpy()
    recorded = dict(zip(view.prior_rows.tolist(), view.prior_labels(questions).tolist(), strict=True))
    for fold in folds:
        assert not {*rounds[fold.problem.fit]} & {*rounds[fold.problem.ask]}
        assert {*fold.problem.fit, *fold.problem.ask} == {*view.prior_rows}
        assert [recorded[row] for row in fold.problem.ask] == fold.answers.tolist()


def test_progress_counts_shadow_devices(asked: tuple[AttackerView, Questions], spy: Spy) -> None:
    seen: list[int] = []
    validations(*asked, rounds=4, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == len(spy.jobs) == 4 * len(asked[0].prior_users)


def _with_rounds(view: AttackerView, rounds: int, index: pd.DataFrame) -> AttackerView:
    """The same view with another index of the store."""
    store = SimpleNamespace(rounds=rounds, index=index, layers=view.store.layers, sizes=view.store.sizes)
    return replace(view, store=cast(UpdateStore, store))


def test_a_store_of_one_round_cannot_be_validated_on(asked: tuple[AttackerView, Questions]) -> None:
    view, questions = asked
    with pytest.raises(FedprintError, match=r"needs two rounds, the store has 1; raise federation\.rounds"):
        _validations((_with_rounds(view, 1, view.store.index), questions))


def test_prior_updates_of_one_user_are_too_few(asked: tuple[AttackerView, Questions]) -> None:
    view, questions = asked
    index = view.store.index
    one = index[(index["role"] == "anonymous") | (index["user_id"] == 0)].reset_index(drop=True)
    with pytest.raises(FedprintError, match=r"fewer than two prior devices.*federation\.fraction"):
        attack_problem(_with_rounds(view, view.store.rounds, one), questions)


def test_shadow_updates_have_the_stores_layers(asked: tuple[AttackerView, Questions]) -> None:
    updates = _validations(asked, rounds=2)[0].problem.updates
    assert updates.sizes == asked[0].store.sizes
    values = next(iter(updates.blocks(["head"])))
    assert (np.abs(values).max(axis=1) > 0).all(), "a shadow device that does not learn"


def test_side_channels_of_shadow_devices_are_their_counts_and_the_history_of_the_prior_device(
    asked: tuple[AttackerView, Questions],
) -> None:
    view, _ = asked
    fold = _validations(asked, rounds=2)[0]
    sent, users = fold.problem.updates.sent, [user.user_id for user in view.prior_users]
    sizes = {user.user_id: len(user.examples["y"]) for user in view.prior_users}
    index = view.store.index
    for row, option in zip(fold.problem.fit, fold.problem.labels, strict=True):
        user = users[option]
        assert sent.examples[row] in (sizes[user] // 2, sizes[user] - sizes[user] // 2)
        own = index["round"][index["user_id"] == user]
        assert np.flatnonzero(sent.history[row]).tolist() == sorted(own)


def test_the_real_problem_fits_on_prior_rows_and_asks_for_anonymous_ones(
    asked: tuple[AttackerView, Questions],
) -> None:
    view, questions = asked
    problem = attack_problem(view, questions)
    index = view.store.index
    assert (index["role"].iloc[problem.fit] == "prior").all()
    assert (index["role"].iloc[problem.ask] == "anonymous").all()
    assert len(problem.fit) + len(problem.ask) == len(index)
    assert [questions.options[label] for label in problem.labels] == index["user_id"].iloc[problem.fit].tolist()


def test_the_question_is_asked_for_every_anonymous_update(asked: tuple[AttackerView, Questions]) -> None:
    view, questions = asked
    anonymous = view.store.index.iloc[view.anonymous_rows]
    assert ask_all(view.store, questions.options).subjects == tuple(map(str, anonymous["obs_id"]))
    assert anonymous["user_id"].isna().all()


def test_ap_in_validation_is_the_mean_over_users_with_questions() -> None:
    asked = Problem(updates=MemoryUpdates(sizes={"w": 1}, values=np.zeros((4, 1), np.float32)), fit=np.arange(2),
                    labels=np.arange(2), ask=np.arange(2, 4), options=3)  # fmt: skip
    folds = [Validation(problem=asked, answers=np.array(answers)) for answers in ([0, 1], [0, 0])]
    right, wrong = np.array([[2.0, 0, 0], [0, 2, 0]]), np.array([[0.0, 2, 0], [2, 0, 0]])
    np.testing.assert_array_equal(validation_ap([right, right], folds), [1, 1, np.nan])
    np.testing.assert_array_equal(validation_ap([wrong, wrong], folds), [0.75, 0.5, np.nan])
    with pytest.raises(FedprintError, match="NaN or infinity"):
        validation_ap([right, np.full((2, 3), np.nan)], folds)


def test_of_many_priors_some_validate(
    asked: tuple[AttackerView, Questions], spy: Spy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Problems are among those users alone, as if there were no others."""
    monkeypatch.setattr("fedprint.attacks.adversary.shadow_validation.VALIDATED", 3)
    view, _ = asked
    folds = _validations(asked)
    users = sorted(int(user) for user in spy.halves())
    ids = [user.user_id for user in view.prior_users]
    assert len(ids) > 3 and len(users) == 3 and (users[0], users[-1]) == (ids[0], ids[-1])
    for fold in folds:
        assert fold.problem.options == 3
        assert set(fold.problem.labels) == set(fold.answers) == {0, 1, 2}
