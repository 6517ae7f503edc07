"""Manifests of data sets: what git knows of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from dvc_project import build, commit, dvc, git, work

from fedprint.data.catalogue.manifest import Manifest, add, add_embedded, names_these, read_manifest, survey
from fedprint.data.formats.describe import read_sidecar, write_table
from fedprint.data.sources.albums import Albums
from fedprint.data.sources.folder import Folder
from fedprint.lab.versions.repository import pull, record
from fedprint.types import FedprintError


def write(folder: Path, samples: str = "private") -> Path:
    """Write a data set of three users with four pictures each."""
    columns = {
        "images": np.arange(12 * 16, dtype=np.uint8).reshape(12, 4, 4),
        "labels": np.arange(12, dtype=np.uint8) % 2,
        "user": np.repeat(np.arange(3), 4),
    }
    write_table(folder, columns, {"licence": "CC0", "class_names": ["a", "b"], "samples": samples})
    return folder


@pytest.mark.parametrize(("samples", "shareable"), [("private", False), ("shareable", True)])
def test_a_manifest_holds_digest_counts_licence_and_whether_data_may_leave(
    tmp_path: Path, samples: str, shareable: bool
) -> None:
    folder = write(tmp_path / "elsewhere" / "mine", samples)
    path = add(tmp_path, folder)
    assert path == tmp_path / "datasets" / "mine.yaml"
    assert read_manifest(tmp_path, "mine") == Manifest(
        name="mine", sha256=read_sidecar(folder).sha256, users=3, examples=12, licence="CC0", shareable=shareable
    )
    assert str(tmp_path) not in path.read_text(), "paths of a machine are nobody's business"
    assert names_these(tmp_path, "mine", read_sidecar(folder).sha256)
    assert not names_these(tmp_path, "mine", "other")
    assert not names_these(tmp_path, "nobodys", "other")
    before = path.read_bytes()
    assert add(tmp_path, folder).read_bytes() == before


def test_the_digest_is_the_fingerprint_of_the_source(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine")
    assert survey(folder).sha256 == Folder(path=str(folder)).fingerprint(None)
    albums = Albums(users=3, images=20, background_users=2)
    path = add_embedded(tmp_path, albums.load(None, 0))
    assert read_manifest(tmp_path, "albums").sha256 == albums.fingerprint(None)
    assert "shareable: true" in path.read_text()
    assert "users: 5" in path.read_text()


def test_official_layouts_and_sources_of_their_own_are_surveyed(tmp_path: Path) -> None:
    folder = tmp_path / "yelp"
    folder.mkdir()
    reviews = [
        {"review_id": f"{user}-{n}", "user_id": f"u{user}", "business_id": "b", "stars": 1.0 + n % 5,
         "text": f"good food number {n} here", "date": "2020-01-01 00:00:00", "useful": 0, "funny": 0, "cool": 0}
        for user in range(4) for n in range(510 - 500 * (user > 1))
    ]  # fmt: skip
    (folder / "yelp_academic_dataset_review.json").write_text("".join(json.dumps(each) + "\n" for each in reviews))
    manifest = survey(folder)
    assert (manifest.name, manifest.shareable) == ("yelp", False)
    assert (manifest.users, manifest.examples) == (4, 1040)


@pytest.mark.parametrize(
    ("name", "cache", "words"), [("../x", False, "is not a valid name"), ("other", True, "keep the name 'mine'")]
)
def test_names_that_cannot_be_are_refused(tmp_path: Path, name: str, cache: bool, words: str) -> None:
    with pytest.raises(FedprintError, match=words):
        add(tmp_path, write(tmp_path / "mine"), name, cache=cache)
    assert not (tmp_path / "datasets").exists()
    assert not (tmp_path / "data").exists()


def test_errors_say_in_one_line_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "broken.yaml").write_text("name: 1\n")
    for act, words in (
        (lambda: add(tmp_path, tmp_path / "empty"), "no such sidecar"),
        (lambda: add(tmp_path, tmp_path / "none"), "no such folder"),
        (lambda: read_manifest(tmp_path, "none"), "fedprint data add"),
        (lambda: read_manifest(tmp_path, "broken"), "not a valid manifest"),
    ):
        with pytest.raises(FedprintError, match=words) as caught:
            act()
        assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("samples", ["private", "shareable"])
def test_data_on_request_enter_the_cache_and_only_shareable_ones_the_remote(tmp_path: Path, samples: str) -> None:
    root = build(tmp_path / "project")
    folder = write(tmp_path / "mine", samples)
    add(root, folder, cache=True)
    add(root, folder, cache=True)  # again, with the pointer there
    assert (folder / "mine.npz").stat().st_nlink == 1, "the owner's file is not DVC's"
    assert git(root, "status", "--short", "--untracked-files=all").split() == [
        "??",
        "data/mine.dvc",
        "??",
        "datasets/mine.yaml",
    ]
    assert dvc(root, "remote", "add", "--default", "shelf", "../shelf").returncode == 0
    work(root)
    record(root, "quickstart")
    commit(root, "data")
    assert dvc(root, "push").returncode == 0
    fresh = tmp_path / "fresh"
    git(tmp_path, "clone", "-q", "project", "fresh")
    shutil.copy(root / ".dvc" / "config", fresh / ".dvc" / "config")
    line = pull(fresh)
    assert (fresh / "reports" / "quickstart" / "index.html").is_file()
    assert (fresh / "data" / "mine" / "mine.npz").is_file() == (samples == "shareable")
    assert ("the remote lacks data/mine" in line) == (samples == "private")
    assert (dvc(fresh, "pull").returncode == 0) == (samples == "shareable"), "as docs/versions.md says"
