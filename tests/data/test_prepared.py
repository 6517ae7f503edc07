from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedprint.data.examples import equal
from fedprint.data.prepared import load_meta, load_users, meta_of, save_meta, save_users
from fedprint.data.sources.albums import Albums
from fedprint.types import FedprintError, User

Make = Callable[..., list[User]]


def test_users_come_back_as_they_were(tmp_path: Path) -> None:
    users = Albums(users=3, images=5, background_users=0).load(None, 0).users
    save_users(tmp_path, users)
    back = load_users(tmp_path)
    assert [(u.user_id, u.attributes) for u in back] == [(u.user_id, u.attributes) for u in users]
    assert all(equal(a.examples, b.examples) for a, b in zip(users, back, strict=True))


def test_unequal_sizes_and_no_users_come_back(tmp_path: Path, make_users: Make) -> None:
    save_users(tmp_path, make_users([1, 7, 3]))
    assert [u.examples["x"].tolist() for u in load_users(tmp_path)] == [[0], [*range(1, 8)], [8, 9, 10]]
    save_users(tmp_path, [])
    assert load_users(tmp_path) == ()


def test_equal_users_give_equal_bytes_whatever_the_column_order(tmp_path: Path, make_users: Make) -> None:
    users = make_users([4, 5])
    turned = [
        User(user_id=u.user_id, examples=dict(reversed([*u.examples.items()])), attributes=u.attributes) for u in users
    ]
    save_users(tmp_path / "a", users)
    save_users(tmp_path / "b", turned)
    assert (tmp_path / "a/users.npz").read_bytes() == (tmp_path / "b/users.npz").read_bytes()
    users[0].examples["x"].add_(1)  # type: ignore[attr-defined]
    save_users(tmp_path / "b", users)
    assert (tmp_path / "a/users.npz").read_bytes() != (tmp_path / "b/users.npz").read_bytes()


def test_meta_comes_back(tmp_path: Path) -> None:
    meta = meta_of(Albums(users=1, images=3, background_users=0).load(None, 0))
    save_meta(tmp_path, meta)
    assert load_meta(tmp_path) == meta
    assert meta.shareable and meta.scale is None
    save_meta(tmp_path, replace(meta, scale=(1.0, 5.0)))
    assert load_meta(tmp_path) == replace(meta, scale=(1.0, 5.0))
    save_meta(tmp_path, meta)
    assert json.loads((tmp_path / "meta.json").read_text())["task"] == "multi_label"


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    for load, name in ((load_users, "users.npz"), (load_meta, "meta.json")):
        with pytest.raises(FedprintError, match=rf"{name}: cannot be read"):
            load(tmp_path)
        (tmp_path / name).write_bytes(b"{}")
        with pytest.raises(FedprintError, match=name):
            load(tmp_path)


def test_images_stay_uint8(tmp_path: Path) -> None:
    save_users(tmp_path, Albums(users=1, images=3, background_users=0).load(None, 0).users)
    assert load_users(tmp_path)[0].examples["x"].dtype == torch.uint8
