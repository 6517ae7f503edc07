"""The papers' claims (papers.md 2.2 to 2.5 and 3), each judged on one report's measurements.

A claim about an order holds only when the interval of the difference excludes 0, one about a limit when the interval
lies on its side. Which attack a claim is judged on is fixed here, never the one that suits it.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedprint.evaluation.rows import Row
from fedprint.reports.claims.evidence import Evidence
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
from fedprint.reports.claims.verdict import Claim, Verdict, verdict_on


def judge_claims(rows: Sequence[Row], member: str) -> tuple[Verdict, ...]:
    """Judge every claim on one report's rows."""
    evidence = Evidence(rows)
    dataset = str(rows[0]["dataset"]) if rows else ""
    return tuple(verdict_on(claim, claim.judge(evidence), member, dataset) for claim in CLAIMS)


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
