"""The layout of an update store: its layers, their array files, and the bytes of a row.

The store holds on disk what the server sees of every round, and the truth in a separate folder. ``StoreWriter`` fills
``observed/`` and ``truth/`` round by round and survives a kill; ``UpdateStore`` reads ``observed/`` alone;
``read_truth`` is for the evaluation. In ``observed/``: ``layout.json``; ``layers/``, a raw array per layer (row ``round
* cohort + slot``); ``scales.f32`` (rows, layers), float16 only; ``global.f32`` (rounds + 1, d); ``journal.jsonl``,
where a round exists once its line does; ``index.parquet`` and ``complete.json``, written last.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedprint.params import unflatten
from fedprint.types import FedprintError, Params

FloatArray = NDArray[np.floating[Any]]
"""An array of any precision that a store supports."""

LAYOUT = "layout.json"
SCALES = "scales.f32"
_SUFFIX = {"float16": "f16", "float32": "f32", "float64": "f64"}
_GLOBAL_DTYPES = ("float32", "float64")


@dataclass(frozen=True, kw_only=True)
class ArrayFile:
    """A raw array file: ``blocks`` equal blocks of ``rows`` x ``width`` numbers, one block per journal line.

    Journal line 0 is the state before round 0 and line t + 1 is round t; ``first_line`` is the line of block 0.
    """

    path: str
    dtype: str
    rows: int
    width: int
    blocks: int
    first_line: int

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return self.rows * self.width * np.dtype(self.dtype).itemsize

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.blocks * self.block_bytes

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the whole file read as one matrix."""
        return self.blocks * self.rows, self.width

    def offset(self, line: int) -> int:
        """Byte at which the block of a journal line starts."""
        return (line - self.first_line) * self.block_bytes


@dataclass(frozen=True, kw_only=True)
class StoreLayout:
    """The properties of a store that are known before the run and never change.

    ``shapes`` are all parameters in order (d numbers in all); ``kept`` are the names whose updates are stored, in that
    order too. Every round has ``cohort`` slots; fewer may be used. ``precision`` is that of the stored updates.
    float16 comes with a float32 scale per row and layer, so an entry x of a row with largest entry M is off by at most
    2^-11 |x| + 2^-24 M. ``global_dtype`` is the exact type of training. ``fingerprint`` is the hash of the config: a
    store is resumed by the same config only. Raises FedprintError for a layout that cannot be stored.
    """

    rounds: int
    cohort: int
    shapes: Mapping[str, tuple[int, ...]]
    kept: tuple[str, ...]
    fingerprint: str
    precision: Literal["float16", "float32", "float64"] = "float32"
    global_dtype: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        """Refuse a layout that cannot be stored."""
        for name, valid in self._conditions().items():
            if not valid:
                raise FedprintError(f"store layout: {name}={getattr(self, name)!r} cannot be stored; change it")

    def _conditions(self) -> dict[str, bool]:
        return {
            "rounds": self.rounds >= 1,
            "cohort": self.cohort >= 1,
            "shapes": all(math.prod(shape) > 0 for shape in self.shapes.values()),
            "kept": bool(self.kept) and self.kept == tuple(name for name in self.shapes if name in set(self.kept)),
            "precision": self.precision in _SUFFIX,
            "global_dtype": self.global_dtype in _GLOBAL_DTYPES,
        }

    @property
    def sizes(self) -> dict[str, int]:
        """Number of columns of each kept layer, in order."""
        return {name: math.prod(self.shapes[name]) for name in self.kept}

    @property
    def d(self) -> int:
        """Number of all parameters."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def layer_file(self, name: str) -> ArrayFile:
        """Return the file of one kept layer: rows = slots, at ``round * cohort + slot``."""
        path = f"layers/{quote(name, safe='')}.{_SUFFIX[self.precision]}"
        return self._rounds_file(path, self.precision, math.prod(self.shapes[name]))

    @property
    def scale_file(self) -> ArrayFile:
        """The float16 scales: a row per slot, a column per kept layer."""
        return self._rounds_file(SCALES, "float32", len(self.kept))

    @property
    def global_file(self) -> ArrayFile:
        """The global parameters (rounds + 1, d): row t is what the clients of round t receive."""
        path, dtype = f"global.{_SUFFIX[self.global_dtype]}", self.global_dtype
        return ArrayFile(path=path, dtype=dtype, rows=1, width=self.d, blocks=self.rounds + 1, first_line=0)

    def files(self) -> tuple[ArrayFile, ...]:
        """Return every array file of ``observed/``."""
        scales = (self.scale_file,) if self.precision == "float16" else ()
        return (*map(self.layer_file, self.kept), *scales, self.global_file)

    def to_bytes(self) -> bytes:
        """Return the content of ``layout.json``."""
        return (json.dumps(asdict(self), indent=1) + "\n").encode()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read ``layout.json``; raises FedprintError where it is absent or damaged."""
        try:
            raw = json.loads(path.read_bytes())
            shapes = {name: tuple(shape) for name, shape in raw["shapes"].items()}
            return cls(**(raw | {"shapes": shapes, "kept": tuple(raw["kept"])}))
        except FileNotFoundError:
            raise FedprintError(f"{path}: not found; give the folder observed/ of a finished run") from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FedprintError(f"{path}: damaged ({error!r}); restore it or delete the store and run again") from None

    def difference(self, other: StoreLayout) -> str | None:
        """Return the first field that differs from ``other``, the fingerprint first; None when equal."""
        names = ["fingerprint", *(f.name for f in fields(self))]
        mine, theirs = self.to_bytes(), other.to_bytes()
        return None if mine == theirs else next((n for n in names if getattr(self, n) != getattr(other, n)), "shapes")

    def _rounds_file(self, path: str, dtype: str, width: int) -> ArrayFile:
        return ArrayFile(path=path, dtype=dtype, rows=self.cohort, width=width, blocks=self.rounds, first_line=1)


