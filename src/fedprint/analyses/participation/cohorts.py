"""Who took part in a round, from sums or released models only (papers.md 5.2: views ``aggregate`` and ``central``).

The scores are the weights of a ridge regression of the sum on candidates (analyses/participation/sums.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedprint.analyses.base import Analysis, Bench, Facts
from fedprint.analyses.participation.sums import (
    SUMMED,
    Summed,
    calibrated,
    candidates_in,
    level,
    shared_directions,
    sums,
)
from fedprint.analyses.trials import AnswerSet, Asked, Key, QuestionSet, Trial, binary_trial
from fedprint.types import Doubles

QUESTIONS = "participation"


class Participation(Analysis):
    """``participation``: did this user's anonymous device take part in this round? From sums and released models.

    ``rounds`` of the training are asked about, evenly spread. Metric: ``participation_ap``, the average precision over
    all pairs of user and round. Keys: ``attack`` (candidates), ``view`` (aggregate, central), ``cohort``. The penalty
    is chosen in simulated cohorts, on sums with as many members and as much noise.
    """

    knows_defences: ClassVar[bool] = True

    name: Literal["participation"] = "participation"
    rounds: int = Field(default=20, ge=1)
    validation_rounds: int = Field(default=3, ge=1)

    def ask(self, facts: Facts) -> Iterator[Asked]:
        """Ask about every user in every round."""
        last = int(facts.index["round"].max())
        rounds = np.unique(np.linspace(0, last, min(self.rounds, last + 1)).round().astype(np.int64))
        users = np.array(facts.users, dtype=np.int64)
        anonymous = (facts.index["role"] == "anonymous").to_numpy()
        took_part = set(zip(facts.index["round"].to_numpy()[anonymous], facts.owner[anonymous], strict=True))
        pairs = np.array([(t, user) for t in rounds for user in users], dtype=np.int64)
        answers = np.array([(t, user) in took_part for t, user in pairs.tolist()], dtype=np.int64)
        yield (
            QuestionSet(name=QUESTIONS, kind="fits", subjects=pairs),
            AnswerSet(name=QUESTIONS, answers=answers, users=pairs[:, 1]),
        )

    def trials(self, bench: Bench) -> Iterator[Trial]:
        """Yield one trial per view."""
        pairs = bench.questions[QUESTIONS].subjects
        rounds = np.unique(pairs[:, 0]).tolist()
        column = {user.user_id: i for i, user in enumerate(bench.view.prior_users)}
        seen: dict[tuple[Summed, int], Doubles] = {}
        for t in rounds:
            seen |= {(view, t): rests for view, rests in sums(bench.view, t).items()}
        levels = {(view, t): level(bench.view, t, view, rest.shape[1]) for (view, t), rest in seen.items()}
        calibrations = calibrated(bench.view, self.validation_rounds, dict.fromkeys(levels.values()))
        weights: dict[tuple[Summed, int], Doubles] = {}
        for t in rounds:
            bench.progress(f"round {t}")
            candidates = candidates_in(bench.view, t, shared_directions(bench.view, t))
            for view in SUMMED:  # the score in the sum where it is highest
                weights[view, t] = candidates.explain(seen[view, t], calibrations[levels[view, t]].penalty).max(1)
        for view in SUMMED:
            scores = np.array([weights[view, t][column[user]] for t, user in pairs.tolist()])
            keys: dict[str, Key] = {"attack": "candidates", "view": view, "cohort": bench.view.store.layout.cohort}
            yield binary_trial(QUESTIONS, scores, keys, ("participation_ap",))
