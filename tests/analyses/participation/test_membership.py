"""Membership: members and others differ in nothing else, simulated cohorts show the scores, a signal is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from analysis_cases import answered
from scipy.stats import norm
from tiny_project import TINY, Project, project_in

from fedprint.analyses.participation import membership, sums
from fedprint.analyses.participation.membership import Membership
from fedprint.analyses.participation.sums import (
    PENALTIES,
    Calibration,
    Candidates,
    Level,
    best_calibration,
    calibrated,
    candidates_in,
    level,
    rests,
    shared_directions,
)
from fedprint.analyses.trials import AnswerSet, Trial
from fedprint.attacks.view import ServerRule
from fedprint.data.prepared import load_users
from fedprint.evaluation.judge import Setting, judge
from fedprint.kinds.federation.building import federation as build
from fedprint.kinds.federation.building.view import open_view
from fedprint.kinds.federation.stages.ask import facts_of
from fedprint.lab.graph import Task
from fedprint.store.index import read_truth
from fedprint.store.reader import UpdateStore
from fedprint.types import FedprintError, Measurement

HALF: dict[str, Any] = {
    **TINY,
    "data": {**TINY["data"], "users": 12},
    "federation": {**TINY["federation"], "absent": 0.5, "rounds": 10, "central_epochs": 0},
    "attacks": [{"name": "ridge", "most_blocks": 1}],
    "analyses": [{"name": "membership", "rounds": 6, "validation_rounds": 2}],
}


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Task]:
    """Return a run in which half of the anonymous devices stayed away, ready to be analysed."""
    with project_in(tmp_path_factory.mktemp("half")) as project:
        yield project.run("half", HALF, until="attack")


@pytest.fixture(scope="module")
def trials(half: Task) -> tuple[list[Trial], dict[str, AnswerSet]]:
    return answered(half, half.config.analyses[0])


def measured(found: tuple[list[Trial], dict[str, AnswerSet]]) -> dict[tuple[Any, ...], Measurement]:
    made, answers = found
    return {
        (trial.keys["view"], trial.keys["attack"], one.metric): one
        for trial in made
        for one in judge(trial, answers[trial.questions], Setting(seed=0, resamples=200))
    }


# ---- the federation ------------------------------------------------------------------------------------------------


def test_half_of_the_anonymous_devices_stay_away_and_every_prior_device_takes_part(half: Task) -> None:
    store, truth = UpdateStore.open(half.at("observed")), read_truth(half.at("truth"))
    private = load_users(half.at("private"))
    absent = build.absent_users(private, 0.5, build.federation_seed(half.seed))
    senders = set(truth["device_id"])
    assert len(absent) == 6 and {user.user_id for user in private} > absent
    assert not {f"user-{user}-anonymous" for user in absent} & senders
    assert {user.user_id for user in private} == {int(name.split("-")[1]) for name in senders if "prior" in name}
    assert len(store.index) == half.config.federation.rounds * 9, "half of 12 + 6 devices a round"


def test_without_absent_users_there_is_nothing_to_ask(tiny_run: Task) -> None:
    with pytest.raises(FedprintError, match=r"every user took part; set federation\.absent"):
        answered(tiny_run, Membership())


# ---- the answers ---------------------------------------------------------------------------------------------------


def test_raw_updates_tell_members_and_every_view_is_measured(trials: Any) -> None:
    found = measured(trials)
    aucs = {key[:2]: one for key, one in found.items() if key[2] == "membership_auc"}
    assert set(aucs) == {
        ("local", "ridge"), ("aggregate", "candidates"), ("central", "candidates"), ("central", "loss"),
        ("aggregate", "known-data"), ("central", "known-data"),
    }  # fmt: skip
    assert aucs["local", "ridge"].value > 0.8 and aucs["local", "ridge"].lo > 0.5
    assert all((one.chance, one.n_users) == (0.5, 12) and one.lo < one.value <= one.hi for one in aucs.values())
    named = {key[0]: one for key, one in found.items() if key[2] == "participation_ap"}
    assert set(named) == {"local", "aggregate", "central"}
    assert named["local"].value > 2 * (named["local"].chance or 1.0)
    assert all(one.n_questions == 6 * 12 for one in named.values())


def test_who_has_the_devices_own_data_tells_members_better_than_who_has_the_prior(trials: Any) -> None:
    found = measured(trials)
    aps, aucs = (
        {key[:2]: one.value for key, one in found.items() if key[2] == metric and key[0] != "local"}
        for metric in ("participation_ap", "membership_auc")
    )
    for view in ("aggregate", "central"):
        assert aps[view, "known-data"] > aps[view, "candidates"] + 0.1, (aps, aucs)
        assert aucs[view, "known-data"] > 0.85


def test_the_questions_hold_the_data_of_members_and_others_alike_and_only_where_wanted(half: Task) -> None:
    facts = facts_of(half)
    (asked, answers), _ = Membership().ask(facts)
    held = {user.user_id: user.examples for user in facts.private}
    assert (
        set(asked.facts) == {"owner", "x", "y"}
        and set(asked.facts["owner"]) == set(held)
        and set(answers.answers) == {0, 1}
    )
    for user, examples in held.items():
        rows = asked.facts["owner"] == user
        assert np.array_equal(asked.facts["x"][rows], examples["x"]) and np.array_equal(
            asked.facts["y"][rows], examples["y"]
        )
    assert not next(iter(Membership(knows=("prior",)).ask(facts)))[0].facts


def test_a_simulated_cohort_with_known_data_has_batches_in_another_order(
    half: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same order simulated members would be recognised exactly, unlike real ones."""
    view, _ = open_view(half, "naive")
    made: list[np.ndarray] = []
    updates = sums._updates

    def spy(*arguments: Any) -> np.ndarray:
        made.append(updates(*arguments))
        return made[-1]

    monkeypatch.setattr(sums, "_updates", spy)
    found = calibrated(view, 1, at := [Level(rate=0.5, members=3.0, noise=0.0)], known=True)[at[0]]
    first, second = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in made[:2])
    alike = (first * second).sum(1)
    assert alike.max() < 0.9999 and alike.min() > 0.5
    assert found.separation > calibrated(view, 1, at)[at[0]].separation


