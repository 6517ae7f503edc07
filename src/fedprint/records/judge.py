"""Answers beside the truth: measurements, users by risk, a larger crowd, and a bound on the claimed epsilon.

The only file of this package that meets a truth. Letters: q asked updates, g questions, m users (columns).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedprint.errors import FedprintError
from fedprint.evaluation.chance import expected_ap
from fedprint.evaluation.crowds import predicted_ap
from fedprint.evaluation.measure import UserAp, ap_by_user, measure_reidentification
from fedprint.evaluation.metrics import measurement
from fedprint.evaluation.rows import Row, to_row
from fedprint.records.attack import Answer, Attacked
from fedprint.records.epsilon import Bound, lower_bound
from fedprint.records.scene import Scene
from fedprint.rng import numpy_rng, seed_for
from fedprint.types import Ints, Measurement, Scores

CONFIDENCE, RESAMPLES, PERMUTATIONS = 0.95, 2000, 9999
CROWDS, LEAST_CROWD = (100, 1000, 10_000, 100_000, 1_000_000), 50
"""Sizes for which AP is predicted, and the users below which nothing is predicted."""
NOBODY = -1
DELTA = 1e-5
"""The delta of a bound where none is claimed."""

METRICS: Mapping[str | None, tuple[str, ...]] = {
    None: ("ap", "ap_over_chance", "ap_over_prevalence", "top1", "top5", "tpr_1", "tpr_01"),
    "linked": ("ap", "ap_over_chance", "tpr_01"),
    "layers": ("ap",),
    "training-updates": ("ap",),
}
"""What is measured of each analysis."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The epsilon that somebody claims of what one ``update``, or all updates of a ``device``, show; None: nobody."""

    epsilon: float | None = None
    delta: float = DELTA
    of: Literal["update", "device"] = "update"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What the evaluation found. ``users`` are those at risk, worst first, by position among the options.

    ``strangers`` counts asked updates whose user has no prior, ``unknown`` those that the truth does not name: neither
    are judged.
    """

    rows: tuple[Row, ...]
    users: tuple[UserAp, ...]
    bound: Bound | None
    claim: Claim
    strangers: int
    unknown: int


def answers_from(scene: Scene, index: pd.DataFrame, truth: pd.DataFrame | None) -> tuple[Ints, int]:
    """Return the right column (q,) of each asked update, or NOBODY, and how many the truth does not name.

    Without a truth the answers are the users of the later updates, which the auditor knows.
    """
    lines = index.iloc[scene.rows]
    if truth is None:
        users = lines["user"]
    else:
        users = lines["device"].map(dict(zip(truth["device"].astype(str), truth["user"].astype(str), strict=True)))
    columns: Ints = pd.Categorical(users, categories=scene.options).codes.astype(np.int64)
    return columns, int(users.isna().sum())


def judge(
    found: Attacked, index: pd.DataFrame, truth: pd.DataFrame | None, claim: Claim, *, title: str, seed: int
) -> Judged:
    """Return the measurements of all answers; raises FedprintError where fewer than two users can be judged."""
    scene = found.scene
    columns, unknown = answers_from(scene, index, truth)
    if len(np.unique(columns[columns != NOBODY])) < 2:
        raise FedprintError(
            f"of {len(columns)} asked updates the truth names fewer than two users that the index knows too "
            f"({unknown} have no line in the truth): check the device names, or let more known users take part"
        )
    shared = {
        "experiment": title,
        "dataset": title,
        "prior": "recorded",
        "world": "closed",
        "view": "local",
        "analysis": None,
        "seed": seed,
    }
    rows, kept = list[Measurement](), dict[str, tuple[Scores, Ints, Ints]]()
    for answer in found.answers:
        questions, right = _judged(answer, columns)
        scores = answer.scores[questions]
        main = answer.keys["attack"] == found.selected and "analysis" not in answer.keys
        rows += _measured(answer, scores, right, selected=answer.keys["attack"] == found.selected, seed=seed)
        if main:
            kept[answer.keys["linkage"]] = scores, right, _rounds(answer, scene, questions)
    scores, right, _ = kept["update"]
    rows += [replace(one, keys={**one.keys, "attack": found.selected}) for one in _crowds(scores, right, seed)]
    return Judged(
        rows=tuple(to_row(replace(one, keys={**shared, **one.keys})) for one in rows),
        users=tuple(
            sorted(ap_by_user(scores, right, range(len(scene.options))), key=lambda one: (-one.ap, one.user_id))
        ),
        bound=_bound(kept, claim),
        claim=claim,
        strangers=int((columns == NOBODY).sum()) - unknown,
        unknown=unknown,
    )


def _judged(answer: Answer, columns: Ints) -> tuple[Ints, Ints]:
    """Return the questions (k,) of an answer that can be judged, and their right columns (k,)."""
    first = columns if answer.parts is None else columns[[part[0] for part in answer.parts]]
    questions = np.flatnonzero(first != NOBODY)
    return questions, first[questions]


def _rounds(answer: Answer, scene: Scene, questions: Ints) -> Ints:
    """Return the rounds (k,) in which updates are paired; devices are paired whatever their rounds."""
    return scene.rounds[questions] if answer.parts is None else np.zeros(len(questions), dtype=np.int64)


def _measured(answer: Answer, scores: Scores, right: Ints, *, selected: bool, seed: int) -> Iterator[Measurement]:
    analysis = answer.keys.get("analysis")
    place = seed_for(seed, "records", *(answer.keys[key] for key in sorted(answer.keys)))
    tested = PERMUTATIONS if analysis is None else 0
    measured = measure_reidentification(
        scores, right, right, place, confidence=CONFIDENCE, resamples=RESAMPLES, permutations=tested
    )
    for one in measured:
        if one.metric in METRICS[analysis]:
            yield replace(one, keys={**answer.keys, "selected": selected})


def _crowds(scores: Scores, right: Ints, seed: int) -> Iterator[Measurement]:
    """Yield the AP to expect among more users, from one update; nothing where there are too few users to tell."""
    users = len(np.unique(right))
    if users < LEAST_CROWD:
        return
    rng = numpy_rng(seed, "records", "crowds")
    each = max(round(len(right) / users), 1)
    sizes = [users, *(size for size in CROWDS if size > users)]
    for n, expected in predicted_ap(scores, right, sizes, rng, confidence=CONFIDENCE).items():
        chance = float(expected_ap([each], n * each)[0])
        keys = {"analysis": "crowds", "linkage": "update", "selected": True, "options": n, "number": "predicted"}
        yield replace(measurement("ap", expected, chance, right), keys=keys)


def _bound(kept: Mapping[str, tuple[Scores, Ints, Ints]], claim: Claim) -> Bound | None:
    if claim.of not in kept:
        return None
    scores, right, rounds = kept[claim.of]
    return lower_bound(scores, right, rounds, delta=claim.delta, confidence=CONFIDENCE)


def number(rows: Sequence[Row], metric: str, **wanted: Any) -> Row | None:
    """Return the first row of a metric with these values, of no analysis unless one is wanted."""
    wanted = {"analysis": None, **wanted}
    for row in rows:
        if row["metric"] == metric and all(row.get(key) == value for key, value in wanted.items()):
            return row
    return None
