"""Every example has one client, evenly or by a Dirichlet draw."""

from __future__ import annotations

import numpy as np
import pytest

from fedprint.data.partition import Dirichlet, Iid
from fedprint.types import FedprintError

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))


@pytest.mark.parametrize("partition", [Iid(), Dirichlet(), Dirichlet(alpha=0.05)], ids=repr)
@pytest.mark.parametrize("clients", [1, 7, 100])
def test_every_example_has_one_client_and_every_client_an_example(partition: Iid | Dirichlet, clients: int) -> None:
    parts = partition.rows(LABELS, clients, 0)
    assert len(parts) == clients and min(map(len, parts)) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(600))
    again, other = partition.rows(LABELS, clients, 0), partition.rows(LABELS, clients, 1)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    assert clients == 1 or not all(np.array_equal(a, b) for a, b in zip(parts, other, strict=True))


def test_iid_clients_have_equal_numbers_of_every_class() -> None:
    counts = np.array([np.bincount(LABELS[rows], minlength=10) for rows in Iid().rows(LABELS, 20, 3)])
    assert counts.min() == counts.max() == 3
    uneven = [len(rows) for rows in Iid().rows(LABELS, 7, 3)]
    assert max(uneven) - min(uneven) <= 1


def test_dirichlet_shares_have_the_variance_of_their_alpha() -> None:
    """A share of a symmetric Dirichlet over k has variance (k - 1) / (k^2 (k alpha + 1))."""
    labels, k = np.repeat(np.arange(200), 500), 5
    for alpha in (0.3, 0.9, 5.0):
        parts = Dirichlet(alpha=alpha).rows(labels, k, 0)
        shares = np.array([np.bincount(labels[rows], minlength=200) for rows in parts]) / 500
        expected = (k - 1) / (k**2 * (k * alpha + 1))
        assert float(shares.var()) == pytest.approx(expected, rel=0.15)
        for wrong in (2 / 3, 3 / 2):
            assert float(shares.var()) != pytest.approx((k - 1) / (k**2 * (k * alpha * wrong + 1)), rel=0.1)


def test_more_clients_than_examples_are_refused() -> None:
    with pytest.raises(FedprintError, match="clients: 601 clients for 600 examples; choose 1 to 600"):
        Iid().rows(LABELS, 601, 0)
