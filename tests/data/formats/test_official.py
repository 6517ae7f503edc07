from __future__ import annotations

from pathlib import Path

import pytest

from fedprint.data.formats.official import LAYOUTS, csv_rows, evenly, list_official, reasons
from fedprint.data.sources.registry import SOURCES
from fedprint.types import FedprintError


def test_layouts_are_recognised(tmp_path: Path) -> None:
    assert list_official(tmp_path / "nowhere") == ()
    for name in ("pipa", "yelp", "openimages", "blog_corpus"):
        (tmp_path / name).mkdir()
    assert list_official(tmp_path) == ()
    (tmp_path / "openimages" / "images").mkdir()
    (tmp_path / "blog_corpus" / "1.male.25.Arts.Leo.xml").touch()
    (tmp_path / "yelp" / "yelp_academic_dataset_review.json").touch()
    assert list_official(tmp_path) == ("blog_corpus", "openimages", "yelp")


def test_every_layout_has_a_source_that_can_be_surveyed() -> None:
    assert set(LAYOUTS) <= set(SOURCES)
    assert all(callable(getattr(SOURCES[name], "survey", None)) for name in LAYOUTS)


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_missing_data_say_in_one_line_where_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv("FEDPRINT_DATA", raising=False)
    for data_dir in (None, tmp_path):
        for call in (lambda d=data_dir: SOURCES[name]().load(d, 0), lambda d=data_dir: SOURCES[name]().survey(d)):
            with pytest.raises(FedprintError, match=r"docs/official-data\.md, into .*--data-dir") as caught:
                call()
            assert "\n" not in str(caught.value)


def test_rows_are_read_by_the_names_of_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('\ufeffb,a,c\n1,"x, ""y""\nz",3\n4,5,6\n', encoding="utf-8")
    assert list(csv_rows(path, ("a", "c"))) == [(3, ('x, "y"\nz', "3")), (4, ("5", "6"))]
    path.write_bytes(b"a,b\n1,\xff\n")
    with pytest.raises(FedprintError, match=r"a\.csv, after line 0: .*utf-8.*restore"):
        list(csv_rows(path, ("a",)))
    path.write_text("")
    with pytest.raises(FedprintError, match="no column"):
        list(csv_rows(path, ("a",)))


@pytest.mark.parametrize(("count", "most", "kept"), [(5, None, [0, 1, 2, 3, 4]), (3, 7, [0, 1, 2]), (9, 3, [0, 4, 8])])
def test_evenly_spaced_indices_hold_both_ends(count: int, most: int | None, kept: list[int]) -> None:
    assert evenly(count, most) == kept


def test_reasons_that_did_not_occur_are_not_named() -> None:
    assert reasons({"a": 0, "b": 1234}) == ("1,234 b",)
