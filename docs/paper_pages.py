"""A page for each paper: its claims with our verdicts, its tables, and our published measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_text import table

from fedprint.reports.claims import clients, federation, inversion, plane
from fedprint.reports.claims.verdict import STATES, Claim, Verdict
from fedprint.reports.numbers.reference import reference_table
from fedprint.reports.results import KINDS, Published, find_published

ROOT = Path(__file__).resolve().parents[1]
NOT_PUBLISHED = "Not judged here: no experiment that judges these is published. This command judges them:"


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper: where ``papers.md`` has it, its ``tables`` and what of ours stands beside them.

    ``attacks`` and ``planes`` are experiments whose numbers are shown where they are published; claims of ``sections``
    are judged on the ``attacks``. ``others`` are claims of pages of another kind, by the command that makes the page.
    """

    name: str
    title: str
    anchor: str
    sections: tuple[str, ...]
    tables: Mapping[str, str]
    attacks: tuple[str, ...] = ()
    planes: tuple[str, ...] = ()
    others: Mapping[str, Sequence[Claim[Any]]]


PAPERS = (
    Paper(
        name="gradient-leaks",
        title="Understanding and Controlling Deanonymization in Federated Learning",
        anchor="2-deanonymisation-gradient-leaks",
        sections=("2.",),
        tables={
            "table1_datasets": "Table 1: data sets",
            "table2_utility": "Table 2: utility",
            "table3_reidentification": "Table 3: re-identification (AP and top-k in %)",
            "table_matching": "Matching (AP in %)",
            "table4_attribute_inference": "Table 4: attributes (top-1 in %)",
            "table5_layers": "Table 5: layers (AP in %)",
            "table6_background": "Table 6: background data",
        },
        attacks=("quickstart", "mnist-writers", "blog", "openmoji"),
        planes=("mnist-writers-linked", "blog-linked"),
        others={"fedprint run papers-plane": plane.CLAIMS},
    ),
    Paper(
        name="client-dp",
        title="Differentially Private Federated Learning: A Client Level Perspective",
        anchor="3-participation-client-dp",
        sections=("3",),
        tables={"client_level_dp": "The published table"},
        attacks=("client-dp-100", "client-dp-100-strict"),
        others={},
    ),
    Paper(
        name="spn",
        title="Rethinking Privacy Preserving Deep Learning: How to Evaluate and Thwart Privacy Attacks",
        anchor="4-the-secret-head-spn",
        sections=("4",),
        tables={"spn_cap": "CAP scores", "spn_accuracy_dlnet": "Accuracy of DLNet"},
        others={"fedprint run spn-cifar10": inversion.CONCLUSIONS, "fedprint run spn-clients": clients.CLAIMS},
    ),
)


def paper_pages() -> Mapping[str, str]:
    """Return the pages: path below docs/ -> Markdown."""
    return {f"papers/{paper.name}.md": "\n\n".join(_page(paper)) + "\n" for paper in PAPERS}


def _page(paper: Paper) -> Iterator[str]:
    yield f"# {paper.title}"
    yield "Written from the published experiments and from the claims that reports judge."
    yield f"What we read differently is in [papers.md](../papers.md#{paper.anchor})."
    measured = _published(paper.attacks)
    yield "## Claims"
    yield (
        "A claim holds or fails where its interval lies wholly on one side. With fewer than three seeds it is "
        "undecided. n, seeds and the corrected p stand with each verdict ([ADR 17](../adr/0017-verdicts.md))."
    )
    if rows := list(_verdicts(paper, federation.judge_claims({one.name: one.rows for one in measured}))):
        yield table(("claim", "section", "on", "verdict", "our numbers", "rests on"), rows)
    for command, claims in paper.others.items():
        yield NOT_PUBLISHED
        yield f"```sh\n{command}\n```"
        yield table(("claim", "section"), [(claim.text, claim.source) for claim in claims])
    if measured:
        yield "## Our measurements"
        yield KINDS["attacks"](measured)
        if planes := _published(paper.planes):
            yield KINDS["planes"](planes)
    yield "## Published tables"
    for name, caption in paper.tables.items():
        published = reference_table(name)
        yield f"### {caption}"
        yield table([head.replace("_", " ") for head in published[0]], [tuple(row.values()) for row in published])


def _published(names: Sequence[str]) -> list[Published]:
    return [one for name in names if (one := find_published(ROOT, name)) is not None]


def _verdicts(paper: Paper, verdicts: Sequence[Verdict]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each claim of the paper and each experiment that tests it, one for a claim that none tests."""
    for claim in federation.CLAIMS:
        if claim.source.startswith(paper.sections):
            tested = [one for one in verdicts if one.claim == claim.name and one.state != "untested"]
            for one in tested:
                yield claim.text, claim.source, one.member, STATES[one.state], one.numbers, one.basis
            if not tested:
                yield claim.text, claim.source, "", STATES["untested"], "", ""
