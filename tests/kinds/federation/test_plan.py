"""Estimates: what they count, and that they are near what was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny_project import CHECKOUT, TINY, Project
from tiny_study import study_of

from fedprint.attacks.adversary.adversaries import Effort, _nuisance, background_devices
from fedprint.defences.counterweight import CounterAug
from fedprint.defences.on_data import BkgRepl, MmAug, RandAug, RepeatAug
from fedprint.defences.on_update import Noise
from fedprint.kinds.base import Costs
from fedprint.kinds.federation import plan
from fedprint.kinds.federation.building.effort import effort_of
from fedprint.kinds.federation.building.view import open_view
from fedprint.kinds.federation.config import Experiment, check_experiment
from fedprint.kinds.federation.plan import Estimate, Sample, costs, costs_of, costs_of_points, sample
from fedprint.kinds.plane.config import load_plane
from fedprint.kinds.requests import request_for
from fedprint.lab.graph import Task
from fedprint.models.networks import build_network
from fedprint.types import FedprintError

USERS = 8
PARAMS = {"conv1.weight": torch.zeros(400), "head.weight": torch.zeros(100), "head.bias": torch.zeros(10)}
SAMPLE = Sample(users=USERS, background=50, examples=1600, prior=800, seconds=0.01, params=PARAMS)
RAND = {"name": "rand-aug", "alpha": 2}
NOISE = {"name": "noise", "sigma": 0.1}


def experiment(*defences: dict[str, Any], threat: dict[str, Any] | None = None, **changes: Any) -> Experiment:
    values = {**TINY, "attacks": [{"name": "ridge"}], "defences": list(defences), "threat": threat or {}, **changes}
    return check_experiment({"name": "tiny", **values}, "test")


def estimated(*defences: dict[str, Any], threat: dict[str, Any] | None = None, **changes: Any) -> Estimate:
    return costs(experiment(*defences, threat=threat, **changes), SAMPLE)


def test_a_federation_costs_its_examples_once_an_epoch() -> None:
    plain = estimated(federation={**TINY["federation"], "central_epochs": 0})
    assert plain.updates == 64 and plain.devices == 16, "8 rounds of half of 16 devices"
    assert plain.seconds_per_update == pytest.approx(0.01 * 100)
    assert plain.federate_s == pytest.approx(64.0)
    half = estimated(federation={**TINY["federation"], "central_epochs": 0, "absent": 0.5})
    assert half.updates == 48 and half.devices == 12, "4 of 8 anonymous devices stay away"
    twice = estimated(federation={**TINY["federation"], "central_epochs": 0, "epochs": 2})
    assert twice.federate_s == pytest.approx(128.0)
    central = estimated(federation={**TINY["federation"], "central_epochs": 3})
    assert central.federate_s == pytest.approx(64.0 + 3 * 16.0)


def test_rounds_that_the_budget_does_not_allow_cost_nothing() -> None:
    federation = {**TINY["federation"], "central_epochs": 0, "sampling": "poisson", "rounds": 30}
    budget = {"epsilon": 12.5, "delta": 1e-3, "accountant": "moments"}
    found = estimated({"name": "dp-fedavg", "z": 0.8, "budget": budget}, federation=federation)
    assert (found.rounds, found.planned, found.updates) == (8, 30, 64)
    assert found.federate_s == pytest.approx(64.0)


@pytest.mark.parametrize("defence", [RandAug, MmAug, RepeatAug, CounterAug])
def test_added_data_cost_time_on_the_devices_that_add_them(defence: type) -> None:
    entry = {"name": defence.model_fields["name"].default, "alpha": 2}  # type: ignore[attr-defined]
    changes: dict[str, Any] = {"federation": {**TINY["federation"], "central_epochs": 0}}
    everyone = estimated(entry, **changes)
    anonymous = estimated(entry, threat={"defended": "anonymous"}, **changes)
    assert everyone.federate_s == pytest.approx(3 * 64.0) and anonymous.federate_s == pytest.approx(2 * 64.0)
    assert estimated(NOISE, **changes).federate_s == pytest.approx(64.0)
    assert defence(alpha=(0, 1, 5)).growth == pytest.approx(3.0) and BkgRepl(alpha=1).growth == 1


def training(config: Experiment) -> float:
    """Seconds of local training off line: what an estimate grows by when an example takes 1 s longer."""
    slower = replace(SAMPLE, seconds=SAMPLE.seconds + 1)
    return costs(config, slower).attack_s - costs(config, SAMPLE).attack_s


def test_devices_off_line_are_those_of_the_adversaries() -> None:
    """Halves at 4 rounds are 2 passes over the prior; whole priors at all 8 rounds are 8, defended ones at 6 are 12."""
    threat = {"shadow_rounds": 6, "shadow_draws": 2}
    selection = {"shadow_rounds": 4}
    assert training(experiment(threat=threat, selection=selection)) == pytest.approx(2 * 800)
    offline = {**threat, "learn_from": "offline"}
    # without a defence as many as an adaptive adversary would have: 6 x 3, of which there are 8 models
    assert training(experiment(threat=offline, selection=selection)) == pytest.approx((2 + 8) * 800)
    assert training(experiment(NOISE, threat=threat, selection=selection)) == pytest.approx((8 + 2) * 800)
    replaced = {"name": "bkg-repl", "alpha": 0.5}
    background = 100 * 2 * 50  # as many examples as a prior has, from two models, of 50 users
    assert training(experiment(replaced, threat=threat, selection=selection)) == pytest.approx(
        (10 + 16) * 800 + background
    )
    added = training(experiment(RAND, threat=threat, selection=selection))
    assert added == pytest.approx((10 + 3 * 16) * 800 + background)
    naive = {**threat, "adversaries": ["naive"]}
    assert training(experiment(RAND, threat=naive, selection=selection)) == pytest.approx((8 + 2) * 800)
    many = {"shadow_rounds": 99, "shadow_draws": 2}
    assert training(experiment(NOISE, threat=many, selection=selection)) == pytest.approx((8 + 2) * 800)


def test_the_devices_that_are_counted_are_those_that_are_trained(tiny_run: Task) -> None:
    for defences in ((), (Noise(sigma=1),), (RandAug(alpha=1),)):
        view = replace(open_view(tiny_run, "naive")[0], defences=defences)
        counted, trained = background_devices(defences, len(view.background)), len(list(_nuisance(view)))
        assert (counted > 0) == (trained > 0) and counted >= trained, "of little background at most so many"
    assert background_devices((MmAug(alpha=1, clusters=30),), 8) == 2 * 30
    effort = Effort(clean_rounds=5, defended_rounds=3, draws=1, validation_rounds=4)
    view, _ = open_view(tiny_run, "naive")
    assert effort.devices(view) == len(view.prior_users) * (5 + 3 + 4 * 2)
    assert effort.passes(view.store.rounds, 0.0) == 7 and effort.passes(2, 1.0) == 6
    assert effort_of(experiment(), 8) == Effort(clean_rounds=0, defended_rounds=10, draws=0, validation_rounds=4)


def test_random_scores_train_nothing_but_a_half_of_each_prior() -> None:
    naive, chance = {"adversaries": ["naive"]}, [{"name": "chance"}]
    nobody = experiment(NOISE, threat=naive, attacks=chance)
    assert effort_of(nobody, 8) == Effort(clean_rounds=0, defended_rounds=0, draws=0, validation_rounds=2)
    assert effort_of(experiment(NOISE, threat=naive), 8).clean_rounds > 0
    assert effort_of(experiment(NOISE, attacks=chance), 8).clean_rounds > 0, "the adaptive one compares ways to learn"


def test_random_scores_and_side_channels_need_no_kernels() -> None:
    naive, sides = {"adversaries": ["naive"]}, [{"name": "chance"}, {"name": "count"}]
    of_updates, of_sides = estimated(NOISE, threat=naive), estimated(NOISE, threat=naive, attacks=sides)
    adaptive = estimated(NOISE, attacks=sides)
    assert of_sides.memory < of_updates.memory
    assert adaptive.memory >= of_updates.memory, "the adaptive one compares ways to learn"


def test_more_seeds_and_priors_cost_in_proportion() -> None:
    one, six = estimated(), estimated(seeds=[0, 1, 2], split={"priors": ["random", "iid"]})
    assert six.federate_s == pytest.approx(6 * one.federate_s) and six.attack_s == pytest.approx(6 * one.attack_s)
    assert six.disk == 6 * one.disk and six.memory == one.memory


def test_the_sample_is_of_the_data(project: Project) -> None:
    found = sample(experiment(), "cpu")
    assert found.users == 8 and found.background == 8
    assert 0 < found.prior < found.examples and 1e-6 < found.seconds < 1
    assert "head.weight" in found.params


def test_what_differs_in_nothing_that_is_timed_is_timed_once(project: Project) -> None:
    found = sample(experiment(), "cpu")
    assert sample(experiment(NOISE, federation={**TINY["federation"], "rounds": 5}), "cpu") is found
    assert sample(experiment(federation={**TINY["federation"], "epochs": 2}), "cpu") is not found


def seconds(points: list[tuple[Experiment, int]], found: Sample = SAMPLE) -> float:
    return costs_of_points(points, "cpu", found).seconds


def test_points_of_a_plane_cost_what_their_own_defences_do() -> None:
    plain, added = experiment(), experiment(RAND)
    mixed = costs_of_points([(plain, 3), (added, 2)], "cpu", SAMPLE)
    assert mixed.seconds == pytest.approx(seconds([(plain, 3)]) + seconds([(added, 2)]))
    assert seconds([(added, 1)]) > seconds([(plain, 1)])
    one = costs_of_points([(plain, 1)], "cpu", SAMPLE)
    assert (mixed.jobs, mixed.disk) == (5, 5 * one.disk) and mixed.memory >= one.memory


def test_the_plane_of_writers_is_near_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """111 minutes, two at a time; ``seconds`` is about what an example takes on an idle core there.

    Of 124 for the whole plane, by the times at which points ended.
    """
    plane = load_plane(request_for(CHECKOUT, "mnist-writers-plane"))
    model = build_network(plane.config.model, (1, 28, 28), 10, False)
    params = {name: p.detach() for name, p in model.public_parameters().items()}
    found = Sample(users=100, background=300, examples=10219, prior=5104, seconds=0.0004, params=params)
    later = ("spn", "one-bit", "one-bit-rand", "one-bit-repeat")
    measured = [place for place in plane.points if place.strategy not in later]
    points = [(place.config, len(plane.settings.seeds)) for place in measured]
    assert sum(number for _, number in points) == 99
    by_mode = seconds(points, found) / 120
    monkeypatch.setattr(plan, "devices_by_mode", lambda *_: (0, 0))
    assert 111 / 1.5 < by_mode < 111 * 1.5
    assert 1 < by_mode / (seconds(points, found) / 120) < 1.25
    undefended = seconds([(plane.config, 99)], found) / 120
    assert undefended < seconds(points, found) / 120 / 1.5, "defences are most of the cost"


def test_a_study_counts_its_strategies_at_the_middle_of_their_spaces() -> None:
    study = study_of(CHECKOUT, "mnist-writers")
    (plain, fresh), *strategies = study.points
    s = study.settings
    assert plain == study.config and fresh == len(s.seeds) + 2 * len(s.fresh_seeds), "on confirmation users too"
    assert len(strategies) == len(s.strategies) and all(config.defences for config, _ in strategies)
    assert {number for _, number in strategies} == {s.trials * len(s.seeds) + 2 * len(s.fresh_seeds)}


def test_what_a_machine_lacks_is_said_with_a_remedy() -> None:
    gib = 2**30
    costs = Costs(jobs=4, seconds=1.0, disk=100 * gib, memory=10 * gib)
    assert costs.beyond(2, memory=20 * gib, disk=100 * gib) == []
    (memory,) = costs.beyond(3, memory=20 * gib, disk=100 * gib)
    assert memory == "memory: 30.0 GiB at most, of 20.0 GiB here; --jobs 1 needs less."
    memory, disk = costs.beyond(1, memory=5 * gib, disk=99 * gib)
    assert "10.0 GiB at most, of 5.0 GiB here; take fewer users or rounds" in memory
    assert "100.0 GiB, of 99.0 GiB free here" in disk and "a larger disk" in disk
    passing = replace(costs, passing=30 * gib)
    assert passing.beyond(2, memory=20 * gib, disk=60 * gib) == [], "a job lets its updates go at its end"
    (disk,) = passing.beyond(2, memory=20 * gib, disk=60 * gib, keep=True)
    assert "100.0 GiB, of 60.0 GiB free here" in disk


@pytest.mark.parametrize(("users", "said"), [(2, "2 users bear no conclusion"), (5, "5 users bear"), (6, None)])
def test_too_few_users_are_warned_of_before_the_run(project: Project, users: int, said: str | None) -> None:
    values = {**TINY, "name": "few", "data": {**TINY["data"], "users": users}}
    warnings = costs_of(check_experiment(values, "few"), "cpu").warnings
    assert [said in text for text in warnings] == ([True] if said else [])


def test_one_user_is_refused_before_the_run(project: Project) -> None:
    values = {**TINY, "name": "one", "data": {**TINY["data"], "users": 1}}
    with pytest.raises(FedprintError, match=r"1 user takes part.*data\.users"):
        costs_of(check_experiment(values, "one"), "cpu")
