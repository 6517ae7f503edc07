"""Updates in the plane, for the eye."""

from __future__ import annotations

import numpy as np

from fedprint.attacks.features import Updates, kernel, layer_groups, products
from fedprint.rng import seed_for
from fedprint.types import Floats, Ints

LIMIT = 600


def two_dimensions(updates: Updates, rows: Ints, *, seed: int) -> Floats:
    """Return t-SNE coordinates (n, 2) of the rows' signed square roots; NaN beyond ``LIMIT`` rows drawn at random.

    Uses the layer with most parameters (papers.md 2.5).
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    groups = layer_groups(updates)
    widest = max(groups, key=lambda names: sum(updates.sizes[n] for n in names))
    drawn = np.sort(np.random.default_rng(seed_for(seed, "tsne")).permutation(len(rows))[:LIMIT])
    shown = rows[drawn]
    similarity = kernel(products(updates, widest, shown, ("sqrt",))["sqrt"], shown)[shown]
    low = PCA(n_components=min(30, len(shown) - 1), random_state=0).fit_transform(similarity)
    xy = np.full((len(rows), 2), np.nan, dtype=np.float32)
    perplexity = min(20.0, (len(shown) - 1) / 3)
    xy[drawn] = TSNE(n_components=2, init="pca", perplexity=perplexity, random_state=0).fit_transform(low)
    return xy
