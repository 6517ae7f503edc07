"""The Blog Authorship Corpus with the papers' filter, on generated files in the official layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedprint.data.sources.blog_corpus import BlogCorpus
from fedprint.types import FedprintError


def write_blog(folder: Path, name: str, words: list[str]) -> None:
    """Write two sentences per post and word, newest first, with a bare ampersand and a byte of latin-1."""
    posts = [
        f"<date>{len(words) - k:02d},May,2004</date>\r\n<post>\r\n  The {word} was good & fine. "
        f"We liked caf\xe9 {word}!\r\n</post>\r\n"
        for k, word in enumerate(words)
    ]
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(("<Blog>\r\n" + "".join(posts) + "</Blog>").encode("latin-1"))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Adults 20 (5 posts), 7 (4), 300 (3) and 8 (2); a minor with 6 posts."""
    for number, age, count in ((20, 25, 5), (7, 33, 4), (300, 24, 3), (8, 40, 2), (9, 17, 6)):
        write_blog(tmp_path / "blog_corpus", f"{number}.male.{age}.Arts.Leo.xml", [f"thing{number}"] * count)
    return tmp_path


def source(**settings: Any) -> BlogCorpus:
    return BlogCorpus(**{"min_posts": 4, **settings})


def test_the_papers_filters_are_the_defaults() -> None:
    assert (BlogCorpus().min_posts, BlogCorpus().vocabulary) == (1000, 5000)


def test_everyone_above_the_limit_takes_part_and_the_others_give_the_words(corpus: Path) -> None:
    dataset = source().load(corpus, 0)
    assert (dataset.name, dataset.task, dataset.shareable) == ("blog_corpus", "language_model", False)
    assert [(u.user_id, len(u.examples["x"])) for u in dataset.users] == [(0, 8), (2, 10)]
    assert [(u.user_id, len(u.examples["x"])) for u in dataset.background] == [(1, 4), (3, 6)]
    assert {"thing300", "thing8", "caf\u00e9", "&"} <= set(dataset.class_names)
    assert not {"thing20", "thing7", "thing9"} & set(dataset.class_names)
    users = dataset.users[1].examples
    assert users["t"].unique(return_counts=True)[1].tolist() == [2] * 5
    assert len(users["album"].unique()) == 5


def test_background_are_those_with_most_posts(corpus: Path) -> None:
    dataset = source(background_users=1).load(corpus, 0)
    assert [len(user.examples["x"]) for user in dataset.background] == [6]
    assert "thing8" not in dataset.class_names


def test_posts_that_cannot_be_used_do_not_count(corpus: Path) -> None:
    path = corpus / "blog_corpus" / "7.male.33.Arts.Leo.xml"
    path.write_bytes(path.read_bytes().replace(b"01,May,2004", b"01,mai,2004"))
    survey = source(background_users=2).survey(corpus)
    assert (survey.users, survey.users_in_the_paper, survey.examples, survey.per_user) == (1, 55, 10, (10, 10.0, 10))
    assert (survey.background_users, survey.background_examples) == (2, 12)
    assert set(survey.left_out) == {
        "1 bloggers under 18",
        "1 adults beyond background_users",
        "1 posts without a date or text",
    }


def test_errors_say_what_to_do(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(FedprintError, match=r"no adult with 6 posts or more .*lower data\.min_posts"):
        source(min_posts=6).load(corpus, 0)
    with pytest.raises(FedprintError, match="2 users fit the settings, 3 are asked for"):
        source(users=3).load(corpus, 0)
    for number in (300, 8):
        next((corpus / "blog_corpus").glob(f"{number}.*")).unlink()
    with pytest.raises(FedprintError, match="no other adult for the vocabulary"):
        source().load(corpus, 0)
    with pytest.raises(FedprintError, match=r"unpack the Blog Authorship Corpus .*official-data"):
        source().load(tmp_path / "nowhere", 0)


def test_fingerprint_follows_names_and_contents(corpus: Path) -> None:
    before = BlogCorpus().fingerprint(corpus)
    assert source().load(corpus, 0).sha256 == before
    write_blog(corpus / "blog_corpus", "1.male.40.Arts.Leo.xml", [])
    assert BlogCorpus().fingerprint(corpus) != before
