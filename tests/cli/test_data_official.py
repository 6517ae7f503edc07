"""``fedprint data`` on a data set in its official layout."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from tiny_project import CHECKOUT, resolved

from fedprint.reports.data_sets import describe, list_table
from fedprint.types import FedprintError


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "blog_corpus"
    folder.mkdir()
    for number, posts in ((1, 1000), (2, 3)):
        entry = "<date>01,May,2004</date><post>The privateword was warm. We swam.</post>"
        (folder / f"{number}.male.25.Arts.Leo.xml").write_text(f"<Blog>{entry * posts}</Blog>")
    return tmp_path


def printed(table: object) -> str:
    out = StringIO()
    Console(width=200, file=out).print(table)
    return out.getvalue()


def test_official_layouts_are_listed_with_their_experiment(corpus: Path) -> None:
    rows = [
        line.split()
        for line in printed(list_table(corpus, {"blog_corpus": ["blog-corpus"], "yelp": ["yelp"]})).splitlines()
    ]
    lines = {row[1]: " ".join(row) for row in rows if len(row) > 3}
    assert str(corpus / "blog_corpus") in lines["blog_corpus"]
    assert "blog-corpus" in lines["blog_corpus"]
    assert "missing" in lines["yelp"]


def test_describe_counts_and_shows_no_sample(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    describe("blog_corpus", corpus, None, samples=True)
    shown = capsys.readouterr().out
    assert "2000" in shown
    assert "users in the paper" in shown
    assert "privateword" not in shown


@pytest.mark.parametrize("name", ["pipa", "openimages", "yelp", "blog-corpus"])
def test_the_papers_experiments_say_how_to_get_their_data(name: str, tmp_path: Path) -> None:
    config = resolved(CHECKOUT, name)
    federation = config.federation
    assert (federation.rounds, federation.fraction, federation.epochs, federation.lr) == (200, 0.1, 1, 0.01)
    with pytest.raises(FedprintError, match=r"docs/official-data\.md"):
        config.data.fingerprint(tmp_path)
