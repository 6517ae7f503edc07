"""The GPUs of this machine: how many there are, and which of them each call may use."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable by which CUDA, and so all libraries of a process, see some GPUs and no others."""


def gpu_count() -> int:
    """Return the number of GPUs that this process may use."""
    import torch  # late: a command that runs nothing need not wait for it

    return torch.cuda.device_count()


def best_device() -> str:
    """Return ``cuda`` where this process may use a GPU, else ``cpu``: for programs that run outside of a lab."""
    if not gpu_count():
        return "cpu"
    keep_float32()
    return "cuda"


def torch_devices(device: str) -> tuple[str, ...]:
    """Return the names of all GPUs that this process may use where ``device`` is cuda; none for cpu."""
    return tuple(f"cuda:{gpu}" for gpu in range(gpu_count())) if device == "cuda" else ()


def on_host(tensor: Tensor) -> Tensor:
    """Return a tensor in the memory of the CPU: from a GPU through pinned pages, while other streams go on."""
    if not tensor.is_cuda:
        return tensor
    import torch

    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream(tensor.device).synchronize()
    return host


def beside_training(work: Callable[P, T]) -> Callable[P, T]:
    """Return ``work`` for another thread: what it asks of a GPU waits for what was asked until now, not for later."""
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return work
    asked = torch.cuda.current_stream().record_event()

    def beside(*args: P.args, **kwargs: P.kwargs) -> T:
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            torch.cuda.current_stream().wait_event(asked)
            done = work(*args, **kwargs)
            torch.cuda.current_stream().synchronize()
        return done

    return beside


def keep_float32() -> None:
    """Switch off TF32, cuDNN's default for convolutions, which keeps 10 bits of a factor.

    With TF32 gradient matching has 19 % of images below an error of .1, with float32 98 % (benchmarks/RESULTS.md).
    """
    import torch

    torch.backends.cudnn.allow_tf32 = False


def start_gpus() -> None:
    """Make the GPUs that this process sees ready for use, with float32 kept.

    Once a stage is confined (lab/workers/sandbox.py), CUDA cannot start: it writes to /proc.
    """
    import torch

    keep_float32()
    for device in torch_devices("cuda"):
        torch.ones(1, 1, device=device).mm(torch.ones(1, 1, device=device))


def only(gpus: Sequence[int]) -> dict[str, str]:
    """Return the environment of a process that sees these of the GPUs that this one sees, and no others."""
    names = os.environ[VISIBLE].split(",") if VISIBLE in os.environ else None
    return {VISIBLE: ",".join(str(gpu) if names is None else names[gpu].strip() for gpu in gpus)}


@dataclass
class Gpus:
    """``count`` GPUs that are lent to calls, the least used ones first: calls share them where there are more calls."""

    count: int = 0
    _users: list[int] = field(init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        """Begin with unused ones."""
        self._users = [0] * self.count

    @contextmanager
    def lent(self, most: int) -> Iterator[tuple[int, ...]]:
        """Lend at most ``most`` of them, by their numbers; of equally used ones the first."""
        with self._lock:
            order = sorted(range(self.count), key=lambda gpu: (self._users[gpu], gpu))
            chosen = tuple(sorted(order[:most]))
            self._count(chosen, 1)
        try:
            yield chosen
        finally:
            with self._lock:
                self._count(chosen, -1)

    def _count(self, chosen: Sequence[int], change: int) -> None:
        for gpu in chosen:
            self._users[gpu] += change
