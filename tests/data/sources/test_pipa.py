"""PIPA's reader on a generated folder in the official layout: colours stand for what is on a photo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedprint.data.formats.coco import CATEGORIES
from fedprint.data.sources.pipa import Pipa
from fedprint.types import FedprintError

CHAIR, CUP, TV = 62, 47, 72
ORIENTATION = 274


def save_photo(path: Path, grey: int, size: tuple[int, int] = (40, 30)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (grey, grey, grey)).save(path, quality=95)


def person(photoset: int, photo: int, identity: int, subset: int) -> str:
    return f"{photoset} {photo} 10 12 20 22 {identity} {subset}"


@pytest.fixture
def pipa(tmp_path: Path) -> Path:
    """Authors ann (6 photos, albums 91 and 100), bob (4, album 7), eve (3, album 55), and one photo of nobody.

    Photo k of ann is 1000 + k and has grey 10 k; all of ann's have a chair, the even ones a TV, bob's a cup.
    """
    folder = tmp_path / "pipa"
    owners = {"ann": ([91] * 3 + [100] * 3, 1000), "bob": ([7] * 4, 2000), "eve": ([55] * 3, 3000), "": ([1], 4000)}
    lines, authors, detections = [], ["photo_id,author"], []
    for subset, (author, (albums, first)) in enumerate(owners.items()):
        for k, album in enumerate(albums):
            photo = first + k
            lines += [person(album, photo, 17, subset), person(album, photo, 18, subset)]
            save_photo(folder / ("train", "val", "test", "leftover")[subset] / f"{album}_{photo}.jpg", 10 * k)
            authors += [f"{photo},{author}"] if author else []
            seen = {"ann": [CHAIR] + [TV] * (k % 2 == 0), "bob": [CUP], "eve": []}.get(author, [])
            detections += [{"image_id": photo, "category_id": c, "score": 0.9, "bbox": [0, 0, 5, 5]} for c in seen]
            detections.append({"image_id": photo, "category_id": 1, "score": 0.2, "bbox": [0, 0, 5, 5]})
    (folder / "annotations").mkdir()
    (folder / "annotations" / "index.txt").write_text("\n".join(lines) + "\n")
    (folder / "authors.csv").write_text("\n".join(authors) + "\n")
    (folder / "detections.json").write_text(json.dumps(detections))
    return tmp_path


def source(**settings: Any) -> Pipa:
    return Pipa(**{"min_photos": 4, "size": 8, "background_users": 0, **settings})


def test_the_papers_filters_are_the_defaults() -> None:
    assert (Pipa().min_photos, Pipa().most_classes, Pipa().min_share, Pipa().size) == (100, 19, 0.01, 224)


def test_authors_albums_and_labels(pipa: Path) -> None:
    dataset = source().load(pipa, 0)
    assert (dataset.task, dataset.has_time, dataset.shareable) == ("multi_label", False, False)
    assert [user.user_id for user in dataset.users] == [0, 1]
    assert dataset.class_names == ("chair", "cup", "tv")
    ann = dataset.users[0].examples
    assert (ann["x"].dtype, ann["x"].shape) == (torch.uint8, (6, 3, 8, 8))
    assert ann["x"].float().mean((1, 2, 3)).round().tolist() == [0, 10, 20, 30, 40, 50]
    assert ann["y"].dtype == torch.float32
    assert ann["y"].tolist() == [[1, 0, 1], [1, 0, 0]] * 3
    assert ann["album"].unique(return_counts=True)[1].tolist() == [3, 3]
    assert ann["album"].diff().bool().tolist() == [False, False, True, False, False]
    assert ann["t"].tolist() == [*range(6)]
    assert not set(ann["album"].tolist()) & set(dataset.users[1].examples["album"].tolist())


def test_other_authors_are_the_background(pipa: Path) -> None:
    dataset = source(users=1, background_users=5).load(pipa, 0)
    assert [user.user_id for user in dataset.users] == [0]
    assert [(user.user_id, len(user.examples["x"])) for user in dataset.background] == [(1, 4), (2, 3)]
    assert dataset.background[1].examples["y"].sum() == 0


def test_classes_by_share_or_by_name(pipa: Path) -> None:
    def classes(**settings: Any) -> tuple[str, ...]:
        return source(**settings).load(pipa, 0).class_names

    assert classes(most_classes=1) == ("chair",)
    assert classes(min_share=0.3) == ("chair", "cup")
    assert classes(classes=("tv", "cup")) == ("tv", "cup")
    assert classes(min_score=0.1)[0] == "person"
    with pytest.raises(FedprintError, match="'piano'"):
        classes(classes=("piano",))
    with pytest.raises(FedprintError, match=r"no label is on more than 90% of the photos; lower data\.min_share"):
        classes(min_share=0.9)


def test_long_histories_keep_evenly_spaced_photos(pipa: Path) -> None:
    ann = source(max_examples=3).load(pipa, 0).users[0].examples
    assert ann["x"].float().mean((1, 2, 3)).round().tolist() == [0, 20, 50]


def test_survey_counts_without_opening_a_photo(pipa: Path) -> None:
    for path in (pipa / "pipa").rglob("*.jpg"):
        path.write_bytes(b"")
    survey = source(background_users=9).survey(pipa)
    assert (survey.users, survey.users_in_the_paper, survey.examples, survey.per_user) == (2, 53, 10, (4, 5.0, 6))
    assert (survey.background_users, survey.background_examples, survey.classes) == (1, 3, ("chair", "cup", "tv"))
    assert survey.left_out == ("1 photos without an author",)


def test_absent_photos_and_second_photosets_are_counted(pipa: Path) -> None:
    (pipa / "pipa" / "train" / "91_1000.jpg").unlink()
    with (pipa / "pipa" / "annotations" / "index.txt").open("a") as index:
        index.write(person(999, 1001, 17, 0) + "\n")
    survey = source().survey(pipa)
    assert survey.examples == 9
    assert set(survey.left_out) == {
        "1 lines of a photo in another photoset too",
        "1 photos without a file",
        "1 photos without an author",
    }


def test_authors_as_json_and_images_named_by_file(pipa: Path) -> None:
    folder = pipa / "pipa"
    expected = source().load(pipa, 0)
    rows = [line.split(",") for line in (folder / "authors.csv").read_text().splitlines()[1:]]
    (folder / "authors.csv").unlink()
    (folder / "authors.json").write_text(json.dumps(dict(rows)))
    detections = json.loads((folder / "detections.json").read_text())
    (folder / "detections.json").write_text(
        json.dumps([{**entry, "image_id": f"91_{entry['image_id']}.jpg"} for entry in detections])
    )
    dataset = source().load(pipa, 0)
    assert all(
        torch.equal(a.examples["y"], b.examples["y"]) for a, b in zip(dataset.users, expected.users, strict=True)
    )
    (folder / "authors.json").write_text("[1]")
    with pytest.raises(FedprintError, match=r"authors\.json: cannot be read .*write one object"):
        source().load(pipa, 0)


def test_attributes_are_the_most_frequent_of_the_annotated_people(pipa: Path) -> None:
    path = pipa / "pipa" / "attributes.csv"
    path.write_text("photo_id,identity_id,age,gender\n1000,1,2,0\n1000,2,1,1\n1001,1,2,\n2000,3,4,1\n9,9,0,0\n")
    users = source().load(pipa, 0).users
    assert [user.attributes for user in users] == [{"age": 2, "gender": 0}, {"age": 4, "gender": 1}]
    path.write_text("photo_id,age\n1000,2\n")
    with pytest.raises(FedprintError, match="author 'bob' has no 'age'"):
        source().load(pipa, 0)
    path.write_text("photo_id,age\n1000,5\n")
    with pytest.raises(FedprintError, match=r"attributes\.csv, line 2: 'age' is '5', a class is 0 to 4"):
        source().load(pipa, 0)


def test_photos_are_turned_upright(pipa: Path) -> None:
    path = pipa / "pipa" / "train" / "91_1000.jpg"
    pixels = np.zeros((30, 40, 3), dtype=np.uint8)
    pixels[:, :20] = 255
    exif = Image.Exif()
    exif[ORIENTATION] = 6  # to be shown turned clockwise by 90 degrees: the white left half becomes the top
    Image.fromarray(pixels).save(path, exif=exif, quality=95)
    x = source().load(pipa, 0).users[0].examples["x"][0].float()
    assert x[:, :3].mean() > 240
    assert x[:, 5:].mean() < 15


def test_damaged_photos_are_named_together_or_left_out(pipa: Path) -> None:
    for name in ("91_1000", "91_1002"):
        path = pipa / "pipa" / "train" / f"{name}.jpg"
        path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(
        FedprintError, match=r"2 photos cannot be decoded \(.*91_1000.*91_1002.*data\.damaged=leave_out"
    ):
        source().load(pipa, 0)
    ann = source(damaged="leave_out").load(pipa, 0).users[0].examples
    assert ann["x"].float().mean((1, 2, 3)).round().tolist() == [10, 30, 40, 50]
    assert ann["y"].tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 1], [1, 0, 0]]


def test_more_pixels_than_memory_are_refused_with_settings_that_fit(pipa: Path) -> None:
    with pytest.raises(FedprintError, match=r"10 photos of 224 px need 0\.00151 GB, max_gb is 0\.001; set") as caught:
        source(max_gb=1e-3, size=224).load(pipa, 0)
    assert "data.max_examples=3 or data.size=182, or raise data.max_gb" in str(caught.value)
    assert len(source(max_gb=1e-3, size=224, max_examples=3).load(pipa, 0).users) == 2
    assert len(source(max_gb=1e-3, size=182).load(pipa, 0).users) == 2
    with pytest.raises(FedprintError):
        source(max_gb=1e-3, size=183).load(pipa, 0)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("annotations/index.txt", "91 1000 1 2 3 4 17 0\n91 1001 oops\n", r"index\.txt, line 2: '91 1001 oops' is not"),
        ("authors.csv", "photo,owner\n1,2\n", r"no column \['photo_id', 'author'\]"),
        ("authors.csv", "photo_id,author\n1000,ann\n1001\n", r"authors\.csv, line 3: 1 fields, the header has 2"),
        ("authors.csv", "photo_id,author\n1000,ann\n1000,bob\n", "line 3: photo 1000 has a second author 'bob'"),
        ("detections.json", "[{", r"detections\.json: not valid JSON"),
        ("detections.json", "{}", "holds dict; needs a list"),
        ("detections.json", '[{"image_id": 1, "category_id": 12, "score": 1}]', "detection 0 cannot be read"),
        ("detections.json", '[{"image_id": 1, "category_id": 62, "score": 1}]', "none of its detections"),
    ],
)
def test_damaged_annotations_are_refused_in_one_line(pipa: Path, file: str, content: str, says: str) -> None:
    (pipa / "pipa" / file).write_text(content)
    with pytest.raises(FedprintError, match=says) as caught:
        source().load(pipa, 0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file", ["annotations/index.txt", "authors.csv", "detections.json"])
def test_missing_files_say_what_to_place_where(pipa: Path, file: str) -> None:
    (pipa / "pipa" / file).unlink()
    with pytest.raises(FedprintError, match=f"pipa/{file} does not exist; .*official-data"):
        source().load(pipa, 0)


def test_too_few_authors(pipa: Path) -> None:
    with pytest.raises(FedprintError, match=r"0 authors have 100 usable photos or more; .*min_photos"):
        Pipa().load(pipa, 0)
    with pytest.raises(FedprintError, match=r"2 authors have 4 usable photos or more, data\.users is 9; .*fewer users"):
        source(users=9).load(pipa, 0)


def test_fingerprint_follows_names_and_sizes_only(pipa: Path) -> None:
    before = Pipa().fingerprint(pipa)
    photo = pipa / "pipa" / "train" / "91_1000.jpg"
    photo.write_bytes(bytes(photo.stat().st_size))
    assert Pipa().fingerprint(pipa) == before
    photo.rename(photo.with_name("91_1009.jpg"))
    renamed = Pipa().fingerprint(pipa)
    with (pipa / "pipa" / "authors.csv").open("a") as authors:
        authors.write("1,x\n")
    assert len({before, renamed, Pipa().fingerprint(pipa)}) == 3


def test_categories_are_those_of_coco() -> None:
    detection = pytest.importorskip("torchvision.models.detection")
    known = detection.FasterRCNN_ResNet50_FPN_Weights.COCO_V1.meta["categories"]
    assert {number: name for number, name in enumerate(known) if name not in ("N/A", "__background__")} == CATEGORIES
