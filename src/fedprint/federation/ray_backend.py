"""A backend on a Ray cluster: workers that stay from round to round train blocks of clients with a local executor.

The cohort is cut into the blocks that the local executor trains together, whatever the number of workers, so that
results have the bits of that executor on one machine. The global parameters travel once per round and node, the
examples of a client once per node; a worker keeps those that it has trained on. The blocks of a lost worker are trained
by the others, and another worker is started for it.
"""

from __future__ import annotations

import copy
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedprint.data.examples import gathered, num_examples
from fedprint.federation.client import PADDING, blocks
from fedprint.lab.workers.allocator import keep_freed_memory
from fedprint.lab.workers.ray_cluster import join, leave
from fedprint.models.base import FedModule
from fedprint.types import Backend, ClientJob, ClientResult, Examples, FedprintError, LocalTraining, Params

Arrays = Mapping[str, NDArray[Any]]
"""What travels instead of tensors: Ray shares arrays among the processes of a node without copies."""
Make = Callable[[FedModule], Backend]
"""Returns the local executor for a copy of the model that lies on a CPU, on the processor that it should use."""

ROOM_S = 900.0
"""How long a federation without any worker waits for room in the cluster."""
LOST_AT_MOST = 3
"""How often every worker may be lost before a block is trained."""
PARTS = 4
"""Parts of a round for each worker, where any cut has the same bits: many share the work evenly, few cost less."""
AT_A_TIME = 2
"""Blocks of one worker: one that it trains, and one that waits there so that it never does."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A client's job on the way to a worker; ``examples`` is a reference to them."""

    device_id: str
    examples: Any
    seed: int
    private: Arrays


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A client's result on the way back."""

    update: Arrays
    loss: float
    private: Arrays


