"""Drawings by designer: which rows count, what a designer is known for, and the captions beside the pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fedprint.data.examples import equal
from fedprint.data.formats.describe import write_table
from fedprint.data.formats.locate import data_root
from fedprint.data.sources.openmoji import CAPTIONS_FILE, OpenMoji, shrink
from fedprint.data.splits import num_albums
from fedprint.data.text_columns import decode_captions
from fedprint.types import FedprintError

GROUPS, TAGS = ["animals", "flags", "hands"], ["cat", "red", "wave"]


def write_drawings(folder: Path) -> None:
    """Write designers 1, 2, 3, 4 with 8, 6, 6 and 2 drawings; 1 and 3 drew 6 and 1 skin-tone variants as well."""
    user = np.repeat([1, 2, 3, 4, 1, 3], [8, 6, 6, 2, 6, 1])
    n = len(user)
    group = np.where(user == 2, 1, np.arange(n) % 3)
    columns = {
        "images": np.random.default_rng(0).integers(0, 256, size=(n, 64, 64, 3), dtype=np.uint8),
        "labels": np.stack([group == 0, np.arange(n) % 2, group == 2], axis=1).astype(np.uint8),
        "group": group.astype(np.uint8),
        "subgroup": (np.arange(n) // 2 % 2).astype(np.int16),
        "user": user.astype(np.int16),
        "time": (np.arange(n)[::-1] // 4).astype(np.int32),
        "skintone": (np.arange(n) >= 22).astype(np.uint8),
    }
    write_table(folder, columns, {"licence": "mine", "class_names": {"group": GROUPS, "tags": TAGS}})
    lines = [json.dumps({"row": row, "caption": f"drawing {row} – é", "tags": []}) for row in reversed(range(n))]
    (folder / CAPTIONS_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    write_drawings(tmp_path / "openmoji")
    return tmp_path


def test_designers_with_most_drawings_take_part_and_the_others_are_background(drawn: Path) -> None:
    dataset = OpenMoji(min_examples=3, users=2).load(drawn, 0)
    assert [user.user_id for user in dataset.users] == [1, 2]
    assert [user.user_id for user in dataset.background] == [3, 4]
    assert [user.user_id for user in OpenMoji(min_examples=3).load(drawn, 0).users] == [1, 2, 3]
    assert (dataset.task, dataset.class_names, dataset.has_time) == ("multi_label", tuple(TAGS), True)
    x, y, t, album = (dataset.users[0].examples[name] for name in ("x", "y", "t", "album"))
    assert (x.dtype, tuple(x.shape), y.dtype, tuple(y.shape)) == (torch.uint8, (8, 3, 64, 64), torch.float32, (8, 3))
    assert (t.diff() >= 0).all() and len(album) == 8
    assert dataset.sha256 == OpenMoji().fingerprint(drawn)
    again = OpenMoji(min_examples=3, users=2).load(drawn, 5)
    assert all(equal(a.examples, b.examples) for a, b in zip(dataset.users, again.users, strict=True))


def test_skin_tone_variants_are_left_out_unless_asked_for(drawn: Path) -> None:
    def sizes(dataset_of: OpenMoji) -> list[int]:
        return [len(user.examples["y"]) for user in dataset_of.load(drawn, 0).users]

    assert sizes(OpenMoji(min_examples=3)) == [8, 6, 6]
    assert sizes(OpenMoji(min_examples=3, skintone="all")) == [14, 7, 6]


@pytest.mark.parametrize("skintone", ["none", "all"])
def test_attributes_say_what_a_designer_draws(drawn: Path, skintone: str) -> None:
    people = OpenMoji.model_validate({"min_examples": 3, "skintone": skintone}).load(drawn, 0)
    known = {user.user_id: user.attributes for user in (*people.users, *people.background)}
    assert {user: attributes["tone"] for user, attributes in known.items()} == {1: 1, 2: 0, 3: 1, 4: 0}
    groups = {user.user_id: user.examples["y"] for user in OpenMoji.model_validate(
        {"min_examples": 3, "skintone": skintone, "target": "group"}
    ).load(drawn, 0).users}  # fmt: skip
    for user, y in groups.items():
        assert known[user]["group"] == int(torch.bincount(y).argmax())
    assert known[2]["group"] == 1


def test_more_than_half_variants_is_the_last_tone(drawn: Path) -> None:
    write_drawings(drawn / "openmoji")
    with np.load(drawn / "openmoji" / "openmoji.npz") as arrays:
        columns = dict(arrays)
    columns["skintone"][:2] = 1
    write_table(drawn / "openmoji", columns, {"licence": "mine", "class_names": {"group": GROUPS, "tags": TAGS}})
    first = OpenMoji(min_examples=3, skintone="all", users=1).load(drawn, 0).users[0]
    assert (first.user_id, first.attributes["tone"]) == (1, 2)


def test_each_picture_keeps_its_caption(drawn: Path) -> None:
    with np.load(drawn / "openmoji" / "openmoji.npz") as arrays:
        rows = {image.transpose(2, 0, 1).tobytes(): row for row, image in enumerate(arrays["images"])}
    dataset = OpenMoji(min_examples=3, users=2, skintone="all").load(drawn, 0)
    for user in (*dataset.users, *dataset.background):
        pictures = [x.numpy().tobytes() for x in user.examples["x"]]
        assert decode_captions(user.examples["caption"]) == tuple(f"drawing {rows[x]} – é" for x in pictures)


def test_an_album_is_a_subgroup_on_a_day(drawn: Path) -> None:
    dataset = OpenMoji(min_examples=3).load(drawn, 0)
    assert [num_albums(user.examples) for user in dataset.users] == [5, 4, 4]
    albums = [set(user.examples["album"].tolist()) for user in (*dataset.users, *dataset.background)]
    assert sum(map(len, albums)) == len(set.union(*albums))


def test_the_target_can_be_the_group_or_the_frequent_tags(drawn: Path) -> None:
    grouped = OpenMoji(min_examples=3, target="group").load(drawn, 0)
    assert (grouped.task, grouped.class_names) == ("single_label", tuple(GROUPS))
    assert grouped.users[1].examples["y"].tolist() == [1] * 6
    frequent = OpenMoji(min_examples=3, min_share=0.4).load(drawn, 0)
    assert (frequent.class_names, frequent.users[0].examples["y"].shape[1]) == (("red",), 1)
    with pytest.raises(FedprintError, match=r"no tag is on 90%.*data\.min_share"):
        OpenMoji(min_examples=3, min_share=0.9).load(drawn, 0)


def test_the_small_size_averages_four_pixels(drawn: Path) -> None:
    large, small = (OpenMoji(min_examples=3, size=size).load(drawn, 0).users[0].examples["x"] for size in (64, 32))
    means = torch.nn.functional.avg_pool2d(large.double(), 2)
    assert (small.shape, small.dtype) == ((8, 3, 32, 32), torch.uint8)
    assert float((small - means).abs().max()) <= 0.5
    assert shrink(np.full((1, 4, 4, 3), 255, dtype=np.uint8), 4).tolist() == [[[[255] * 3]]]


def test_captions_that_do_not_fit_the_drawings_are_named(drawn: Path) -> None:
    file = drawn / "openmoji" / CAPTIONS_FILE
    file.write_text("\n".join(file.read_text().splitlines()[1:]))
    with pytest.raises(FedprintError, match="captions of 28 rows for 29 drawings"):
        OpenMoji(min_examples=3).load(drawn, 0)
    file.unlink()
    with pytest.raises(FedprintError, match="not a file of captions"):
        OpenMoji(min_examples=3).load(drawn, 0)


def test_too_few_designers_are_counted(drawn: Path) -> None:
    with pytest.raises(FedprintError, match="3 users fit the settings, 4 are asked for"):
        OpenMoji(min_examples=3, users=4).load(drawn, 0)
    with pytest.raises(FedprintError, match="0 users fit"):
        OpenMoji().load(drawn, 0)


def test_shared_openmoji() -> None:
    root = data_root(None)
    if root is None or not (root / "openmoji").is_dir():
        pytest.skip("no openmoji in FEDPRINT_DATA")
    dataset = OpenMoji().load(None, 0)
    sizes = [len(user.examples["y"]) for user in dataset.users]
    assert (len(sizes), sizes[0], sizes[-1], len(dataset.background)) == (43, 204, 20, 78)
    assert sizes == sorted(sizes, reverse=True)
    assert len(dataset.class_names) == 35
    assert {user.user_id for user in dataset.users}.isdisjoint(user.user_id for user in dataset.background)
    assert "blueberries" in decode_captions(dataset.users[1].examples["caption"])
    assert sum(num_albums(user.examples) < 2 for user in dataset.users) == 2
