"""The writing half of the update store: rounds are stored one by one, each completely or not at all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fedprint.lab.gpus import on_host
from fedprint.store.files import (
    JOURNAL,
    REPAIR,
    Journal,
    allocate,
    as_bytes,
    check_size,
    digest,
    read_block,
    read_journal,
    replace,
    sync,
    write_at,
    write_parts,
)
from fedprint.store.index import (
    COMPLETE,
    OBSERVED_SCHEMA,
    TRUTH_SCHEMA,
    check_records,
    columns,
    finite_metrics,
    mark_complete,
    table,
)
from fedprint.store.layout import (
    LAYOUT,
    ArrayFile,
    FloatArray,
    StoreLayout,
    encode,
    pack,
    store_bytes,
    unpack,
)
from fedprint.types import FedprintError, Observation, Params, Truth

_SLAB = 1 << 22
"""Bytes of a layer, as float64, that are encoded at once: few enough to stay in the core's cache meanwhile."""


class StoreWriter:
    """The only writer of a store; use as a context manager, or call :meth:`close`.

    Made by :meth:`open`. A run that is killed at any moment is resumed by opening the same folder with the same layout:
    the rounds before :attr:`next_round` are safe, and the files end byte-identical to those of an uninterrupted run.
    Memory does not grow with rounds, except for the obs_ids. A full disk or damage is a FedprintError that names the
    file.
    """

    def __init__(self, folder: Path, layout: StoreLayout, lock: int) -> None:
        """Not for callers: use :meth:`open`."""
        self.layout = layout
        self._observed, self._truth, self._lock = folder / "observed", folder / "truth", lock
        seed = digest([layout.to_bytes()])
        self._journal = Journal(self._observed / JOURNAL, seed)
        self._truths = Journal(self._truth / JOURNAL, seed, limit=self.next_round)
        self._check_resumable()
        self._ids = {obs_id for body in self._rounds() for obs_id in body["index"]["obs_id"]}

    @classmethod
    def open(cls, folder: Path | str, layout: StoreLayout) -> Self:
        """Create the store in ``folder`` (``observed/`` and ``truth/``) or resume it.

        Raises FedprintError when the disk cannot hold the whole store, when the folder holds a store of another
        layout or fingerprint, when its files are damaged, or when another writer has it open.
        """
        root = Path(folder)
        for part in ("observed/layers", "truth"):
            (root / part).mkdir(parents=True, exist_ok=True)
        lock = _lock(root)
        try:
            _claim(root / "observed", layout)
            return cls(root, layout, lock)
        except BaseException:
            os.close(lock)
            raise

    @property
    def next_round(self) -> int:
        """The first round that is not stored: 0 in a new store, ``layout.rounds`` when all are."""
        return max(0, self._journal.length - 1)

    def set_initial(self, params: Params) -> None:
        """Store the global parameters before round 0; on a resumed store they must be the same, else FedprintError."""
        data, file = as_bytes(pack(self.layout, params)), self.layout.global_file
        checks = {file.path: digest([data])}
        if self._journal.length == 0:
            write_at(self._observed / file.path, 0, data)
            sync([self._observed / file.path])
            self._journal.append({"round": None, "rows": 0, "checks": checks, "metrics": {}})
        elif next(self._lines())["checks"] != checks:
            raise FedprintError(f"{self._observed}: other initial parameters than stored; use the same seed and model")

    def append(
        self,
        round: int,
        observations: Sequence[Observation],
        truths: Sequence[Truth],
        global_params_after: Params,
        metrics: Mapping[str, float],
    ) -> None:
        """Store one round; it is on the disk when this returns, and invisible until then.

        Observations take the slots in the given order: the caller shuffles them, so that slots do not depend on the
        sender. ``truths`` are those of the same obs_ids. Updates hold at least the kept layers, on any device, in any
        float type; ``global_params_after`` holds all parameters in the type of the layout. ``metrics`` must be the same
        in every run of the config: no timings. Raises FedprintError for a round out of order, for values that are not
        finite, and for records that do not fit the layout or each other.
        """
        self._check_turn(round)
        self._check_new(observations)
        check_records(round, observations, truths, self.layout.cohort)
        body: dict[str, Any] = {"round": round, "rows": len(observations), "metrics": finite_metrics(round, metrics)}
        body["checks"] = self._write_arrays(round, observations, pack(self.layout, global_params_after))
        body["index"] = columns(observations, OBSERVED_SCHEMA)
        sync(self._observed / file.path for file in self.layout.files())
        # The truth's journal is written first. observed/ holds no digest of it, which would allow to check guesses.
        self._truths.append({"round": round, "index": columns(truths, TRUTH_SCHEMA)})
        self._journal.append(body)
        self._ids.update(body["index"]["obs_id"])

    def latest_params(self) -> dict[str, Tensor]:
        """Return the global parameters that the next round starts from, checked against the journal."""
        if self._journal.last is None:
            raise FedprintError(f"{self._observed}: no parameters yet; call set_initial first")
        return self._global(self._journal.length - 1, self._journal.last.body)

    def params_before_last(self) -> dict[str, Tensor]:
        """Return the global parameters that the last stored round started from, checked against the journal."""
        if self.next_round == 0:
            raise FedprintError(f"{self._observed}: no round is stored; append one first")
        *_, body = islice(self._lines(), self._journal.length - 1)
        return self._global(self._journal.length - 2, body)

    def metrics(self) -> list[dict[str, Any]]:
        """Return ``{"round": t, **metrics}`` of every stored round."""
        return [{"round": body["round"], **body["metrics"]} for body in self._rounds()]

    def finalise(self) -> None:
        """Write both indexes and mark the store complete; does nothing if it is already complete.

        Raises FedprintError when rounds are missing.
        """
        if self.next_round < self.layout.rounds:
            state = f"round {self.next_round} of {self.layout.rounds} is next"
            raise FedprintError(f"{self._observed}: {state}; store the rest before finalise")
        truths = (line.body for line in read_journal(self._truths.path, self._truths.seed, torn_ok=False))
        mark_complete(self._truth, table(truths, TRUTH_SCHEMA), self._truths.digest)
        mark_complete(self._observed, table(self._rounds(), OBSERVED_SCHEMA), self._journal.digest)

    def close(self) -> None:
        """Release the lock of the store; may be called twice."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close; a store that was not finalised stays resumable."""
        self.close()

    def _global(self, line: int, body: Mapping[str, Any]) -> dict[str, Tensor]:
        file = self.layout.global_file
        data = read_block(self._observed, file, line, body["checks"][file.path])
        return unpack(self.layout, np.frombuffer(data, file.dtype))

    def _lines(self) -> Iterator[Mapping[str, Any]]:
        return (line.body for line in read_journal(self._journal.path, self._journal.seed, torn_ok=True))

    def _rounds(self) -> Iterator[Mapping[str, Any]]:
        return (body for body in self._lines() if body["round"] is not None)

    def _check_resumable(self) -> None:
        for file in self.layout.files():
            check_size(self._observed, file)
        if self._truths.length < self.next_round:
            lost = f"no round {self._truths.length}, though {self.next_round} are stored"
            raise FedprintError(f"{self._truths.path}: {lost}; {REPAIR}")
        if self._complete and self.next_round < self.layout.rounds:
            lost = f"no round {self.next_round}, though the store was complete"
            raise FedprintError(f"{self._journal.path}: {lost}; {REPAIR}")

    @property
    def _complete(self) -> bool:
        return (self._observed / COMPLETE).exists()

    def _check_turn(self, round: int) -> None:
        if self._journal.length == 0:
            raise FedprintError(
                f"{self._observed}: round {round} before the initial parameters; call set_initial first"
            )
        if round != self.next_round or round >= self.layout.rounds:
            state = f"next is {self.next_round} of {self.layout.rounds}"
            raise FedprintError(f"{self._observed}: round {round} is out of order ({state}); append next_round")

    def _check_new(self, observations: Sequence[Observation]) -> None:
        if old := self._ids.intersection(o.obs_id for o in observations):
            raise FedprintError(f"{self._observed}: obs_id {min(old)} is of an earlier round; make them unique")

    def _write_arrays(self, round: int, observations: Sequence[Observation], after: FloatArray) -> dict[str, str]:
        scales = np.zeros((self.layout.cohort, len(self.layout.kept)), np.float32)
        parts: dict[ArrayFile, Iterable[memoryview]] = {
            self.layout.layer_file(name): _slabs(self.layout, round, name, observations, scales[:, column])
            for column, name in enumerate(self.layout.kept)
        }
        if self.layout.precision == "float16":
            # A view: writing the layers, which come before, fills it.
            parts[self.layout.scale_file] = [as_bytes(scales)]
        parts[self.layout.global_file] = [as_bytes(after)]
        return {
            file.path: write_parts(self._observed / file.path, file.offset(round + 1), data)
            for file, data in parts.items()
        }


