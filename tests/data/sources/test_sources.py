from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from fedprint.data.catalogue.fetch_mnist_writers import write_mnist_writers
from fedprint.data.catalogue.manifest import read_manifest
from fedprint.data.dataset import IGNORED, Dataset
from fedprint.data.examples import equal
from fedprint.data.formats.describe import data_sha256, read_sidecar, validate, write_table
from fedprint.data.sources.folder import Folder
from fedprint.data.sources.images import AhcdWriters, MnistWriters
from fedprint.data.sources.labelled_images import LabelledImages
from fedprint.data.sources.openmoji import OpenMoji
from fedprint.data.sources.registry import SOURCES, AnySource
from fedprint.data.sources.reviews import RateBeer
from fedprint.data.sources.shards import MnistShards
from fedprint.data.sources.texts import Blog, Presidents
from fedprint.data.splits import split_users
from fedprint.types import FedprintError

Columns = dict[str, np.ndarray]


class FakeDigits:
    """Stands for torchvision's MNIST and QMNIST: same attributes, a few small images."""

    def __init__(self, writers: list[int], *, extended: bool, first: int = 0) -> None:
        n = len(writers)
        self.data = torch.arange(first, first + n).to(torch.uint8)[:, None, None].expand(n, 28, 28).clone()
        labels = (torch.arange(n) + first) % 10
        columns = [labels, torch.tensor(writers) % 2 * 4, torch.tensor(writers), torch.arange(n)]
        self.targets = torch.stack([*columns, *[torch.full((n,), 9)] * 4], dim=1) if extended else labels


