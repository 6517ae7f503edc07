"""Reviews with stars: who takes part, what is encoded, and which style a user is known for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fedprint.data.catalogue.summary import sample_texts
from fedprint.data.dataset import PAD, START
from fedprint.data.examples import equal
from fedprint.data.formats.describe import write_table
from fedprint.data.formats.locate import data_root
from fedprint.data.sources.folder import Folder
from fedprint.data.sources.registry import SOURCES
from fedprint.data.sources.reviews import RateBeer, favourites
from fedprint.data.text import token_ids
from fedprint.types import FedprintError

Beers = Callable[..., Path]
STYLES = {1: "Porter", 2: "Stout", 3: "Porter", 4: "Mead", 5: "Stout", 6: "Stout"}


def beer_columns(reviews: dict[int, int]) -> dict[str, np.ndarray]:
    """Return the columns of ``reviews`` (user -> number); users from 5 on are background, even ones write Italian."""
    user = np.concatenate([np.full(n, u) for u, n in reviews.items()])
    order = np.concatenate([np.arange(n)[::-1] for n in reviews.values()])
    pairs = list(zip(user.tolist(), order.tolist(), strict=True))
    texts = [f"Review {o} by {u}: malty, {'sweet' if u % 2 else 'dolce'} finish." for u, o in pairs]
    return {
        "user": user,
        "order": order,
        "text": np.array(texts, dtype=object),
        "stars": 0.5 + 0.5 * (order % 10),
        "style": np.array([STYLES[u] if o else "Lager" for u, o in pairs], dtype=object),
        "group": np.array(["background" if u >= 5 else "federated" for u in user], dtype=object),
        "english_user": user % 2 == 1,
    }


@pytest.fixture
def beers(tmp_path: Path) -> Path:
    """Users 1, 2, 3 and 4 with 6, 9, 9 and 2 reviews; 5 and 6 are background with 3 and 4."""
    write_table(tmp_path / "ratebeer", beer_columns({1: 6, 2: 9, 3: 9, 4: 2, 5: 3, 6: 4}), {"licence": "mine"})
    return tmp_path


def test_the_busiest_reviewers_take_part_and_stars_are_on_the_papers_scale(beers: Path) -> None:
    dataset = RateBeer(users=3, length=6).load(beers, 0)
    assert (dataset.task, dataset.scale, dataset.has_time) == ("regression", (1.0, 5.0), True)
    assert [user.user_id for user in dataset.users] == [2, 3, 1]
    assert [user.user_id for user in dataset.background] == [6, 5]
    oldest = dataset.users[0].examples
    assert oldest["t"].tolist() == list(range(9))
    assert oldest["y"].tolist() == pytest.approx([1 + 8 / 9 * 0.5 * i for i in range(9)])
    assert (oldest["x"].dtype, oldest["x"].shape, oldest["y"].dtype) == (torch.int64, (9, 6), torch.float32)
    assert len(set(oldest["album"].tolist())) == 9
    assert equal(oldest, RateBeer(users=3, length=6).load(beers, 7).users[0].examples)


def test_words_come_from_the_background_only(beers: Path) -> None:
    dataset = RateBeer(users=2, background_users=1).load(beers, 0)
    assert {"sweet", "dolce"} <= set(dataset.class_names)
    assert "2" in dataset.class_names and "8" not in dataset.class_names  # orders 0 to 3 and users 5, 6 are background
    english = RateBeer(users=2, english_only=True).load(beers, 0)
    assert [user.user_id for user in english.users] == [3, 1]
    assert "dolce" not in english.class_names and [user.user_id for user in english.background] == [5]


def test_a_vocabulary_has_its_size_and_texts_their_length(beers: Path) -> None:
    dataset = RateBeer(users=2, vocabulary=8, length=20).load(beers, 0)
    assert len(dataset.class_names) == 8
    x = dataset.users[0].examples["x"]
    assert (x[:, 0] == START).all() and int(x.max()) == 7
    words = 1 + 10  # START and "review N by U : malty , dolce finish ."
    assert (x[:, :words] != PAD).all() and (x[:, words:] == PAD).all()


def test_of_many_reviews_evenly_spaced_ones_are_kept(beers: Path) -> None:
    user = RateBeer(users=1, max_reviews=3).load(beers, 0).users[0]
    assert user.examples["t"].tolist() == [0, 4, 8]


def test_style_is_the_favourite_among_the_most_frequent(beers: Path) -> None:
    dataset = RateBeer(users=3, styles=1).load(beers, 0)
    assert {user.user_id: user.attributes["style"] for user in dataset.users} == {1: 0, 3: 0, 2: 1}
    both = RateBeer(users=3, styles=2).load(beers, 0)
    assert {user.user_id: user.attributes["style"] for user in both.users} == {1: 0, 3: 0, 2: 1}
    assert max(user.attributes["style"] for user in both.users) == 1  # Stout is second now, not another style


def test_ties_between_styles_go_to_the_alphabet() -> None:
    values = np.array(["b", "a", "c", "c", "c"], dtype=object)
    rows = {1: np.array([0, 1]), 2: np.array([2, 3, 4])}
    assert favourites(values, rows, [1, 2], 2) == {1: 1, 2: 0}
    assert favourites(values, rows, [1, 2], 1) == {1: 1, 2: 0}


def test_too_few_reviewers_are_one_line(beers: Path) -> None:
    with pytest.raises(FedprintError, match=r"3 users fit the settings, 4 are asked for; ask for fewer users"):
        RateBeer(users=4).load(beers, 0)


def test_the_fingerprint_follows_the_data(beers: Path) -> None:
    before = RateBeer().fingerprint(beers)
    assert SOURCES["ratebeer"]().fingerprint(beers) == before
    write_table(beers / "ratebeer", beer_columns({1: 6, 5: 3}), {"licence": "mine"})
    assert RateBeer().fingerprint(beers) != before


@pytest.fixture
def meals() -> dict[str, np.ndarray]:
    """Columns of five rated texts each of users 1, 2 (federated) and 3 (background)."""
    texts = ["The soup was warm.", "The soup was cold!", "Warm bread, cold soup.", "No bread.", "Good."]
    return {
        "user": np.repeat([1, 2, 3], 5),
        "order": np.tile(np.arange(5), 3),
        "text": np.array(texts * 3, dtype=object),
        "stars": np.tile([4.0, 2.0, 3.5, 1.5, 4.5], 3),
        "group": np.repeat(np.array(["federated", "federated", "background"], dtype=object), 5),
    }


def test_any_folder_with_text_and_stars_is_a_regression(tmp_path: Path, meals: dict[str, np.ndarray]) -> None:
    write_table(tmp_path / "meals", meals, {"licence": "mine", "scale": [1, 5], "samples": "shareable"})
    dataset = Folder(path="meals", length=5, vocabulary=20).load(tmp_path, 0)
    assert (dataset.task, dataset.scale) == ("regression", (1.0, 5.0))
    assert [user.user_id for user in (*dataset.users, *dataset.background)] == [1, 2, 3]
    assert dataset.users[1].examples["y"].tolist() == [4.0, 2.0, 3.5, 1.5, 4.5]
    assert dataset.users[1].examples["x"].shape == (5, 5)
    ids = token_ids(dataset.class_names)
    assert dataset.users[1].examples["x"][0].tolist() == [
        START,
        *(ids[word] for word in ("the", "soup", "was", "warm")),
    ]
    assert sample_texts(dataset)[1][:2] == ("4.0: the soup was warm", "2.0: the soup was cold")
    meals["stars"] = np.full(15, None, dtype=object)
    write_table(tmp_path / "meals", meals, {"licence": "mine"})
    assert Folder(path="meals").load(tmp_path, 0).task == "language_model"


def test_without_a_declared_scale_that_of_the_data_counts(tmp_path: Path, meals: dict[str, np.ndarray]) -> None:
    write_table(tmp_path / "meals", meals, {"licence": "mine"})
    assert Folder(path="meals").load(tmp_path, 0).scale == (1.5, 4.5)
    meals["stars"] = np.full(15, 3.0)
    write_table(tmp_path / "meals", meals, {"licence": "mine"})
    with pytest.raises(FedprintError, match=r"'stars' is 3 in every row; declare scale"):
        Folder(path="meals").load(tmp_path, 0)


@pytest.mark.parametrize(
    ("scale", "says"), [([1, 4], r"'stars' holds 4\.5, outside 1\.0\.\.4\.0"), ([5, 1], "lowest and then the highest")]
)
def test_stars_outside_their_scale_are_refused(
    tmp_path: Path, meals: dict[str, np.ndarray], scale: list[int], says: str
) -> None:
    with pytest.raises(FedprintError, match=says):
        write_table(tmp_path / "meals", meals, {"licence": "mine", "scale": scale})


def test_a_missing_rating_is_refused(tmp_path: Path, meals: dict[str, np.ndarray]) -> None:
    meals["stars"][3] = np.nan
    with pytest.raises(FedprintError, match=r"'stars' has no value in row 3"):
        write_table(tmp_path / "meals", meals, {"licence": "mine"})


def test_real_reviewers() -> None:
    root = data_root(None)
    if root is None or not (root / "ratebeer").is_dir():
        pytest.skip("FEDPRINT_DATA holds no ratebeer")
    dataset = RateBeer().load(None, 0)
    stars = torch.cat([user.examples["y"] for user in dataset.users])
    assert (len(dataset.users), len(dataset.class_names), len(stars)) == (118, 1000, 5900)
    assert (float(stars.min()), float(stars.max())) == (1.0, 5.0)
    known = torch.cat([user.examples["x"] for user in dataset.users])
    assert float((known == 1).sum() / (known != PAD).sum()) < 0.2  # few words are unknown
