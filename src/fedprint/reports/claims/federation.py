"""The papers' claims (papers.md 2.2 to 2.5 and 3), each judged on one report's measurements.

Which attack a claim is judged on is fixed here, never the one that suits it. Where a claim speaks of the best of
several layers, every pair of them is compared: the best by its value would be chosen by its luck.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fedprint.evaluation.rows import Row
from fedprint.reports.claims.comparison import AllOf, AnyOf, compared
from fedprint.reports.claims.evidence import Evidence, above, below, larger, mean_row, unpaired
from fedprint.reports.claims.verdict import UNTESTED, Claim, Finding, Judged, Verdict, decide, together
from fedprint.reports.numbers.order import strongest
from fedprint.reports.wording import shown

IID_LIMIT = 1.5
"""The papers' own control reached 1.5 times chance."""

EPOCH_KEPT = 0.8
"""What "hardly matters" means here: this share of the AP remains when learning and asking lie far apart in training."""

PAPER_ATTACKS = ("mlp", "svm", "knn")

Judge = Callable[[Evidence], Finding]


def judge_claims(reports: Mapping[str, Sequence[Row]]) -> list[Verdict]:
    """Judge every claim on the rows of every report, which all stand in one table; ``reports`` maps names to rows."""
    return decide([one for member, rows in reports.items() for one in _findings(member, rows)])


def _findings(member: str, rows: Sequence[Row]) -> list[Judged]:
    evidence = Evidence(rows)
    dataset = str(rows[0]["dataset"]) if rows else ""
    return [Judged(claim=one, finding=one.judge(evidence), member=member, dataset=dataset) for one in CLAIMS]


# Priors ---------------------------------------------------------------------------------------------------------------


def prior_order(attack: str) -> Judge:
    """Judge random > chrono (or photoset) > chance for one attack."""

    def judge(evidence: Evidence) -> Finding:
        later = evidence.later()
        random, other = evidence.attacked("random", attack), evidence.attacked(later, attack)
        if random is None or other is None:
            return UNTESTED
        order = evidence.larger(random, other, (f"{attack}: random", later))
        return together([order, above(other, later)])

    return judge


def paper_prior_order(evidence: Evidence) -> Finding:
    """Judge the same order for each of the papers' attacks."""
    return together(prior_order(attack)(evidence) for attack in PAPER_ATTACKS)


def iid_is_chance(evidence: Evidence) -> Finding:
    """Judge whether the chosen attacker stays below :data:`IID_LIMIT` times chance in the control."""
    row = evidence.attacked("iid", "selected")
    if row is None or not row.get("chance"):
        return UNTESTED
    finding = below(row, "iid", IID_LIMIT * row["chance"])
    return replace(finding, numbers=f"{finding.numbers} (1.5 times chance)")


def one_example(evidence: Evidence) -> Finding:
    """Judge whether a single prior example per user lies above chance."""
    return _first_amount(evidence, "prior-examples", "prior_examples", "one example")


def one_update(evidence: Evidence) -> Finding:
    """Judge whether a single labelled update per user lies above chance."""
    return _first_amount(evidence, "training-updates", "training_updates", "one update")


def _first_amount(evidence: Evidence, analysis: str, key: str, what: str) -> Finding:
    return together(
        above(row, f"{prior}, {what}")
        for prior in evidence.priors(analysis)
        for row in strongest(evidence.of(analysis, "ap", prior=prior, **{key: 1}))
    )


# Attacks --------------------------------------------------------------------------------------------------------------


def leads(first: str, others: Sequence[str], metric: str) -> Judge:
    """Return a judge of whether the attack ``first`` leads all ``others`` under the random prior."""

    def judge(evidence: Evidence) -> Finding:
        rows = {name: evidence.attacked("random", name, metric) for name in (first, *others)}
        if rows[first] is None or any(rows[name] is None for name in others):
            return UNTESTED
        return together(evidence.larger(rows[first], rows[name], (first, name)) for name in others)

    return judge


