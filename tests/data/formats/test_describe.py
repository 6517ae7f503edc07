from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprint.data.formats.describe import read_sidecar, read_table, validate, write_table
from fedprint.data.formats.files import write_atomic
from fedprint.types import FedprintError

Columns = dict[str, np.ndarray]
PHOTOS = {"licence": "mine", "class_names": ["sea", "hill"]}
DOCUMENT = Path(__file__).parents[3] / "docs" / "data-format.md"


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / f"{folder.name}.json"
    sidecar = json.loads(path.read_text())
    change(sidecar)
    path.write_text(json.dumps(sidecar))


def declare(folder: Path, name: str) -> None:
    digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    edit(folder, lambda s: s["files"].__setitem__(name, {"sha256": digest}))


def refused(folder: Path, *fragments: str) -> None:
    with pytest.raises(FedprintError) as caught:
        validate(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert folder.name in message
    for fragment in fragments:
        assert fragment in message


@pytest.fixture
def photos(tmp_path: Path, photo_columns: Columns) -> Path:
    write_table(tmp_path / "photos", photo_columns, PHOTOS)
    return tmp_path / "photos"


@pytest.fixture
def posts(tmp_path: Path, post_columns: Columns) -> Path:
    write_table(tmp_path / "posts", post_columns, {"licence": "mine"})
    return tmp_path / "posts"


def test_npz_round_trip_keeps_every_value_and_type(photos: Path, photo_columns: Columns) -> None:
    table = validate(photos)
    assert table.columns.keys() == photo_columns.keys()
    for name, column in photo_columns.items():
        assert table.columns[name].dtype == column.dtype
        np.testing.assert_array_equal(table.columns[name], column)


@pytest.mark.parametrize("kind", ["jsonl.gz", "parquet"])
def test_text_round_trip_keeps_words_numbers_and_gaps(tmp_path: Path, post_columns: Columns, kind: Any) -> None:
    write_table(tmp_path / "posts", post_columns, {"licence": "mine"}, kind)
    table = validate(tmp_path / "posts")
    assert (tmp_path / "posts" / f"posts.{kind}").is_file()
    for name, column in post_columns.items():
        np.testing.assert_array_equal(table.columns[name], column)


def test_sidecar_counts_what_is_there_and_keeps_unknown_keys(tmp_path: Path, post_columns: Columns) -> None:
    table = write_table(tmp_path / "posts", post_columns, {"licence": "mine", "citation": ["me"]})
    assert table.sidecar.counts["users"] == 3
    assert table.sidecar.counts["background"] == {
        "users": 1, "examples": 4, "per_user_min": 4, "per_user_median": 4.0, "per_user_max": 4,
    }  # fmt: skip
    assert read_sidecar(tmp_path / "posts").model_dump()["citation"] == ["me"]
    assert not table.sidecar.shareable


def test_equal_columns_give_equal_bytes(tmp_path: Path, photo_columns: Columns, post_columns: Columns) -> None:
    for name, columns in (("photos", photo_columns), ("posts", post_columns)):
        for place in ("a", "b"):
            write_table(tmp_path / place / name, columns, {"licence": "mine"})
        files = sorted(path.name for path in (tmp_path / "a" / name).iterdir())
        assert len(files) == 2
        for file in files:
            assert (tmp_path / "a" / name / file).read_bytes() == (tmp_path / "b" / name / file).read_bytes()


def test_refused_table_leaves_the_old_one_untouched(photos: Path, photo_columns: Columns) -> None:
    before = {path.name: path.read_bytes() for path in photos.iterdir()}
    with pytest.raises(FedprintError, match="holds 5"):
        write_table(photos, {**photo_columns, "labels": np.full(12, 5)}, PHOTOS)
    assert {path.name: path.read_bytes() for path in photos.iterdir()} == before


def test_interrupted_write_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomic(tmp_path / "file", b"old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomic(tmp_path / "file", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_missing_folder_sidecar_and_data_are_named(tmp_path: Path, photos: Path) -> None:
    refused(tmp_path / "nowhere", "no such folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "empty.json", "no such sidecar")
    (photos / "photos.npz").unlink()
    refused(photos, "photos.npz", "no such file")


def test_broken_sidecar_is_named(photos: Path) -> None:
    edit(photos, lambda s: s.pop("licence"))
    refused(photos, "licence", "required")
    (photos / "photos.json").write_text("{")
    refused(photos, "photos.json")


def test_sidecar_of_another_name_or_without_data_file(photos: Path) -> None:
    edit(photos, lambda s: s.update(files={"x.bin": {"sha256": "0"}}))
    refused(photos, "files lists no data file")
    edit(photos, lambda s: s.update(name="other"))
    refused(photos, "name is 'other'")


def test_changed_byte_fails_the_sha256(photos: Path) -> None:
    content = bytearray((photos / "photos.npz").read_bytes())
    content[200] ^= 1
    (photos / "photos.npz").write_bytes(content)
    refused(photos, "sha256 is", "restore")


@pytest.mark.parametrize("kept", [0, 40, 500])
def test_truncated_npz_is_refused(photos: Path, kept: int) -> None:
    path = photos / "photos.npz"
    path.write_bytes(path.read_bytes()[:kept])
    declare(photos, "photos.npz")
    refused(photos, "cannot be read")


@pytest.mark.parametrize(
    "content",
    [
        b"not gzip",
        gzip.compress(b'{"user": 1}\n' * 500)[:30],
        gzip.compress(b'{"user": 1}\n{"user": '),
        gzip.compress(b'{"user": 1}\n{"other": 1}\n'),
        gzip.compress(b"[1, 2]\n"),
        gzip.compress(b""),
        gzip.compress(b"\xff\xfe"),
    ],
    ids=["no gzip", "cut gzip", "cut json", "ragged", "no object", "empty", "no utf-8"],
)
def test_broken_jsonl_is_refused(posts: Path, content: bytes) -> None:
    (posts / "posts.jsonl.gz").write_bytes(content)
    declare(posts, "posts.jsonl.gz")
    refused(posts, "cannot be read")


def test_pickled_npz_is_refused(photos: Path, photo_columns: Columns) -> None:
    np.savez(photos / "photos.npz", **{**photo_columns, "user": np.array([{}] * 12)})
    declare(photos, "photos.npz")
    refused(photos, "cannot be read", "pickle")


def test_columns_of_different_lengths_are_refused(photos: Path, photo_columns: Columns) -> None:
    np.savez(photos / "photos.npz", **{**photo_columns, "user": np.arange(5)})
    declare(photos, "photos.npz")
    refused(photos, "different lengths", "'user': 5")


def test_sidecar_that_disagrees_on_shape_dtype_columns_or_count(photos: Path) -> None:
    edit(photos, lambda s: s["counts"].update(users=4))
    refused(photos, "counts.users = 4", "has 3")
    edit(photos, lambda s: s["arrays"]["labels"].update(dtype="uint8"))
    refused(photos, "'labels' is int64", "uint8")
    edit(photos, lambda s: s["arrays"]["images"].update(shape=[12, 8, 9, 3]))
    refused(photos, "'images' has shape (12, 8, 8, 3)", "(12, 8, 9, 3)")
    edit(photos, lambda s: s["arrays"].pop("time"))
    refused(photos, "['time'] are not in the sidecar")


BAD_PHOTOS: list[tuple[str, np.ndarray, str]] = [
    ("labels", np.full(12, 2), "holds 2, outside 0..1"),
    ("labels", np.full(12, -1), "holds -1"),
    ("labels", np.zeros(12, dtype=int), "class 'hill' of 'labels' has no example"),
    ("labels", np.ones((12, 3), dtype=int), "3 columns for 2 class_names"),
    ("labels", np.full((12, 2), 2), "holds 2"),
    ("labels", np.zeros(12), "float64"),
    ("time", np.array([0.0] * 11 + [np.nan]), "'time' has no value in row 11"),
    ("user", np.array(["ann"] * 12), "number the users"),
    ("images", np.zeros((12, 8, 8, 3), dtype=np.float32), "needs uint8"),
    ("images", np.zeros((12, 3, 8, 8), dtype=np.uint8), "(n, height, width, 3)"),
    ("images", np.full((12, 8, 8), np.nan), "'images' has no value in row 0"),
]


@pytest.mark.parametrize(("name", "column", "says"), BAD_PHOTOS, ids=[says for *_, says in BAD_PHOTOS])
def test_bad_column_is_refused(
    tmp_path: Path, photo_columns: Columns, name: str, column: np.ndarray, says: str
) -> None:
    with pytest.raises(FedprintError, match=re.escape(says)) as caught:
        write_table(tmp_path / "photos", {**photo_columns, name: column}, PHOTOS)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "photos").exists()


def test_bad_text_and_group_are_refused(tmp_path: Path, post_columns: Columns) -> None:
    holed = post_columns["text"].copy()
    holed[3] = None
    with pytest.raises(FedprintError, match="'text' has no value in row 3"):
        write_table(tmp_path / "posts", {**post_columns, "text": holed}, {"licence": "mine"})
    with pytest.raises(FedprintError, match="'group' holds 'foreground'"):
        write_table(tmp_path / "posts", {**post_columns, "group": np.array(["foreground"] * 12)}, {"licence": "mine"})


def test_attribute_must_be_one_value_per_user(tmp_path: Path, photo_columns: Columns) -> None:
    header = {**PHOTOS, "attributes": ["age"]}
    write_table(tmp_path / "photos", {**photo_columns, "age": photo_columns["user"] % 3}, header)
    with pytest.raises(FedprintError, match="'age' varies within user 1"):
        write_table(tmp_path / "photos", {**photo_columns, "age": np.arange(12) // 6}, header)


def test_multi_hot_rows_without_a_label_are_valid(tmp_path: Path, photo_columns: Columns) -> None:
    labels = np.zeros((12, 2), dtype=np.uint8)
    labels[0] = 1
    write_table(tmp_path / "photos", {**photo_columns, "labels": labels}, PHOTOS)
    assert validate(tmp_path / "photos").columns["labels"].sum() == 2


def test_column_of_nulls_counts_as_absent(tmp_path: Path, post_columns: Columns) -> None:
    columns = {**post_columns, "time": np.array([None] * 12, dtype=object)}
    write_table(tmp_path / "posts", columns, {"licence": "mine"})
    assert validate(tmp_path / "posts").sidecar.columns["time"] == "object"


def test_document_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDPRINT_DATA", raising=False)
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    exec("\n".join(blocks), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["diary", "holiday_photos", "meals"]


def test_shared_files_validate_unchanged(data_dir: Path) -> None:
    folders = [path for path in sorted(data_dir.iterdir()) if (path / f"{path.name}.json").is_file()]
    assert folders
    for folder in folders:
        assert len(validate(folder)) == read_sidecar(folder).counts["examples"]


def test_read_table_leaves_content_to_validate(photos: Path) -> None:
    edit(photos, lambda s: s.update(class_names=["sea"]))
    assert len(read_table(photos)) == 12
    refused(photos, "outside 0..0")
