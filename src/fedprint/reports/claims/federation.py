"""The papers' claims (papers.md 2.2 to 2.5 and 3), each judged on one report's measurements.

A claim about an order holds only when the interval of the difference excludes 0, one about a limit when the interval
lies on its side. Which attack a claim is judged on is fixed here, never the one that suits it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from fedprint.evaluation.rows import Row
from fedprint.reports.claims.evidence import Evidence, Finding
from fedprint.reports.claims.rules import (
    Judge,
    epochs_alike,
    every_layer,
    gains,
    iid_is_chance,
    later_layers,
    layer_leads,
    leads,
    matching_works,
    moves,
    one_example,
    one_update,
    only_on,
    open_world_shape,
    paper_prior_order,
    prior_order,
    sets_beat_update,
    unseen_matching,
    update_beats_one,
)

STATES: Mapping[str, str] = {
    "holds": "holds",
    "unclear": "order holds, intervals overlap",
    "fails": "fails",
    "untested": "not tested here",
}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the papers with where it stands and how it is judged."""

    name: str
    text: str
    source: str
    judge: Judge


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A claim on one data set: ``state`` is a key of :data:`STATES`, ``numbers`` ours with their intervals."""

    claim: str
    text: str
    source: str
    member: str
    dataset: str
    state: str
    result: str
    numbers: str


def judge_claims(rows: Sequence[Row], member: str) -> tuple[Verdict, ...]:
    """Judge every claim on one report's rows."""
    evidence = Evidence(rows)
    dataset = str(rows[0]["dataset"]) if rows else ""
    return tuple(_verdict(claim, claim.judge(evidence), member, dataset) for claim in CLAIMS)


def verdict_rows(verdicts: Sequence[Verdict]) -> list[Mapping[str, Any]]:
    """Return the verdicts as JSON-ready mappings."""
    return [asdict(verdict) for verdict in verdicts]


def verdict_csv(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts as CSV, one per line."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(Verdict)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(verdict_rows(verdicts))
    return out.getvalue()


def by_claim(verdicts: Sequence[Verdict]) -> list[tuple[Verdict, list[Verdict]]]:
    """Return each claim once with its verdicts of all members, in the order of :data:`CLAIMS`."""
    found = [[verdict for verdict in verdicts if verdict.claim == claim.name] for claim in CLAIMS]
    return [(group[0], group) for group in found if group]


def _verdict(claim: Claim, finding: Finding, member: str, dataset: str) -> Verdict:
    return Verdict(
        claim=claim.name,
        text=claim.text,
        source=claim.source,
        member=member,
        dataset=dataset,
        state=finding.state,
        result=STATES[finding.state],
        numbers=finding.numbers,
    )


CLAIMS: tuple[Claim, ...] = (
    Claim(
        name="prior-order",
        text="random > chrono > chance (our chosen attacker)",
        source="2.5",
        judge=prior_order("selected"),
    ),
    Claim(
        name="prior-order-paper",
        text="random > chrono > chance, for the paper's MLP, SVM and kNN",
        source="2.5, table 3",
        judge=paper_prior_order,
    ),
    Claim(
        name="iid-chance",
        text="with iid data the attack falls to about chance (at most 1.5 times)",
        source="2.2",
        judge=iid_is_chance,
    ),
    Claim(
        name="one-example",
        text="one prior example per user already beats chance",
        source="2.2",
        judge=one_example,
    ),
    Claim(
        name="one-update",
        text="one labelled update per user already beats chance",
        source="2.2",
        judge=one_update,
    ),
    Claim(
        name="mlp-over-knn",
        text="the MLP leads kNN in AP",
        source="2.5, table 3",
        judge=leads("mlp", ("knn",), "ap"),
    ),
    Claim(
        name="mlp-over-knn-standardised",
        text="the MLP leads kNN in AP (both on standardised updates: our addition)",
        source="2.5, table 3",
        judge=leads("mlp-std", ("knn-std",), "ap"),
    ),
    Claim(
        name="mlp-leads-top5",
        text="the MLP leads SVM and kNN in top-5",
        source="2.5, table 3",
        judge=leads("mlp", ("svm", "knn"), "top5"),
    ),
    Claim(
        name="mlp-leads-ap",
        text="the MLP leads SVM and kNN in AP on images and Blog",
        source="2.5, table 3",
        judge=only_on(("image", "language"), leads("mlp", ("svm", "knn"), "ap")),
    ),
    Claim(
        name="svm-leads-ap",
        text="the SVM leads MLP and kNN in AP on Yelp",
        source="2.5, table 3",
        judge=only_on(("stars",), leads("svm", ("mlp", "knn"), "ap")),
    ),
    Claim(
        name="svm-leads-top1",
        text="the SVM leads MLP and kNN in top-1 on PIPA, OpenImages and Yelp",
        source="2.5, table 3",
        judge=only_on(("image", "stars"), leads("svm", ("mlp", "knn"), "top1")),
    ),
    Claim(
        name="every-layer",
        text="every layer is above chance",
        source="2.5, table 5",
        judge=every_layer,
    ),
    Claim(
        name="later-layers",
        text="of image models the later layers leak most",
        source="2.5",
        judge=only_on(("image",), later_layers),
    ),
    Claim(
        name="lstm-layer",
        text="of the language model the LSTM layer leaks most",
        source="2.5, table 5",
        judge=only_on(("language",), layer_leads("lstm")),
    ),
    Claim(
        name="embedding-layer",
        text="of the star regressor the embedding leaks most",
        source="2.5, table 5",
        judge=only_on(("stars",), layer_leads("embedding")),
    ),
    Claim(
        name="epochs",
        text="the training epoch hardly matters (half of training apart, at least 80 % of the AP remains)",
        source="2.5",
        judge=epochs_alike,
    ),
    Claim(
        name="matching",
        text="matching is above chance in the closed world, by every matcher",
        source="2.3, table 4",
        judge=matching_works,
    ),
    Claim(
        name="matching-unseen",
        text="matching is above chance for unseen users too",
        source="2.2",
        judge=unseen_matching,
    ),
    Claim(
        name="open-world",
        text="as the seen share grows, AP falls and AP over chance rises",
        source="2.2",
        judge=open_world_shape,
    ),
    Claim(
        name="mtl-attribute",
        text="learning attribute and user together improves the attribute's top-1",
        source="2.3, table 4",
        judge=gains("attribute"),
    ),
    Claim(
        name="mtl-identity",
        text="learning attribute and user together improves the identity's top-1",
        source="2.3, table 4",
        judge=gains("user"),
    ),
    Claim(
        name="update-over-example",
        text="one update beats one raw example (1.5 to 2.5 times in the paper)",
        source="2.3",
        judge=update_beats_one,
    ),
    Claim(
        name="sets-over-update",
        text="large sets of raw examples beat one update",
        source="2.3",
        judge=sets_beat_update,
    ),
    Claim(
        name="clients-variance-rises",
        text="without privacy the variance between clients (V_c) rises over training",
        source="3",
        judge=moves("between_clients_variance_change", "V_c", up=True),
    ),
    Claim(
        name="update-scale-falls",
        text="without privacy the scale of the mean update (U_s) falls over training",
        source="3",
        judge=moves("update_scale_change", "U_s", up=False),
    ),
)
