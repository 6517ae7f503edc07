"""Stage federate: train, record every update as the server sees it, keep the truth apart, measure the utility."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from fedprint.data.dataset import Meta
from fedprint.data.examples import columns, concat, num_examples, take
from fedprint.data.formats.files import read_json, replace_folder, write_json
from fedprint.data.prepared import load_meta, load_users
from fedprint.federation.backends import open_backend
from fedprint.federation.rounds import RoundReport, federate
from fedprint.kinds.federation.building import federation as build
from fedprint.kinds.federation.building.model import BUILT_FROM, DESCRIPTION, WEIGHTS
from fedprint.kinds.federation.building.privacy import open_ledger, write_privacy
from fedprint.kinds.federation.building.protection import protect, strengths, write_overhead
from fedprint.lab.gpus import torch_devices
from fedprint.lab.graph import Task
from fedprint.lab.progress import Meter, meter
from fedprint.lab.workers.ray_cluster import join
from fedprint.models.base import FedModule, quiet_trainer
from fedprint.models.batches import ShuffledBatches
from fedprint.models.curves import PipeLogger
from fedprint.models.inputs import model_users
from fedprint.reports.wording import with_unit
from fedprint.rng import torch_rng
from fedprint.store.reader import UpdateStore
from fedprint.store.writer import StoreWriter
from fedprint.types import Device, Examples, Params, User

KNN_NEIGHBOURS = 10
KNN_EXAMPLES = 60_000
"""Most training examples that 10-NN compares with, evenly spaced."""


def connect(config: Any) -> None:
    """Join the Ray cluster before the stage is confined, where clients train on one."""
    if config.federation.backend.startswith("ray"):
        join()


def run(task: Task) -> None:
    """Write observed/, public/, truth/, utility/, the model, and the costs of the defences.

    A killed run continues at its last complete round.
    """
    torch.set_num_threads(1)  # the order of additions, and so the bits, must not depend on the machine's cores
    started, used, resumed = time.perf_counter(), time.process_time(), _folder(task).exists()
    meta = load_meta(task.at("meta"))
    dtype = build.DTYPES[task.config.federation.dtype]
    users = {
        name: model_users(load_users(task.at(name)), dtype, task.device, task.config.model)
        for name in ("prior", "private", "test")
    }
    test = users["test"]
    model = build.build_model(task.config, meta, test, build.federation_seed(task.seed)).to(task.device)
    absent = build.absent_users(users["private"], task.config.federation.absent, build.federation_seed(task.seed))
    defended = protect(task, meta, build.make_devices(users["prior"], users["private"], absent))
    params, store, watch = _train(task, meta, model, defended.devices, test)
    build.load_parameters(model, params)
    write_model(task, params, test[0].examples["x"].shape[1:])
    _write_utility(task.at("utility"), task, meta, model, (*users["prior"], *users["private"]), test)
    summary = {"rounds": store.history(), "store_checksum": store.checksum(), "data_overhead": defended.data_overhead}
    write_json(task.at("utility") / "history.json", summary)
    write_json(task.at("truth") / "strengths.json", strengths(task, defended.devices))
    write_overhead(task, defended, watch.defence_seconds / max(watch.updates, 1))
    # A resumed run does not know the time of the rounds before it.
    seconds = None if resumed else time.process_time() - used
    write_json(task.at("overhead") / "seconds.json", {"federation_seconds": seconds})
    print(f"federated {task.item} in {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)


def write_model(task: Task, params: Params, shape: Sequence[int]) -> None:
    """Write the trained global model: its weights, and the settings that rebuild it (model.py); nothing is pickled."""
    folder = task.at("model")
    folder.mkdir(exist_ok=True)
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in params.items()}, folder / WEIGHTS)
    meta, settings = load_meta(task.at("meta")), task.config.model_dump(mode="json", include=set(BUILT_FROM))
    description = {"settings": settings, "shape": list(shape), "task": meta.task, "class_names": list(meta.class_names)}
    write_json(folder / DESCRIPTION, description)


def _folder(task: Task) -> Path:
    """Return the folder of the unfinished store."""
    return task.scratch / "federation"


def _train(
    task: Task,
    meta: Meta,
    model: FedModule,
    devices: tuple[Device, ...],
    test: tuple[User, ...],
) -> tuple[dict[str, torch.Tensor], UpdateStore, _Watch]:
    seed = build.federation_seed(task.seed)
    identity = build.store_identity(task.config, meta)
    plan = build.make_plan(task.config, len(devices), seed, f"{identity}-{task.prior}")
    if plan.rounds < plan.planned:
        print(f"{task.item}: the budget allows {plan.rounds} of {plan.planned} rounds", file=sys.stderr, flush=True)
    initial = build.parameters_of(model)
    folder = _folder(task)
    executor = read_json(task.at("executor") / "executor.json")["backend"]
    layout = build.make_layout(task.config, plan, initial, identity)
    with (
        open_backend(executor, model, torch_devices(task.device)) as backend,
        StoreWriter.open(folder / "store", layout) as writer,
        meter(f"federate {task.item}", plan.rounds) as bar,
    ):
        if writer.next_round == 0:
            writer.set_initial(initial)
        watch = _Watch(bar, task, unit="stars" if meta.scale else "fraction")
        params = federate(
            devices=devices,
            plan=plan,
            backend=backend,
            defences=task.config.defences,
            writer=writer,
            utility=build.utility_probe(task.config, meta, model, test, plan.rounds),
            report=watch,
            roles=task.config.threat.defended_roles(),
            private=build.client_state(model, folder / "private", seed),
            ledger=open_ledger(task, plan, folder, identity, writer.next_round),
        )
        writer.finalise()
        write_privacy(task, plan, len(devices), folder, identity)
        watch.flush()
    for name in ("observed", "truth"):
        replace_folder(folder / "store" / name, task.at(name))
    return params, UpdateStore.open(task.at("observed"), verify=False), watch


class _Watch:
    """Shows rounds, updates per second, loss and utility; sends metrics in batches."""

    def __init__(self, bar: Meter, task: Task, *, unit: str) -> None:
        self._bar, self._task, self._unit = bar, task, unit
        self._start = self._sent = time.monotonic()
        self._utility, self._loss = "-", math.nan
        self._points: list[tuple[str, float, int]] = []
        self.updates, self.defence_seconds = 0, 0.0

    def __call__(self, report: RoundReport) -> None:
        """Take one finished round."""
        self.updates += report.clients
        self.defence_seconds += report.defence_seconds
        rate = self.updates / max(time.monotonic() - self._start, 1e-9)
        if "utility" in report.metrics:
            self._utility = with_unit(report.metrics["utility"], self._unit)
        self._loss = report.metrics.get("loss", self._loss)  # an empty round has none
        note = f"{rate:.0f} updates/s  loss {self._loss:.3f}  utility {self._utility}"
        self._bar.update(report.round + 1, note)
        names = {"utility": "utility/federated", "clip": "privacy/clip", "clip_share": "privacy/clip_share"}
        self._points += [(names.get(k, f"train/{k}"), v, report.round) for k, v in report.metrics.items()]
        if time.monotonic() - self._sent > 5:
            self.flush()

    def flush(self) -> None:
        """Send the collected metrics."""
        self._task.metrics(self._points)
        self._points, self._sent = [], time.monotonic()


def _write_utility(
    out: Path, task: Task, meta: Meta, model: FedModule, training: tuple[User, ...], test: tuple[User, ...]
) -> None:
    """Save per-example results on the test set: federated, centralised, and a baseline without any training.

    The baseline is 10-NN where inputs are pictures, and for ratings the median of all training ratings.
    """
    out.mkdir(parents=True, exist_ok=True)
    labels = torch.cat([u.examples["y"] for u in test]).cpu().numpy()
    values, owners = build.predictions(model, test)
    results = {"federated": values.cpu().numpy()}
    if task.config.federation.central_epochs:
        results["centralised"] = _centralised(task, meta, training, test)
    if meta.task == "regression":
        results["median"] = np.full(len(labels), np.median(_spaced(training)["y"].cpu().numpy()))
    elif meta.task != "language_model":
        asked = torch.cat([u.examples["x"] for u in test])
        results["knn"] = _nearest_neighbours(_spaced(training, KNN_EXAMPLES), asked, labels, meta)
    arrays = {name: value.astype(np.float32) for name, value in results.items()}
    keep = {"labels": labels} if meta.task in ("multi_label", "regression") else {}
    everything: dict[str, Any] = {**arrays, **keep, "users": owners.cpu().numpy()}
    np.savez(out / "predictions.npz", **everything)


def _spaced(users: tuple[User, ...], most: int | None = None) -> Examples:
    """Return the users' inputs and labels, of more than ``most`` examples that many evenly spaced ones."""
    sizes = [num_examples(user.examples) for user in users]
    every = -(-sum(sizes) // most) if most else 1
    starts = np.cumsum([0, *sizes]).tolist()
    parts = [columns(user.examples, ("x", "y")) for user in users]
    return concat([take(p, slice(-start % every, None, every)) for p, start in zip(parts, starts, strict=False)])


def _centralised(task: Task, meta: Meta, training: tuple[User, ...], test: tuple[User, ...]) -> np.ndarray:
    """Train the same network on all data at once with Lightning."""
    seed = build.federation_seed(task.seed)
    # A CPU's convolutions and max-pools are faster with the channels innermost, as on the devices.
    model = build.build_model(task.config, meta, test, seed).to(memory_format=torch.channels_last)
    batches = ShuffledBatches(dict(_spaced(training)), 32, torch_rng(seed, "centralised"))
    curve = PipeLogger(task.send, "centralised")
    quiet_trainer(task.config.federation.central_epochs, logger=curve).fit(model, batches.loader())
    model.eval()
    values, _ = build.predictions(model.to(task.device), test)
    return values.cpu().numpy()


def _nearest_neighbours(examples: Examples, x: torch.Tensor, labels: np.ndarray, meta: Meta) -> np.ndarray:
    """10-NN on model inputs: hits (n,), or for multi-label the share of neighbours with each label (n, classes)."""
    from sklearn.neighbors import NearestNeighbors

    known = examples["x"].flatten(1).cpu().numpy()
    k = min(KNN_NEIGHBOURS, len(known))
    nearest = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(known).kneighbors(x.flatten(1).cpu().numpy())[1]
    neighbours = examples["y"].cpu().numpy()[nearest]
    if meta.task == "multi_label":
        return np.asarray(neighbours.mean(1))
    votes = np.stack([(neighbours == c).sum(1) for c in range(len(meta.class_names))], axis=1)
    return np.asarray(votes.argmax(1) == labels)
