"""What adversaries learn from: shapes, shares, fresh randomness, and the choice among training mixes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attack_cases import planted, problem, validation
from numpy.typing import NDArray
from tiny_project import TINY, Project, project_in

from fedprint.attacks.adversary import adversaries as adversary
from fedprint.attacks.adversary.adversaries import (
    NAIVE,
    TRUST,
    Choice,
    Effort,
    TrainedShadows,
    TrainingMix,
    choose,
    distinct,
    train_shadows,
    training_mixes,
)
from fedprint.attacks.adversary.shadow_devices import ShadowDevice, shadow_updates
from fedprint.attacks.adversary.shadow_validation import CLEAN
from fedprint.attacks.adversary.shadow_validation import DEFENDED as DEFENDED_DEVICE
from fedprint.attacks.problem import Problem
from fedprint.attacks.reidentification.presets import Knn
from fedprint.attacks.reidentification.reidentify import answer, tune
from fedprint.attacks.reidentification.ridge import Ridge
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.attacks.view import AttackerView
from fedprint.defences.clipping import MedianClip, QuantileClip
from fedprint.defences.on_update import DpFedAvg
from fedprint.federation import backends
from fedprint.federation.backends import Threaded
from fedprint.kinds.federation.building.effort import effort_of
from fedprint.kinds.federation.building.view import open_view
from fedprint.kinds.federation.config import ThreatConfig
from fedprint.lab.graph import Task
from fedprint.rng import torch_rng
from fedprint.types import ClientJob, FedprintError, Questions

EFFORT = Effort(clean_rounds=4, defended_rounds=3, draws=2, validation_rounds=4)
DEFENDED: dict[str, Any] = {
    **TINY,
    "analyses": [],
    "defences": [{"name": "mm-aug", "alpha": 1, "clusters": 4}, {"name": "noise", "sigma": 1e-3}],
}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Task]:
    """Return a defended federation."""
    with project_in(tmp_path_factory.mktemp("adversary")) as project:
        yield project.run("defended", DEFENDED, until="ask")


@pytest.fixture(scope="module")
def asked(job: Task) -> tuple[AttackerView, Questions]:
    return open_view(job, "adaptive")


@pytest.fixture(scope="module")
def devices(asked: tuple[AttackerView, Questions]) -> TrainedShadows:
    return train_shadows(*asked, EFFORT)


@pytest.fixture(scope="module")
def adaptive(asked: tuple[AttackerView, Questions], devices: TrainedShadows) -> tuple[TrainingMix, ...]:
    return training_mixes("adaptive", *asked, devices)


def test_the_naive_view_does_not_hold_the_defences(job: Task) -> None:
    assert open_view(job, "naive")[0].defences is None
    assert open_view(job, "adaptive")[0].defences == job.config.defences


def test_an_adaptive_adversary_without_defences_to_know_is_refused(job: Task, devices: TrainedShadows) -> None:
    with pytest.raises(FedprintError, match="adversaries"):
        training_mixes("adaptive", *open_view(job, "naive"), devices)


def test_naive_learns_from_recorded_updates_only_where_these_are_clean(job: Task, devices: TrainedShadows) -> None:
    view, questions = open_view(job, "naive")
    (recorded,) = training_mixes("naive", view, questions, replace(devices, real=None, recorded=True))
    (clean,) = training_mixes("naive", view, questions, devices)
    assert recorded.problem.fit.tolist() == view.prior_rows.tolist()
    assert len(clean.problem.fit) == EFFORT.clean_rounds * len(view.prior_users)
    assert len(clean.problem.ask) == len(recorded.problem.ask) == len(view.anonymous_rows)


def test_all_adversaries_ask_on_one_table_of_updates(
    job: Task, devices: TrainedShadows, adaptive: tuple[TrainingMix, ...]
) -> None:
    (naive,) = training_mixes("naive", *open_view(job, "naive"), devices)
    assert {id(mix.problem.updates) for mix in adaptive} == {id(naive.problem.updates)}


def test_half_of_the_effort_is_every_second_global_model(
    devices: TrainedShadows, adaptive: tuple[TrainingMix, ...]
) -> None:
    assert devices.real is not None
    shadows, spare = devices.real.shadows, devices.real.spare()
    rounds = shadows.updates.sent.rounds
    for kind, models in ((CLEAN, EFFORT.clean_rounds), (DEFENDED_DEVICE, EFFORT.defended_rounds)):
        rows = shadows.rows((kind,))
        left = np.setdiff1d(rows, spare)
        assert len(np.unique(rounds[left])) == (models + 1) // 2
        assert not set(rounds[left]) & set(rounds[np.intersect1d(rows, spare)])
        assert set(shadows.labels[left]) == set(shadows.labels[rows]), "of every user"
    for mix in adaptive:
        half = mix.problem.without(spare)
        assert not set(half.fit) & set(spare) and set(mix.problem.fit) - set(half.fit) <= set(spare)
        label = dict(zip(mix.problem.fit, mix.problem.labels, strict=True))
        assert half.labels.tolist() == [label[row] for row in half.fit]


def test_what_the_naive_adversary_learns_does_not_depend_on_the_other_ones_devices(
    job: Task, devices: TrainedShadows
) -> None:
    view, questions = open_view(job, "naive")
    alone = train_shadows(view, questions, replace(EFFORT, draws=0))
    (shared,), (own,) = (training_mixes("naive", view, questions, made) for made in (devices, alone))
    for a, b in zip([shared.problem, *_problems(shared)], [own.problem, *_problems(own)], strict=True):
        for mine, theirs, labels in ((a.fit, b.fit, (a.labels, b.labels)), (a.ask, b.ask, ((), ()))):
            assert np.array_equal(_table(a)[mine], _table(b)[theirs])
            assert np.array_equal(*labels)


def _problems(mix: TrainingMix) -> list[Problem]:
    return [fold.problem for fold in mix.folds]


def _table(asked: Problem) -> NDArray[np.floating]:
    return np.concatenate(list(asked.updates.blocks()), axis=1)


def test_defences_of_the_update_alone_need_no_training_of_their_own(
    asked: tuple[AttackerView, Questions], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = replace(asked[0], defences=asked[0].defences[1:] if asked[0].defences else None)
    user = view.prior_users[0]
    clean = ShadowDevice(user_id=user.user_id, examples=user.examples, round=1, tag="a")
    noisy = replace(clean, defended=True)
    plan = [clean, noisy, replace(noisy, tag="b"), replace(clean, round=2)]
    apart = np.concatenate([shadow_updates(view, [device]).values for device in plan])
    trained: list[int] = []
    run = Threaded.run

    def counted(self: Threaded, jobs: Sequence[ClientJob], *rest: Any) -> Any:
        trained.append(len(jobs))
        return run(self, jobs, *rest)

    monkeypatch.setattr(Threaded, "run", counted)
    assert np.array_equal(shadow_updates(view, plan).values, apart)
    assert sum(trained) == 2
    assert np.abs(apart[0] - apart[1]).max() > 0 and np.abs(apart[1] - apart[2]).max() > 0


def test_every_mix_is_validated_on_the_same_defended_devices(adaptive: tuple[TrainingMix, ...]) -> None:
    users = len(set(adaptive[0].problem.labels))
    clean, defended = EFFORT.clean_rounds, EFFORT.defended_rounds * EFFORT.draws
    shares = {NAIVE: clean, "clean": clean, "defended": defended, "both": clean + defended}
    assert [mix.name for mix in adaptive] == list(shares)
    for mix in adaptive:
        assert len(mix.problem.fit) == users * shares[mix.name]
        for fold, first in zip(mix.comparison, adaptive[1].folds, strict=True):
            assert fold.problem.ask.tolist() == first.problem.ask.tolist()
            assert len(fold.answers) == users * EFFORT.draws * EFFORT.validation_rounds // 2
            assert not set(fold.problem.fit) & set(fold.problem.ask)
            assert not set(fold.problem.nuisance) & {*fold.problem.fit, *fold.problem.ask}
            assert len(fold.problem.nuisance) == 4 * adversary.NUISANCE_ROUNDS


def test_the_real_problem_asks_for_the_recorded_anonymous_updates(
    asked: tuple[AttackerView, Questions], adaptive: tuple[TrainingMix, ...]
) -> None:
    view = asked[0]
    for mix in adaptive:
        table = np.concatenate(list(mix.problem.updates.blocks()), axis=1)[mix.problem.ask]
        stored = np.concatenate(list(view.store.blocks(rows=view.anonymous_rows)), axis=1)
        assert np.array_equal(table, stored.astype(table.dtype))


def test_defended_draws_differ_from_each_other_and_from_the_clean_device(
    asked: tuple[AttackerView, Questions],
) -> None:
    view = asked[0]
    user = view.prior_users[0]
    device = ShadowDevice(user_id=user.user_id, examples=user.examples, round=1, tag="a")
    defended = replace(device, defended=True)
    made = shadow_updates(view, [device, defended, replace(defended, tag="b"), defended]).values
    assert np.array_equal(made[1], made[3])
    for i, j in ((0, 1), (1, 2), (0, 2)):
        assert np.abs(made[i] - made[j]).max() > 1e-4


@pytest.mark.parametrize("rule", [MedianClip(), QuantileClip(start=5.0)])
def test_devices_off_line_clip_at_the_norm_that_the_server_announced(
    asked: tuple[AttackerView, Questions], rule: MedianClip | QuantileClip
) -> None:
    norms = tuple(0.01 * (t + 1) for t in range(asked[0].store.rounds))
    view = replace(asked[0], defences=(DpFedAvg(clip=rule, z=1.0),), rule=replace(asked[0].rule, norms=norms))
    user = view.prior_users[0]
    plan = [
        ShadowDevice(user_id=user.user_id, examples=user.examples, round=t, defended=True) for t in range(len(norms))
    ]
    made = np.linalg.norm(shadow_updates(view, plan).values, axis=1)
    plain = np.linalg.norm(shadow_updates(view, [replace(d, defended=False) for d in plan]).values, axis=1)
    assert (plain > norms).any(), "some have to be clipped"
    np.testing.assert_allclose(made, np.minimum(plain, norms), rtol=1e-4)


def test_shadow_randomness_is_not_the_federations(asked: tuple[AttackerView, Questions], job: Task) -> None:
    """Under the very name of a real device the adversary's draw is another one: it knows no seed of the federation."""
    view = asked[0]
    user = view.prior_users[0]
    row = next(i for i in view.prior_rows if int(view.store.index["user_id"].iloc[i]) == user.user_id)
    t = int(view.store.index["round"].iloc[row])
    device = ShadowDevice(user_id=user.user_id, examples=user.examples, round=t, tag="x", defended=True)
    made = shadow_updates(view, [device]).values[0]
    real = np.concatenate(list(view.store.blocks(rows=np.array([row]))), axis=1)[0]
    assert np.abs(made - real).max() > 1e-4


