"""The page in a real browser: nothing fails, figures are seen and can be explored, links lead to files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import chromium
import numpy as np
import pytest
from chromium import Page as Browser

from fedprint.reports.figures.drawing import SERIES, finish
from fedprint.reports.figures.panels import blank_figure
from fedprint.reports.pages.federation import write_report
from fedprint.reports.pages.html import Page, write_page

pytestmark = pytest.mark.usefixtures("chromium")

WATCH = """window.__failed = [];
addEventListener("error", e => __failed.push(String(e.message || e.target.src)), true);
addEventListener("unhandledrejection", e => __failed.push(String(e.reason)));
for (const kind of ["error", "warn"]) console[kind] = (...words) => __failed.push(words.join(" "));"""
MARKUP = "<img src=x onerror=window.hacked=1>"
READY = "document.readyState === 'complete'"


@pytest.fixture
def browser() -> Iterator[Browser]:
    with chromium.browser(1180, 900) as page:
        page.send("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        yield page


def _explore(browser: Browser) -> None:
    browser.run("(async () => { for (const each of document.querySelectorAll('.explore')) await each.onclick(); })()")


def test_a_report_is_seen_explored_and_escaped(
    browser: Browser, evaluations: Callable[..., list[Path]], tmp_path: Path
) -> None:
    out = tmp_path / "report"
    write_report(experiment="demo", title=MARKUP, evaluations=evaluations(), config_text="a: 1\n", out=out)
    browser.open((out / "index.html").as_uri())
    browser.wait(READY)
    assert MARKUP in browser.text()
    assert browser.run("window.hacked") is None
    shown = "[...document.querySelectorAll('figure .drawn svg')].map(svg => svg.getBoundingClientRect().height)"
    heights = browser.run(shown)
    assert heights
    assert min(heights) > 50
    _explore(browser)
    assert browser.run("document.querySelectorAll('.js-plotly-plot .main-svg').length") >= len(heights)
    assert browser.run("[...document.querySelectorAll('.drawn')].filter(each => !each.hidden).length") < len(heights)
    links = browser.run("[...document.querySelectorAll('a[href]')].map(link => link.getAttribute('href'))")
    files = [link for link in links if not link.startswith(("#", "http"))]
    assert files
    assert [link for link in files if not (out / link).is_file()] == []
    inside = [link for link in links if link.startswith("#")]
    assert [link for link in inside if not browser.run(f"!!document.getElementById({link[1:]!r})")] == []
    assert browser.run("__failed") == []


def test_the_dark_page_has_light_ink_in_figures_and_charts(
    browser: Browser, evaluations: Callable[..., list[Path]], tmp_path: Path
) -> None:
    write_report(experiment="demo", title="Demo", evaluations=evaluations(), config_text="", out=tmp_path / "report")
    browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.open((tmp_path / "report" / "index.html").as_uri())
    browser.wait(READY)
    _explore(browser)
    ink = browser.run("getComputedStyle(document.documentElement).getPropertyValue('--ink').trim()")
    assert ink == "#e7e9ee"
    assert browser.run("document.querySelector('.js-plotly-plot')._fullLayout.font.color") == ink


def test_the_keyboard_reaches_every_chart(
    browser: Browser, evaluations: Callable[..., list[Path]], tmp_path: Path
) -> None:
    write_report(experiment="demo", title="Demo", evaluations=evaluations(), config_text="", out=tmp_path / "report")
    browser.open((tmp_path / "report" / "index.html").as_uri())
    browser.wait(READY)
    browser.run("document.querySelector('.explore').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.send(
            "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13
        )
    browser.wait("document.querySelector('.js-plotly-plot .main-svg')")
    assert browser.run("document.querySelector('.explore').getAttribute('aria-pressed')") == "true"
    labels = browser.run("[...document.querySelectorAll('.explore')].map(each => each.getAttribute('aria-label'))")
    assert len(set(labels)) == len(labels)


def test_ten_thousand_points_are_drawn(browser: Browser, tmp_path: Path) -> None:
    figure = blank_figure(9, 4)
    places = np.random.default_rng(0).normal(size=(2, 10_000))
    figure.subplots().scatter(*places, s=4, color=SERIES[0], label="updates")
    drawing = finish(figure, "many", "Many", "Look.", "Points.")
    words = dict.fromkeys(("title", "name", "dataset", "network", "config_hash", "training"), "many")
    head = {**words, "fast": False, "failures": {}, "seeds": (0,), "examples": (1, 1)}
    page = Page(template="clients", drawings=(drawing,), values={"head": head})
    write_page(page, tmp_path / "report")
    browser.open((tmp_path / "report" / "index.html").as_uri())
    browser.wait(READY)
    _explore(browser)
    assert browser.run("document.querySelector('.js-plotly-plot').data[0].x.length") == 10_000
    assert browser.run("__failed") == []
