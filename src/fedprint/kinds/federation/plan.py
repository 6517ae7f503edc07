"""The costs of a run before it runs: time from a few real client updates, memory and disk from the layout."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fedprint.attacks.adversary.adversaries import Effort, available_mixes, background_devices
from fedprint.attacks.adversary.modes import devices_by_mode
from fedprint.attacks.choices import VALIDATED
from fedprint.attacks.features import ROW_WISE, TRANSFORMS
from fedprint.attacks.reidentification.mlp_tuned import MlpTuned
from fedprint.attacks.reidentification.presets import Chance, Mlp
from fedprint.attacks.reidentification.ridge import CRITERIA
from fedprint.attacks.reidentification.side_channels import SideChannel
from fedprint.data.examples import num_examples
from fedprint.data.formats.locate import data_root
from fedprint.data.prepared import meta_of
from fedprint.data.splits import split_users, with_albums
from fedprint.defences.on_data import MmAug
from fedprint.federation.backends import make_backend, on_one_machine, without_a_trial
from fedprint.kinds.base import Costs
from fedprint.kinds.federation.building import federation as build
from fedprint.kinds.federation.building.effort import effort_of
from fedprint.kinds.federation.config import Experiment
from fedprint.models.base import FedModule
from fedprint.models.inputs import model_users
from fedprint.reports.wording import few_users
from fedprint.rng import seed_for
from fedprint.store.layout import StoreLayout, store_bytes
from fedprint.types import ClientJob, DataDefence, Device, Params

PROCESS_BYTES = 600 * 2**20
"""Memory of a stage's process before it has any data (torch, lightning, scikit-learn)."""

PRODUCTS, SOLVES = 1e11, 1e10
"""Multiplications and additions per second of one core, about: in products of updates, and in solving for a kernel."""

