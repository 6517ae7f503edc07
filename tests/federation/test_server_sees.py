"""What a server sees of a federation: sums under secure aggregation, and steps that follow from a public rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import federation_cases as cases
import numpy as np
import pandas as pd
import pytest
import torch
from tiny_project import TINY

from fedprint.analyses.participation.sums import rests, sums
from fedprint.attacks.view import ServerRule
from fedprint.defences.points import Defence
from fedprint.kinds.federation.building import federation as build
from fedprint.kinds.federation.config import Experiment, check_experiment
from fedprint.params import flatten
from fedprint.rng import torch_rng
from fedprint.types import ClientJob, ClientResult, FedprintError, LocalTraining, Params

CROWD = cases.devices(sizes=(7, 1, 20, 10, 13, 2, 10, 5, 3, 9, 4, 4))
SECURE = {"name": "secure-aggregation"}
DP = {"name": "dp-fedavg", "clip": 100.0, "z": 1e-9}


class Drawn:
    """A backend whose clients send random numbers of their own."""

    name = "drawn"

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        for job in jobs:
            rng = torch_rng(job.seed)
            update = {n: torch.randn(p.shape, generator=rng, dtype=p.dtype) for n, p in params.items()}
            yield ClientResult(device_id=job.device_id, update=update, num_examples=len(job.examples["y"]), loss=1.0)


class Records:
    """The part of a store that the view of sums reads, over what a federation recorded in memory."""

    layers = ("w",)

    def __init__(self, writer: cases.MemoryWriter) -> None:
        self.seen = [observation for round_ in writer.observed for observation in round_]
        self.globals = writer.globals
        fields = ("round", "role", "num_examples")
        self.index = pd.DataFrame([{name: getattr(o, name) for name in fields} for o in self.seen], columns=fields)

    def matrix(self, rows: np.ndarray, dtype: type) -> np.ndarray:
        return np.array([flatten(self.seen[row].update).numpy() for row in rows], dtype=dtype).reshape(len(rows), 30)

    def global_params(self, t: int) -> Params:
        return self.globals[t]


def configured(defences: Sequence[Mapping[str, Any]] = (), **federation: Any) -> Experiment:
    changed = {"rounds": 5, "fraction": 0.5, **federation}
    return check_experiment(
        {"name": "case", **TINY, "federation": {**TINY["federation"], **changed}, "defences": list(defences)}, "case"
    )


def federated(config: Experiment) -> cases.MemoryWriter:
    writer = cases.MemoryWriter({"w": torch.zeros(30, dtype=torch.float64)})
    defences: Sequence[Defence] = config.defences
    cases.run(CROWD, Drawn(), writer, build.make_plan(config, len(CROWD), 7), defences)
    return writer


def test_coarse_counts_are_all_that_the_server_learns_of_the_true_ones() -> None:
    def named(*defences: Mapping[str, Any]) -> list[int]:
        return [o.num_examples for round_ in federated(configured(defences)).observed for o in round_]

    assert set(named({"name": "coarse-counts", "base": 3})) <= {1, 3, 9, 27}
    assert set(named({"name": "coarse-counts", "base": None})) == {1}
    assert len(set(named())) > 4


CASES = {
    "fedavg": configured(),
    "mean": configured(aggregation="mean"),
    "coarse counts": configured([{"name": "coarse-counts", "base": 3}]),
    "momentum": configured(momentum=0.7),
    "in turn": configured(aggregation="round-robin"),
    "guarantee": configured([DP]),
    "poisson": configured(sampling="poisson"),
    "poisson, guarantee": configured([DP], sampling="poisson", momentum=0.5),
    "growth, guarantee": configured([DP], sampling="poisson", fraction=0.25, growth={"name": "linear", "to": 2}),
    "sums": configured([SECURE], momentum=0.5),
}


@pytest.mark.parametrize("case", CASES)
def test_released_models_show_the_sum_that_the_public_rule_says(case: str) -> None:
    """Without noise to speak of, models and updates tell the same: the anonymous devices' weighted sum."""
    config = CASES[case]
    writer, rule = federated(config), build.server_rule(config, len(CROWD))
    view: Any = SimpleNamespace(store=Records(writer), rule=rule)
    unhidden = tuple(defence for defence in config.defences if defence.name != "secure-aggregation")
    plain = federated(config.model_copy(update={"defences": unhidden}))
    for t in range(config.federation.rounds):
        sent = [o for o in plain.observed[t] if o.role == "anonymous"]
        expected = sum((flatten(o.update) * (1 if rule.equal else o.num_examples) for o in sent), torch.zeros(30))
        seen = rests(view, t)
        np.testing.assert_allclose(seen["aggregate"], expected.numpy(), atol=1e-6)
        np.testing.assert_allclose(seen["central"], seen["aggregate"], atol=1e-4)


