from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from fedprint.data.dataset import Dataset
from fedprint.data.drawn.captions import ADJECTIVES, CLOSERS, OPENERS
from fedprint.data.drawn.render import SCENES, render
from fedprint.data.drawn.shapes import DRAWINGS
from fedprint.data.examples import equal
from fedprint.data.sources.albums import ATTRIBUTES, Albums, take_photos
from fedprint.data.text_columns import decode_captions


def small(**options: object) -> Dataset:
    return Albums.model_validate({"users": 4, "images": 30, "background_users": 2, **options}).load(None, 0)


def colours(bias: float) -> tuple[np.ndarray, np.ndarray]:
    """Coarse colours (users, photos, features) and labels (users, photos, classes)."""
    users = small(users=12, images=60, background_users=0, bias=bias).users
    pixels = torch.stack([user.examples["x"] for user in users]).float() / 255
    coarse = nn.functional.avg_pool2d(pixels.flatten(0, 1), 16).reshape(len(users), 60, -1)
    return coarse.numpy(), torch.stack([user.examples["y"] for user in users]).numpy()


def between_over_within(values: np.ndarray) -> float:
    """Variance of users' means over the variance expected of means of users who are all alike; 1 = no difference."""
    n = values.shape[1]
    return float((values.mean(1).var(0, ddof=1) / (values.var(1, ddof=1).mean(0) / n)).mean())


def test_columns_are_as_promised() -> None:
    dataset = small()
    assert dataset.class_names == tuple(DRAWINGS)
    assert len(dataset.class_names) >= 10
    for user in (*dataset.users, *dataset.background):
        x, y, t, album = (user.examples[name] for name in ("x", "y", "t", "album"))
        assert (x.dtype, tuple(x.shape)) == (torch.uint8, (30, 3, 32, 32))
        assert (y.dtype, tuple(y.shape)) == (torch.float32, (30, 12))
        assert 1 <= y.sum(1).min() <= y.sum(1).max() <= 4
        assert (t.diff() >= 0).all()
        assert (album.diff() >= 0).all()
        assert all(0 <= user.attributes[name] < len(classes) for name, classes in ATTRIBUTES.items())


def test_background_people_and_albums_are_others() -> None:
    dataset = small()
    ids = [user.user_id for user in (*dataset.users, *dataset.background)]
    albums = [set(user.examples["album"].tolist()) for user in (*dataset.users, *dataset.background)]
    assert len(set(ids)) == 6
    assert sum(map(len, albums)) == len(set.union(*albums))


def test_equal_seed_gives_equal_bits_and_another_does_not() -> None:
    config = Albums(users=2, images=10, background_users=0)
    first, again, other = (config.load(None, seed).users[1].examples for seed in (1, 1, 2))
    assert equal(first, again)
    assert not torch.equal(first["x"], other["x"])


def test_a_person_does_not_depend_on_how_many_there_are() -> None:
    few, many = small(users=2, background_users=0), small(users=9, background_users=0)
    assert all(equal(few.users[i].examples, many.users[i].examples) for i in range(2))


def test_a_photo_depends_on_its_own_row_only() -> None:
    photos = take_photos(0, 3, 20, 0.6).photos
    np.testing.assert_array_equal(render(photos)[5:9], render(photos.rows(5, 9)))


def test_bias_0_makes_people_alike_and_bias_1_obvious() -> None:
    alike, usual, obvious = ([between_over_within(values) for values in colours(bias)] for bias in (0.0, 0.6, 1.0))
    assert all(0.6 < ratio < 1.5 for ratio in alike)
    assert all(a * 2 < u < o for a, u, o in zip(alike, usual, obvious, strict=True))


def test_attributes_shift_style_with_bias_only() -> None:
    def saturation(bias: float, age: int) -> float:
        rolls = [take_photos(0, user_id, 10, bias) for user_id in range(120)]
        return float(np.mean([r.photos.saturation.mean() for r in rolls if r.person.attributes["age"] == age]))

    assert abs(saturation(0.0, 0) - saturation(0.0, 2)) < 0.03
    assert saturation(1.0, 0) - saturation(1.0, 2) > 0.15


