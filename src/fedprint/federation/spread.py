"""The clients of a round on several devices, or on another device than their data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from typing import Protocol

import torch

from fedprint.data.examples import gathered
from fedprint.types import Backend, ClientJob, ClientResult, LocalTraining, Params


class Executor(Backend, Protocol):
    """A backend on one device."""

    def blocks(self, jobs: Sequence[ClientJob]) -> list[list[int]]:
        """Return the positions of jobs that it trains together; each block on its own gives the same bits."""


class Spread:
    """An executor for each of several devices. Whole blocks of clients go to whichever is free, in a thread for each.

    Which device trains a block changes no bit, where the devices are of one kind. Parameters travel once to each
    device, a block's examples to the one that trains it, and results to where the parameters came from.
    """

    def __init__(self, executors: Sequence[tuple[str, Executor]]) -> None:
        """``executors`` are equal, each with a model on the torch device that is named beside it."""
        self.name = executors[0][1].name
        self._executors = executors

    def run(self, jobs: Sequence[ClientJob], params: Params, training: LocalTraining) -> Iterator[ClientResult]:
        """Train every job from ``params``; results come in job order."""
        free: SimpleQueue[tuple[str, Executor, Params]] = SimpleQueue()
        for device, executor in self._executors:
            free.put((device, executor, _on(params, device)))

        def train(block: Sequence[int]) -> list[ClientResult]:
            device, executor, received = free.get()
            try:
                there = [_job_on(jobs[i], device) for i in block]
                return _returned(list(executor.run(there, received, training)), params)
            finally:
                free.put((device, executor, received))

        blocks = self._executors[0][1].blocks(jobs)
        results: dict[int, ClientResult] = {}
        with ThreadPoolExecutor(len(self._executors)) as pool:
            for block, trained in zip(blocks, pool.map(train, blocks), strict=True):
                results.update(zip(block, trained, strict=True))
        return (results[i] for i in range(len(jobs)))


def _on(params: Params, device: str) -> Params:
    return {name: tensor.to(device) for name, tensor in params.items()}


def _job_on(job: ClientJob, device: str) -> ClientJob:
    return replace(job, examples=_on(gathered(job.examples), device), private=_on(job.private, device))


def _returned(results: Sequence[ClientResult], params: Params) -> list[ClientResult]:
    """Return the results of one block on the device of ``params``: one copy for each layer, not for each client."""
    home = str(next(iter(params.values())).device)
    updates = {name: torch.stack([result.update[name] for result in results]).to(home) for name in params}
    return [
        replace(result, update={name: rows[k] for name, rows in updates.items()}, private=_on(result.private, home))
        for k, result in enumerate(results)
    ]
