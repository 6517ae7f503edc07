"""The reading half of the update store: only what the adversary may see, and only undamaged data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from fedprint import params
from fedprint.store.files import (
    JOURNAL,
    REPAIR,
    Line,
    check_block,
    check_size,
    digest,
    read_block,
    read_journal,
    read_rows,
)
from fedprint.store.index import OBSERVED_SCHEMA, check_index, frame, read_complete, table
from fedprint.store.layout import LAYOUT, FloatArray, StoreLayout, decode, unpack
from fedprint.store.sent import Sent
from fedprint.types import FedprintError, Ints

_WINDOW = 1 << 22
"""Bytes of rows that are read and then decoded: they fit into a cache."""


class UpdateStore:
    """A store as the server sees it; made by :meth:`open` from the folder ``observed/`` and nothing else.

    Rows are positions in :attr:`index`: rounds in order, within a round the slots in order. Only the journal is cached.
    """

    def __init__(self, folder: Path, layout: StoreLayout, lines: Sequence[Line], marks: dict[str, str] | None) -> None:
        """Not for callers: use :meth:`open`."""
        self.layout = layout
        self._folder, self._lines, self._marks = folder, lines, marks
        counts = [line.body["rows"] for line in lines[1:]]
        slots = [t * layout.cohort + np.arange(count) for t, count in enumerate(counts)]
        self._slots: Ints = np.concatenate([np.zeros(0, np.int64), *slots])

    @classmethod
    def open(cls, observed_folder: Path | str, *, partial: bool = False, verify: bool = True) -> Self:
        """Open a finished store, or the whole rounds of an unfinished one when ``partial``.

        Every stored byte is checked first unless ``verify`` is off (see :meth:`verify`). Raises FedprintError when the
        store is unfinished or damaged.
        """
        folder = Path(observed_folder)
        layout, marks = StoreLayout.read(folder / LAYOUT), read_complete(folder)
        if marks is None and not partial:
            raise FedprintError(f"{folder}: this store is unfinished; resume its run, or open it with partial=True")
        seed = digest([layout.to_bytes()])
        lines = list(read_journal(folder / JOURNAL, seed, torn_ok=marks is None))
        if marks is not None and (lines[-1].digest if lines else "") != marks["checksum"]:
            raise FedprintError(f"{folder / JOURNAL}: {len(lines)} lines are not the journal marked complete; {REPAIR}")
        store = cls(folder, layout, lines, marks)
        if verify:
            store.verify()
        return store

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the stored layers, in order."""
        return self.layout.kept

    @property
    def sizes(self) -> dict[str, int]:
        """Number of columns of each stored layer."""
        return self.layout.sizes

    @property
    def rounds(self) -> int:
        """Number of whole rounds."""
        return max(0, len(self._lines) - 1)

    @cached_property
    def index(self) -> pd.DataFrame:
        """One line per row: obs_id, round, role, num_examples, pseudonym, user_id (Int64, prior devices only)."""
        return frame(table((line.body for line in self._lines[1:]), OBSERVED_SCHEMA))

    @cached_property
    def sent(self) -> Sent:
        """What the server sees of each row's sender, beside the update."""
        index = self.index
        rounds = index["round"].to_numpy(dtype=np.int64)
        # A pseudonym that does not persist is known from one row only.
        names = index["pseudonym"].fillna(index["obs_id"].astype(str))
        senders, _ = pd.factorize(names)
        took_part = np.zeros((len(names), self.rounds), dtype=np.bool_)
        took_part[senders, rounds] = True
        examples = index["num_examples"].to_numpy(dtype=np.int64)
        return Sent(examples=examples, rounds=rounds, history=took_part[senders])

    def columns(self, layers: Sequence[str] | None = None) -> dict[str, slice]:
        """Return which columns of :meth:`matrix` each layer fills; a layer is a full name or a dotted prefix.

        Raises FedprintError for a layer that is not stored.
        """
        names = params.select(self.layers, layers)
        for layer in layers or ():
            if not params.select(names, [layer]):
                raise FedprintError(
                    f"{self._folder}: layer {layer} is not stored; choose from {', '.join(self.layers)}"
                )
        ends = np.cumsum([0, *(self.sizes[name] for name in names)]).tolist()
        return {name: slice(lo, hi) for name, lo, hi in zip(names, ends, ends[1:], strict=False)}

    def matrix(
        self,
        layers: Sequence[str] | None = None,
        rows: NDArray[Any] | None = None,
        dtype: DTypeLike = np.float32,
    ) -> FloatArray:
        """Return updates (rows, d): the chosen layers side by side, all by default; ``rows`` as numpy indexes."""
        whole = max(part.stop for part in self.columns(layers).values())
        return next(self.blocks(layers, rows, columns=whole, dtype=dtype))

    def blocks(
        self,
        layers: Sequence[str] | None = None,
        rows: NDArray[Any] | None = None,
        *,
        columns: int = 1 << 14,
        dtype: DTypeLike = np.float32,
    ) -> Iterator[FloatArray]:
        """Yield :meth:`matrix` in column blocks (rows, <= ``columns``), left to right, in the memory of one block."""
        slots = self._slots if rows is None else self._slots[rows]
        parts = self.columns(layers)
        end = max(part.stop for part in parts.values())
        for first in range(0, end, columns):
            block = np.empty((len(slots), min(columns, end - first)), dtype)
            for name, part in parts.items():
                lo, hi = max(first, part.start), min(first + columns, part.stop)
                if lo < hi:
                    self._fill(block[:, lo - first : hi - first], name, lo - part.start, slots)
            yield block

    def global_params(self, round: int) -> dict[str, Tensor]:
        """Return the parameters that the clients of ``round`` receive; ``rounds`` gives the final ones.

        Checked against the journal at every call. Raises FedprintError for a round that is not stored.
        """
        if not 0 <= round < len(self._lines):
            raise FedprintError(f"{self._folder}: no global parameters of round {round}; choose 0 to {self.rounds}")
        file = self.layout.global_file
        data = read_block(self._folder, file, round, self._lines[round].body["checks"][file.path])
        return unpack(self.layout, np.frombuffer(data, file.dtype))

    def history(self) -> list[dict[str, Any]]:
        """Return ``{"round": t, **metrics}`` of every round."""
        return [{"round": line.body["round"], **line.body["metrics"]} for line in self._lines[1:]]

    def checksum(self) -> str:
        """Return one digest of everything stored: layout, arrays, index and metrics."""
        return self._lines[-1].digest if self._lines else digest([self.layout.to_bytes()])

    def verify(self) -> None:
        """Read every stored byte and raise FedprintError at damage, naming file, round, bytes and kind.

        Kinds: missing, truncated, blank (never written), damaged (flipped or torn). Bounded memory.
        """
        if self._marks is not None:
            check_index(self._folder, self._marks["index"])
        for file in self.layout.files():
            check_size(self._folder, file)
        with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            for _ in pool.map(self._verify_line, range(len(self._lines))):
                pass

    def _verify_line(self, number: int) -> None:
        files = {file.path: file for file in self.layout.files()}
        for path, expected in self._lines[number].body["checks"].items():
            check_block(self._folder, files[path], number, expected)

    def _fill(self, out: FloatArray, name: str, first: int, slots: Ints) -> None:
        """Copy the columns of a layer from ``first`` on into ``out`` (rows, columns), a few rows at a time."""
        file, packed = self.layout.layer_file(name), self.layout.precision == "float16"
        check_size(self._folder, file)
        scales = self._scales()[slots, self.layers.index(name)] if packed else None
        step = max(1, _WINDOW // (out.shape[1] * np.dtype(file.dtype).itemsize))
        descriptor = os.open(self._folder / file.path, os.O_RDONLY)
        try:
            for start in range(0, len(slots), step):
                window = slice(start, start + step)
                values = read_rows(descriptor, file, slots[window], first, out.shape[1])
                decode(values, None if scales is None else scales[window], out[window])
        finally:
            os.close(descriptor)

    def _scales(self) -> FloatArray:
        file = self.layout.scale_file
        check_size(self._folder, file)
        return np.memmap(self._folder / file.path, file.dtype, "r", shape=file.shape)
