"""Who took part at all: members and others differ in nothing else, rehearsals tell how scores fall, signal shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from analysis_cases import answered
from scipy.stats import norm
from tiny_project import TINY, Project, make_project

from fedprint.analyses import membership
from fedprint.analyses.membership import Calibration, Membership, calibrated, sampling_rate, server_noise
from fedprint.analyses.participation import PENALTIES, explain
from fedprint.analyses.trials import AnswerSet, Trial
from fedprint.data.prepared import load_users
from fedprint.defences.clipping import MedianClip
from fedprint.defences.on_update import DpFedAvg
from fedprint.evaluation.judge import Setting, judge
from fedprint.federation.store import UpdateStore, read_truth
from fedprint.pipeline import recipes
from fedprint.pipeline.stages.attack import open_view
from fedprint.pipeline.stages.paths import Job
from fedprint.types import FedprintError, Measurement

HALF: dict[str, Any] = {
    **TINY,
    "data": {**TINY["data"], "users": 12},
    "federation": {**TINY["federation"], "absent": 0.5, "rounds": 10, "central_epochs": 0},
    "attacks": [{"name": "ridge", "most_blocks": 1}],
    "analyses": [{"name": "membership", "rounds": 6, "validation_rounds": 2}],
}


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Return a run in which half of the anonymous devices stayed away, ready to be analysed."""
    from fedprint.pipeline.stages import ask, attack, federate, prepare

    root = tmp_path_factory.mktemp("half")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPRINT_ROOT", str(root))
        project: Project = make_project(root)
        project.write("half", HALF)
        job = project.job("half")
        for stage in (prepare, federate, ask, attack):
            stage.run(job)
        yield job


@pytest.fixture(scope="module")
def trials(half: Job) -> tuple[list[Trial], dict[str, AnswerSet]]:
    return answered(half, half.analyses[0])


def measured(found: tuple[list[Trial], dict[str, AnswerSet]]) -> dict[tuple[Any, ...], Measurement]:
    made, answers = found
    return {
        (trial.keys["view"], trial.keys["attack"], one.metric): one
        for trial in made
        for one in judge(trial, answers[trial.questions], Setting(seed=0, resamples=200))
    }


# ---- the federation ------------------------------------------------------------------------------------------------


def test_half_of_the_anonymous_devices_stay_away_and_every_prior_device_takes_part(half: Job) -> None:
    store, truth = UpdateStore.open(half.paths.updates / "observed"), read_truth(half.paths.updates / "truth")
    private = load_users(half.paths.prepared / "private")
    absent = recipes.absent_users(private, 0.5, recipes.federation_seed(half.seed))
    senders = set(truth["device_id"])
    assert len(absent) == 6 and {user.user_id for user in private} > absent
    assert not {f"user-{user}-anonymous" for user in absent} & senders
    assert {user.user_id for user in private} == {int(name.split("-")[1]) for name in senders if "prior" in name}
    assert len(store.index) == half.config.federation.rounds * 9, "half of 12 + 6 devices a round"


def test_without_absent_users_there_is_nothing_to_ask(tiny_run: Job) -> None:
    with pytest.raises(FedprintError, match=r"every user took part; set federation\.absent"):
        answered(tiny_run, Membership())


# ---- the answers ---------------------------------------------------------------------------------------------------


def test_raw_updates_tell_members_and_every_view_is_measured(trials: Any) -> None:
    found = measured(trials)
    aucs = {key[:2]: one for key, one in found.items() if key[2] == "membership_auc"}
    assert set(aucs) == {
        ("local", "ridge"), ("aggregate", "candidates"), ("central", "candidates"), ("central", "loss"),
    }  # fmt: skip
    assert aucs["local", "ridge"].value > 0.8 and aucs["local", "ridge"].lo > 0.5
    assert all((one.chance, one.n_users) == (0.5, 12) and one.lo < one.value <= one.hi for one in aucs.values())
    named = {key[0]: one for key, one in found.items() if key[2] == "participation_ap"}
    assert set(named) == {"local", "aggregate", "central"}
    assert named["local"].value > 2 * (named["local"].chance or 1.0)
    assert all(one.n_questions == 6 * 12 for one in named.values())


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


# ---- rehearsals ----------------------------------------------------------------------------------------------------


def test_the_ratio_by_hand() -> None:
    found = Calibration(penalty=1.0, inside=(1.5, 0.6), outside=(-0.2, 0.8))
    scores = np.array([-1.0, 0.0, 2.0])
    spread = (0.5 * (0.6**2 + 0.8**2)) ** 0.5
    gain = norm.pdf(scores, 1.5, spread) / norm.pdf(scores, -0.2, spread)
    assert found.ratios(scores, 0.3) == pytest.approx(np.log(0.7 + 0.3 * gain))
    assert found.ratios(scores, 1.0) == pytest.approx(np.log(gain))
    assert (np.diff(found.ratios(np.linspace(-5, 5, 50), 0.3)) > 0).all()


def test_rehearsals_see_the_noise_of_the_server(half: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    view, _ = open_view(half, "naive")
    clean = calibrated(view, 2)
    assert clean["aggregate"] == clean["central"], "nothing is known of a noise"
    assert clean["aggregate"].separation > 0.2
    monkeypatch.setattr(membership, "server_noise", lambda view: 10.0)
    noisy = calibrated(view, 2)
    assert noisy["aggregate"] == clean["aggregate"]
    assert noisy["central"].separation < 0.5 * clean["central"].separation


def test_the_chosen_penalty_separates_best() -> None:
    rng = np.random.default_rng(1)
    inside = rng.random(400) < 0.3
    scores = {
        ("central", p): [rng.normal(size=400) + inside * gain] for p, gain in zip(PENALTIES, (1, 3, 2, 0), strict=True)
    }
    found = membership._best("central", scores, inside)  # type: ignore[arg-type]
    assert found.penalty == PENALTIES[1] and found.separation == pytest.approx(3, abs=0.5)


def test_what_is_public_of_the_mechanism() -> None:
    def view(*defences: Any) -> Any:
        return SimpleNamespace(
            defences=defences or None,
            store=SimpleNamespace(index=pd.DataFrame({"round": [0, 0, 1, 1, 1, 2]}), rounds=3),
            prior_users=(None,) * 5,
        )

    assert sampling_rate(view()) == pytest.approx(0.2)
    assert server_noise(view()) == 0
    assert server_noise(view(DpFedAvg(clip=2.0, z=1.5))) == 3.0
    assert server_noise(view(DpFedAvg(clip=MedianClip(), z=1.5))) == 0


def test_members_add_up_over_rounds() -> None:
    """Someone who is a little likelier in every round stands out in the end, which one round does not show."""
    rng = np.random.default_rng(2)
    candidates, members = rng.normal(size=(40, 300)), np.arange(40) < 20
    found = Calibration(penalty=10.0, inside=(1.0, 1.0), outside=(0.0, 1.0))
    by_round = []
    for _ in range(30):
        there = members & (rng.random(40) < 0.3)
        rest = candidates[there].sum(0) + 15 * rng.normal(size=300)
        by_round.append(explain(rest, candidates, found.penalty))
    ratios = found.ratios(np.stack(by_round), 0.3)
    totals = ratios.sum(0)
    wins = (totals[members][:, None] > totals[~members]).mean()
    single = np.mean([(row[members][:, None] > row[~members]).mean() for row in ratios])
    assert wins > 0.8 > single + 0.1