def test_the_adaptive_adversary_may_answer_exactly_as_the_naive_one(
    job: Task, devices: TrainedShadows, adaptive: tuple[TrainingMix, ...]
) -> None:
    (naive,) = training_mixes("naive", *open_view(job, "naive"), devices)
    first, work = adaptive[0], Workspace()
    assert first.compared[0].problem.ask.tolist() != first.folds[0].problem.ask.tolist()
    answers = [
        answer(Ridge(), mix.problem, tune(Ridge(), mix.folds, work, torch_rng(0, "t")), work, torch_rng(0, "a")).scores
        for mix in (naive, first)
    ]
    assert np.array_equal(*answers)


def made(name: str, signal: float, **changes: Any) -> TrainingMix:
    """Return a mix with a signal in validation."""
    asked = replace(problem(planted(signal)), **changes)
    folds = tuple(replace(fold, problem=replace(fold.problem, **changes)) for fold in validation(signal))
    return TrainingMix(name=name, problem=asked, folds=folds)


def misled(signal: float) -> TrainingMix:
    """Return a mix whose settings were chosen elsewhere, and which is sure of wrong answers where it is compared."""
    found = made("misled", signal)
    wrong = (replace(f.problem, labels=(f.problem.labels + 1) % f.problem.options) for f in found.folds)
    return replace(found, compared=tuple(replace(f, problem=p) for f, p in zip(found.folds, wrong, strict=True)))