def store_bytes(layout: StoreLayout) -> int:
    """Return the bytes that a store needs on disk: its arrays exactly, its journals and indexes estimated."""
    per_round = sum(len(file.path) + 48 for file in layout.files()) + 240 * layout.cohort + 400
    return sum(file.size for file in layout.files()) + layout.rounds * per_round


def encode(rows: FloatArray, precision: str) -> tuple[FloatArray, FloatArray | None]:
    """Return what is stored of rows (k, width): the values and, for float16, a scale per row (k,).

    A value that is not finite, or too large for the precision, is not finite in the scale (float16) or in the values.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if precision != "float16":
            return rows.astype(precision, copy=False), None
        scale = np.maximum(rows.max(axis=1), -rows.min(axis=1)).astype(np.float32)
        divisor = np.where(scale == 0, 1, scale).astype(rows.dtype)
        # numpy converts to float16 three times slower than torch.
        return torch.from_numpy(rows / divisor[:, None]).half().numpy(), scale


def decode(stored: FloatArray, scale: FloatArray | None, out: FloatArray) -> None:
    """Invert :func:`encode` into ``out``, in its type throughout.

    Torch converts float16 with the processor's own instructions, which NumPy does not use.
    """
    torch.from_numpy(out).copy_(torch.from_numpy(stored))
    if scale is not None:
        out *= scale[:, None].astype(out.dtype)


def pack(layout: StoreLayout, params: Params) -> FloatArray:
    """Return all parameters as one vector (d,) in the type of the layout; FedprintError if they do not fit it."""
    parts = [_checked(layout, name, params) for name in layout.shapes]
    return np.concatenate([part.numpy().reshape(-1) for part in parts])


def unpack(layout: StoreLayout, vector: FloatArray) -> dict[str, Tensor]:
    """Invert :func:`pack`; the tensors own their memory."""
    like = {name: torch.empty(shape, device="meta") for name, shape in layout.shapes.items()}
    return unflatten(torch.from_numpy(vector.copy()), like)


def _checked(layout: StoreLayout, name: str, params: Params) -> Tensor:
    tensor, shape = params.get(name), layout.shapes[name]
    if tensor is None or tuple(tensor.shape) != shape:
        actual = "missing" if tensor is None else f"of shape {tuple(tensor.shape)}"
        raise FedprintError(f"global parameter {name}: {actual}, not {shape}; give the store the shapes of the model")
    if str(tensor.dtype) != f"torch.{layout.global_dtype}":
        raise FedprintError(f"global parameter {name}: {tensor.dtype}; set global_dtype of the store layout to match")
    if not bool(tensor.isfinite().all()):
        raise FedprintError(f"global parameter {name}: NaN or infinite, training diverged; lower the learning rate")
    return tensor.detach().cpu()