def test_without_noise_released_models_show_what_sums_show(trials: Any) -> None:
    made, _ = trials
    scores = {(t.keys["view"], t.questions): t.scores[:, 0] for t in made if t.keys["attack"] == "candidates"}
    for questions in (membership.USERS, membership.ROUNDS):
        assert np.corrcoef(scores["aggregate", questions], scores["central", questions])[0, 1] > 0.99


def test_exchanged_answers_are_at_chance(trials: Any) -> None:
    made, answers = trials
    asked = answers[membership.USERS]
    rng, values = np.random.default_rng(0), []
    trial = next(t for t in made if t.keys["view"] == "local" and t.questions == membership.USERS)
    for _ in range(15):
        exchanged = replace(asked, answers=rng.permutation(asked.answers))
        values.append(judge(trial, exchanged, Setting(seed=0, resamples=200))[0].value)
    assert abs(np.mean(values) - 0.5) < 0.15


# ---- simulated cohorts ---------------------------------------------------------------------------------------------


def test_the_ratio_by_hand() -> None:
    found = Calibration(penalty=1.0, inside=(1.5, 0.6), outside=(-0.2, 0.8))
    scores = np.array([-1.0, 0.0, 2.0])
    spread = (0.5 * (0.6**2 + 0.8**2)) ** 0.5
    gain = norm.pdf(scores, 1.5, spread) / norm.pdf(scores, -0.2, spread)
    assert found.ratios(scores[:, None], 0.3) == pytest.approx(np.log(0.7 + 0.3 * gain))
    assert found.ratios(scores[:, None], 1.0) == pytest.approx(np.log(gain))
    assert (np.diff(found.ratios(np.linspace(-5, 5, 50)[:, None], 0.3)) > 0).all()
    assert found.ratios(scores, 0.3) == pytest.approx(np.log(0.7 + 0.3 * gain.mean())), "in one of three groups"


def test_where_simulated_members_scored_lower_all_ratios_are_zero() -> None:
    """Otherwise a high score would speak against a member, and the answer turn round."""
    rng = np.random.default_rng(4)
    inside = rng.random(400) < 0.3
    reversed_ = {p: [rng.normal(size=400) - 2 * inside] for p in PENALTIES}
    found = best_calibration(reversed_, inside)
    assert found.separation < 0
    assert not found.ratios(np.linspace(-5, 5, 50)[:, None], 0.3).any()
    assert found.ratios(np.ones((3, 2)), 1.0).tolist() == [0, 0, 0]