@pytest.mark.parametrize(("size", "groups"), [(2, 3), (3, 2), (None, 1), (1, 1)])
def test_sums_are_those_of_the_groups(size: int | None, groups: int) -> None:
    """Six devices a round; groups without an anonymous device show nothing, and size 1 (nothing hidden) is one sum."""
    config = configured([{**SECURE, "size": size}])
    view: Any = SimpleNamespace(store=Records(federated(config)), rule=build.server_rule(config, len(CROWD)))
    by_round = [sums(view, t) for t in range(config.federation.rounds)]
    assert max(each["aggregate"].shape[1] for each in by_round) == groups
    for t, each in enumerate(by_round):
        np.testing.assert_allclose(each["aggregate"].sum(1), rests(view, t)["aggregate"], atol=1e-9)
        np.testing.assert_array_equal(each["central"], rests(view, t)["central"][:, None])


def test_the_rule_is_read_off_the_configuration() -> None:
    half = (0.5,) * 5
    assert build.server_rule(CASES["fedavg"], 12) == ServerRule(equal=False, devices=12, rates=half)
    assert build.server_rule(CASES["mean"], 12) == ServerRule(equal=True, devices=12, rates=half)
    assert build.server_rule(CASES["momentum"], 12) == ServerRule(equal=False, devices=12, rates=half, momentum=0.7)
    assert build.server_rule(CASES["poisson"], 12) == ServerRule(equal=False, devices=12, rates=half)
    assert build.server_rule(CASES["in turn"], 12) == ServerRule(
        equal=True, devices=12, rates=half, divisors=(1.0,) * 5, in_turn=True
    )
    assert build.server_rule(CASES["poisson, guarantee"], 12).divisors == (6.0,) * 5
    growing = build.server_rule(CASES["growth, guarantee"], 12)
    assert growing.divisors == (3.0, 4.0, 4.0, 5.0, 6.0)
    assert growing.rates == pytest.approx((3 / 12, 4 / 12, 4 / 12, 5 / 12, 6 / 12))


def test_the_noise_of_every_sum_is_public_where_there_is_any() -> None:
    announced = configured([{"name": "dp-fedavg", "clip": {"name": "median"}, "z": 1.5}], sampling="poisson")
    assert build.server_rule(announced, 12, [0.1, 0.2, 0.3, 0.4, 0.5]).norms == (0.1, 0.2, 0.3, 0.4, 0.5)

    def noise(norms: Sequence[float] = (), federation: Mapping[str, Any] | None = None, **changes: Any) -> Any:
        config = configured([{"name": "dp-fedavg", **changes}], **(federation or {"sampling": "poisson"}))
        return build.server_rule(config, 12, norms).noise

    assert noise(clip=2.0, z=0) == () == build.server_rule(CASES["poisson"], 12).noise
    assert noise(clip=2.0, z=1.5) == (3.0,) * 5
    step = {"name": "step", "at": [2, 3], "factors": [2, 0.5]}
    assert noise(clip=2.0, z=1.5, z_schedule=step) == (3.0, 3.0, 6.0, 1.5, 1.5)
    ledger = (1.0, 2.0, 4.0, 2.0)  # a round fewer than planned: the budget ended
    assert noise(ledger, clip={"name": "median"}, z=1.5, z_schedule=step) == (1.5, 3.0, 12.0, 1.5)
    assert noise(ledger, clip={"name": "quantile", "start": 1.0, "count_noise": 1.0}, z=1.5) == (1.5, 3.0, 6.0, 3.0)
    in_turn = {"aggregation": "round-robin", "fraction": 1 / 3}
    assert noise(clip=2.0, z=1.5, federation=in_turn) == (6.0,) * 5, "four steps with noise of their own"


@pytest.mark.parametrize("size", [1, 2, 3, None])
def test_secure_aggregation_changes_what_is_seen_and_not_the_model(size: int | None) -> None:
    plain, summed = federated(CASES["fedavg"]), federated(configured([{**SECURE, "size": size}]))
    assert all(torch.equal(a["w"], b["w"]) for a, b in zip(plain.globals, summed.globals, strict=True))
    assert plain.truths == summed.truths
    hidden = 0
    for before, after in zip(plain.observed, summed.observed, strict=True):
        for old, new in zip(before, after, strict=True):
            same = torch.equal(old.update["w"], new.update["w"])
            assert same or new.role == "anonymous"
            hidden += not same
    assert (hidden == 0) == (size == 1)


def test_what_secure_aggregation_cannot_do_is_refused_in_one_line() -> None:
    with pytest.raises(FedprintError, match=r"round-robin takes none; use aggregation: mean"):
        configured([SECURE], aggregation="round-robin")
    with pytest.raises(FedprintError, match=r"keep one secure-aggregation"):
        configured([SECURE, SECURE])
    with pytest.raises(FedprintError, match=r"groups of 7 do not fit a cohort of 6 devices") as refused:
        build.make_plan(configured([{**SECURE, "size": 7}]), 12, 0)
    assert "\n" not in str(refused.value)
