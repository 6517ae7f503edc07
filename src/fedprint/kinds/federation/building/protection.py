"""Defences in a run: modes of the background, point 1 on every defended device, who drew which strength, the cost."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedprint.data.dataset import Meta
from fedprint.data.examples import concat, num_examples
from fedprint.data.formats.files import write_json
from fedprint.data.prepared import load_users
from fedprint.defences.points import defend_data, settle
from fedprint.defences.strength import Defence
from fedprint.kinds.federation.building import federation as build
from fedprint.kinds.federation.building.clustering import with_clusters, write_clusters
from fedprint.lab.graph import Task
from fedprint.models.inputs import model_users
from fedprint.types import Device


@dataclass(frozen=True, kw_only=True)
class Protected:
    """Devices after point 1; examples of those defended ``before`` and ``after``, and seconds on all of them."""

    devices: tuple[Device, ...]
    defended: int
    before: int
    after: int
    data_seconds: float
    cluster_seconds: float

    @property
    def data_overhead(self) -> dict[str, int]:
        """How many devices hold how many examples more; the same in equal runs, unlike the times."""
        return {
            "defended_devices": self.defended,
            "examples_before": self.before,
            "examples_after": self.after,
        }


def protect(task: Task, meta: Meta, devices: Sequence[Device]) -> Protected:
    """Write public/ and apply the data defences to the devices of the defended roles."""
    seed, roles = build.federation_seed(task.seed), task.config.threat.defended_roles()
    background = load_users(task.at("background"))
    started = time.perf_counter()
    write_clusters(task.at("public"), task.config, meta, background, seed, task.device)
    clustered = time.perf_counter()
    public = model_users(
        with_clusters(background, task.at("public")),
        build.DTYPES[task.config.federation.dtype],
        model=task.config.model,
    )
    pool = concat([user.examples for user in public]) if public else {}
    ready = time.perf_counter()
    after = defend_data(devices, task.config.defences, pool, seed, roles)
    return Protected(
        devices=after,
        defended=sum(device.role in roles for device in devices) if task.config.defences else 0,
        before=_examples(devices, roles),
        after=_examples(after, roles),
        data_seconds=time.perf_counter() - ready,
        cluster_seconds=clustered - started,
    )


def strengths(task: Task, devices: Sequence[Device]) -> dict[str, Any]:
    """Return device id -> the defences as the device runs them, and whether any of them changes anything."""
    seed, roles = build.federation_seed(task.seed), task.config.threat.defended_roles()
    chosen = {d.device_id: settle(task.config.defences, d.device_id, seed) if d.role in roles else () for d in devices}
    return {device_id: _described(settled) for device_id, settled in chosen.items()}


def _described(settled: Sequence[object]) -> dict[str, Any]:
    defences = [defence for defence in settled if isinstance(defence, Defence)]
    return {
        "protected": any(defence.protects for defence in defences),
        "defences": [defence.model_dump(mode="json") for defence in defences],
    }


def write_overhead(task: Task, protected: Protected, seconds_per_update: float) -> None:
    """Write overhead/overhead.json and send it: examples added, and seconds of each defence point."""
    numbers = {
        **protected.data_overhead,
        "cluster_seconds": protected.cluster_seconds,
        "data_seconds_per_device": protected.data_seconds / max(protected.defended, 1),
        "update_seconds_per_device": seconds_per_update,
    }
    write_json(task.at("overhead") / "overhead.json", numbers)
    if not task.config.defences:
        return
    task.metrics([(f"overhead/{name}", float(value), 0) for name, value in numbers.items()])
    factor, ms = protected.after / max(protected.before, 1), 1000 * seconds_per_update
    print(f"defences of {task.item}: {factor:.2f} times the data, {ms:.1f} ms per update", file=sys.stderr, flush=True)


def _examples(devices: Sequence[Device], roles: Sequence[str]) -> int:
    return sum(num_examples(device.examples) for device in devices if device.role in roles)
