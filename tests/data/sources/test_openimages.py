"""OpenImages' reader on a generated folder in the official layout."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedprint.data.sources.openimages import OpenImages, flickr_id
from fedprint.types import FedprintError

HEADER = [
    "ImageID", "Subset", "OriginalURL", "OriginalLandingURL", "License", "AuthorProfileURL", "Author", "Title",
    "OriginalSize", "OriginalMD5", "Thumbnail300KURL", "Rotation",
]  # fmt: skip
CLASSES = {"/m/02wbm": "Food", "/m/0cgh4": "Building", "/m/0c9ph5": "Flower", "/m/0k4j": "Car"}
FOOD, BUILDING, FLOWER, CAR = CLASSES
DATE_TAKEN, EXIF_BLOCK = 36867, 0x8769


def listed(image: str, upload: int, author: str, rotation: str = "0.0", *, url: bool = True) -> list[str]:
    file = f"https://farm3.staticflickr.com/5310/{upload}_51085e157c_o.jpg" if url else "https://example.org/photo.jpg"
    page = f"https://www.flickr.com/photos/{author}/{upload}" if url else "https://example.org"
    profile = f"https://www.flickr.com/people/{author}/" if author else ""
    name = "Same Name" if author else ""
    return [image, "train", file, page, "by/2.0", profile, name, 'a "b", c\nd', "1", "x==", "", rotation]


def write_csv(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def save_photo(folder: Path, image: str, grey: int, taken: str | None = None) -> None:
    exif = Image.Exif()
    if taken:
        exif.get_ifd(EXIF_BLOCK)[DATE_TAKEN] = taken
    path = folder / "images" / f"{image}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 30), (grey, grey, grey)).save(path, exif=exif, quality=95)


@pytest.fixture
def openimages(tmp_path: Path) -> Path:
    """Authors zoe (6 photos), amy (5), and tom (3) who share a display name; zoe uploaded in reverse order of the ids.

    Photo k of an author has grey 10 k and is labelled Food (zoe), Building (amy), Flower (tom); zoe's even ones also
    have Car. Beside them: a listed photo without a file, a file without labels, and a file that no table lists.
    """
    folder = tmp_path / "openimages"
    rows, labels = [HEADER], [["ImageID", "Source", "LabelName", "Confidence"]]
    for author, count, label in (("zoe", 6, FOOD), ("amy", 5, BUILDING), ("tom", 3, FLOWER)):
        for k in range(count):
            image = f"{author}{k:013d}"
            save_photo(folder, image, 10 * k, f"2010:01:{10 + k} 12:00:00")
            rows.append(listed(image, 900 - k if author == "zoe" else 100 + k, author))
            labels += [[image, "verification", label, "1"], [image, "verification", FLOWER, "0"]]
            labels += [[image, "crowdsource-verification", CAR, "1.0"]] if author == "zoe" and k % 2 == 0 else []
            labels.append([image, "machine", BUILDING, "0.8"])
    rows += [listed("absent", 1, "zoe"), listed("unlabelled", 2, "zoe"), listed("labelled-only", 3, "zoe")]
    save_photo(folder, "unlabelled", 0)
    save_photo(folder, "unlisted", 0)
    write_csv(folder / "image_ids_and_rotation.csv", rows)
    write_csv(folder / "train-annotations-human-imagelabels.csv", labels)
    write_csv(folder / "class-descriptions.csv", [["LabelName", "DisplayName"], *map(list, CLASSES.items())])
    return tmp_path


def source(**settings: Any) -> OpenImages:
    return OpenImages(**{"min_photos": 5, "size": 8, "background_users": 0, **settings})


def greys(examples: Any) -> list[float]:
    return list(examples["x"].float().mean((1, 2, 3)).round().tolist())


def test_the_papers_filters_are_the_defaults() -> None:
    assert (OpenImages().min_photos, OpenImages().most_classes, OpenImages().size) == (500, 18, 224)


def test_authors_by_profile_in_the_order_of_their_uploads(openimages: Path) -> None:
    dataset = source(background_users=3).load(openimages, 0)
    assert (dataset.task, dataset.has_time, dataset.shareable) == ("multi_label", True, False)
    assert ([u.user_id for u in dataset.users], [u.user_id for u in dataset.background]) == ([0, 2], [])
    assert dataset.class_names == ("Food", "Building", "Car")
    amy, zoe = (user.examples for user in dataset.users)
    assert greys(amy) == [0, 10, 20, 30, 40]
    assert greys(zoe) == [50, 40, 30, 20, 10, 0]
    assert zoe["t"].tolist() == [895, 896, 897, 898, 899, 900]
    assert zoe["y"].tolist() == [[1, 0, 0], [1, 0, 1]] * 3
    assert amy["y"].tolist() == [[0, 1, 0]] * 5
    assert len({*amy["album"].tolist(), *zoe["album"].tolist()}) == 11
    assert zoe["x"].dtype == torch.uint8


def test_photos_without_any_of_the_classes_do_not_count(openimages: Path) -> None:
    dataset = source(background_users=3, only_labelled=False).load(openimages, 0)
    assert [(u.user_id, float(u.examples["y"].sum())) for u in dataset.background] == [(1, 0.0)]
    with pytest.raises(FedprintError, match=r"1 authors have 5 usable photos or more, data\.users is 2"):
        source(users=2, most_classes=1).load(openimages, 0)


def test_survey_says_what_was_left_out(openimages: Path) -> None:
    survey = source().survey(openimages)
    assert (survey.users, survey.users_in_the_paper, survey.examples, survey.per_user) == (2, 327, 11, (5, 5.5, 6))
    assert set(survey.left_out) == {
        "1 unlisted files",
        "1 photos without a positive label",
        "3 photos with none of the classes",
    }


def test_machine_labels_from_a_lower_confidence(openimages: Path) -> None:
    assert source(min_confidence=0.8).load(openimages, 0).class_names[0] == "Building"


def test_older_tables_and_several_of_a_kind(openimages: Path) -> None:
    folder = openimages / "openimages"
    expected = source().load(openimages, 0)
    write_csv(folder / "class-descriptions.csv", [list(pair) for pair in CLASSES.items()])
    rows = list(csv.reader((folder / "image_ids_and_rotation.csv").open(newline="")))
    (folder / "image_ids_and_rotation.csv").unlink()
    write_csv(folder / "images.csv", [row[:11] for row in rows])
    write_csv(folder / "train-images-boxable-with-rotation.csv", rows[:4])
    labels = folder / "train-annotations-human-imagelabels.csv"
    labels.rename(folder / "oidv6-train-annotations-human-imagelabels.csv")
    dataset = source().load(openimages, 0)
    assert dataset.class_names == expected.class_names
    for a, b in zip(dataset.users, expected.users, strict=True):
        assert all(torch.equal(a.examples[name], b.examples[name]) for name in ("x", "y", "t"))
    assert "3 lines of a photo listed before" in source().survey(openimages).left_out


def test_order_by_exif_time_leaves_out_photos_without(openimages: Path) -> None:
    folder = openimages / "openimages"
    save_photo(folder, f"zoe{0:013d}", 0)
    save_photo(folder, f"zoe{1:013d}", 10, "0000:00:00 00:00:00")
    source_exif = source(order="exif", min_photos=4)
    zoe = source_exif.load(openimages, 0).users[1].examples
    assert greys(zoe) == [20, 30, 40, 50]
    assert zoe["t"].diff().tolist() == [86400] * 3
    assert "2 photos without a time" in source_exif.survey(openimages).left_out


@pytest.mark.parametrize(
    ("rotation", "white"), [("90.0", "below"), ("270.0", "above"), ("0.0", "left"), ("nan", "left")]
)
def test_originals_are_turned_counterclockwise_as_the_table_says(openimages: Path, rotation: str, white: str) -> None:
    folder = openimages / "openimages"
    pixels = np.zeros((32, 32, 3), dtype=np.uint8)
    pixels[:, :16] = 255
    image = f"amy{0:013d}"
    Image.fromarray(pixels).save(folder / "images" / f"{image}.jpg", quality=95)
    rows = list(csv.reader((folder / "image_ids_and_rotation.csv").open(newline="")))
    write_csv(
        folder / "image_ids_and_rotation.csv", [[*row[:-1], rotation] if row[0] == image else row for row in rows]
    )
    for rotate in (True, False):
        x = source(rotate=rotate).load(openimages, 0).users[0].examples["x"][0].float()
        part = {"below": x[:, 5:], "above": x[:, :3], "left": x[:, :, :3]}[white if rotate else "left"]
        assert part.mean() > 240
        assert x.mean() < 140


@pytest.mark.parametrize(
    ("url", "page", "number"),
    [
        ("https://farm3.staticflickr.com/5310/5898076654_51085e157c_o.jpg", "", 5898076654),
        ("https://c1.staticflickr.com/1/67/197493648_628a7cb2ee.jpg?zz=1", "", 197493648),
        ("https://example.org/a.jpg", "https://www.flickr.com/photos/118815643@N04/15340259497", 15340259497),
        ("https://example.org/a.jpg", "https://example.org", None),
    ],
)
def test_photo_numbers_from_addresses(url: str, page: str, number: int | None) -> None:
    assert flickr_id(url, page) == number


def test_photos_without_author_or_number_are_left_out(openimages: Path) -> None:
    folder = openimages / "openimages"
    rows = list(csv.reader((folder / "image_ids_and_rotation.csv").open(newline="")))
    rows[1], rows[2] = listed(rows[1][0], 900, ""), listed(rows[2][0], 899, "zoe", url=False)
    write_csv(folder / "image_ids_and_rotation.csv", rows)
    survey = source(min_photos=4).survey(openimages)
    assert survey.examples == 9
    assert {"1 photos without an author", "1 photos without a time"} <= set(survey.left_out)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("image_ids_and_rotation.csv", "ImageID,Author\n1,2\n", "no column .*OriginalURL"),
        ("image_ids_and_rotation.csv", ",".join(HEADER) + "\nx,train\n", r"line 2: 2 fields, the header has 12"),
        ("train-annotations-human-imagelabels.csv", f"ImageID,Source,LabelName,Confidence\namy{0:013d},v,/m/1,yes\n",
         r"line 2: Confidence is 'yes'"),
        ("class-descriptions.csv", "/m/1,Food\n/m/2\n", r"line 2: 1 fields; needs LabelName,DisplayName"),
    ],
)  # fmt: skip
def test_damaged_tables_are_refused_in_one_line(openimages: Path, file: str, content: str, says: str) -> None:
    (openimages / "openimages" / file).write_text(content)
    with pytest.raises(FedprintError, match=says) as caught:
        source().load(openimages, 0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("image_ids_and_rotation.csv", "image_ids_and_rotation.csv or"),
        ("train-annotations-human-imagelabels.csv", "imagelabels"),
        ("class-descriptions.csv", "class-descriptions"),
    ],
)
def test_missing_tables_say_what_to_place_where(openimages: Path, file: str, says: str) -> None:
    (openimages / "openimages" / file).unlink()
    with pytest.raises(FedprintError, match=f"{says}.* OpenImages' table there .*official-data"):
        source().load(openimages, 0)


def test_a_folder_without_photos_says_so(tmp_path: Path) -> None:
    (tmp_path / "openimages").mkdir()
    with pytest.raises(FedprintError, match=r"openimages/images does not exist; .*<ImageID>\.jpg"):
        source().load(tmp_path, 0)


def test_fingerprint_follows_names_and_sizes(openimages: Path) -> None:
    before = OpenImages().fingerprint(openimages)
    assert OpenImages().fingerprint(openimages) == before
    save_photo(openimages / "openimages", "one-more", 0)
    assert OpenImages().fingerprint(openimages) != before
