"""From prepared users to a running federation: small builders that stages and tests share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from fedprint.attacks.view import ServerRule
from fedprint.data.dataset import Meta, Task
from fedprint.data.examples import concat
from fedprint.defences.points import has_guarantee
from fedprint.defences.secret_head import secret_head
from fedprint.defences.secure_aggregation import check_group
from fedprint.federation.backends import on_one_machine
from fedprint.federation.client_state import ClientFiles, ClientState
from fedprint.federation.cohorts import FederationPlan, check_cohort, cohort_size, largest_cohort
from fedprint.federation.privacy import noise_of_sums, private_defence, rounds_allowed
from fedprint.kinds.federation.config import Experiment
from fedprint.kinds.federation.named_files import files_sha256
from fedprint.models.base import FedModule
from fedprint.models.components import models_for
from fedprint.models.dual_head import DualHead
from fedprint.models.networks import build_network
from fedprint.params import select
from fedprint.rng import seed_for, torch_rng
from fedprint.store.layout import StoreLayout
from fedprint.types import Device, FedprintError, Params, Role, User

SECTIONS = ("data", "split", "model", "federation", "store", "defences", "threat.defended")
"""What a store depends on in the configuration."""
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def absent_users(users: Sequence[User], share: float, seed: int) -> frozenset[int]:
    """Return the ids of the ``share`` of users whose anonymous device stays away: whom membership attacks must miss."""
    ids = sorted(user.user_id for user in users)
    order = torch.randperm(len(ids), generator=torch_rng(seed, "absent")).tolist()
    return frozenset(ids[i] for i in order[: round(share * len(ids))])


def make_devices(prior: Sequence[User], private: Sequence[User], absent: Collection[int] = ()) -> tuple[Device, ...]:
    """Return both devices of every user (papers.md, section 1), but for the anonymous ones of users ``absent``."""
    present = [user for user in private if user.user_id not in absent]
    roles: tuple[tuple[Role, Sequence[User]], ...] = (("prior", prior), ("anonymous", present))
    return tuple(
        Device(device_id=f"user-{user.user_id}-{role}", user_id=user.user_id, role=role, examples=user.examples)
        for role, users in roles
        for user in users
    )


def build_model(config: Experiment, meta: Meta, users: Sequence[User], seed: int) -> FedModule:
    """Return the experiment's model with its initial parameters. Raises FedprintError for another task's model."""
    if meta.task not in config.model.tasks:
        raise FedprintError(
            f"model.name: '{config.model.name}' does not do {meta.task}, the task of {meta.name}; "
            f"choose one of {', '.join(models_for(meta.task))}"
        )
    model = network(config, tuple(users[0].examples["x"].shape[1:]), len(meta.class_names), meta.task)
    model.reset(torch_rng(seed, "model"))
    return model


def network(config: Experiment, shape: tuple[int, ...], classes: int, task: Task) -> FedModule:
    """Return the experiment's network for inputs of ``shape`` (of one example), with any parameters."""
    model = build_network(config.model, shape, classes, task == "multi_label")
    if (secret := secret_head(config.defences)) is not None:
        model = DualHead(model, bits=secret.bits, alpha1=secret.alpha1, margin=secret.margin)
    model.central_lr = config.federation.central_lr
    return model.to(DTYPES[config.federation.dtype])


def parameters_of(model: FedModule) -> dict[str, Tensor]:
    """Return a detached copy of the parameters that the model's devices share."""
    return {name: p.detach().clone() for name, p in model.public_parameters().items()}


def load_parameters(model: FedModule, params: Params) -> None:
    """Copy the shared ``params`` into the model."""
    with torch.no_grad():
        for name, parameter in model.public_parameters().items():
            parameter.copy_(params[name])


def store_identity(config: Experiment, meta: Meta) -> str:
    """Return what names a store but for prior and seed: settings, the files that they name, and the data.

    A federation on Ray has the store of its executor on one machine.
    """
    local = config.federation.model_copy(update={"backend": on_one_machine(config.federation.backend)})
    # No training reads the files of analyses.
    training = config.model_copy(update={"analyses": (), "federation": local})
    return f"{training.section_digest(*SECTIONS)}-{files_sha256(training)[:12]}-{meta.sha256[:12]}"


def make_plan(config: Experiment, devices: int, seed: int, condition: str = "") -> FederationPlan:
    """Return the federation's constants, with the rounds that a privacy budget allows.

    ``condition`` names the run beside its seed, for noise of its own: without one nothing may be trained for release.
    """
    plan = replace(_planned(config, devices, seed), condition=condition)
    check_cohort(max(plan.expected(t) for t in range(plan.rounds)), devices, plan.groups)
    check_group(config.defences, min(plan.expected(t) for t in range(plan.rounds)))
    allowed = rounds_allowed(private_defence(config.defences), plan, devices, config.threat.defended_roles())
    plan = replace(plan, rounds=allowed)
    return replace(plan, slots=largest_cohort(devices, plan))