def only_on(modalities: Sequence[str], judge: Judge) -> Judge:
    """Judge on data of the kind that the claim is about only."""
    return lambda evidence: judge(evidence) if evidence.modality in modalities else UNTESTED


# Clients --------------------------------------------------------------------------------------------------------------


def moves(metric: str, name: str, *, up: bool) -> Judge:
    """Return a judge of whether a diagnostic of the rounds rises (``up``) or falls without any defence.

    client-dp shows it for its run without privacy; under noise the model itself converges elsewhere.
    """
    side = above if up else below

    def judge(evidence: Evidence) -> Finding:
        rows = evidence.of("diversity", metric, defence="none")
        return together(side(row, f"{row['prior']}: {name}", 0.0) for row in rows)

    return judge


# Layers and rounds ----------------------------------------------------------------------------------------------------


def _layers(evidence: Evidence) -> list[tuple[str, list[Row]]]:
    """Return each prior's layers under one attack, by depth."""
    by_prior = [(prior, strongest(evidence.of("layers", "ap", prior=prior))) for prior in evidence.priors("layers")]
    return [(prior, sorted(rows, key=lambda row: int(row["depth"]))) for prior, rows in by_prior if rows]


def every_layer(evidence: Evidence) -> Finding:
    """Judge whether each layer alone lies above chance."""
    return together(above(row, f"{prior}, {row['layer']}") for prior, rows in _layers(evidence) for row in rows)