def test_simulated_cohorts_have_the_noise_and_the_size_of_every_sum(half: Task) -> None:
    view, _ = open_view(half, "naive")
    clean = Level(rate=0.5, members=3.0, noise=0.0)
    noisy, whole = replace(clean, noise=10.0), replace(clean, members=6.0)
    found = calibrated(view, 10, [clean, noisy, whole])
    assert found[clean].separation > 0.2
    assert found[noisy].separation < 0.5 * found[clean].separation
    assert found[whole].inside != pytest.approx(found[clean].inside), "larger cohorts"
    assert calibrated(view, 10, [clean])[clean].inside == pytest.approx(found[clean].inside)


def test_simulated_sums_weigh_devices_as_the_server_does(half: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are weighted by examples, a user with many times as many is alone in every sum that holds it."""
    view, _ = open_view(half, "naive")
    seen: list[np.ndarray] = []
    explain = Candidates.explain

    def spy(self: Candidates, rest: np.ndarray, penalty: float) -> np.ndarray:
        seen.append(rest)
        return explain(self, rest, penalty)

    monkeypatch.setattr(Candidates, "explain", spy)
    at = Level(rate=0.5, members=6.0, noise=0.0)
    calibrated(view, 1, [at])
    calibrated(replace(view, rule=replace(view.rule, equal=True)), 1, [at])
    weighted, plain = (np.linalg.norm(rest) for rest in (seen[0], seen[len(seen) // 2]))
    examples = np.mean([len(user.examples["y"]) / 2 for user in view.prior_users])
    assert weighted / plain == pytest.approx(examples, rel=0.4)


def test_a_level_is_of_the_anonymous_devices_that_may_come() -> None:
    """Of 120 devices a quarter comes: of 40 anonymous ones 10, though 80 users are asked about."""
    rule = ServerRule(equal=True, devices=120, rates=(0.25,), noise=(2.0,))
    view: Any = SimpleNamespace(rule=rule, defences=("dp-fedavg",), prior_users=range(80))
    assert level(view, 0, "central") == Level(rate=0.25, members=10.0, noise=2.0)
    assert level(view, 0, "aggregate") == Level(rate=0.25, members=10.0, noise=0.0), "sums are seen before the noise"
    assert level(view, 0, "aggregate", groups=4).members == 2.5


def test_the_chosen_penalty_separates_best() -> None:
    rng = np.random.default_rng(1)
    inside = rng.random(400) < 0.3
    scores = {p: [rng.normal(size=400) + inside * gain] for p, gain in zip(PENALTIES, (1, 3, 2, 0), strict=True)}
    found = best_calibration(scores, inside)
    assert found.penalty == PENALTIES[1] and found.separation == pytest.approx(3, abs=0.5)


def test_who_stays_away_is_not_counted_when_a_sum_is_read_off_the_models(project: Project) -> None:
    """Under Poisson sampling the server divides by the planned cohort, of the devices that may come."""
    dp = {"name": "dp-fedavg", "clip": 100.0, "z": 1e-9}
    poisson = {**HALF["federation"], "sampling": "poisson"}
    job = project.run("dp", {**HALF, "federation": poisson, "defences": [dp]}, until="ask")
    view, _ = open_view(job, "adaptive")
    assert view.rule.divisors == (9.0,) * 10 and level(view, 3, "central").noise == 100.0 * 1e-9
    found = [rests(view, t) for t in range(10)]
    errors = [np.linalg.norm(rest["central"] - rest["aggregate"]) for rest in found]
    sums = [np.linalg.norm(rest["aggregate"]) for rest in found]
    assert max(errors) < 0.01 * np.mean(sums), "but for float16 in the records"


def test_only_who_knows_of_the_defence_knows_its_noise() -> None:
    rule = ServerRule(equal=True, devices=20, rates=(0.2, 0.3), noise=(1.0, 2.0))
    naive, adaptive = (
        SimpleNamespace(rule=rule, defences=defences, prior_users=range(10)) for defences in (None, ("dp-fedavg",))
    )
    assert level(naive, 1, "central").noise == 0.0  # type: ignore[arg-type]
    assert level(adaptive, 1, "central").noise == 2.0  # type: ignore[arg-type]


def test_rounds_count_by_their_own_noise(half: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where half of the rounds drown in noise, their scores have nothing to say, and the ratios know it."""
    view, _ = open_view(half, "adaptive")
    asked: list[Level] = []

    def seen(view: Any, rounds: int, levels: Any, known: bool) -> Any:
        asked.extend(levels)
        plain = Calibration(penalty=1.0, inside=(1.0, 1.0), outside=(0.0, 1.0))
        mute = Calibration(penalty=1.0, inside=(0.0, 1.0), outside=(0.0, 1.0))
        return {at: mute if at.noise > 5 else plain for at in levels}

    rule = replace(view.rule, noise=tuple(0.1 if t < 5 else 10.0 for t in range(10)))
    monkeypatch.setattr(membership, "calibrated", seen)
    monkeypatch.setattr(membership, "from_updates", lambda *a: (np.zeros((2, 12)), np.zeros(12)))
    found = Membership(knows=("prior",))
    desk: Any = SimpleNamespace(
        view=replace(view, rule=rule, defences=()), selected="ridge", progress=lambda note: None
    )
    users = np.array(sorted(user.user_id for user in view.prior_users))
    scores = {name: (by_round, total) for _, name, by_round, total in found._scores(desk, [1, 8], users)}
    assert [at.noise for at in asked] == [0.0, 0.1, 10.0]
    by_round, total = scores["central"]
    plain = Calibration(penalty=1.0, inside=(1.0, 1.0), outside=(0.0, 1.0))
    assert total == pytest.approx(plain.ratios(by_round[0][:, None], 0.5)), "round 8 adds nothing"


def test_a_member_is_in_one_of_the_sums_of_groups(half: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scored by the sum where it is highest, with cohorts of the same size, and by the mean likelihood over sums."""
    view, _ = open_view(half, "adaptive")
    cut: list[np.ndarray] = []

    def groups(view: Any, t: int) -> Any:
        index = view.store.index
        rows = np.flatnonzero(((index["round"] == t) & (index["role"] == "anonymous")).to_numpy())
        updates = view.store.matrix(rows=rows, dtype=np.float64)
        cut.append(np.stack([part.sum(0) for part in np.array_split(updates, 2)], axis=1))
        return {"aggregate": cut[-1], "central": rests(view, t)["central"][:, None]}

    seen: list[Level] = []

    def calibrations(view: Any, rounds: int, levels: Any, known: bool) -> Any:
        seen.extend(levels)
        return {at: Calibration(penalty=1.0, inside=(1.0, 1.0), outside=(0.0, 1.0)) for at in levels}

    monkeypatch.setattr(membership, "sums", groups)
    monkeypatch.setattr(membership, "calibrated", calibrations)
    monkeypatch.setattr(membership, "from_updates", lambda *a: (np.zeros((1, 12)), np.zeros(12)))
    desk: Any = SimpleNamespace(view=view, selected="ridge", progress=lambda note: None)
    users = np.array(sorted(user.user_id for user in view.prior_users))
    found = Membership(knows=("prior",))
    scores = {name: (by_round, total) for _, name, by_round, total in found._scores(desk, [4], users)}
    whole, half_sum = (next(at for at in seen if at.members == m) for m in sorted({at.members for at in seen})[::-1])
    assert half_sum.members == whole.members / 2
    each = candidates_in(view, 4, shared_directions(view, 4)).explain(cut[0], 1.0)
    columns = [[user.user_id for user in view.prior_users].index(user) for user in users]
    assert scores["aggregate"][0][0] == pytest.approx(each[columns].max(1))
    plain = Calibration(penalty=1.0, inside=(1.0, 1.0), outside=(0.0, 1.0))
    assert scores["aggregate"][1] == pytest.approx(plain.ratios(each[columns], half_sum.rate))


def test_members_add_up_over_rounds() -> None:
    """A user that is a little likelier in every round has a high score in the end; a single round does not show it."""
    rng = np.random.default_rng(2)
    candidates, members = rng.normal(size=(40, 300)), np.arange(40) < 20
    found = Calibration(penalty=10.0, inside=(1.0, 1.0), outside=(0.0, 1.0))
    by_round = []
    for _ in range(30):
        there = members & (rng.random(40) < 0.3)
        rest = candidates[there].sum(0) + 15 * rng.normal(size=300)
        by_round.append(Candidates.of(candidates).explain(rest, found.penalty))
    ratios = found.ratios(np.stack(by_round)[:, :, None], 0.3)
    totals = ratios.sum(0)
    wins = (totals[members][:, None] > totals[~members]).mean()
    single = np.mean([(row[members][:, None] > row[~members]).mean() for row in ratios])
    assert wins > 0.8 > single + 0.1