def _slabs(
    layout: StoreLayout, round: int, name: str, observations: Sequence[Observation], scales: FloatArray
) -> Iterator[memoryview]:
    """Yield the bytes of a layer, slot by slot, in pieces of bounded size, and fill ``scales`` (cohort,).

    Unused slots are overwritten with zeros, so that a repeated round leaves no trace of the first attempt.
    """
    step = max(1, _SLAB // (layout.sizes[name] * 8))
    for first in range(0, layout.cohort, step):
        part, used = observations[first : first + step], min(step, layout.cohort - first)
        slab: FloatArray = np.zeros((0, layout.sizes[name]), layout.precision)
        if part:
            slab, scale = encode(_stack(layout, name, part), layout.precision)
            _check_finite(round, name, first, slab if scale is None else scale[:, None])
            scales[first : first + len(part)] = 1 if scale is None else scale
        yield as_bytes(slab if len(part) == used else np.pad(slab, ((0, used - len(part)), (0, 0))))


def _stack(layout: StoreLayout, name: str, observations: Sequence[Observation]) -> FloatArray:
    for o in observations:
        shape = tuple(o.update[name].shape) if name in o.update else None
        if shape != layout.shapes[name]:
            fault = f"shape {shape} instead of {layout.shapes[name]}" if shape is not None else "not in the update"
            raise FedprintError(f"round {o.round}, obs_id {o.obs_id}, layer {name}: {fault}; correct the kept layers")
    rows = on_host(torch.stack([o.update[name].detach().reshape(-1) for o in observations]))
    return (rows if rows.dtype == torch.float64 else rows.float()).numpy()


def _check_finite(round: int, name: str, first: int, rows: FloatArray) -> None:
    fine = np.isfinite(rows).all(axis=1)
    if not fine.all():
        slot = first + int(np.argmin(fine))
        remedy = "training diverged: lower the learning rate"
        raise FedprintError(f"round {round}, layer {name}, slot {slot}: update is NaN, infinite or too large; {remedy}")


def _lock(folder: Path) -> int:
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise FedprintError(f"{folder}: another process writes to this store; wait for it or stop it") from None
    return fd


def _claim(observed: Path, layout: StoreLayout) -> None:
    """Create a store of this layout on the disk, or check that the existing one has this layout."""
    if not (observed / LAYOUT).exists():
        arrays = sum(file.size for file in layout.files())
        allocate(observed, layout.files(), store_bytes(layout) - arrays)
        sync([observed, observed / "layers"])
        replace(observed / LAYOUT, layout.to_bytes())
    stored = StoreLayout.read(observed / LAYOUT)
    if (name := layout.difference(stored)) is not None:
        difference = f"{name} is {getattr(stored, name)!r}, not {getattr(layout, name)!r}"
        raise FedprintError(
            f"{observed}: store of another config: {difference}; delete it or choose another folder"[:600]
        )