def later_layers(evidence: Evidence) -> Finding:
    """Compare the layers of the second half of the depth with those of the first: one of them should exceed all."""
    parts = [(prior, rows[len(rows) // 2 :], rows[: len(rows) // 2]) for prior, rows in _layers(evidence)]
    return together(_one_leads(prior, late, early) for prior, late, early in parts)


def layer_leads(stem: str) -> Judge:
    """Return a judge of whether a layer named ``stem...`` leads all others."""

    def judge(evidence: Evidence) -> Finding:
        findings = []
        for prior, rows in _layers(evidence):
            named = [row for row in rows if str(row["layer"]).startswith(stem)]
            others = [row for row in rows if not str(row["layer"]).startswith(stem)]
            findings.append(_one_leads(prior, named, others))
        return together(findings)

    return judge


def _one_leads(prior: str, rows: Sequence[Row], others: Sequence[Row]) -> Finding:
    """Compare every layer of ``rows`` with all ``others``, and say by how much the largest lies above the largest."""
    if not rows or not others:
        return UNTESTED
    test = AnyOf(tuple(AllOf(tuple(compared(unpaired(row, one), 0.0) for one in others)) for row in rows))
    best, second = (max(part, key=lambda row: float(row["value"])) for part in (rows, others))
    return replace(larger(best, second, (f"{prior}: {best['layer']}", str(second["layer"]))), test=test)


def epochs_alike(evidence: Evidence) -> Finding:
    """Compare cells at least half of training apart with those of equal bins, over the bins asked in both."""
    findings = []
    for prior in evidence.priors("epochs"):
        rows = evidence.of("epochs", "ap", prior=prior)
        bins = 1 + max(int(row["test_bin"]) for row in rows)
        distance = {id(row): abs(int(row["train_bin"]) - int(row["test_bin"])) for row in rows}
        near = mean_row([row for row in rows if distance[id(row)] == 0])
        far = mean_row([row for row in rows if bins > 1 and distance[id(row)] >= bins / 2])
        if near is not None and far is not None:
            over = unpaired(far, near, EPOCH_KEPT)
            numbers = (
                f"{prior}: half of training apart {shown(far)}, at no distance {shown(near)}; above "
                f"{100 * EPOCH_KEPT:.0f} % of that by {shown(over)}, unpaired"
            )
            findings.append(Finding(test=compared(over, 0.0), numbers=numbers))
    return together(findings)


# Matching, open world, attributes, raw data ---------------------------------------------------------------------------


def matching_works(evidence: Evidence) -> Finding:
    """Judge every matcher in the closed world."""
    return together(
        above(row, f"{prior}, {row['attack']}")
        for prior in evidence.priors("matching")
        for row in evidence.of("matching", "matching_ap", linkage="update", prior=prior)
        if row["attack"] != "chance"
    )


def unseen_matching(evidence: Evidence) -> Finding:
    """Judge matching among pairs of unseen users at each seen share."""
    findings = []
    for prior in evidence.priors("open-world"):
        rows = strongest(
            row
            for row in evidence.of("open-world", "matching_ap", prior=prior)
            if row.get("subset") == "unseen" or row.get("seen_share") == 0
        )
        shares = sorted({float(row["seen_share"]) for row in rows})
        for share in shares:
            mean = mean_row([row for row in rows if row["seen_share"] == share and row.get("subset") == _unseen(row)])
            findings.append(above(mean, f"{prior}, {100 * share:.0f} % seen"))
    return together(findings)


def _unseen(row: Row) -> str:
    """At no seen user all pairs are of unseen ones."""
    return "all" if row["seen_share"] == 0 else "unseen"


def _open_ends(evidence: Evidence, metric: str) -> list[tuple[str, Row, Row]]:
    """Return each prior's numbers at the smallest and the largest seen share above 0."""
    ends = []
    for prior in evidence.priors("open-world"):
        rows = strongest(row for row in evidence.of("open-world", metric, prior=prior) if row["seen_share"] > 0)
        shares = sorted({float(row["seen_share"]) for row in rows})
        if len(shares) > 1:
            few, all_ = (mean_row([r for r in rows if r["seen_share"] == share]) for share in (shares[0], shares[-1]))
            if few is not None and all_ is not None:
                ends.append((prior, few, all_))
    return ends


def open_world_shape(evidence: Evidence) -> Finding:
    """Judge whether AP falls and AP over chance rises from the smallest to the largest seen share."""
    falls = [
        larger(few, every, (f"{prior}: AP at {100 * few['seen_share']:.0f} % seen", "at 100 %"))
        for prior, few, every in _open_ends(evidence, "ap")
    ]
    rises = [
        larger(every, few, (f"{prior}: over chance at 100 % seen", f"at {100 * few['seen_share']:.0f} %"))
        for prior, few, every in _open_ends(evidence, "ap_over_chance")
    ]
    return together([*falls, *rises]) if falls and rises else UNTESTED


def gains(target: str) -> Judge:
    """Return a judge of the multi-task network's paired gain in top-1 for one of its heads (known users)."""

    def judge(evidence: Evidence) -> Finding:
        rows = evidence.of("attributes", "mtl_gain", users="known", target=target)
        published = [row for row in rows if row["attack"] == "mlp"]  # else its standardised form
        rows = published or [row for row in rows if row["attack"] == "mlp-std"]
        return together(above(row, f"{row['prior']}, {row['attribute']}", 0.0) for row in rows)

    return judge


def _raw(evidence: Evidence, prior: str) -> tuple[Row | None, list[Row]]:
    """Return the update's number and those of sets of raw examples, by size."""
    rows = evidence.of("data-space", "ap", prior=prior)
    update = strongest(row for row in rows if row.get("space") == "update")
    sets = strongest(row for row in rows if row.get("space") == "data" and row.get("set_size") is not None)
    return (update[0] if update else None), sorted(sets, key=lambda row: int(row["set_size"]))


def update_beats_one(evidence: Evidence) -> Finding:
    """Judge one update against one raw example, and give the ratio."""
    pairs = [(prior, *_raw(evidence, prior)) for prior in evidence.priors("data-space")]
    findings = []
    for prior, update, sets in pairs:
        one = next((row for row in sets if row["set_size"] == 1), None)
        finding = larger(update, one, (f"{prior}: update", "one example"))
        if update is not None and one is not None and one["value"]:
            ratio = f"{finding.numbers}, {update['value'] / one['value']:.1f} times"
            findings.append(replace(finding, numbers=ratio))
    return together(findings)


def sets_beat_update(evidence: Evidence) -> Finding:
    """Judge the largest set of raw examples against one update."""
    pairs = [(prior, *_raw(evidence, prior)) for prior in evidence.priors("data-space")]
    return together(
        larger(sets[-1], update, (f"{prior}: {sets[-1]['set_size']} examples", "update"))
        for prior, update, sets in pairs
        if sets and sets[-1]["set_size"] > 1
    )


CLAIMS: tuple[Claim[Judge], ...] = (
    Claim("prior-order", "random > chrono > chance (our chosen attacker)", "2.5", prior_order("selected")),
    Claim("prior-order-paper", "random > chrono > chance, for the paper's MLP, SVM and kNN", "2.5, table 3",
          paper_prior_order),
    Claim("iid-chance", "with iid data the attack falls to about chance (at most 1.5 times)", "2.2", iid_is_chance),
    Claim("one-example", "one prior example per user already beats chance", "2.2", one_example),
    Claim("one-update", "one labelled update per user already beats chance", "2.2", one_update),
    Claim("mlp-over-knn", "the MLP leads kNN in AP", "2.5, table 3", leads("mlp", ("knn",), "ap")),
    Claim("mlp-over-knn-standardised",
          "the MLP leads kNN in AP (both on standardised updates: our addition)",
          "2.5, table 3", leads("mlp-std", ("knn-std",), "ap")),
    Claim("mlp-leads-top5", "the MLP leads SVM and kNN in top-5", "2.5, table 3", leads("mlp", ("svm", "knn"), "top5")),
    Claim("mlp-leads-ap", "the MLP leads SVM and kNN in AP on images and Blog", "2.5, table 3",
          only_on(("image", "language"), leads("mlp", ("svm", "knn"), "ap"))),
    Claim("svm-leads-ap", "the SVM leads MLP and kNN in AP on Yelp", "2.5, table 3",
          only_on(("stars",), leads("svm", ("mlp", "knn"), "ap"))),
    Claim("svm-leads-top1", "the SVM leads MLP and kNN in top-1 on PIPA, OpenImages and Yelp", "2.5, table 3",
          only_on(("image", "stars"), leads("svm", ("mlp", "knn"), "top1"))),
    Claim("every-layer", "every layer is above chance", "2.5, table 5", every_layer),
    Claim("later-layers", "of image models the later layers leak most", "2.5", only_on(("image",), later_layers)),
    Claim("lstm-layer", "of the language model the LSTM layer leaks most", "2.5, table 5",
          only_on(("language",), layer_leads("lstm"))),
    Claim("embedding-layer", "of the star regressor the embedding leaks most", "2.5, table 5",
          only_on(("stars",), layer_leads("embedding"))),
    Claim("epochs",
          "the training epoch hardly matters (half of training apart, at least 80 % of the AP remains)",
          "2.5", epochs_alike),
    Claim("matching", "matching is above chance in the closed world, by every matcher", "2.3, table 4", matching_works),
    Claim("matching-unseen", "matching is above chance for unseen users too", "2.2", unseen_matching),
    Claim("open-world", "as the seen share grows, AP falls and AP over chance rises", "2.2", open_world_shape),
    Claim("mtl-attribute", "learning attribute and user together improves the attribute's top-1", "2.3, table 4",
          gains("attribute")),
    Claim("mtl-identity", "learning attribute and user together improves the identity's top-1", "2.3, table 4",
          gains("user")),
    Claim("update-over-example", "one update beats one raw example (1.5 to 2.5 times in the paper)", "2.3",
          update_beats_one),
    Claim("sets-over-update", "large sets of raw examples beat one update", "2.3", sets_beat_update),
    Claim("clients-variance-rises", "without privacy the variance between clients (V_c) rises over training", "3",
          moves("between_clients_variance_change", "V_c", up=True)),
    Claim("update-scale-falls", "without privacy the scale of the mean update (U_s) falls over training", "3",
          moves("update_scale_change", "U_s", up=False)),
)  # fmt: skip
