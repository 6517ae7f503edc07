"""What is missing skips a test, and fails it where it is required."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from chromium import browser
from needs import NEEDS, missing


@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize(
    ("required", "outcome"),
    [(None, "skipped"), ("", "skipped"), ("{}", "failed"), ("other,{}", "failed"), ("other", "failed")],
)
def test_a_missing_need_skips_or_fails(
    monkeypatch: pytest.MonkeyPatch, need: str, required: str | None, outcome: str
) -> None:
    monkeypatch.delenv("FEDPRINT_REQUIRE", raising=False)
    if required is not None:
        monkeypatch.setenv("FEDPRINT_REQUIRE", required.format(need))
    expected = pytest.skip.Exception if outcome == "skipped" else pytest.fail.Exception
    with pytest.raises(expected, match="other" if required and "other" in required else "not there"):
        missing(need, "not there")


def test_only_what_is_required_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPRINT_REQUIRE", "chromium, postgresql")
    with pytest.raises(pytest.skip.Exception, match="no data"):
        missing("data", "no data")
    with pytest.raises(pytest.fail.Exception, match="chromium is required here"):
        missing("chromium", "no browser")


def test_the_browser_runs_scripts(chromium: str, tmp_path: Path) -> None:
    assert subprocess.run([chromium, "--version"], capture_output=True, check=True).stdout
    page = tmp_path / "page.html"
    page.write_text("<title>a</title><p id=p></p><script>p.textContent = 6 * 7</script>", encoding="utf-8")
    with browser() as shown:
        shown.open(page.as_uri())
        shown.wait_for_text("42")
