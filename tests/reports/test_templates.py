"""All pages have one head and one foot: they extend the base template."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedprint.reports.pages import html as page

TEMPLATES = Path(page.__file__).with_name("templates")
WHOLE = ("experiment", "plane", "study", "suite", "compare", "inversion", "clients", "audit", "records")


@pytest.mark.parametrize("name", WHOLE)
def test_pages_extend_the_base_and_repeat_nothing_of_it(name: str) -> None:
    text = (TEMPLATES / f"{name}.html").read_text(encoding="utf-8")
    assert text.startswith('{% extends "base.html" %}')
    assert not re.search(r"<!doctype|<head>|<style>|<footer>|<h1>", text)


def test_no_other_template_is_a_page() -> None:
    whole = {path.stem for path in TEMPLATES.glob("*.html") if "<footer>" in path.read_text(encoding="utf-8")}
    assert whole == {"base"}


def test_the_base_shows_each_block_once_and_escapes_the_title() -> None:
    source = """{% extends "base.html" %}
{% block title %}{{ name }}{% endblock %}
{% block kind %}case · x{% endblock %}
{% block badges %}<ul class="badges"></ul>{% endblock %}
{% block method %}<p id="method">body</p>{% endblock %}"""
    html = (
        page.environment()
        .from_string(source)
        .render(
            name="A < B",
            sentences=["said"],
            drawings=(),
            tables=(),
            sections=(),
            verdicts=None,
            files=["a.csv"],
            config_text=None,
        )
    )
    assert html.startswith("<!doctype html>") and html.endswith("</html>")
    assert "<title>A &lt; B · fedprint</title>" in html and "<h1>A &lt; B</h1>" in html
    for once in (
        "fedprint case · x",
        '<ul class="badges">',
        "<p>said</p>",
        '<p id="method">body</p>',
        "<footer>",
        "<style>",
    ):
        assert html.count(once) == 1
