"""Updates and examples in two dimensions, for figures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedprint.attacks.features import Updates, kernel, layer_groups, products
from fedprint.rng import seed_for
from fedprint.types import Floats, Ints

LIMIT = 600


def two_dimensions(updates: Updates, rows: Ints, *, seed: int) -> Floats:
    """Return t-SNE coordinates (n, 2) of the rows' signed square roots, of ``LIMIT`` random rows at most, else NaN.

    Uses the layer with most parameters (papers.md 2.5).
    """
    groups = layer_groups(updates)
    widest = max(groups, key=lambda names: sum(updates.sizes[n] for n in names))
    drawn = np.sort(np.random.default_rng(seed_for(seed, "tsne")).permutation(len(rows))[:LIMIT])
    shown = rows[drawn]
    similarity = kernel(products(updates, widest, shown, ("sqrt",))["sqrt"], shown)[shown]
    xy = np.full((len(rows), 2), np.nan, dtype=np.float32)
    xy[drawn] = flat(similarity)
    return xy


def flat(x: NDArray[np.floating]) -> Floats:
    """Return t-SNE coordinates (n, 2) of points (n, f), on their principal components."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    low = PCA(n_components=min(30, *x.shape, len(x) - 1), random_state=0).fit_transform(x)
    perplexity = min(20.0, (len(x) - 1) / 3)
    xy: Floats = TSNE(n_components=2, init="pca", perplexity=perplexity, random_state=0).fit_transform(low)
    return xy