class RayBackend:
    """Trains ``block`` clients at a time on one of ``workers`` workers (None: one per GPU, or else per core).

    An executor whose clients train one by one has no ``block``: a round is cut into a few parts for each worker.
    Workers take a GPU each with ``gpu``. Use as a context manager: the cluster is left at the end, and ended if it was
    started here. Raises FedprintError where Ray is missing or the cluster has no room.
    """

    name = "ray"

    def __init__(
        self, model: FedModule, make: Make, block: int | None, workers: int | None = None, *, gpu: bool = False
    ) -> None:
        join()
        import ray

        self._ray: Any = ray
        self._block, self._padding = block, PADDING if block and not gpu else 1.0
        found = self._ray.cluster_resources()
        self._workers = workers or max(1, int(found.get("GPU" if gpu else "CPU", 1)))
        options = ray.remote(num_cpus=1, num_gpus=1 if gpu else 0, scheduling_strategy="SPREAD")
        self._remote: Any = options(Worker)
        self._recipe = (make, ray.put(copy.deepcopy(model).cpu()))
        self._examples: dict[str, tuple[Examples, Any]] = {}
        self._starting: dict[Any, Any] = {}
        self._load: dict[Any, int] = {}  # how many blocks each worker has that is there
        self._lost = 0
        for _ in range(self._workers):
            self._start()

    def __enter__(self) -> RayBackend:
        """Return the backend."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the workers and leave the cluster."""
        for worker in (*self._load, *self._starting.values()):
            self._ray.kill(worker)
        leave()

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        """Train every job from ``params``; results come in job order."""
        shared = self._ray.put(_arrays(params))
        where = next(iter(params.values())).device
        size = self._block or max(1, len(jobs) // (PARTS * self._workers))
        # The largest clients come first: the last ones, for which the round waits, are short.
        waiting = deque(blocks(jobs, size, self._padding))
        sent: dict[Any, tuple[Any, list[int]]] = {}
        results: dict[int, ClientResult] = {}
        while waiting or sent:
            while waiting and (worker := self._idlest()) is not None:
                block = waiting.popleft()
                self._load[worker] += 1
                sent[worker.train.remote(shared, training, [self._sent(jobs[i]) for i in block])] = worker, block
            for reference in self._ended(sent):
                worker, block = sent.pop(reference)
                trained = self._received(worker, reference)
                if trained is None:
                    waiting.appendleft(block)
                    continue
                results |= {i: _result(jobs[i], one, where) for i, one in zip(block, trained, strict=True)}
                self._lost = 0
                if worker in self._load:
                    self._load[worker] -= 1
        return (results[i] for i in range(len(jobs)))

    def _start(self) -> None:
        worker = self._remote.remote()
        self._starting[worker.prepare.remote(*self._recipe)] = worker

    def _idlest(self) -> Any:
        """Return the worker with the fewest blocks, None where all have enough."""
        worker = min(self._load, key=self._load.__getitem__, default=None)
        return None if worker is None or self._load[worker] == AT_A_TIME else worker

    def _ended(self, sent: Mapping[Any, object]) -> list[Any]:
        """Wait for some of the blocks that are ``sent``, and take in the workers that have started meanwhile."""
        done, _ = self._ray.wait([*sent, *self._starting], timeout=None if sent else ROOM_S)
        if not done:
            raise FedprintError(
                f"federation.backend: no worker found room on the Ray cluster within {ROOM_S:.0f} s, of which "
                f"{self._ray.available_resources()} is free; give --jobs a lower number"
            )
        for reference in [one for one in done if one in self._starting]:
            worker = self._starting.pop(reference)
            self._load[worker] = 0
            self._received(worker, reference)
        return [one for one in done if one in sent]

    def _received(self, worker: Any, reference: Any) -> Any:
        """Return what a worker answers, None where it was lost, with another worker started."""
        from ray.exceptions import RayError, RayTaskError

        try:
            return self._ray.get(reference)
        except RayTaskError:
            raise  # the program's own fault
        except RayError as error:
            if self._load.pop(worker, None) is not None:
                self._lost += 1
                if self._lost > LOST_AT_MOST * self._workers:
                    raise FedprintError(f"federation.backend: workers are lost again and again: {error}") from None
                self._start()
            return None

    def _sent(self, job: ClientJob) -> Sent:
        known = self._examples.get(job.device_id)
        if known is None or known[0] is not job.examples:
            known = job.examples, self._ray.put(_arrays(gathered(job.examples)))
            self._examples[job.device_id] = known
        return Sent(device_id=job.device_id, examples=known[1], seed=job.seed, private=_arrays(job.private))


class Worker:
    """In a process of Ray: a local executor, and the examples of the clients that it has trained."""

    def prepare(self, make: Make, model: FedModule) -> None:
        """Make the executor; no part of ``__init__``, whose errors look like a lost worker's."""
        torch.set_num_threads(1)  # as in a stage: the order of additions must not depend on the machine's cores
        keep_freed_memory()
        # Arrays from other processes cannot be written, and no executor writes to what it receives.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        self._backend = make(model)
        self._where = next(model.parameters()).device
        self._held: dict[Any, Examples] = {}

    def train(self, shared: Arrays, training: LocalTraining, clients: Sequence[Sent]) -> list[Trained]:
        """Train the clients from the ``shared`` parameters."""
        import ray

        new = [client.examples for client in clients if client.examples not in self._held]
        self._held |= zip(new, map(self._tensors, ray.get(new)), strict=True)
        jobs = [
            ClientJob(
                device_id=client.device_id,
                examples=self._held[client.examples],
                seed=client.seed,
                private=self._tensors(client.private),
            )
            for client in clients
        ]
        return [
            Trained(update=_arrays(result.update), loss=result.loss, private=_arrays(result.private))
            for result in self._backend.run(jobs, self._tensors(shared), training)
        ]

    def _tensors(self, arrays: Arrays) -> Params:
        return {name: torch.from_numpy(array).to(self._where) for name, array in arrays.items()}


def _arrays(tensors: Params) -> Arrays:
    return {name: np.ascontiguousarray(tensor.detach().cpu().numpy()) for name, tensor in tensors.items()}


def _result(job: ClientJob, trained: Trained, where: torch.device) -> ClientResult:
    """Return a result whose tensors are its own: what Ray shares cannot be written."""
    update, private = (
        {name: torch.tensor(array, device=where) for name, array in arrays.items()}
        for arrays in (trained.update, trained.private)
    )
    return ClientResult(
        device_id=job.device_id,
        update=update,
        num_examples=num_examples(job.examples),
        loss=trained.loss,
        private=private,
    )
