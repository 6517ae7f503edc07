"""Modes of public data: k-means clusters of features of background examples (gradient-leaks, 6.2: mm-aug)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.nn import functional

from fedprint.data.dataset import START
from fedprint.types import FedprintError, Floats, Ints

Features = Floats
COMPONENTS = 40
"""Principal components or singular vectors that distances are measured in."""

_MOST_PIXELS = 32
_RESTARTS = 3


def pixel_features(images: Tensor) -> Features:
    """Return the leading principal components (n, <= 40) of images (n, channels, h, w), any number type.

    Images of more than 32 pixels a side are averaged down first: modes are of scenes, not of details.
    """
    from sklearn.decomposition import PCA

    small = torch.cat([_small(part.float()) for part in torch.split(images, 1024)]).flatten(1).numpy()
    size = min(COMPONENTS, *small.shape)
    with threadpool_limits(1):  # the order of additions must not depend on the machine's cores
        features: Features = PCA(size, svd_solver="randomized", random_state=0).fit_transform(small)
    return features.astype(np.float32)


def text_features(tokens: Tensor) -> Features:
    """Return TF-IDF of words, its leading singular vectors (n, <= 40), of token ids (n, length), at unit length.

    Padding, unknown words and the start mark do not count; a text without any known word is at the origin. Raises
    FedprintError when there are too few different words.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    counts = _word_counts(tokens.numpy())
    size = min(COMPONENTS, counts.shape[1] - 1, counts.shape[0] - 1)
    if size < 1:
        raise FedprintError(
            f"defences.mm-aug: the {len(tokens)} background texts hold {counts.shape[1]} known words, too few for "
            "TF-IDF; raise data.background_users or set features: model"
        )
    with threadpool_limits(1):
        weights = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
        features = TruncatedSVD(size, random_state=0).fit_transform(weights)
    scaled: Features = (features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)).astype(
        np.float32
    )
    return scaled


def cluster(features: Features, clusters: int, seed: int) -> Ints:
    """Return the cluster 0 .. ``clusters`` - 1 of each row of ``features`` (n, d), no cluster empty: (n,).

    MiniBatchKMeans on one thread: equal features and seed give equal clusters. Where k-means leaves a cluster empty,
    it gets the outer half of the largest one. Raises FedprintError for more clusters than examples.
    """
    from sklearn.cluster import MiniBatchKMeans

    if clusters > len(features):
        raise FedprintError(
            f"defences.mm-aug: {clusters} clusters for {len(features)} background examples; lower clusters or raise "
            "data.background_users"
        )
    means = MiniBatchKMeans(clusters, random_state=seed % 2**32, n_init=_RESTARTS, batch_size=1024)
    with threadpool_limits(1):
        labels: Ints = means.fit_predict(features).astype(np.int64)
        distance = np.linalg.norm(features - means.cluster_centers_[labels], axis=1)
    return _filled(labels, distance, clusters)


def _filled(labels: Ints, distance: NDArray[np.floating], clusters: int) -> Ints:
    """Give every empty cluster the half of the largest one that is farthest from its centre (ties: the later rows)."""
    labels = labels.copy()
    for empty in np.flatnonzero(np.bincount(labels, minlength=clusters) == 0):
        largest = np.flatnonzero(labels == np.bincount(labels, minlength=clusters).argmax())
        outwards = largest[np.argsort(distance[largest], kind="stable")]
        labels[outwards[-(len(largest) // 2) :]] = empty
    return labels


def _small(images: Tensor) -> Tensor:
    height, width = images.shape[2:]
    if max(height, width) <= _MOST_PIXELS:
        return images
    return functional.adaptive_avg_pool2d(images, (min(height, _MOST_PIXELS), min(width, _MOST_PIXELS)))


def _word_counts(tokens: Ints) -> Ints:
    """Return how often each known word occurs in each text: sparse (n, words that occur)."""
    from scipy.sparse import coo_matrix

    rows, positions = np.nonzero(tokens > START)
    words, columns = np.unique(tokens[rows, positions], return_inverse=True)
    ones = np.ones(len(rows))
    return coo_matrix((ones, (rows, columns)), shape=(len(tokens), len(words))).tocsr()  # type: ignore[no-any-return]
