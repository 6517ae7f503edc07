"""Stage federate: train, record every update as the server sees it, keep the truth apart, measure the utility."""

from __future__ import annotations

import math
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedprint.data.examples import columns, concat, num_examples, take
from fedprint.data.prepared import Meta, load_meta, load_users
from fedprint.federation.backends import best_device
from fedprint.federation.rounds import RoundReport, federate
from fedprint.federation.store import StoreWriter, UpdateStore
from fedprint.models.base import FedModule, quiet_trainer
from fedprint.models.batches import ShuffledBatches
from fedprint.pipeline import recipes
from fedprint.pipeline.named_files import files_sha256
from fedprint.pipeline.privacy import open_ledger, write_privacy
from fedprint.pipeline.progress import Meter, meter
from fedprint.pipeline.protection import protect, strengths, write_overhead
from fedprint.pipeline.stages.paths import Job, write_json
from fedprint.pipeline.workspace import find_root
from fedprint.reports.wording import with_unit
from fedprint.rng import torch_rng
from fedprint.tracking.runs import TrackedRun
from fedprint.types import Device, Examples, User

KNN_NEIGHBOURS = 10
KNN_EXAMPLES = 60_000
"""Of more training examples 10-NN knows this many, evenly spaced."""


def run(job: Job, tracked: TrackedRun | None = None) -> None:
    """Write observed/, public/, truth/ and utility/, and what the defences cost.

    A killed run continues at its last complete round.
    """
    torch.set_num_threads(1)  # the order of additions, and so the bits, must not depend on the machine's cores
    started = time.perf_counter()
    prepared, out = job.paths.prepared, job.paths.updates
    meta = load_meta(prepared)
    dtype = recipes.DTYPES[job.config.federation.dtype]
    users = {
        name: recipes.ready(load_users(prepared / name), dtype, best_device(), job.config.model)
        for name in ("prior", "private", "test")
    }
    test = users["test"]
    model = recipes.build_model(job.config, meta, test, recipes.federation_seed(job.seed)).to(best_device())
    absent = recipes.absent_users(users["private"], job.config.federation.absent, recipes.federation_seed(job.seed))
    defended = protect(job, meta, recipes.make_devices(users["prior"], users["private"], absent))
    params, store, watch = _train(job, meta, model, defended.devices, test, tracked)
    recipes.load_parameters(model, params)
    _write_utility(out / "utility", job, meta, model, (*users["prior"], *users["private"]), test)
    summary = {"rounds": store.history(), "store_checksum": store.checksum(), "data_overhead": defended.data_overhead}
    write_json(out / "utility" / "history.json", summary)
    write_json(out / "truth" / "strengths.json", strengths(job, defended.devices))
    write_overhead(job, defended, watch.defence_seconds / max(watch.updates, 1), tracked)
    print(f"federated {job.paths.item} in {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)


def checkpoint_folder(job: Job) -> Path:
    """Return where the store grows: named by everything it depends on but the data, outside DVC's outputs."""
    name = f"{job.config.section_digest(*recipes.SECTIONS)}-{files_sha256(job.config)[:12]}-{job.paths.item}"
    return find_root() / "work" / "checkpoints" / name


def _train(
    job: Job,
    meta: Meta,
    model: FedModule,
    devices: tuple[Device, ...],
    test: tuple[User, ...],
    tracked: TrackedRun | None,
) -> tuple[dict[str, torch.Tensor], UpdateStore, _Watch]:
    seed = recipes.federation_seed(job.seed)
    identity = recipes.store_identity(job.config, meta)
    plan = recipes.make_plan(job.config, len(devices), seed, f"{identity}-{job.prior}")
    if plan.rounds < plan.planned:
        print(
            f"{job.paths.item}: the budget allows {plan.rounds} of {plan.planned} rounds", file=sys.stderr, flush=True
        )
    initial = recipes.parameters_of(model)
    folder = checkpoint_folder(job)
    backend = recipes.choose_backend(job.config, model, devices, folder / "backend.json")
    layout = recipes.make_layout(job.config, plan, initial, identity)
    with StoreWriter.open(folder / "store", layout) as writer, meter(f"federate {job.paths.item}", plan.rounds) as bar:
        if writer.next_round == 0:
            writer.set_initial(initial)
        watch = _Watch(bar, tracked, unit="stars" if meta.scale else "fraction")
        params = federate(
            devices=devices,
            plan=plan,
            backend=backend,
            defences=job.config.defences,
            writer=writer,
            utility=recipes.utility_probe(job.config, meta, model, test, plan.rounds),
            report=watch,
            roles=job.config.threat.defended_roles(),
            private=recipes.client_state(model, folder / "private", seed),
            ledger=open_ledger(job, plan, folder, identity, writer.next_round),
        )
        writer.finalise()
        write_privacy(job, plan, len(devices), folder, identity)
        watch.flush()
    for name in ("observed", "truth"):
        _move(folder / "store" / name, job.paths.updates / name)
    shutil.rmtree(folder, ignore_errors=True)
    return params, UpdateStore.open(job.paths.updates / "observed", verify=False), watch


def _move(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, target)


class _Watch:
    """Shows rounds, updates per second, loss and utility; sends metrics to MLflow in batches."""

    def __init__(self, bar: Meter, tracked: TrackedRun | None, *, unit: str) -> None:
        self._bar, self._tracked, self._unit = bar, tracked, unit
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
        """Write what has gathered."""
        if self._tracked is not None and self._points:
            self._tracked.log_metrics(self._points)
        self._points, self._sent = [], time.monotonic()


def _write_utility(
    out: Path, job: Job, meta: Meta, model: FedModule, training: tuple[User, ...], test: tuple[User, ...]
) -> None:
    """Save per-example results on the test set: federated, centralised, and a baseline without any training.

    The baseline is 10-NN where inputs are pictures, and for ratings the median of all training ratings.
    """
    out.mkdir(parents=True, exist_ok=True)
    labels = torch.cat([u.examples["y"] for u in test]).cpu().numpy()
    values, owners = recipes.predictions(model, test)
    results = {"federated": values.cpu().numpy()}
    if job.config.federation.central_epochs:
        results["centralised"] = _centralised(job, meta, training, test)
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


def _centralised(job: Job, meta: Meta, training: tuple[User, ...], test: tuple[User, ...]) -> np.ndarray:
    """Train the same network on all data at once with Lightning."""
    seed = recipes.federation_seed(job.seed)
    model = recipes.build_model(job.config, meta, test, seed)
    cpu = {name: column.cpu() for name, column in _spaced(training).items()}
    batches = ShuffledBatches(cpu, 32, torch_rng(seed, "centralised"))
    quiet_trainer(job.config.federation.central_epochs).fit(model, batches.loader())
    model.eval()
    values, _ = recipes.predictions(model.to(best_device()), test)
    return values.cpu().numpy()


def _nearest_neighbours(examples: Examples, x: torch.Tensor, labels: np.ndarray, meta: Meta) -> np.ndarray:
    """10-NN on model inputs: hits (n,), or for multi-label the share of neighbours with each label (n, classes)."""
    from sklearn.neighbors import NearestNeighbors

    known = examples["x"].flatten(1).cpu().numpy()
    k = min(KNN_NEIGHBOURS, len(known))
    found = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(known).kneighbors(x.flatten(1).cpu().numpy())[1]
    neighbours = examples["y"].cpu().numpy()[found]
    if meta.task == "multi_label":
        return np.asarray(neighbours.mean(1))
    votes = np.stack([(neighbours == c).sum(1) for c in range(len(meta.class_names))], axis=1)
    return np.asarray(votes.argmax(1) == labels)
