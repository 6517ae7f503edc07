"""Poisson cohorts, growing cohorts, noise on the sum, momentum and diagnostics in the loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import federation_cases as cases
import numpy as np
import pytest
import torch
from scipy import stats

from fedprint.defences.clipping import MedianClip, QuantileClip
from fedprint.defences.correlated import band
from fedprint.defences.on_update import DpFedAvg
from fedprint.defences.schedules import Linear
from fedprint.federation.backends import make_backend
from fedprint.federation.cohorts import FederationPlan, largest_cohort, sample_cohort
from fedprint.federation.diagnostics import between_clients
from fedprint.federation.privacy import noise_of_sums
from fedprint.store.reader import UpdateStore
from fedprint.store.writer import StoreWriter
from fedprint.types import ClientJob, ClientResult, FedprintError, LocalTraining, Params

CROWD = cases.devices(sizes=(1,) * 20)


@dataclass
class Fixed:
    """A backend whose clients send the same number everywhere, 1 if not in ``values``."""

    values: Mapping[str, float] = field(default_factory=dict)
    name: str = "fixed"

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        return iter([
            ClientResult(
                device_id=job.device_id,
                update={n: torch.full_like(p, self.values.get(job.device_id, 1.0)) for n, p in params.items()},
                num_examples=len(job.examples["y"]),
                loss=1.0,
            )
            for job in jobs
        ])  # fmt: skip


def poisson(rounds: int, cohort: int, **settings: Any) -> FederationPlan:
    plan = replace(cases.plan(rounds=rounds, cohort=cohort), sampling="poisson", **settings)
    return replace(plan, slots=largest_cohort(len(CROWD), plan))


def run(plan: FederationPlan, *defences: Any, size: int = 4, values: Mapping[str, float] | None = None) -> Any:
    writer = cases.MemoryWriter({"w": torch.zeros(size, dtype=torch.float64)})
    cases.run(CROWD, Fixed(values or {}), writer, plan, defences)
    return writer


# ---- cohorts -------------------------------------------------------------------------------------------------------


def test_a_poisson_sample_takes_each_device_by_itself() -> None:
    plan = poisson(3000, 5)
    table = np.zeros((3000, 20))
    position = {device.device_id: i for i, device in enumerate(CROWD)}
    for t in range(3000):
        table[t, [position[device.device_id] for device in sample_cohort(CROWD, plan, t)]] = 1
    assert stats.kstest(stats.binom.cdf(table.sum(1), 20, 0.25) - stats.uniform.rvs(
        size=3000, random_state=0) * stats.binom.pmf(table.sum(1), 20, 0.25), "uniform").pvalue > 1e-3  # fmt: skip
    assert np.abs(table.mean(0) - 0.25).max() < 5 * (0.25 * 0.75 / 3000) ** 0.5
    pairs = np.corrcoef(table.T)[np.triu_indices(20, 1)]
    assert np.abs(pairs).max() < 5 / 3000**0.5, "without replacement it would be -1/19 on average"
    assert abs(pairs.mean()) < 0.01


def test_a_growing_cohort_has_its_planned_sizes() -> None:
    plan = replace(cases.plan(rounds=6, cohort=4), growth=Linear(to=3, levels=3))
    assert [len(sample_cohort(CROWD, plan, t)) for t in range(6)] == [4, 4, 8, 8, 12, 12]
    assert largest_cohort(20, plan) == 12
    longer = replace(plan, rounds=2, horizon=6)
    assert [longer.expected(t) for t in range(2)] == [4, 4], "a budget that ends training does not squeeze the schedule"
    with pytest.raises(FedprintError, match="a cohort of 24 does not fit a population of 20"):
        run(replace(plan, growth=Linear(to=6, levels=3)))


def test_observations_of_different_rounds_have_different_numbers() -> None:
    plan = poisson(60, 4)
    writer = run(plan)
    numbers = [seen.obs_id for observed in writer.observed for seen in observed]
    assert len(set(numbers)) == len(numbers)
    assert {len(observed) for observed in writer.observed} >= {2, 3, 4, 5, 6}
    assert max(len(observed) for observed in writer.observed) == plan.rows


# ---- the sum -------------------------------------------------------------------------------------------------------


def test_the_sum_of_a_poisson_sample_is_divided_by_the_planned_number() -> None:
    writer = run(poisson(20, 5), DpFedAvg(clip=0.5, z=1e-12), size=4)
    for t, observed in enumerate(writer.observed):
        step = (writer.globals[t + 1]["w"] - writer.globals[t]["w"]).tolist()
        assert step == pytest.approx([len(observed) * 0.25 / 5] * 4), "each sends 4 times .25, of norm .5"


def test_without_a_guarantee_the_mean_is_over_those_who_came() -> None:
    plan = poisson(40, 1)
    writer = run(plan)
    steps = {len(o): float((b["w"] - a["w"])[0])
             for o, a, b in zip(writer.observed, writer.globals, writer.globals[1:], strict=False)}  # fmt: skip
    assert steps == {0: 0.0, **{n: pytest.approx(1.0) for n in steps if n}}
    empty = [m for m, o in zip(writer.metrics(), writer.observed, strict=True) if not o]
    assert empty and all(m == {"round": m["round"], "update_norm": 0.0} for m in empty)


@pytest.mark.parametrize("rule", [0.3, MedianClip(), QuantileClip(start=0.3)])
def test_an_empty_round_is_noise_and_nothing_else(rule: Any) -> None:
    writer = run(poisson(60, 1), DpFedAvg(clip=rule, z=2.0), size=4000)
    seen = 0
    for t, observed in enumerate(writer.observed):
        clip = writer.metrics()[t].get("clip", 0.3)
        if not observed and clip:
            seen += 1
            noise = (writer.globals[t + 1]["w"] - writer.globals[t]["w"]).numpy()
            assert stats.kstest(noise, "norm", args=(0, 2.0 * clip)).pvalue > 1e-4
    assert seen > 5


def test_empty_rounds_are_stored_and_read_again(tmp_path: Path) -> None:
    plan, initial = poisson(12, 1), {"w": torch.zeros(4)}
    layout = replace(cases.layout(plan, initial), cohort=plan.rows)
    with StoreWriter.open(tmp_path, layout) as writer:
        writer.set_initial(initial)
        cases.run(CROWD, Fixed(), writer, plan, [DpFedAvg(clip=0.5, z=1.0)])
        writer.finalise()
    store = UpdateStore.open(tmp_path / "observed")
    counts = store.index.groupby("round").size().reindex(range(12), fill_value=0).tolist()
    assert counts == [len(sample_cohort(by_id(), plan, t)) for t in range(12)] and 0 in counts
    assert store.matrix().shape == (sum(counts), 4)


def by_id() -> list[Any]:
    return sorted(CROWD, key=lambda device: device.device_id)


def test_noise_on_the_sum_does_not_grow_with_the_cohort() -> None:
    for cohort in (2, 8):
        writer = run(replace(cases.plan(rounds=1, cohort=cohort)), DpFedAvg(clip=0.4, z=1.5), size=20_000)
        total = cohort * writer.globals[1]["w"].numpy()
        clipped = cohort * 0.4 / 20_000**0.5
        assert stats.kstest(total - clipped, "norm", args=(0, 0.6)).pvalue > 1e-3
        assert stats.kstest(total - clipped, "norm", args=(0, 0.4)).pvalue < 1e-9


def test_half_of_the_updates_are_clipped_to_the_median() -> None:
    values = {device.device_id: float(i + 1) for i, device in enumerate(CROWD)}
    writer = run(cases.plan(rounds=3, cohort=7), DpFedAvg(clip=MedianClip(), z=1e-9), values=values)
    for t, observed in enumerate(writer.observed):
        norms = sorted(float(seen.update["w"].norm()) for seen in observed)
        assert norms[3:] == pytest.approx([writer.metrics()[t]["clip"]] * 4) and norms[2] < norms[3]


def test_the_quantile_moves_with_the_noisy_share_of_the_round_before() -> None:
    rule = QuantileClip(start=0.5, rate=0.3, count_noise=0.01)
    writer = run(cases.plan(rounds=30, cohort=10), DpFedAvg(clip=rule, z=1e-3))
    metrics = writer.metrics()
    assert metrics[0]["clip"] == 0.5
    for before, after in pairwise(metrics):
        assert after["clip"] == rule.following(before["clip"], before["clip_share"])
    assert metrics[-1]["clip"] == pytest.approx(2.0, rel=0.4), "all updates have norm 2"


# ---- momentum ------------------------------------------------------------------------------------------------------


def test_momentum_by_hand() -> None:
    writer = run(replace(cases.plan(rounds=4, cohort=3), momentum=0.5))
    assert [float(p["w"][0]) for p in writer.globals] == pytest.approx([0, 1, 2.5, 4.25, 6.125])
    plain = run(cases.plan(rounds=4, cohort=3))
    assert [float(p["w"][0]) for p in plain.globals] == pytest.approx([0, 1, 2, 3, 4])


IN_GROUPS: dict[str, Any] = {"sampling": "poisson", "groups": 2}


@pytest.mark.parametrize(
    ("defence", "settings"),
    [
        (DpFedAvg(clip=0.05, z=0.1), {}),
        (DpFedAvg(clip=QuantileClip(start=0.05), z=0.1), {}),
        (DpFedAvg(clip=0.05, z=0.1, bands=2), IN_GROUPS),
    ],
)
def test_momentum_quantile_and_correlated_noise_survive_a_resume_to_the_bit(
    tmp_path: Path, defence: DpFedAvg, settings: dict[str, Any]
) -> None:
    of = replace(cases.plan(rounds=5, cohort=3), momentum=0.9, diagnostics=True, **settings)
    of = replace(of, slots=largest_cohort(len(cases.devices()), of))

    def train(name: str, rounds: int) -> Any:
        net = cases.model("cnn")
        with StoreWriter.open(tmp_path / name, cases.layout(of, cases.start(net))) as writer:
            if writer.next_round == 0:
                writer.set_initial(cases.start(net))
            plan = replace(of, rounds=rounds, horizon=of.rounds)
            cases.run(cases.devices(), make_backend("sequential", net), writer, plan, [defence])
            return writer.latest_params(), writer.metrics()

    whole = train("whole", 5)
    for rounds in (1, 2, 4):
        train("parts", rounds)
    parts = train("parts", 5)
    assert cases.distance(whole[0], parts[0]) == 0
    assert whole[1] == parts[1]


# ---- correlated noise ----------------------------------------------------------------------------------------------


def test_a_device_takes_part_in_the_rounds_of_its_group_alone() -> None:
    plan = replace(poisson(40, 2, groups=5))
    of_device: dict[str, set[int]] = {}
    taken = 0
    for t in range(plan.rounds):
        cohort = sample_cohort(CROWD, plan, t)
        taken += len(cohort)
        for device in cohort:
            of_device.setdefault(device.device_id, set()).add(t % 5)
    assert all(len(groups) == 1 for groups in of_device.values())
    assert len({group for groups in of_device.values() for group in groups}) == 5
    assert stats.binomtest(taken, 40 * 4, 0.5).pvalue > 1e-4  # a rate of 2 * 5 / 20 in groups of 4


def test_correlated_noise_has_the_covariance_of_its_factorisation() -> None:
    bands, rounds, z = 3, 6, 2.0
    nobody = {device.device_id: 0.0 for device in CROWD}
    writer = run(poisson(rounds, 2, groups=bands), DpFedAvg(clip=1.0, z=z, bands=bands), size=40_000, values=nobody)
    steps = np.stack([(b["w"] - a["w"]).numpy() for a, b in pairwise(writer.globals)]) * 2 / z
    column = band(bands)
    c = sum(column[j] * np.eye(rounds, k=-j) for j in range(bands))
    inverse = np.linalg.inv(c) * np.linalg.norm(column)
    assert np.cov(steps) == pytest.approx(inverse @ inverse.T, abs=0.1)
    plan, defence = poisson(rounds, 2, groups=bands), DpFedAvg(clip=1.0, z=z, bands=bands)
    assert noise_of_sums(defence, plan, ()) == pytest.approx(z * np.sqrt(np.diag(inverse @ inverse.T)))


# ---- diagnostics ---------------------------------------------------------------------------------------------------


def test_variance_between_clients_and_update_scale_by_hand() -> None:
    updates = [
        {"a": torch.randn(3, 2, dtype=torch.float64), "b": torch.randn(5, dtype=torch.float64)} for _ in range(7)
    ]
    rows = torch.stack([torch.cat([u["a"].flatten(), u["b"]]) for u in updates]).numpy()
    diagnostics = between_clients(updates)
    assert diagnostics["between_clients_variance"] == pytest.approx(np.var(rows, axis=0).mean())
    assert diagnostics["update_scale"] == pytest.approx(np.square(rows.mean(0)).mean())
    assert between_clients([]) == {}


def test_diagnostics_are_recorded_where_they_are_wanted_and_change_nothing() -> None:
    of = replace(cases.plan(rounds=2), diagnostics=True)
    plain, watched = cases.federated(), cases.federated(of=of)
    assert all(cases.distance(a, b) == 0 for a, b in zip(plain.globals[:3], watched.globals, strict=True))
    assert {"between_clients_variance", "update_scale"} <= set(watched.metrics()[1])
    assert "update_scale" not in plain.metrics()[1]
