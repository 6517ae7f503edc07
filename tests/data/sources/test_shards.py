"""MNIST in sorted shards: two per user, all used before any comes again, the official test set held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fedprint.data.formats.describe import write_table
from fedprint.data.sources.shards import MnistShards
from fedprint.data.splits import split_users
from fedprint.types import FedprintError

TRAIN, TEST = 240, 30


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 training and 30 test images; each says its own number in its first two pixels."""
    root = tmp_path_factory.mktemp("digits")
    count = TRAIN + TEST
    images = np.zeros((count, 28, 28), np.uint8)
    images[:, 0, 0], images[:, 0, 1] = np.arange(count) % 256, np.arange(count) // 256
    columns = {
        "images": images,
        "labels": (np.arange(count) * 7 % 10).astype(np.uint8),
        "user": (np.arange(count) % 9).astype(np.int32),
        "order": np.arange(count).astype(np.int16),
        "split": (np.arange(count) >= TRAIN).astype(np.uint8),
    }
    write_table(root / "mnist_writers", columns, {"licence": "none", "class_names": list("0123456789")})
    return root


def numbers(examples: Any) -> list[int]:
    pixels = examples["x"][:, 0, 0, :2].long()
    return (pixels[:, 0] + 256 * pixels[:, 1]).tolist()


def load(digits: Path, seed: int = 0, **settings: Any) -> Any:
    return MnistShards(**{"clients": 20, "examples": 12, **settings}).load(digits, seed)


def test_each_user_holds_two_shards_and_each_image_is_dealt_once(digits: Path) -> None:
    dataset = load(digits)
    assert [user.user_id for user in dataset.users] == list(range(10))
    assert [len(user.examples["y"]) for user in dataset.users] == [24] * 10
    assert sorted(n for user in dataset.users for n in numbers(user.examples)) == list(range(TRAIN))
    for user in dataset.users:
        assert torch.equal(user.examples["y"], torch.tensor([n * 7 % 10 for n in numbers(user.examples)]))
        for shard in user.examples["y"].split(12):
            assert len(shard.unique()) == 1, "24 images of each digit make two shards of one digit"


def test_the_test_set_is_the_official_one_dealt_evenly(digits: Path) -> None:
    dataset = load(digits)
    assert [user.user_id for user in dataset.test] == [user.user_id for user in dataset.users]
    assert sorted(n for user in dataset.test for n in numbers(user.examples)) == list(range(TRAIN, TRAIN + TEST))
    assert {len(user.examples["y"]) for user in dataset.test} == {3}
    assert (dataset.name, dataset.background, dataset.has_time) == ("mnist_shards", (), False)


def test_beyond_all_shards_they_come_again(digits: Path) -> None:
    dataset = load(digits, clients=50)
    counts = np.bincount([n for user in dataset.users for n in numbers(user.examples)])
    assert set(counts) == {2, 3} and counts.sum() == 600


def test_training_images_held_out_take_the_place_of_the_official_test_set(digits: Path) -> None:
    dataset = load(digits, held_out=0.125)
    trained, tested = (sorted(n for u in users for n in numbers(u.examples)) for users in (dataset.users, dataset.test))
    assert len(tested) == len(set(tested)) == TRAIN / 8 and max(tested) < TRAIN
    assert not set(trained) & set(tested), "no client has an image that is scored on"
    assert len(trained) == 240 and len(set(trained)) > 190, "the shards that are left come again"
    again, other = (load(digits, seed=seed, held_out=0.125).test for seed in (0, 1))
    assert sorted(n for u in again for n in numbers(u.examples)) == tested
    assert sorted(n for u in other for n in numbers(u.examples)) != tested


def test_the_seed_deals(digits: Path) -> None:
    a, again, b = (numbers(load(digits, seed=seed).users[0].examples) for seed in (0, 0, 1))
    assert a == again != b


def test_a_split_leaves_both_devices_all_training_images(digits: Path) -> None:
    dataset = load(digits)
    split = split_users(dataset.users, seed=0, prior="random", test=dataset.test)
    assert split.test == dataset.test
    for role in (split.prior, split.private):
        assert [len(user.examples["y"]) for user in role] == [12] * 10
    both = [n for role in (split.prior, split.private) for user in role for n in numbers(user.examples)]
    assert sorted(both) == list(range(TRAIN))
    assert {len(user.examples["y"].unique()) for user in split.private} <= {1, 2}


def test_under_iid_too_no_test_image_is_trained_on(digits: Path) -> None:
    dataset = load(digits)
    split = split_users(dataset.users, seed=0, prior="iid", test=dataset.test)
    both = [n for role in (split.prior, split.private) for user in role for n in numbers(user.examples)]
    assert sorted(both) == list(range(TRAIN))


def test_what_cannot_be_is_refused(digits: Path) -> None:
    with pytest.raises(FedprintError, match="240 training and 30 test images are too few"):
        load(digits, examples=300)
    with pytest.raises(FedprintError, match=r"too few for data\.examples 12, data\.clients 80 and"):
        load(digits, clients=80)
    with pytest.raises(FedprintError, match=r"216 training and 24 test images .* and data\.held_out 0\.1; lower"):
        load(digits, clients=60, held_out=0.1)
    with pytest.raises(ValidationError, match="held_out"):
        MnistShards(held_out=1)
    with pytest.raises(ValidationError, match="multiple of 2"):
        MnistShards(clients=5)


def test_shared_shards_of_mnist(data_dir: Path) -> None:
    dataset = MnistShards().load(data_dir, 0)
    assert len(dataset.users) == 50 and {len(user.examples["y"]) for user in dataset.users} == {1200}
    assert sum(len(user.examples["y"]) for user in dataset.test) == 10_000
    digits = [len(user.examples["y"].unique()) for user in dataset.users]
    assert np.mean(np.array(digits) <= 2) > 0.7 and max(digits) <= 4