def test_all_mixes_are_used_and_weighted_by_their_validation() -> None:
    weak, strong = made("weak", 0.3), made("strong", 2.0)
    chosen = choose((weak, misled(2.0), strong), Workspace(), torch_rng(0, "t"))
    names = [mix.name for mix in chosen.mixes]
    assert names == ["weak", "misled", "misled, by AP", "strong", "strong, by AP"]
    assert [{fold.by for fold in mix.folds} for mix in chosen.mixes[-2:]] == [{"log-loss"}, {"ap"}]
    assert chosen.name in {"strong + 4 more", "strong, by AP + 4 more"}
    aps = np.array([chosen.aps[name] for name in names])
    np.testing.assert_allclose(chosen.weights, aps**TRUST / (aps**TRUST).sum())
    assert max(chosen.weights[1:3]) < 0.01 < chosen.weights[0] < min(chosen.weights[3:])
    assert choose((weak,), Workspace(), torch_rng(0, "t")).weights == (1,)


def test_mixes_that_are_the_same_to_an_attack_are_used_once() -> None:
    mix = made("by log-loss", 0.3, nuisance=np.arange(5, dtype=np.int64))
    by_ap = replace(mix, name="by AP", folds=tuple(replace(fold, by="ap") for fold in mix.folds))
    elsewhere = replace(mix, name="elsewhere", folds=mix.folds[:1])
    asked = (mix, by_ap, mix.without("match"), elsewhere)
    choice, work = Choice(mixes=asked, weights=(0.4, 0.2, 0.1, 0.3), aps={}), Workspace()
    preset = distinct(choice, Knn(), work)
    assert [one.name for one in preset.mixes] == ["by log-loss", "elsewhere"]
    assert preset.weights == pytest.approx((0.7, 0.3))
    assert work.settings(Ridge(), mix.folds) != work.settings(Ridge(), by_ap.folds), "else the next line shows nothing"
    assert distinct(choice, Ridge(), work).mixes == asked
    twice = replace(choice, mixes=(mix, mix, by_ap, elsewhere))
    assert distinct(twice, Ridge(), work).weights == pytest.approx((0.6, 0.1, 0.3))


