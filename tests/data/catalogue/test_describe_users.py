from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedprint.data.catalogue.summary import contact_sheet, describe, list_datasets, sample_texts
from fedprint.data.formats.describe import write_table
from fedprint.data.sources.albums import Albums
from fedprint.types import FedprintError


def test_only_described_folders_are_listed(tmp_path: Path, photo_columns: dict[str, np.ndarray]) -> None:
    write_table(tmp_path / "photos", photo_columns, {"licence": "mine"})
    (tmp_path / "other").mkdir()
    assert list_datasets(tmp_path) == ("photos",)
    assert list_datasets(tmp_path / "nowhere") == ()


def test_summary_holds_the_numbers(tmp_path: Path, photo_columns: dict[str, np.ndarray]) -> None:
    columns = {**photo_columns, "user": np.array([1] * 7 + [2] * 4 + [9])}
    write_table(tmp_path / "photos", columns, {"licence": "mine", "class_names": ["sea", "hill"]})
    summary = describe("photos", tmp_path)
    assert (summary.examples, summary.users, summary.per_user) == (12, 3, (1, 4.0, 7))
    assert (summary.content, summary.label, summary.classes) == (("images",), "labels", ("sea", "hill"))
    assert (summary.time, summary.album, summary.shareable) == (("time",), None, False)


def test_contact_sheet_shows_a_row_per_user() -> None:
    dataset = Albums(users=3, images=5, background_users=0).load(None, 0)
    sheet = contact_sheet(dataset, users=2, per_user=7, zoom=2)
    assert sheet.size == (7 * 34 * 2, 2 * 34 * 2)
    pixels = np.asarray(sheet)
    np.testing.assert_array_equal(pixels[0:64:2, 0:64:2].transpose(2, 0, 1), dataset.users[0].examples["x"][0])
    assert (pixels[:, 5 * 34 * 2 :] == 255).all()


def test_sample_texts_are_the_users_sentences() -> None:
    texts = sample_texts(Albums(users=2, images=5, modality="captions").load(None, 0), users=1, per_user=2)
    assert list(texts) == [0]
    assert len(texts[0]) == 2
    assert all(len(text.split()) >= 3 for text in texts[0])


def test_private_samples_are_never_shown() -> None:
    images = Albums(users=1, images=3, background_users=0).load(None, 0)
    for show in (contact_sheet, sample_texts):
        with pytest.raises(FedprintError, match="private"):
            show(replace(images, shareable=False))


def test_images_and_texts_are_told_apart() -> None:
    with pytest.raises(FedprintError, match="use contact_sheet"):
        sample_texts(Albums(users=1, images=3, background_users=0).load(None, 0))
    with pytest.raises(FedprintError, match="use sample_texts"):
        contact_sheet(Albums(users=1, images=3, modality="captions").load(None, 0))