def fake_parts(train: list[int], test: list[int]) -> list[Any]:
    def both(writers: list[int], first: int) -> Any:
        return tuple(FakeDigits(writers, extended=extended, first=first) for extended in (False, True))

    return [both(train, 0), both(test, len(train))]


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Writers 5, 6, 7, 8 with 8, 6, 6 and 2 digits."""
    write_mnist_writers(tmp_path, fake_parts([5, 6, 7] * 5 + [5, 5, 8], [6, 7, 5, 8]))
    return tmp_path


def write_blog(folder: Path, name: str, posts: list[tuple[str, bytes]]) -> None:
    """Write a file as the corpus has them: newest first, bare ampersands, any bytes."""
    body = b"".join(b"<date>%s</date>\r\n<post>\r\n\r\n  %s \r\n</post>\r\n" % (d.encode(), p) for d, p in posts)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"<Blog>\r\n" + body + b"</Blog>")


@pytest.fixture
def blogs(tmp_path: Path) -> Path:
    posts = [
        ("03,June,2004", b"Third & last: the caf\xe9 was warm &amp; open."),
        ("32,June,2004", b"A day that was never there."),
        ("31,May,2004", b"Second day. The sea was cold!"),
        ("02,May,2004", b"First day at the warm sea, urlLink here."),
        ("01,May,2004", b"  "),
    ]
    for number, age in ((700, 25), (31, 24), (5, 33), (900, 17), (44, 15), (6, 48)):
        write_blog(tmp_path / "blog", f"{number}.female.{age}.Student.Leo.xml", posts)
    write_blog(tmp_path / "blog", "8.male.40.Arts.Aries.xml", posts[:1])
    return tmp_path


def assert_well_formed(dataset: Dataset) -> None:
    """What dataset.py promises of every source."""
    people = (*dataset.users, *dataset.background)
    assert len({user.user_id for user in people}) == len(people)
    for user in people:
        x, y, t, album = (user.examples[name] for name in ("x", "y", "t", "album"))
        assert len(x) == len(y) == len(t) == len(album) > 0
        assert t.dtype == album.dtype == torch.int64
        assert (t.diff() >= 0).all()
        if dataset.task == "language_model":
            assert x.dtype == y.dtype == torch.int64
            assert (x[:, 0] == 2).all()
            assert max(x.max(), y.max()) < len(dataset.class_names)
            assert ((y > 2) | (y == IGNORED)).all()
            assert (y != IGNORED).any(1).all()
            shifted = x[:, 1:]
            assert torch.equal(shifted[shifted > 2], y[:, :-1][shifted > 2])
        elif dataset.task == "single_label":
            assert (x.dtype, y.dtype, x.ndim) == (torch.uint8, torch.int64, 4)
            assert 0 <= y.min() <= y.max() < len(dataset.class_names)
        else:
            assert y.dtype == torch.float32
            assert y.shape[1] == len(dataset.class_names)


def test_table_from_torchvision_is_the_join_by_index(digits: Path) -> None:
    table = validate(digits / "mnist_writers")
    assert table.columns["images"][:, 0, 0].tolist() == [*range(22)]
    assert table.columns["labels"].tolist() == [i % 10 for i in range(22)]
    assert table.columns["split"].tolist() == [0] * 18 + [1] * 4
    assert table.columns["user"][[0, 18, 21]].tolist() == [5, 6, 8]
    types = {name: column.dtype.name for name, column in table.columns.items()}
    assert types == {
        "images": "uint8", "labels": "uint8", "user": "int32", "order": "int16", "series": "uint8", "split": "uint8",
    }  # fmt: skip


def test_labels_that_disagree_stop_the_fetch(tmp_path: Path) -> None:
    parts = fake_parts([1, 1, 1], [1])
    parts[0][1].targets[2, 0] = 9
    with pytest.raises(FedprintError, match="disagree on digit 2"):
        write_mnist_writers(tmp_path, parts)
    assert not (tmp_path / "mnist_writers").exists()


def test_mnist_writers_are_those_with_most_digits_ties_by_id(digits: Path) -> None:
    dataset = MnistWriters(users=2, background_users=1).load(digits, 0)
    assert_well_formed(dataset)
    assert [user.user_id for user in dataset.users] == [5, 6]
    assert [user.user_id for user in dataset.background] == [7]
    assert [user.attributes["series"] for user in dataset.users] == [1, 0]
    assert dataset.users[0].examples["x"].shape == (8, 1, 28, 28)
    assert dataset.sha256 == MnistWriters().fingerprint(digits)


def test_mnist_writers_selection(digits: Path) -> None:
    def chosen(seed: int, **options: Any) -> list[int]:
        return [u.user_id for u in MnistWriters(users=2, **options).load(digits, seed).users]

    assert chosen(0, selection="lowest_id") == [5, 6]
    draws = {tuple(chosen(seed, selection="random")) for seed in range(12)}
    assert draws <= {(5, 6), (5, 7), (6, 7)}
    assert len(draws) > 1
    with pytest.raises(FedprintError, match="1 users fit the settings, 2 are asked for"):
        chosen(0, min_examples=7)


def test_blog_files_give_adults_oldest_first(blogs: Path) -> None:
    dataset = Blog(users=3, min_posts=3, vocabulary=60).load(blogs, 0)
    assert_well_formed(dataset)
    assert [user.user_id for user in dataset.users] == [0, 1, 3]
    assert [user.user_id for user in dataset.background] == [2]
    assert "café" in dataset.class_names
    assert "&" in dataset.class_names
    assert "urllink" not in dataset.class_names
    days = dataset.users[0].examples["t"] // 86400
    assert days.unique(return_counts=True)[1].tolist() == [1, 2, 1]
    assert (days - days[0]).tolist() == [0, 29, 29, 32]


def test_the_fingerprint_of_blog_files_follows_names_and_contents(blogs: Path) -> None:
    fingerprints = {Blog().fingerprint(blogs), Blog().fingerprint(blogs)}
    write_blog(blogs / "blog", "99.male.40.Arts.Aries.xml", [])
    fingerprints.add(Blog().fingerprint(blogs))
    file = blogs / "blog" / "99.male.40.Arts.Aries.xml"
    file.write_bytes(file.read_bytes().swapcase())
    os.utime(file, ns=(0, 1))
    assert len(fingerprints | {Blog().fingerprint(blogs)}) == 3


@pytest.mark.parametrize(
    ("source", "folder"),
    [(MnistWriters(), "mnist_writers"), (MnistShards(), "mnist_writers"), (AhcdWriters(), "ahcd_writers"),
     (OpenMoji(), "openmoji"), (Blog(), "blog"), (Presidents(), "presidents"), (Presidents(), "background_text"),
     (RateBeer(), "ratebeer"), (Folder(path="mine"), "mine"), (Folder(path="mine", public_text="other"), "other"),
     (LabelledImages(name="mine"), "mine")],
    ids=lambda value: value if isinstance(value, str) else value.name,
)  # fmt: skip
def test_other_data_under_the_same_sidecar_have_another_fingerprint(tmp_path: Path, source: Any, folder: str) -> None:
    """A cache that trusted the sidecar would return results of data that are gone."""
    for name in {folder, "mine", "presidents", "background_text"}:
        write_table(tmp_path / name, {"user": np.arange(3), "labels": np.arange(3)}, {"licence": "CC0"}, "npz")
    before = source.fingerprint(tmp_path)
    assert before == source.fingerprint(tmp_path)
    if folder == source.name:
        assert (before == read_sidecar(tmp_path / folder).sha256) == (folder != "presidents")
    file = tmp_path / folder / f"{folder}.npz"
    file.write_bytes(file.read_bytes()[::-1])
    os.utime(file, ns=(0, 1))
    assert source.fingerprint(tmp_path) != before
    file.unlink()
    with pytest.raises(FedprintError, match=f"{folder}.npz: no such file, though the sidecar names it"):
        source.fingerprint(tmp_path)


def test_the_committed_manifests_name_the_shared_data(data_dir: Path) -> None:
    root = Path(__file__).parents[3]
    named = [path.stem for path in (root / "datasets").glob("*.yaml") if (data_dir / path.stem).is_dir()]
    assert named
    assert [name for name in named if read_manifest(root, name).sha256 != data_sha256(data_dir / name)] == []


def test_too_few_bloggers_are_counted(blogs: Path) -> None:
    with pytest.raises(FedprintError, match="3 users fit the settings, 60 are asked for"):
        Blog(min_posts=3).load(blogs, 0)
    with pytest.raises(FedprintError, match="no adult with 9 posts"):
        Blog(min_posts=9).load(blogs, 0)


def test_vocabulary_never_holds_a_private_word(tmp_path: Path, post_columns: Columns) -> None:
    text = post_columns["text"].copy()
    text[:8] = "The secretword was warm today."
    write_table(tmp_path / "diary", {**post_columns, "text": text}, {"licence": "mine"})
    dataset = Folder(path="diary").load(tmp_path, 0)
    assert_well_formed(dataset)
    assert "secretword" not in dataset.class_names
    assert "sea" in dataset.class_names


def test_text_without_public_text_is_refused_until_another_folder_brings_it(
    tmp_path: Path, post_columns: Columns
) -> None:
    columns = {name: column for name, column in post_columns.items() if name != "group"}
    write_table(tmp_path / "diary", columns, {"licence": "mine"})
    public = {"doc": np.array(["a", "a", "b"], dtype=object), "text": np.array(["The sea is wide."] * 3, dtype=object)}
    write_table(tmp_path / "public", public, {"licence": "mine"})
    with pytest.raises(FedprintError, match=r"no public text for the vocabulary.*public_text"):
        Folder(path="diary").load(tmp_path, 0)
    source = Folder(path="diary", public_text="public")
    dataset = source.load(tmp_path, 0)
    assert_well_formed(dataset)
    assert (len(dataset.users), [u.user_id for u in dataset.background]) == (3, [4, 5])
    assert dataset.class_names[3:] == (".", "is", "sea", "the", "wide")
    assert dataset.sha256 == source.fingerprint(tmp_path) != Folder(path="diary").fingerprint(tmp_path)


def test_long_histories_keep_evenly_spaced_sentences(tmp_path: Path) -> None:
    n = 50
    columns = {
        "user": np.repeat([1, 2], n),
        "order": np.tile(np.arange(n), 2),
        "text": np.array(["The sea was warm."] * 2 * n, dtype=object),
        "group": np.repeat(np.array(["federated", "background"], dtype=object), n),
    }
    write_table(tmp_path / "diary", columns, {"licence": "mine"})
    t = Folder(path="diary", max_sentences=8).load(tmp_path, 0).users[0].examples["t"]
    assert t.tolist() == [0, 7, 14, 21, 28, 35, 42, 49]


def test_folder_sorts_rows_by_user_and_time(tmp_path: Path, photo_columns: Columns) -> None:
    write_table(tmp_path / "photos", photo_columns, {"licence": "mine", "samples": "shareable"})
    dataset = Folder(path=str(tmp_path / "photos")).load(None, 0)
    assert_well_formed(dataset)
    assert [user.user_id for user in dataset.users] == [1, 2, 3]
    assert dataset.class_names == ("0", "1")
    assert dataset.shareable
    expected = photo_columns["images"][4:8][::-1].transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(dataset.users[0].examples["x"].numpy(), expected)
    assert dataset.users[0].examples["t"].tolist() == [0, 1, 2, 3]
    assert len({*torch.cat([u.examples["album"] for u in dataset.users]).tolist()}) == 12


def test_folder_leaves_users_with_too_few_rows_to_the_background(tmp_path: Path, photo_columns: Columns) -> None:
    columns = {**photo_columns, "user": np.array([1] * 6 + [2] * 4 + [3] * 2)}
    write_table(tmp_path / "photos", columns, {"licence": "mine"})
    dataset = Folder(path="photos").load(tmp_path, 0)
    assert ([u.user_id for u in dataset.users], [u.user_id for u in dataset.background]) == ([1, 2], [3])
    assert not dataset.shareable
    split_users(dataset.users, seed=0)


def test_folder_without_users_or_content_is_refused(tmp_path: Path, photo_columns: Columns) -> None:
    for lost, says in (
        ("user", "no column 'user'"),
        ("labels", "need a column 'labels'"),
        ("images", "neither 'images'"),
    ):
        columns = {name: column for name, column in photo_columns.items() if name != lost}
        write_table(tmp_path / "photos", columns, {"licence": "mine"}, "npz")
        with pytest.raises(FedprintError, match=says):
            Folder(path="photos").load(tmp_path, 0)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mnist_writers", "fedprint data fetch mnist_writers"),
        ("blog", "Blog Authorship Corpus"),
        ("ahcd_writers", "Arabic Handwritten Characters"),
        ("presidents", "inaugural"),
    ],
)
def test_missing_data_say_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    monkeypatch.delenv("FEDPRINT_DATA", raising=False)
    for data_dir in (None, tmp_path):
        for call in (lambda d=data_dir: SOURCES[name]().load(d, 0), lambda d=data_dir: SOURCES[name]().fingerprint(d)):
            with pytest.raises(FedprintError, match=says) as caught:
                call()
            assert "--data-dir" in str(caught.value)
            assert "\n" not in str(caught.value)


def test_environment_names_the_data_folder(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPRINT_DATA", str(digits))
    assert MnistWriters().fingerprint() == MnistWriters().fingerprint(digits)


def test_names_tell_the_sources_apart() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(AnySource)
    for name, kind in SOURCES.items():
        config = {"name": name, **({"path": "x"} if name == "folder" else {})}
        assert type(adapter.validate_python(config)) is kind


def test_shared_mnist_writers(data_dir: Path) -> None:
    dataset = MnistWriters().load(data_dir, 0)
    assert_well_formed(dataset)
    sizes = [len(user.examples["y"]) for user in (*dataset.users, *dataset.background)]
    assert (len(dataset.users), len(dataset.background)) == (100, 300)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 131
    assert dataset.users[0].examples["x"].shape[1:] == (1, 28, 28)


def test_public_writers_may_know_some_letters_only(data_dir: Path) -> None:
    few, all_of_them = (
        AhcdWriters(users=50, background_users=2, background_letters=letters).load(data_dir, 0) for letters in (14, 28)
    )
    assert [user.user_id for user in few.background] == [user.user_id for user in all_of_them.background]
    assert all(np.array_equal(np.unique(user.examples["y"]), np.arange(14)) for user in few.background)
    assert all(len(user.examples["y"]) == 14 * 10 for user in few.background)
    assert all(len(user.examples["y"]) == 28 * 10 for user in (*all_of_them.background, *few.users))


def test_shared_ahcd_writers(data_dir: Path) -> None:
    dataset = AhcdWriters().load(data_dir, 0)
    assert_well_formed(dataset)
    assert (len(dataset.users), len(dataset.background)) == (60, 0)
    assert dataset.users[0].examples["t"].unique(return_counts=True)[1].tolist() == [28] * 10


def test_shared_blog(data_dir: Path) -> None:
    source = Blog(users=5, background_users=3, max_sentences=100)
    dataset = source.load(data_dir, 0)
    assert_well_formed(dataset)
    assert (len(dataset.users), len(dataset.background), len(dataset.class_names)) == (5, 3, 5000)
    assert {len(user.examples["x"]) for user in dataset.users} == {100}
    assert dataset.sha256 == source.fingerprint(data_dir)
    assert all(
        equal(a.examples, b.examples) for a, b in zip(dataset.users, source.load(data_dir, 1).users, strict=True)
    )


def test_shared_presidents(data_dir: Path) -> None:
    source = Presidents(background_users=10)
    dataset = source.load(data_dir, 0)
    assert_well_formed(dataset)
    assert (len(dataset.users), len(dataset.background)) == (17, 10)
    assert len(dataset.users[0].examples["album"].unique()) > 1
    assert dataset.sha256 == source.fingerprint(data_dir)


def test_shared_openmoji_through_the_format(data_dir: Path) -> None:
    dataset = Folder(path="openmoji", min_examples=20).load(data_dir, 0)
    assert_well_formed(dataset)
    assert (dataset.task, len(dataset.users), dataset.class_names[0]) == ("multi_label", 50, "woman")
