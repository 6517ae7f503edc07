"""Partitions of a set of images among clients: even, or with another mix of classes per client (papers.md 4.5)."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedprint.component import Component
from fedprint.rng import numpy_rng
from fedprint.types import FedprintError


class Iid(Component):
    """``iid``: of every class all clients have the same number of examples, or one more (spn, appendix B)."""

    name: Literal["iid"] = "iid"

    def rows(self, labels: np.ndarray, clients: int, seed: int) -> list[np.ndarray]:
        """Return each client's rows, ascending; together all rows of ``labels`` (n,), each once."""
        _check(labels, clients)
        rng = numpy_rng(seed, "partition", self.name, clients)
        order = rng.permutation(len(labels))
        by_class = order[np.argsort(labels[order], kind="stable")]
        return [np.sort(by_class[client::clients]) for client in range(clients)]


class Dirichlet(Component):
    """``dirichlet``: of each class the clients get shares drawn from a symmetric Dirichlet distribution (spn: .9).

    The smaller ``alpha``, the fewer classes a client sees (Hsu et al. 2019). A client that draws nothing gets one
    example of the client that has most, so that every client can train.
    """

    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(default=0.9, gt=0)

    def rows(self, labels: np.ndarray, clients: int, seed: int) -> list[np.ndarray]:
        """Return each client's rows, ascending; together all rows of ``labels`` (n,), each once."""
        _check(labels, clients)
        rng = numpy_rng(seed, "partition", self.name, clients, self.alpha)
        partition: list[list[int]] = [[] for _ in range(clients)]
        for label in np.unique(labels):
            rows = rng.permutation(np.flatnonzero(labels == label))
            ends = np.round(np.cumsum(rng.dirichlet(np.full(clients, self.alpha))) * len(rows)).astype(int)[:-1]
            for part, drawn in zip(partition, np.split(rows, ends), strict=True):
                part.extend(drawn.tolist())
        for part in partition:
            if not part:
                part.append(max(partition, key=len).pop())
        return [np.sort(np.array(part, dtype=np.int64)) for part in partition]


Partition = Annotated[Iid | Dirichlet, Field(discriminator="name")]


def _check(labels: np.ndarray, clients: int) -> None:
    if not 1 <= clients <= len(labels):
        raise FedprintError(f"clients: {clients} clients for {len(labels)} examples; choose 1 to {len(labels)}")
