"""Modes of the background: features by content, clusters that are never empty, the same again."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedprint.data.clusters import COMPONENTS, Features, cluster, pixel_features, text_features
from fedprint.types import FedprintError

KINDS = 4


def blobs(n: int = 200, spread: float = 0.05) -> tuple[Features, np.ndarray]:
    """Return n points around four centres, and the centre of each."""
    rng = np.random.default_rng(0)
    kind = np.arange(n) % KINDS
    return (10 * np.eye(KINDS, 6)[kind] + spread * rng.normal(size=(n, 6))).astype(np.float32), kind


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    return len(set(zip(a.tolist(), b.tolist(), strict=True))) == len(set(a.tolist())) == len(set(b.tolist()))


def test_clusters_are_the_centres_and_the_same_again() -> None:
    features, kind = blobs()
    labels = cluster(features, KINDS, 3)
    assert labels.dtype == np.int64 and same_partition(labels, kind)
    assert labels.tolist() == cluster(features, KINDS, 3).tolist()
    assert len({tuple(cluster(features, 30, seed).tolist()) for seed in (1, 2**62)}) == 2


@pytest.mark.parametrize("clusters", [2, 7, 150, 199, 200])
@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_no_cluster_is_empty_even_where_examples_are_equal(clusters: int, spread: float) -> None:
    counts = np.bincount(cluster(blobs(spread=spread)[0], clusters, 0))
    assert len(counts) == clusters and counts.min() >= 1 and counts.sum() == 200


def test_what_fills_an_empty_cluster_is_half_of_the_largest() -> None:
    sizes = np.bincount(cluster(np.zeros((64, 3), dtype=np.float32), 4, 0))
    assert sizes.tolist() == [16] * 4


def test_more_clusters_than_examples_are_refused() -> None:
    with pytest.raises(FedprintError, match=r"mm-aug: 201 clusters for 200 background examples; lower clusters"):
        cluster(blobs()[0], 201, 0)


def pictures(side: int, n: int = 120) -> tuple[Tensor, np.ndarray]:
    """Return pictures of a bright bar in one of four places, and the place."""
    rng = torch.Generator().manual_seed(0)
    kind = torch.arange(n) % KINDS
    images = torch.randint(0, 30, (n, 3, side, side), generator=rng, dtype=torch.uint8)
    for image, position in zip(images, kind.tolist(), strict=True):
        start = position * side // KINDS
        image[:, start : start + side // KINDS] += 200
    return images, kind.numpy()


@pytest.mark.parametrize("side", [8, 64])
def test_pictures_that_look_alike_come_together(side: int) -> None:
    images, kind = pictures(side)
    features = pixel_features(images)
    assert features.shape == (120, COMPONENTS) and features.dtype == np.float32
    assert np.array_equal(features, pixel_features(images))
    assert same_partition(cluster(features, KINDS, 0), kind)


def test_few_pictures_have_few_components() -> None:
    assert pixel_features(pictures(8, n=6)[0]).shape == (6, 6)


def sentences(n: int = 120) -> tuple[Tensor, np.ndarray]:
    """Return texts of one of four topics with words of their own; common words, padding and unknown ones besides."""
    rng = torch.Generator().manual_seed(0)
    kind = torch.arange(n) % KINDS
    topical = 10 + 10 * kind[:, None] + torch.randint(0, 10, (n, 6), generator=rng)
    common = torch.randint(3, 6, (n, 3), generator=rng)
    filling = torch.randint(0, 3, (n, 4), generator=rng)
    return torch.cat([common, topical, filling, torch.full((n, 2), -100)], dim=1), kind.numpy()


def test_texts_about_the_same_come_together() -> None:
    tokens, kind = sentences()
    features = text_features(tokens)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    assert np.array_equal(features, text_features(tokens))
    assert same_partition(cluster(features, KINDS, 0), kind)


def test_padding_unknown_words_and_ignored_targets_do_not_count() -> None:
    tokens, _ = sentences()
    noisy = torch.cat([tokens, torch.randint(0, 3, (120, 30)), torch.full((120, 5), -100)], dim=1)
    np.testing.assert_array_equal(text_features(tokens), text_features(noisy))


def test_a_text_without_known_words_is_at_the_origin() -> None:
    tokens, _ = sentences()
    tokens[7] = 1
    assert not text_features(tokens)[7].any()


def test_too_few_words_are_refused() -> None:
    with pytest.raises(FedprintError, match=r"9 background texts hold 1 known words, too few"):
        text_features(torch.full((9, 4), 5))
