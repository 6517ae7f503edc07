"""Yelp's reader on a generated file in the official layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fedprint.data.sources import yelp as yelp_source
from fedprint.data.sources.yelp import FILE, Yelp
from fedprint.types import FedprintError


def review(user: str, number: int, **values: Any) -> dict[str, Any]:
    return {
        "review_id": f"{user}-{number}",
        "user_id": user,
        "business_id": "b" * 22,
        "stars": 1.0 + number % 5,
        "useful": 0,
        "funny": 0,
        "cool": 1,
        "text": f"The tacos of {user} were good.\n\nVisit {number}, \u00e9clairs too!",
        "date": f"2016-03-{28 - number:02d} 00:28:0{number % 10}",
        **values,
    }


def write_reviews(data_dir: Path, reviews: list[dict[str, Any]]) -> Path:
    path = data_dir / "yelp" / FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in reviews), encoding="utf-8")
    return path


@pytest.fixture
def yelp(tmp_path: Path) -> Path:
    """Reviewers zoe (8 reviews), amy (6), tom and ned (4 each), una (1), interleaved, the newest first."""
    counts = {"zoe": 8, "amy": 6, "tom": 4, "ned": 4, "una": 1}
    write_reviews(tmp_path, [review(user, k) for k in range(8) for user, most in counts.items() if k < most])
    return tmp_path


def source(**settings: Any) -> Yelp:
    return Yelp(**{"min_reviews": 6, "length": 12, **settings})


def test_the_papers_filters_are_the_defaults() -> None:
    assert (Yelp().min_reviews, Yelp().vocabulary) == (500, 1000)


def test_reviewers_above_the_limit_with_stars_by_date(yelp: Path) -> None:
    dataset = source().load(yelp, 0)
    assert (dataset.task, dataset.scale, dataset.has_time, dataset.shareable) == ("regression", (1.0, 5.0), True, False)
    assert [(u.user_id, len(u.examples["y"])) for u in dataset.users] == [(0, 6), (3, 8)]
    assert [(u.user_id, len(u.examples["y"])) for u in dataset.background] == [(1, 4), (2, 4)]
    zoe = dataset.users[1].examples
    assert (zoe["x"].dtype, zoe["x"].shape, zoe["y"].dtype) == (torch.int64, (8, 12), torch.float32)
    assert zoe["y"].tolist() == [3, 2, 1, 5, 4, 3, 2, 1]
    assert (zoe["t"].diff() > 0).all()
    assert zoe["t"][-1] == 1459124880  # 2016-03-28 00:28:00 UTC
    assert len(zoe["album"].unique()) == 8


def test_words_come_from_the_background_only(yelp: Path) -> None:
    names = source().load(yelp, 0).class_names
    assert {"tacos", "tom", "ned", "\u00e9clairs"} <= set(names)
    assert not {"zoe", "amy", "una"} & set(names)
    assert "ned" in source(background_users=1).load(yelp, 0).class_names
    assert "tom" not in source(background_users=1).load(yelp, 0).class_names


def test_most_reviews_first_when_fewer_users_are_asked_for(yelp: Path) -> None:
    dataset = source(users=1).load(yelp, 0)
    assert [len(user.examples["y"]) for user in dataset.users] == [8]
    assert "amy" not in dataset.class_names


def test_long_histories_keep_evenly_spaced_reviews(yelp: Path) -> None:
    assert source(max_reviews=3).load(yelp, 0).users[1].examples["y"].tolist() == [3, 4, 1]


def test_older_dates_without_a_clock(yelp: Path) -> None:
    write_reviews(yelp, [review(u, k, date=f"2011-04-{10 + k}") for u in ("zoe", "tom") for k in range(3)])
    zoe = Yelp(min_reviews=3, background_users=1).survey
    with pytest.raises(FedprintError, match="no reviewer is below"):
        zoe(yelp)
    write_reviews(yelp, [review(u, k, date=f"2011-04-{10 + k}") for u, n in (("zoe", 4), ("tom", 3)) for k in range(n)])
    assert Yelp(min_reviews=4).load(yelp, 0).users[0].examples["t"].diff().tolist() == [86400] * 3


def test_repeated_reviews_count_once(yelp: Path) -> None:
    path = yelp / "yelp" / FILE
    path.write_text(path.read_text() + json.dumps(review("amy", 0)) + "\n\n" + json.dumps(review("tom", 3)) + "\n")
    survey = source().survey(yelp)
    assert (survey.users, survey.users_in_the_paper, survey.examples, survey.per_user) == (2, 118, 14, (6, 7.0, 8))
    assert (survey.background_users, survey.background_examples) == (2, 8)
    assert survey.left_out == ("2 repeated reviews",)
    with pytest.raises(FedprintError, match="1 reviewers have 7 reviews"):
        source(users=2, min_reviews=7).load(yelp, 0)


def test_only_those_who_take_part_are_held(yelp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[set[str]] = []
    keep = yelp_source.keep_reviews
    monkeypatch.setattr(yelp_source, "keep_reviews", lambda path, users: (held.append(users), keep(path, users))[1])
    source(background_users=1).load(yelp, 0)
    assert held == [{"zoe", "amy", "ned"}]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"review_id": "x", "user_id": "zo', "line 24: not a review"),
        ('{"review_id": "x", "user_id": "zoe", "text": "a"}', r"line 24: not a review \(KeyError\('date'\)\)"),
        (json.dumps(review("zoe", 3, review_id="x", user_id=7)), "line 24: not a review .*must be text"),
        (json.dumps(review("zoe", 3, review_id="x", stars=6)), "line 24: stars are 6, not within 1 to 5"),
        (json.dumps(review("zoe", 3, review_id="x", stars=None)), "line 24: date or stars cannot be read"),
        (json.dumps(review("zoe", 3, review_id="x", date="yesterday")), "line 24: date or stars cannot be read"),
    ],
)
def test_damaged_lines_are_named(yelp: Path, line: str, says: str) -> None:
    with (yelp / "yelp" / FILE).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(FedprintError, match=says) as caught:
        source().load(yelp, 0)
    assert "\n" not in str(caught.value)


def test_a_missing_file_says_what_to_place_where(yelp: Path) -> None:
    (yelp / "yelp" / FILE).unlink()
    for call in (lambda: source().load(yelp, 0), lambda: source().fingerprint(yelp)):
        with pytest.raises(FedprintError, match=f"{FILE} does not exist; unpack .*Yelp Open Dataset.*official-data"):
            call()


def test_fingerprint_follows_the_size(yelp: Path) -> None:
    before = Yelp().fingerprint(yelp)
    assert source().load(yelp, 0).sha256 == before
    with (yelp / "yelp" / FILE).open("a") as file:
        file.write("\n")
    assert Yelp().fingerprint(yelp) != before