TIMED = 8
"""Devices whose local training is timed."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Costs of a whole experiment; ``federate_s`` and ``attack_s`` in seconds of one core, sizes in bytes.

    ``rounds`` are those of one federation that its budget allows, of the ``planned`` ones.
    """

    items: int
    users: int
    rounds: int
    planned: int
    devices: int
    updates: int
    parameters: int
    seconds_per_update: float
    federate_s: float
    attack_s: float
    disk: int
    memory: int


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Measurements on the data and the model: ``examples`` of all devices, ``prior`` of the adversary's alone.

    ``users`` own a prior and an anonymous device each. ``seconds`` is the time of one example in one epoch.
    """

    users: int
    background: int
    examples: int
    prior: int
    seconds: float
    params: Params


def costs_of(config: Experiment, device: str, *, attacked: bool = True) -> Costs:
    """Return the costs of an experiment, with the numbers behind them."""
    e = estimate(config, device)
    if not attacked:
        e = replace(e, attack_s=0.0, disk=0)
    stopped = f" of {e.planned}: the budget ends them" if e.rounds < e.planned else ""
    return Costs(
        jobs=e.items,
        seconds=e.federate_s + e.attack_s + POINT_SECONDS * e.items,
        disk=e.disk,
        memory=e.memory,
        passing=e.disk // max(e.items, 1),
        details={
            "rounds": f"{e.rounds}{stopped}",
            "devices": f"{e.devices}",
            "updates per federation": f"{e.updates} of {e.parameters} parameters",
            "time per update": f"{1000 * e.seconds_per_update:.1f} ms",
            "time, federations": f"{e.federate_s / 60:.1f} min of one core",
            "time, attacks (rough)": f"{e.attack_s / 60:.1f} min of one core",
        },
        warnings=_few(e.users) if attacked else (),
    )


def _few(users: int) -> tuple[str, ...]:
    return (text,) if (text := few_users(users)) else ()


def estimate(config: Experiment, device: str) -> Estimate:
    """Load the data, time :data:`TIMED` client updates with the configured backend, and multiply."""
    return costs(config, sample(config, device))


@dataclass(frozen=True, kw_only=True)
class Trainees:
    """The devices of a federation, its ``model`` on the same processor, and numbers of users and examples.

    ``prior`` are examples of the adversary's devices, ``background`` users that belong to nobody.
    """

    devices: tuple[Device, ...]
    model: FedModule
    params: Params
    users: int
    background: int
    prior: int


def load_trainees(config: Experiment, device: str) -> Trainees:
    """Load the data and build devices and model on a ``device`` (cpu, cuda), without defences."""
    dataset = config.data.load(data_root(None), seed_for(config.seeds[0], "data"))
    split = split_users(
        with_albums(dataset.users, config.split.min_albums),
        seed=0,
        prior="random",
        test_fraction=config.split.test_fraction,
        test=dataset.test,
    )
    dtype = build.DTYPES[config.federation.dtype]
    prior, private = (model_users(users, dtype, device, config.model) for users in (split.prior, split.private))
    plain = config.model_copy(update={"defences": ()})
    model = build.build_model(plain, meta_of(dataset), private, 0).to(device)
    return Trainees(
        devices=build.make_devices(prior, private),
        model=model,
        params=build.parameters_of(model),
        users=len(prior),
        background=len(dataset.background),
        prior=sum(num_examples(user.examples) for user in prior),
    )


_SAMPLES: dict[tuple[str, str, str], Sample] = {}
"""Measurements of this process, by the settings that they depend on, the device, and where shared data lie."""


def sample(config: Experiment, device: str) -> Sample:
    """Load the data and time the local training of a few devices, evenly spread over the users.

    Members of a suite that differ only in rounds, defences or attacks share one measurement.
    """
    training = [name for name in type(config.federation).model_fields if name not in ("rounds", "evaluate_every")]
    settings = config.section_digest("data", "split", "model", "seeds", *(f"federation.{name}" for name in training))
    key = settings, device, str(data_root(None))
    if key not in _SAMPLES:
        _SAMPLES[key] = _measured(config, device)
    return _SAMPLES[key]


def _measured(config: Experiment, device: str) -> Sample:
    torch.set_num_threads(1)
    trainees = load_trainees(config, device)
    timed = trainees.devices[:: math.ceil(len(trainees.devices) / TIMED)]
    jobs = [ClientJob(device_id=d.device_id, examples=d.examples, seed=0) for d in timed]
    untried = config.federation.backend == "auto"
    name = without_a_trial(trainees.model, device) if untried else config.federation.backend
    backend, training = make_backend(on_one_machine(name), trainees.model), config.federation.local_training()
    list(backend.run(jobs[:1], trainees.params, training))  # the first call warms up
    # processor time on a CPU: the other load of the machine is no cost of the run
    clock = time.perf_counter if device == "cuda" else time.process_time
    started = clock()
    list(backend.run(jobs, trainees.params, training))
    return Sample(
        users=trainees.users,
        background=trainees.background,
        examples=_examples(trainees.devices),
        prior=trainees.prior,
        seconds=(clock() - started) / (_examples(timed) * training.epochs),
        params=trainees.params,
    )


def costs(config: Experiment, measured: Sample) -> Estimate:
    """Return the costs of an experiment, whatever its defences, on the ``measured`` data."""
    devices = config.federation.device_count(measured.users)
    plan = build.make_plan(config, devices, 0)
    layout = build.make_layout(config, plan, measured.params, "dry-run")
    items = len(config.split.priors) * len(config.seeds)
    updates = sum(plan.expected(t) for t in range(plan.rounds))
    growth = _growth(config)
    share = len(config.threat.defended_roles()) / 2  # of the devices
    per_update = measured.seconds * plan.training.epochs * measured.examples / devices * (1 + share * (growth - 1))
    central = measured.seconds * config.federation.central_epochs * measured.examples
    shadows = _Shadows.of(config, measured, plan.rounds, updates)
    kept = sum(layout.sizes[name] for name in layout.kept)
    kernels = 4 * max(shadows.halves, shadows.whole) ** 2 if _compares(config) else 0
    scores = 2 * SCORES * shadows.asked * measured.users
    return Estimate(
        items=items,
        users=measured.users,
        rounds=plan.rounds,
        planned=plan.planned,
        devices=devices,
        updates=updates,
        parameters=layout.d,
        seconds_per_update=per_update,
        federate_s=items * (updates * per_update + central),
        attack_s=items * shadows.seconds(config, measured, layout),
        disk=items * store_bytes(layout),
        memory=PROCESS_BYTES + 4 * (shadows.rows * kept + kernels + scores),
    )


@dataclass(frozen=True, kw_only=True)
class _Shadows:
    """Rows that the adversaries learn from: of ``halves``, to choose by, and of ``whole`` priors; ``asked`` rows.

    ``whole`` are the recorded ones where none are ``made``. ``passes`` over all prior examples train all of them.
    """

    halves: int
    whole: int
    asked: int
    made: int
    background: int
    passes: float

    @property
    def rows(self) -> int:
        """Updates that are made off line."""
        return self.halves + self.made

    @classmethod
    def of(cls, config: Experiment, measured: Sample, rounds: int, updates: int) -> _Shadows:
        effort: Effort = effort_of(config, rounds)
        growth = _growth(config) if any(isinstance(d, DataDefence) for d in config.defences) else 0.0
        known = config.defences if "adaptive" in config.adversaries else ()
        background = background_devices(known, measured.background)
        validating, real = devices_by_mode(known, measured.users, effort.validation_rounds)
        have_modes = any(isinstance(d, MmAug) for d in known)
        validated = measured.users if have_modes else min(VALIDATED, measured.users)
        made = measured.users * effort.whole(rounds) + background + real if effort.clean_rounds else 0
        return cls(
            halves=validated * effort.halves(rounds) + background,
            whole=made or updates // 2,
            asked=updates - updates // 2,
            made=made,
            background=background,
            passes=effort.passes(rounds, growth, validated / measured.users)
            + (background + growth * (validating / 2 + real)) / measured.users,
        )

    def seconds(self, config: Experiment, measured: Sample, layout: StoreLayout) -> float:
        """Return seconds of one core: devices off line, products of updates, the choice of a kernel, the attacks."""
        train = measured.seconds * config.federation.epochs * self.passes * measured.prior
        if not _compares(config):
            return train + ATTACK_SECONDS * len(config.attacks) * len(config.adversaries)
        kept = sum(layout.sizes[name] for name in layout.kept)
        table = self.whole + self.asked
        # Row-wise products of all rows with all cost half; those standardised on what a problem fits are its own.
        pairs = (len(ROW_WISE) / 2 + 1) * self.halves**2 + (len(ROW_WISE) / 2 + 0.5) * table**2
        naive = config.adversaries.count("naive") or 1  # whose settings the adaptive adversary tries too
        adaptive, kinds = config.adversaries.count("adaptive"), len(available_mixes(config.defences))
        by_log_loss, by_ap = (len(CRITERIA[by][1]) for by in ("log-loss", "ap"))
        # both ways to take background out are tried beside none, with settings by log-loss
        ways = (3 if self.background else 1) * by_log_loss + by_ap
        tried = naive * by_log_loss + adaptive * kinds * ways
        answers = naive + adaptive * (1 + len(CRITERIA) * kinds)
        return (
            train
            + 2 * kept * pairs / PRODUCTS
            + tried * self._trials(layout)
            + sum(LEARNT_SECONDS if isinstance(attack, Mlp | MlpTuned) else ATTACK_SECONDS for attack in config.attacks)
            * answers
        )

    def _trials(self, layout: StoreLayout) -> float:
        """Return the seconds of a search over blocks, two deep, at one penalty, on both folds of the halves."""
        layers = {name.rpartition(".")[0] for name in layout.kept}
        trials = 2 * len(TRANSFORMS) * (len(layers) + 1)
        learnt = (self.halves - self.background) / 3  # one side of the clean ones, the defended ones, or both
        return trials * (2 * learnt**3 / SOLVES + TRIAL_SECONDS)


SCORES = 4
"""Tables of float64 scores of every asked update for every user that an attack holds at a time, about."""

TRIAL_SECONDS = 0.003
"""Time of a block and a penalty besides solving: scores and their temperature."""

LEARNT_SECONDS, ATTACK_SECONDS = 10.0, 2.0
"""Time of an attack that trains a network, and of another besides products of updates, about."""

POINT_SECONDS = 8.0
"""Time of a point besides training and kernels: preparing, embedding, evaluating."""

AUDIT_SECONDS = 3.0
"""Time of an audit besides training, about."""


def costs_of_points(
    points: Sequence[tuple[Experiment, int]],
    device: str,
    measured: Sample | None = None,
    audits: Sequence[Experiment] = (),
) -> Costs:
    """Return the costs of points, each configuration with its number of seeds, and of ``audits``, which record nothing.

    All share the data and the model of the first, which are ``measured`` once.
    """
    shared = measured or sample(_one(points[0][0]), device)
    each = [(costs(_one(config), shared), count) for config, count in points]
    attack_s = sum(count * one.attack_s for one, count in each)
    audit_s = sum(costs(_one(config), shared).federate_s + AUDIT_SECONDS for config in audits)
    return Costs(
        jobs=sum(count for _, count in each) + len(audits),
        seconds=sum(count * (one.federate_s + one.attack_s + POINT_SECONDS) for one, count in each) + audit_s,
        disk=sum(count * one.disk for one, count in each),
        memory=max(one.memory for one, _ in each),
        passing=max(one.disk for one, _ in each),
        details={
            "rounds": f"{each[0][0].rounds}",
            "devices": f"{each[0][0].devices}",
            "updates per federation": f"{each[0][0].updates} of {each[0][0].parameters} parameters",
            "time, attacks (rough)": f"{attack_s / 60:.1f} min of one core",
            **({"time, audits": f"{audit_s / 60:.1f} min of one core"} if audits else {}),
        },
        warnings=_few(shared.users),
    )


def _one(config: Experiment) -> Experiment:
    """Return the configuration of one prior and seed."""
    split = config.split.model_copy(update={"priors": config.split.priors[:1]})
    return config.model_copy(update={"seeds": config.seeds[:1], "split": split})


def _compares(config: Experiment) -> bool:
    """Return whether an attack needs inner products of updates, or the adaptive adversary, to compare ways to learn."""
    return "adaptive" in config.adversaries or not all(isinstance(a, Chance | SideChannel) for a in config.attacks)


def _growth(config: Experiment) -> float:
    """Return how many times as many examples a defended device trains on."""
    return math.prod(defence.growth for defence in config.defences)


def _examples(devices: Sequence[Device]) -> int:
    return sum(num_examples(device.examples) for device in devices)
