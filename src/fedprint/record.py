"""Record the updates of any federation, so that ``fedprint audit`` can read them (docs/recorded-updates.md).

Imports NumPy and the standard library only, so it runs inside a server with any other packages. In the folder:
``manifest.yaml``, an npz per update in ``updates/<round>/``, and a file per whole round in ``index/``.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

from fedprint.errors import FedprintError

Sign = Literal["local_minus_global", "global_minus_local"]
Update = Mapping[str, Any] | Sequence[Any]
"""Arrays by name, or a list of arrays as Flower sends them; these are named ``000``, ``001``, ..."""

_MANIFEST, _UPDATES, _INDEX, _TRUTH = "manifest.yaml", "updates", "index", "truth.csv"
_LONGEST = 4096
_MOST = 2**53
_SIGNS = ("local_minus_global", "global_minus_local")


class Recorder:
    """Appends updates to a folder round by round; a killed process leaves whole rounds, and a new Recorder goes on.

    What :meth:`record` got becomes part of the recording when its round is whole: at the first update of a later round,
    at :meth:`end_round`, or at the end of the ``with`` block. An exception inside of the block drops the open round. A
    round that is whole cannot be recorded again. One process records into a folder at a time, from one thread.

    What is recorded is what the server receives. Where devices clip or add noise, that is the defended update; where
    they encrypt it (secure aggregation), the server never has single updates, and there is nothing to record.
    """

    def __init__(self, folder: Path | str, *, title: str = "", sign: Sign = "local_minus_global") -> None:
        """Make the folder or go on after its last whole round; ``sign`` says what an update is.

        Raises FedprintError where the folder is in use or holds a recording with another sign.
        """
        if sign not in _SIGNS:
            raise FedprintError(f"sign is {sign!r}; give {' or '.join(_SIGNS)}")
        self.folder = Path(folder)
        for part in (_UPDATES, _INDEX):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.folder)
        wanted = {"format": "npz", "updates": _UPDATES, "index": _INDEX, "sign": sign}
        self._manifest = _resumed(self.folder / _MANIFEST, wanted | ({"title": title} if title else {}))
        self._write_manifest()
        self._layers = {name: tuple(shape) for name, shape in self._manifest.get("layers", {}).items()}
        self._last = max((int(path.stem) for path in (self.folder / _INDEX).glob("[0-9]*.jsonl")), default=-1)
        self._round = self._last
        self._lines: list[dict[str, Any]] = []

    @property
    def next_round(self) -> int:
        """The first round that is not recorded yet: where a resumed federation goes on."""
        return self._last + 1

    def record(
        self, round: int, device: str | int | None, update: Update, num_examples: int = 0, user: str | int | None = None
    ) -> None:
        """Store one update of ``device``, a pseudonym (None where rounds cannot be linked), in float32.

        ``num_examples`` is 0 where it is unknown. ``user`` is given only where the auditor knows it: the prior. Raises
        FedprintError for a round that is whole, a device that sent already, other layers than before, and NaN.
        """
        number = _whole(round, "round")
        if number <= self._last or number < self._round:
            raise FedprintError(f"round {number} is whole; record rounds in rising order, from {self.next_round}")
        if number > self._round:
            self.end_round()
            self._round = number
        name, owner = _name(device, "device"), _name(user, "user")
        if name and any(line["device"] == name for line in self._lines):
            raise FedprintError(f"device {name!r} sent in round {number} already; record each device once in a round")
        examples = _whole(num_examples, "num_examples")
        arrays = self._checked(_arrays(update), name)
        file = f"{number:08d}/{len(self._lines):06d}.npz"
        _write_npz(self.folder / _UPDATES / file, arrays)
        self._lines.append({"file": file, "round": number, "device": name, "num_examples": examples, "user": owner})

    def end_round(self) -> None:
        """Make the open round part of the recording: it is on the disk when this returns."""
        if not self._lines:
            return
        paths = [self.folder / _UPDATES / line["file"] for line in self._lines]
        for path in [*paths, paths[0].parent, paths[0].parent.parent]:
            _sync(path)
        text = "".join(json.dumps(line) + "\n" for line in self._lines)
        _replace(self.folder / _INDEX / f"{self._round:08d}.jsonl", text.encode())
        self._last, self._lines = self._round, []

    def write_truth(self, users: Mapping[str, str]) -> None:
        """Store who owns which anonymous device, where the auditor may know; only the evaluation reads it."""
        text = io.StringIO()
        rows = sorted((_name(device, "device"), _name(user, "user")) for device, user in users.items())
        csv.writer(text, lineterminator="\n").writerows([("device", "user"), *rows])
        _replace(self.folder / _TRUTH, text.getvalue().encode())
        self._manifest["truth"] = _TRUTH
        self._write_manifest()

    def close(self) -> None:
        """End the open round and let go of the folder."""
        self.end_round()
        self._lock.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an exception the open round, which may lack updates, is dropped."""
        self._lines = self._lines if kind is None else []
        self.close()

    def _checked(self, arrays: dict[str, np.ndarray], device: str) -> dict[str, np.ndarray]:
        """Return the arrays if they have the layers of the recording; the first update sets these."""
        shapes = {name: array.shape for name, array in arrays.items()}
        if not self._layers:
            self._layers = shapes
            self._manifest["layers"] = {name: list(shape) for name, shape in shapes.items()}
            self._write_manifest()
        if shapes != self._layers:
            odd = next(name for name in {**self._layers, **shapes} if shapes.get(name) != self._layers.get(name))
            found, expected = shapes.get(odd, "missing"), self._layers.get(odd, "no layer")
            raise FedprintError(
                f"update of device {device!r}: layer {odd!r} is {found}, was {expected}; give all updates the layers "
                "of one model, or record another model into another folder"
            )
        return {name: arrays[name] for name in self._layers}

    def _write_manifest(self) -> None:
        lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in self._manifest.items()]
        _replace(self.folder / _MANIFEST, "".join(lines).encode())


