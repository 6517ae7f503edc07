"""Private parameters that a client keeps from round to round, in files outside the update store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import safetensors.torch as codec
from safetensors import SafetensorError

from fedprint.store.files import replace
from fedprint.types import FedprintError, Params


class ClientState(Protocol):
    """Private parameters by device: a client loads what it saved in its last round."""

    def load(self, device_id: str, t: int) -> Params:
        """Return the client's parameters after its last round before ``t``, or its first ones."""

    def save(self, device_id: str, t: int, private: Params) -> None:
        """Keep the client's parameters after round ``t``."""


class ClientFiles:
    """One folder per device, one file per round: ``<folder>/<device>/<round>.safetensors``.

    ``draw(device_id)`` gives the first parameters. A killed run may resume one round earlier than it was killed (the
    store writes a round while the next one trains). So the newest file that is at least two rounds old is kept, and
    files of rounds that are repeated are not read. The folder belongs to the client and is not among the outputs.
    """

    def __init__(self, folder: Path, draw: Callable[[str], Params]) -> None:
        self._folder, self._draw = folder, draw

    def load(self, device_id: str, t: int) -> Params:
        """Return the newest parameters of a round before ``t``. Raises FedprintError for a damaged file."""
        fresh = self._draw(device_id)
        earlier = [round for round in self._rounds(device_id) if round < t]
        if not earlier:
            return fresh
        path = self._file(device_id, max(earlier))
        try:
            tensors = codec.load(path.read_bytes())
        except (SafetensorError, OSError) as error:
            raise FedprintError(f"{path}: cannot be read ({error}); delete the checkpoint and run again") from None
        return {name: tensors[name].to(tensor) for name, tensor in fresh.items()}

    def save(self, device_id: str, t: int, private: Params) -> None:
        """Write the parameters of round ``t`` atomically, and delete those of rounds that no resume can need."""
        path = self._file(device_id, t)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, codec.save({name: tensor.detach().cpu().contiguous() for name, tensor in private.items()}))
        safe = [round for round in self._rounds(device_id) if round <= t - 2]
        for round in safe[:-1]:
            self._file(device_id, round).unlink()

    def _file(self, device_id: str, t: int) -> Path:
        return self._folder / quote(device_id, safe="") / f"{t}.safetensors"

    def _rounds(self, device_id: str) -> list[int]:
        folder = self._file(device_id, 0).parent
        return sorted(int(path.stem) for path in folder.glob("*.safetensors")) if folder.is_dir() else []


class ClientMemory:
    """As :class:`ClientFiles`, but in memory: for a federation in one process that is not resumed."""

    def __init__(self, draw: Callable[[str], Params]) -> None:
        self._draw = draw
        self._held: dict[str, Params] = {}

    def load(self, device_id: str, t: int) -> Params:
        """Return what the client saved last, or its first parameters."""
        return self._held[device_id] if device_id in self._held else self._draw(device_id)

    def save(self, device_id: str, t: int, private: Params) -> None:
        """Hold the parameters."""
        self._held[device_id] = private