def test_denoising_is_tried_on_each_mix_where_there_is_something_to_remove() -> None:
    first, plain = made("first", 0.2), made("plain", 1.0)
    assert set(choose((first, plain), Workspace(), torch_rng(0, "t")).aps) == {"first", "plain", "plain, by AP"}
    rows = np.arange(5, dtype=np.int64)
    noisy = made("noisy", 1.0, nuisance=rows)
    found = choose((first, noisy, made("other", 0.2, nuisance=rows)), Workspace(), torch_rng(0, "t"))
    ways = {kind: {f"{kind}{how}" for how in ("", ", project", ", match")} for kind in ("noisy", "other")}
    best, by_ap = [mix.name for mix in found.mixes[1::2]], [mix.name for mix in found.mixes[2::2]]
    assert set(found.aps) == {"first", *by_ap} | ways["noisy"] | ways["other"]
    for name in best:
        assert found.aps[name] == max(found.aps[way] for way in ways[name.partition(",")[0]])
    assert by_ap == [f"{name}, by AP" for name in best], "settings by AP follow: to choose both by it would be luck"


def test_the_naive_adversary_trains_as_many_devices_as_the_adaptive_one(job: Task) -> None:
    knowing, naive = (
        effort_of(
            job.config.model_copy(update={"threat": job.config.threat.model_copy(update={"adversaries": names})}), 99
        )
        for names in (("naive", "adaptive"), ("naive",))
    )
    threat = job.config.threat
    assert (
        naive.clean_rounds
        == knowing.clean_rounds
        == naive.whole(99)
        == threat.shadow_rounds * (1 + threat.shadow_draws)
    )
    assert knowing.whole(99) - knowing.clean_rounds == threat.shadow_rounds * threat.shadow_draws