def server_rule(config: Experiment, devices: int, norms: Sequence[float] = ()) -> ServerRule:
    """Return how the server makes a step of a round's updates (federation/round_engine.py).

    ``devices`` are those that may take part; ``norms`` the clipping norms by round that the public ledger has.
    """
    f, plan = config.federation, _planned(config, devices, 0)
    in_turn, guarantee = f.aggregation == "round-robin", has_guarantee(config.defences)
    fixed = in_turn or (f.sampling == "poisson" and guarantee)  # in turn, every update is a step of its own
    divisors = tuple(1.0 if in_turn else float(plan.expected(t)) for t in range(plan.rounds))
    return ServerRule(
        equal=guarantee or f.aggregation != "fedavg",
        devices=devices,
        rates=tuple(plan.expected(t) / devices for t in range(plan.rounds)),
        noise=noise_of_sums(private_defence(config.defences), plan, norms),
        norms=tuple(norms),
        divisors=divisors if fixed else None,
        momentum=f.momentum,
        in_turn=in_turn,
    )


def _planned(config: Experiment, devices: int, seed: int) -> FederationPlan:
    f, private = config.federation, private_defence(config.defences)
    return FederationPlan(
        rounds=f.rounds,
        cohort=cohort_size(devices, f.fraction),
        training=f.local_training(),
        seed=seed,
        aggregation=f.aggregation,
        sampling=f.sampling,
        groups=1 if private is None else private.bands,
        growth=f.growth,
        lr_schedule=f.lr_schedule,
        horizon=f.rounds,
        momentum=f.momentum,
        diagnostics=f.diagnostics,
    )


def client_state(model: FedModule, folder: Path, seed: int) -> ClientState | None:
    """Return where devices keep their secret heads, None for a model without one; each device draws its own."""
    if not isinstance(model, DualHead):
        return None
    return ClientFiles(folder, lambda device_id: model.draw_private(torch_rng(seed, "secret-head", device_id)))


def make_layout(config: Experiment, plan: FederationPlan, params: Params, fingerprint: str) -> StoreLayout:
    """Return the store's layout; a layer that the model does not have is an error."""
    wanted = None if config.store.layers == "all" else config.store.layers
    for layer in wanted or ():
        if not select(list(params), [layer]):
            raise FedprintError(f"store.layers: the model has no layer '{layer}'; choose of {', '.join(params)}")
    return StoreLayout(
        rounds=plan.rounds,
        cohort=plan.rows,
        shapes={name: tuple(tensor.shape) for name, tensor in params.items()},
        kept=select(list(params), wanted),
        precision=config.store.precision,
        global_dtype=config.federation.dtype,
        fingerprint=fingerprint,
    )


def predictions(model: FedModule, users: Sequence[User], batch: int = 512) -> tuple[Tensor, Tensor]:
    """Return per-example utility inputs (n, ...) over all users' examples and the user of each (n,)."""
    examples = concat([{"x": u.examples["x"], "y": u.examples["y"]} for u in users])
    owners = torch.repeat_interleave(
        torch.tensor([u.user_id for u in users]), torch.tensor([len(u.examples["y"]) for u in users])
    )
    parts = []
    with torch.no_grad():
        for start in range(0, len(owners), batch):
            part = {name: column[start : start + batch] for name, column in examples.items()}
            parts.append(model.per_example_utility(part))
    return torch.cat(parts), owners


def quick_utility(meta: Meta, values: Tensor, labels: Tensor) -> float:
    """Return the task's utility: accuracy, mean AP over classes, top-5 accuracy over known words, or the MAE in stars.

    The first three are fractions; of the mean absolute error, lower is better.
    """
    if meta.scale is not None:
        return float((values.clamp(*meta.scale) - labels).abs().mean())
    if meta.task == "multi_label":
        from sklearn.metrics import average_precision_score

        present = labels.sum(0) > 0
        return float(average_precision_score(labels[:, present].cpu().numpy(), values[:, present].cpu().numpy()))
    return float(torch.nanmean(values))


def utility_probe(
    config: Experiment, meta: Meta, model: FedModule, test: Sequence[User], rounds: int
) -> Callable[[int, Params], Mapping[str, float]]:
    """Return what the loop calls after each round: the utility on the test set every ``evaluate_every`` rounds.

    And after the last of ``rounds``.
    """
    labels = torch.cat([u.examples["y"] for u in test])
    every, last = config.federation.evaluate_every, rounds - 1

    def probe(t: int, params: Params) -> Mapping[str, float]:
        if (t + 1) % every and t != last:
            return {}
        load_parameters(model, params)
        return {"utility": quick_utility(meta, predictions(model, test)[0], labels)}

    return probe


def federation_seed(seed: int) -> int:
    """Return the root seed of everything random inside the federation."""
    return seed_for(seed, "federation")
