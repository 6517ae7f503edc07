"""Whose update an image is in (spn, algorithm 6; papers.md 4.4): by the reconstructions, and by the image's gradient.

Letters: q query images, v victims (one update each), b reconstructions of each, N participants. All scores are higher
for what is more likely.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedprint.attacks.inversion.alignment import alignment
from fedprint.attacks.inversion.objectives import NAIVE, Knowledge
from fedprint.attacks.inversion.victims import Labelled, Victims
from fedprint.types import FedprintError


def by_reconstruction(queries: Tensor, images: Tensor) -> Tensor:
    """Return minus the mean squared errors (q, v, b) of queries (q, c, h, w) and reconstructions (v, b, c, h, w).

    The papers' attack: an image belongs to the nearest reconstruction, that of index ``argmax`` over (v b).
    """
    if queries.shape[1:] != images.shape[2:]:
        raise FedprintError(
            f"tracing: queries are {tuple(queries.shape[1:])} and reconstructions {tuple(images.shape[2:])}; "
            "give images of one shape"
        )
    flat, made = queries.flatten(1).double(), images.flatten(2).flatten(0, 1).double()
    apart = torch.cdist(flat, made, compute_mode="donot_use_mm_for_euclid_dist").square() / flat.shape[1]
    return -apart.reshape(len(queries), *images.shape[:2])


def by_gradient(
    victims: Victims, queries: Labelled, knowledge: Knowledge = NAIVE, public: Labelled | None = None
) -> Tensor:
    """Return scores (q, v): how well the gradient of each query aligns with each update (alignment.py).

    The stronger attack: it reads all that was sent, where a reconstruction may have failed, and ``public`` images tell
    it what all images of a class have in common.
    """
    return alignment(victims, queries, knowledge, public)


def best_update(scores: Tensor) -> Tensor:
    """Return the update (q,) of each query from scores (q, v) or, of its reconstructions, (q, v, b)."""
    each = scores.amax(2) if scores.dim() == 3 else scores
    return each.argmax(1)


def of_participants(scores: Tensor, owners: Tensor) -> Tensor:
    """Return the scores (q, N) of participants, each as its best update, from (q, v) or (q, v, b).

    ``owners`` (v,) is who sent each update, from 0 to N - 1: the adversary knows it, as it knows whom it trains with.
    """
    each = scores.amax(2) if scores.dim() == 3 else scores
    participants = range(int(owners.max()) + 1)
    return torch.stack([each.masked_fill(owners.to(each.device) != n, -torch.inf).amax(1) for n in participants], 1)