def test_without_a_defence_both_adversaries_learn_from_the_same_clean_shadow_devices(project: Project) -> None:
    plain = {**TINY, "analyses": [], "threat": {"learn_from": "offline", "shadow_rounds": 2, "shadow_draws": 1}}
    found = project.run("plain", plain, until="attack")
    effort = effort_of(found.config, 99)
    assert effort.draws == 0 and effort.clean_rounds == effort.whole(99) == 4
    (naive,), (first, clean) = (
        training_mixes(name, *open_view(found, name), train_shadows(*open_view(found, "adaptive"), effort))
        for name in ("naive", "adaptive")
    )  # fmt: skip
    assert [first.name, clean.name] == [NAIVE, "clean"]
    for mix in (first, clean):
        for mine, theirs in zip([mix.problem, *_problems(mix)], [naive.problem, *_problems(naive)], strict=True):
            assert mine.fit.tolist() == theirs.fit.tolist() and mine.ask.tolist() == theirs.ask.tolist()
    learnt = json.loads((found.at("attack") / "adaptive" / "attack.json").read_text())
    assert set(learnt["recipe_weights"]) == {NAIVE, "clean", "clean, by AP"}
    recorded = found.config.model_copy(update={"threat": ThreatConfig()})
    assert recorded.adversaries == ("naive",), "from recorded updates there is one training mix"


def test_effort_counts_the_devices_that_are_trained(asked: tuple[AttackerView, Questions], tmp_path: Path) -> None:
    done: list[int] = []
    train_shadows(*asked, EFFORT, progress=done.append)
    assert max(done) == EFFORT.devices(asked[0])
    few = replace(EFFORT, clean_rounds=0)
    made = train_shadows(*asked, few)
    assert made.real is None
    assert len(made.halves.labels) == few.devices(asked[0])


def test_devices_off_line_have_a_secret_head_of_their_own_where_the_defence_is_one(project: Project) -> None:
    spn = [{"name": "spn", "bits": 8, "alpha2": 0.5}]
    found = project.run("secret", {**DEFENDED, "defences": spn}, until="ask")
    view, questions = open_view(found, "adaptive")
    user = view.prior_users[0]
    clean = ShadowDevice(user_id=user.user_id, examples=user.examples, round=1, tag="a")
    kept = replace(clean, defended=True)
    made = shadow_updates(view, [clean, kept, replace(kept, tag="b"), kept]).values
    assert np.array_equal(made[1], made[3])
    assert not np.array_equal(made[1], made[0]) and not np.array_equal(made[1], made[2])
    learnt = training_mixes("adaptive", view, questions, train_shadows(view, questions, EFFORT))
    assert [len(mix.problem.nuisance) for mix in learnt] == [0] * 4, "it adds no examples that could be removed"


@pytest.mark.parametrize("adversary", ["naive", "adaptive"])
def test_shadow_devices_on_two_gpus_send_what_those_on_the_cpu_send(
    job: Task, adversary: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stacks differ from single clients by rounding alone, and two GPUs from one in no bit."""
    view, _ = open_view(job, adversary)
    assert view.device == "cpu"
    shadows = [
        ShadowDevice(user_id=user.user_id, examples=user.examples, round=t, defended=adversary == "adaptive")
        for t in (0, 1)
        for user in view.prior_users
    ]
    names: list[str] = []
    make = backends.make_backend
    monkeypatch.setattr(backends, "make_backend", lambda name, *given: names.append(name) or make(name, *given))
    here, found = shadow_updates(view, shadows), []
    for gpus in (("cpu",), ("cpu", "cpu")):
        monkeypatch.setattr("fedprint.attacks.adversary.shadow_devices.torch_devices", lambda device, gpus=gpus: gpus)
        found.append(shadow_updates(replace(view, device="cuda"), shadows))
    assert names == ["threaded", "vectorised", "vectorised"]
    np.testing.assert_array_equal(found[0].values, found[1].values)
    np.testing.assert_allclose(found[0].values, here.values, atol=1e-5)
    assert np.abs(here.values).max() > 1e-3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_shadow_devices_on_a_gpu_send_what_those_on_the_cpu_send(asked: tuple[AttackerView, Questions]) -> None:
    view, _ = asked
    shadows = [ShadowDevice(user_id=u.user_id, examples=u.examples, round=0, defended=True) for u in view.prior_users]
    here, there = (shadow_updates(replace(view, device=device), shadows) for device in ("cpu", "cuda"))
    assert there.values.dtype == np.float32
    np.testing.assert_allclose(there.values, here.values, rtol=1e-3, atol=1e-4)
