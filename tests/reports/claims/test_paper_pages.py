"""The pages of papers (docs/paper_pages.py): each claim has a verdict or a reason, from published numbers alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import cast

import pytest
from tiny_project import CHECKOUT

from fedprint.reports.claims import clients, federation, inversion, plane
from fedprint.reports.claims.comparison import Comparison
from fedprint.reports.claims.verdict import STATES, Finding, Judged, decide


@pytest.fixture(scope="module")
def pages() -> Iterator[ModuleType]:
    """The script of the pages; it reads each published experiment once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(CHECKOUT / "docs")
        patch.delitem(sys.modules, "paper_pages", raising=False)
        import paper_pages

        patch.setattr(paper_pages, "find_published", cache(paper_pages.find_published))
        yield paper_pages


@pytest.fixture(scope="module")
def written(pages: ModuleType) -> Mapping[str, str]:
    """The pages."""
    return cast("Mapping[str, str]", pages.paper_pages())


@dataclass(frozen=True, kw_only=True)
class Line:
    claim: str
    on: str
    verdict: str
    numbers: str


def lines(page: str) -> list[Line]:
    """Return the lines of a page's tables of claims."""
    found, head = [], list[str]()
    for line in page.splitlines():
        cells = [part.strip() for part in line[1:-1].split(" | ")] if line.startswith("|") else []
        if cells[:1] == ["claim"]:
            head = cells
        elif not cells:
            head = []
        elif head and not cells[0].startswith("---"):
            row = dict(zip(head, cells, strict=True))
            numbers = next(row[name] for name in head if name.startswith("our numbers"))
            found.append(Line(claim=row["claim"], on=row.get("on", ""), verdict=row["verdict"], numbers=numbers))
    return found


def test_every_claim_has_a_verdict_or_the_reason_why_it_has_none(pages: ModuleType, written: Mapping[str, str]) -> None:
    text = "\n".join(written.values())
    shown = {line.claim: line.verdict for line in lines(text)}
    known = [*federation.CLAIMS, *plane.CLAIMS, *inversion.CONCLUSIONS, *clients.CLAIMS]
    assert [claim.text for claim in known if claim.text not in shown] == []
    words = ("holds", "fails", "undecided", pages.NOT_MEASURED)
    assert [claim.text for claim in known if not shown[claim.text].startswith(words)] == []
    reasons = [line.numbers for line in lines(text) if line.verdict == pages.NOT_MEASURED]
    assert reasons and all(reason.startswith(("takes ", "is about ")) for reason in reasons)
    assert STATES["untested"] not in text


def test_claims_about_defences_are_judged_on_the_published_planes(written: Mapping[str, str]) -> None:
    page = written["papers/gradient-leaks.md"]
    said = {(line.claim, line.on): line.verdict for line in lines(page)}
    ours = [claim.text for claim in plane.CLAIMS if claim.name == "largest-cut"]
    older, newer = ("papers-plane",), ("mnist-writers-linked-confirmation", "albums-plane", "blog-plane")
    asked = {f"{name}, {who}" for name in (*older, *newer) for who in ("naive", "adaptive")}
    asked |= {f"{name}, best" for name in newer}  # older verdicts lack the better of both adversaries
    assert {on for text, on in said if text in ours} == {"papers-plane-exact, naive"} | asked
    assert {state for (text, _), state in said.items() if text in ours} <= {"holds", "fails", "undecided"}


def test_an_inversion_is_judged_once_it_is_published(pages: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "spn-cifar10"
    claim = next(claim for claim in inversion.CONCLUSIONS if claim.name == "labels-leak")
    compared = Comparison(value=0.9, lo=0.85, hi=0.95, bound=0.2, above=True, n_users=64, n_seeds=3)
    verdicts = decide([
        Judged(claim=claim, finding=Finding(test=compared, numbers="90 %"), member=adversary, dataset="cifar10")
        for adversary in ("naive", "adaptive")
    ])  # fmt: skip
    made = pages.Published(name=name, command=f"fedprint run {name}", date="2026-01-01", rows=[], verdicts=verdicts)
    found = pages.find_published
    monkeypatch.setattr(pages, "find_published", lambda root, which: made if which == name else found(root, which))
    said = {line.on: line.verdict for line in lines(pages.paper_pages()["papers/spn.md"]) if line.claim == claim.text}
    assert {on: said[on] for on in said if on.startswith(f"{name},")} == {
        f"{name}, naive": "holds",
        f"{name}, adaptive": "holds",
    }