def _arrays(update: Update) -> dict[str, np.ndarray]:
    """Return the arrays of an update by name, as float32."""
    pairs: Iterable[tuple[str, Any]]
    if isinstance(update, Mapping):
        pairs = update.items()
    elif isinstance(update, Sequence) and not isinstance(update, str | bytes):
        pairs = ((f"{number:03d}", array) for number, array in enumerate(update))
    else:
        raise FedprintError(f"update is a {type(update).__name__}; give arrays by name or a list of arrays")
    arrays = {name: _array(name, value) for name, value in pairs}
    if not arrays:
        raise FedprintError("update holds no array; give arrays by name or a list of arrays")
    return arrays


def _array(name: str, value: Any) -> np.ndarray:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise FedprintError(f"layer name {name!r}; give printable text")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        why = " ".join(str(error).split())
        raise FedprintError(f"layer {name!r} is no array ({why}); give tensor.detach().cpu().float().numpy()") from None
    if array.dtype.kind not in "fiu" or array.size == 0:
        raise FedprintError(f"layer {name!r} is {array.dtype} {array.shape}; give arrays of numbers")
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, dtype=np.float32).reshape(array.shape)
    if not np.isfinite(array).all():
        raise FedprintError(f"layer {name!r} holds NaN or infinite numbers; leave such an update out")
    return array


def _name(value: str | int | None, what: str) -> str:
    text = "" if value is None else str(value)
    if len(text) > _LONGEST or (text and not text.isprintable()) or text != text.strip():
        raise FedprintError(
            f"{what} {text[:80]!r}; give at most {_LONGEST} printable characters, no blanks at the ends"
        )
    return text


def _whole(value: Any, what: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if isinstance(value, str) or number != value or not 0 <= number < _MOST:
        raise FedprintError(f"{what} is {value!r}; give a whole number from 0")
    return number


def _write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def _locked(folder: Path) -> io.TextIOWrapper:
    lock = (folder / ".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise FedprintError(f"{folder}: another process records into it; end that, or give another folder") from None
    return lock


def _resumed(path: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest that is there, or ``wanted``. Raises FedprintError where they do not agree."""
    if not path.exists():
        return wanted
    try:
        pairs = (line.partition(": ") for line in path.read_text(encoding="utf-8").splitlines())
        found = {key: json.loads(value) for key, _, value in pairs}
    except ValueError:
        raise FedprintError(f"{path}: not written by a Recorder; give another folder") from None
    for key, value in wanted.items():
        if found.get(key) != value:
            raise FedprintError(f"{path}: {key} is {found.get(key)!r}, not {value!r}; give another folder")
    return found


def _replace(path: Path, data: bytes) -> None:
    """Replace the content of ``path`` atomically; it is on the disk when this returns."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    _sync(temporary)
    os.replace(temporary, path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
