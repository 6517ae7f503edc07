"""The federation's plan: the number of rounds, the cohort of each, and the training of a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedprint.accounting.events import Sampling
from fedprint.defences.on_update import DpFedAvg
from fedprint.defences.schedules import Constant, Schedule
from fedprint.rng import torch_rng
from fedprint.types import Aggregation, Device, FedprintError, LocalTraining

_CONSTANT = Constant()


@dataclass(frozen=True, kw_only=True)
class FederationPlan:
    """FedAvg's constants: T ``rounds``, ``cohort`` = M devices a round, local training, and the root seed.

    ``sampling`` fixed draws M devices without replacement; poisson takes each with probability M / K, so that M is the
    expected number and a round may be empty. With several ``groups`` each device is in one of them at random, and round
    t samples, at a rate as many times higher, from group t mod ``groups`` alone. ``growth`` multiplies M over
    ``horizon`` planned rounds (0: ``rounds``), of which a privacy budget may allow only the first ``rounds``;
    ``lr_schedule`` multiplies the clients' learning rate over the same rounds. ``slots`` are the rows of a round in the
    store (0: M). ``momentum`` is the server's. ``diagnostics`` records V_c and U_s of each round (papers.md, section
    3). ``condition`` (settings, data, prior; or an audit of them) makes the server's noise different in every run: if
    two runs of one seed had the same noise, it would cancel in the difference of their released models.
    """

    rounds: int
    cohort: int
    training: LocalTraining
    seed: int
    aggregation: Aggregation = "fedavg"
    sampling: Sampling = "fixed"
    groups: int = 1
    growth: Schedule = _CONSTANT
    lr_schedule: Schedule = _CONSTANT
    horizon: int = 0
    slots: int = 0
    momentum: float = 0.0
    diagnostics: bool = False
    condition: str = ""

    def server_rng(self, *path: str | int) -> torch.Generator:
        """Return the generator of the server's noise for one purpose; ``path`` names it (such as a round)."""
        return torch_rng(self.seed, "server", self.condition, *path)

    def expected(self, t: int) -> int:
        """Return m_t, the planned number of devices of round ``t``."""
        return max(1, round(self.cohort * self.growth.factor(t, self.planned)))

    def rate(self, t: int, devices: int) -> float:
        """Return the sampling rate of round ``t`` among the devices whose turn it is."""
        return self.expected(t) * self.groups / devices

    def training_at(self, t: int) -> LocalTraining:
        """Return the local training of round ``t``, at that round's learning rate."""
        return replace(self.training, lr=self.training.lr * self.lr_schedule.factor(t, self.planned))

    @property
    def planned(self) -> int:
        """Return the rounds over which schedules stretch."""
        return self.horizon or self.rounds

    @property
    def rows(self) -> int:
        """Return the rows of a round in the store."""
        return self.slots or self.cohort


def cohort_size(devices: int, fraction: float) -> int:
    """Return M = max(1, C * K) (papers.md, section 1). Raises FedprintError for a cohort larger than the population."""
    size = max(1, round(fraction * devices))
    check_cohort(size, devices)
    return size


def check_cohort(size: int, devices: int, groups: int = 1) -> None:
    """Raise FedprintError for a cohort larger than the population, or than one of its ``groups``."""
    if groups > 1 and size * groups > devices:
        raise FedprintError(
            f"federation.fraction: with dp-fedavg's bands: {groups} a cohort of {size} comes from {devices // groups} "
            f"of the {devices} devices; use at most {1 / groups:.3g}"
        )
    if size > devices:
        raise FedprintError(
            f"federation.fraction: a cohort of {size} does not fit a population of {devices} devices; use at most 1.0"
        )


def refused_correlated(sampling: Sampling, growth: Schedule, private: Sequence[DpFedAvg]) -> str | None:
    """Return why these settings do not allow noise that is correlated between rounds, None where they do.

    Its factorisation is of rounds with equal sensitivity and noise, and its price is that of secret samples.
    """
    for defence in private:
        if defence.bands > 1 and sampling != "poisson":
            return "federation.sampling: dp-fedavg with bands needs sampling: poisson"
        if defence.bands > 1 and (defence.z_schedule != _CONSTANT or growth != _CONSTANT):
            return "defences.dp-fedavg.bands: correlated noise is the same in all rounds; leave out the schedules"
        if defence.bands > 1 and not isinstance(defence.clip, float):
            return "defences.dp-fedavg.clip: correlated noise needs one norm for all rounds; give clip a number"
    return None


def refused_in_turn(
    aggregation: Aggregation, sampling: Sampling, momentum: float, private: Sequence[DpFedAvg]
) -> str | None:
    """Return why these settings do not allow round robin, None where they do.

    In round robin every client's step is released before the next client trains. So nothing may depend on the whole
    round, such as a clipping norm. The number of clients is visible too, but the guarantee of Poisson sampling needs it
    to be secret.
    """
    if aggregation != "round-robin":
        return None
    if momentum:
        return "federation.momentum: round-robin has no mean for it to act on; set momentum: 0"
    if any(not isinstance(defence.clip, float) for defence in private):
        return "defences.dp-fedavg.clip: round-robin has no whole round for a rule to use; give clip a number"
    if sampling == "poisson" and any(defence.z for defence in private):
        return "federation.sampling: round-robin shows how many clients take part; with dp-fedavg use sampling: fixed"
    return None


def sample_cohort(population: Sequence[Device], plan: FederationPlan, t: int) -> list[Device]:
    """Return the cohort of round t, m_t devices or a Poisson sample, in random order: slots do not identify devices."""
    return [population[i] for i in _sample(len(population), plan, t)]


def largest_cohort(devices: int, plan: FederationPlan) -> int:
    """Return the greatest number of devices that any round of the plan draws, at least 1."""
    if plan.sampling == "fixed":
        return max(plan.expected(t) for t in range(plan.rounds))
    return max(1, *(len(_sample(devices, plan, t)) for t in range(plan.rounds)))


def groups_of(devices: int, plan: FederationPlan) -> Tensor:
    """Return the group of each device (K,)."""
    return torch.randperm(devices, generator=torch_rng(plan.seed, "groups")) % plan.groups


def _sample(devices: int, plan: FederationPlan, t: int) -> list[int]:
    rng, expected = torch_rng(plan.seed, "cohort", t), plan.expected(t)
    order = torch.randperm(devices, generator=rng)
    if plan.sampling == "fixed":
        return order[:expected].tolist()
    taken = torch.rand(devices, generator=rng, dtype=torch.float64) < plan.rate(t, devices)
    if plan.groups > 1:
        taken &= groups_of(devices, plan)[order] == t % plan.groups
    return order[taken].tolist()
