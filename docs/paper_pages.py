"""A page for each paper: its claims with our verdicts, its tables, and our published measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markdown_text import table

from fedprint.reports.claims import clients, federation, inversion, plane
from fedprint.reports.claims.verdict import Claim, Verdict
from fedprint.reports.numbers.reference import reference_table
from fedprint.reports.results.blocks import KINDS
from fedprint.reports.results.published import Published, find_published

ROOT = Path(__file__).resolve().parents[1]
NOT_MEASURED = "not measured here"
HEAD = ("claim", "section", "on", "verdict", "our numbers, or why there are none", "rests on")


def _names(claims: Sequence[Claim[Any]]) -> list[str]:
    return [claim.name for claim in claims]


@dataclass(frozen=True, kw_only=True)
class Others:
    """Claims that pages of another kind judge, on each of ``experiments`` that is published.

    ``claims`` are the paper's own: verdicts on others are left out. ``setting`` says how the experiments differ from
    the paper's. ``lacking`` says of a claim that none of them tests what it would take; ``command`` judges all claims.
    """

    title: str
    claims: Sequence[Claim[Any]]
    experiments: tuple[str, ...]
    command: str
    lacking: Mapping[str, str]
    setting: str = ""


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper: where ``papers.md`` has it, its ``tables`` and what of ours stands beside them.

    ``attacks`` and ``planes`` are experiments whose numbers are shown where they are published; claims of ``sections``
    are judged on the ``attacks``. ``lacking`` says of a claim that none of them tests what it would take.
    """

    name: str
    title: str
    anchor: str
    sections: tuple[str, ...] = ()
    tables: Mapping[str, str]
    attacks: tuple[str, ...] = ()
    planes: tuple[str, ...] = ()
    lacking: Mapping[str, str] = field(default_factory=dict)
    others: tuple[Others, ...] = ()


_ANALYSES: Mapping[str, tuple[str, ...]] = {
    "prior-examples": ("one-example",),
    "training-updates": ("one-update",),
    "layers": ("every-layer", "later-layers", "lstm-layer", "embedding-layer"),
    "epochs": ("epochs",),
    "matching": ("matching",),
    "open-world": ("matching-unseen", "open-world"),
    "attributes": ("mtl-attribute", "mtl-identity"),
    "data-space": ("update-over-example", "sets-over-update"),
}
"""Analysis -> the claims that it measures."""
_OF_PAPER_TABLES = {
    claim: f"takes the analysis `{analysis}`, which no published experiment ran; `fedprint run paper-tables`"
    for analysis, claims in _ANALYSES.items()
    for claim in claims
}
_PLANES = ("papers-plane-exact", "papers-plane", "mnist-writers-linked-confirmation", "blog-plane", "albums-plane")
"""Planes that judge gradient-leaks' claims about defences."""
_WITHOUT_PRIVACY = "takes a federation without a private mechanism and its diversity; the published ones are private"

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
        planes=_PLANES,
        lacking={
            **_OF_PAPER_TABLES,
            "svm-leads-ap": "is about Yelp, which may not be redistributed; `fedprint run yelp` with your copy",
            "embedding-layer": "is about Yelp, which may not be redistributed; `fedprint run yelp` with your copy",
        },
        others=(
            Others(
                title="Defences",
                claims=plane.CLAIMS,
                experiments=_PLANES,
                command="fedprint run papers-plane",
                lacking={
                    "mm-aug-data": "takes the number of examples before and after, which a plane's report alone has"
                },
                setting="papers-plane-exact defends the anonymous devices alone, before the paper's own attackers, as "
                "the paper does; papers-plane does so before our attackers, who may know the defence. The others "
                "defend every device. Two settings cannot be paired over users there, so fewer verdicts are decided "
                "than in a report.",
            ),
        ),
    ),
    Paper(
        name="client-dp",
        title="Differentially Private Federated Learning: A Client Level Perspective",
        anchor="3-participation-client-dp",
        sections=("3",),
        tables={"client_level_dp": "The published table"},
        attacks=("client-dp-100", "client-dp-100-strict"),
        lacking=dict.fromkeys(("clients-variance-rises", "update-scale-falls"), _WITHOUT_PRIVACY),
    ),
    Paper(
        name="spn",
        title="Rethinking Privacy Preserving Deep Learning: How to Evaluate and Thwart Privacy Attacks",
        anchor="4-the-secret-head-spn",
        tables={"spn_cap": "CAP scores", "spn_accuracy_dlnet": "Accuracy of DLNet"},
        others=(
            Others(
                title="Reconstruction, membership and tracing",
                claims=inversion.CONCLUSIONS,
                experiments=("spn-cifar10", "spn-mnist", "spn-svhn"),
                command="fedprint run spn-cifar10",
                lacking=dict.fromkeys(
                    _names(inversion.CONCLUSIONS), "takes an inversion experiment; none is published"
                ),
            ),
            Others(
                title="Accuracy by the number of clients",
                claims=clients.CLAIMS,
                experiments=("spn-clients",),
                command="fedprint run spn-clients",
                lacking=dict.fromkeys(_names(clients.CLAIMS), "takes a sweep over clients; none is published"),
            ),
        ),
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
    own = [claim for claim in federation.CLAIMS if paper.sections and claim.source.startswith(paper.sections)]
    if own:
        verdicts = federation.judge_claims({one.name: one.rows for one in measured})
        yield _judged(_lines(own, [(one.member, one) for one in verdicts], paper.lacking))
    for other in paper.others:
        yield f"### {other.title}"
        published = _published(other.experiments)
        yield from _how_judged(other, published)
        verdicts_on = [(f"{one.name}, {verdict.member}", verdict) for one in published for verdict in one.verdicts]
        yield _judged(_lines(other.claims, verdicts_on, other.lacking))
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


def _how_judged(other: Others, published: Sequence[Published]) -> Iterator[str]:
    """Say on what the claims are judged, and which command judges them."""
    if not published:
        yield "None of these is measured here. The [log](../log.md) has findings of shorter runs. This command judges:"
    else:
        listed = " and ".join(one.name for one in published)
        said = (f"Judged on the published numbers of {listed}.", other.setting, "This command judges:")
        yield " ".join(filter(None, said))
    yield f"```sh\n{other.command}\n```"


def _judged(lines: Iterable[Sequence[str]]) -> str:
    """Return the table of claims without the columns in which all lines are empty."""
    rows = list(lines)
    kept = [column for column in range(len(HEAD)) if any(row[column] for row in rows)]
    return table([HEAD[column] for column in kept], [[row[column] for column in kept] for row in rows])


def _lines(
    claims: Sequence[Claim[Any]], verdicts: Sequence[tuple[str, Verdict]], lacking: Mapping[str, str]
) -> Iterator[tuple[str, ...]]:
    """Yield a line for each claim and whatever it was judged on; one with the reason for a claim that nothing tests.

    Raises KeyError for such a claim without a reason.
    """
    for claim in claims:
        tested = [(on, one) for on, one in verdicts if one.claim == claim.name and one.state != "untested"]
        for on, one in tested:
            yield claim.text, claim.source, on, one.result, one.numbers, one.basis
        if not tested:
            yield claim.text, claim.source, "", NOT_MEASURED, lacking[claim.name], ""
