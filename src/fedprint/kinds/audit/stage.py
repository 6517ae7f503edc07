"""Stage canaries: the experiment is trained once more with canaries among its devices, and guesses judge it."""

from __future__ import annotations

from fedprint.accounting.budget import Budget
from fedprint.audit.run import Audit, audit
from fedprint.data.formats.files import read_json, write_json
from fedprint.data.prepared import load_meta, load_users
from fedprint.federation.backends import open_backend
from fedprint.federation.privacy import budget_accountant
from fedprint.kinds.audit.config import auditable
from fedprint.kinds.audit.results import FILE, as_values
from fedprint.kinds.federation.building import federation as build
from fedprint.lab.gpus import torch_devices
from fedprint.lab.graph import Task
from fedprint.models.inputs import model_users


def run(task: Task) -> None:
    """Write what the audit found."""
    task.at("audit").mkdir()
    write_json(task.at("audit") / FILE, as_values(audit_task(task)))


def audit_task(task: Task) -> Audit:
    """Train with canaries, on the executor that the experiment trains on; the server stays on the CPU.

    The audit's seed is that of the training.
    """
    config, seed = task.config, build.federation_seed(task.seed)
    dtype = build.DTYPES[config.federation.dtype]
    meta = load_meta(task.at("meta"))
    prior, private = (
        model_users(load_users(task.at(name)), dtype, model=config.model) for name in ("prior", "private")
    )
    absent = build.absent_users(private, config.federation.absent, seed)
    devices = build.make_devices(prior, private, absent)
    model = build.build_model(config, meta, prior, seed)
    # noise of its own: an audit trains what a run of this seed has trained, with canaries
    plan = build.make_plan(config, len(devices), seed, f"audit-{build.store_identity(config, meta)}-{task.prior}")
    executor = read_json(task.at("executor") / "executor.json")["backend"]
    defence, setting = auditable(config), config.audit.at(task.seed)
    with open_backend(executor, model, torch_devices(task.device)) as backend:
        return audit(
            devices=devices,
            backend=backend,
            initial=build.parameters_of(model),
            plan=plan,
            defence=defence,
            accountant=budget_accountant(defence.budget or Budget(delta=setting.delta), plan.sampling),
            setting=setting,
        )