def test_tastes_drift_with_bias_only() -> None:
    def drift(bias: float) -> float:
        """Squared change of class frequencies from the first to the last third, less what chance alone gives."""
        total = 0.0
        for user_id in range(30):
            things = take_photos(0, user_id, 300, bias).photos.things
            hot = (things[:, :, None] == np.arange(12)).any(1)
            early, late = hot[:100], hot[200:]
            total += float(((early.mean(0) - late.mean(0)) ** 2 - (early.var(0) + late.var(0)) / 99).sum())
        return total / 30

    assert abs(drift(0.0)) < 0.005
    assert drift(1.0) > 0.03


def test_every_thing_is_common_enough_to_be_learnt() -> None:
    prevalence = torch.cat([u.examples["y"] for u in small(users=20, images=60).users]).mean(0)
    assert prevalence.min() > 0.05
    assert prevalence.max() < 0.6


def test_small_network_learns_the_labels() -> None:
    users = small(users=20, images=60, background_users=0).users
    x = torch.cat([u.examples["x"] for u in users]).float() / 255 - 0.5
    y = torch.cat([u.examples["y"] for u in users])
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[:1000], order[1000:]
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(800, 12),
    )
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for step in range(240):
        batch = train[(step * 50) % 1000 :][:50]
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(net(x[batch]), y[batch]).backward()
        optimiser.step()
    with torch.no_grad():
        scores = net(x[test])
    precision = torch.stack([_average_precision(scores[:, c], y[test][:, c]) for c in range(12)])
    assert precision.mean() > 2 * y[test].mean()


def _average_precision(scores: torch.Tensor, hits: torch.Tensor) -> torch.Tensor:
    ranked = hits[scores.argsort(descending=True)]
    return (ranked.cumsum(0) / torch.arange(1, len(ranked) + 1) * ranked).sum() / ranked.sum()


def test_captions_are_of_the_same_people_and_name_the_things() -> None:
    images, captions = small(), small(modality="captions")
    assert captions.task == "language_model"
    for seen, captioned in zip(images.users, captions.users, strict=True):
        assert seen.attributes == captioned.attributes
        assert captioned.examples["x"].shape == (30, 16)
        assert torch.equal(seen.examples["t"], captioned.examples["t"])
    roll = take_photos(0, 0, 30, 0.6)
    for things, caption in zip(roll.photos.things, roll.captions, strict=True):
        assert all(f" {list(DRAWINGS)[thing]}" in caption for thing in things if thing >= 0)


def test_a_photo_brings_its_caption() -> None:
    user = small().users[1]
    captions = decode_captions(user.examples["caption"])
    assert captions == take_photos(0, 1, 30, 0.6).captions
    for caption, y in zip(captions, user.examples["y"], strict=True):
        assert {name for name in DRAWINGS if name in re.split(r"\W+", caption)} == {
            list(DRAWINGS)[i] for i in torch.nonzero(y)
        }
    assert "caption" not in small(modality="captions").users[0].examples


def test_the_longest_possible_caption_fits() -> None:
    things = sorted(DRAWINGS, key=len)[-4:]
    opener, adjective, scene, closer = (max(words, key=len) for words in (OPENERS, ADJECTIVES, SCENES, CLOSERS))
    longest = f"{opener} a {adjective} {', a '.join(things)} and {scene}{closer}"
    assert len(longest) <= small().users[0].examples["caption"].shape[1]


def test_fingerprint_follows_the_settings() -> None:
    assert Albums().fingerprint() == Albums().fingerprint()
    assert Albums().fingerprint() != Albums(bias=0.5).fingerprint()
    config = Albums(users=1, images=3, background_users=0)
    assert config.load(None, 0).sha256 == config.fingerprint()


def test_bias_outside_0_to_1_is_refused() -> None:
    with pytest.raises(ValidationError):
        Albums(bias=1.1)
