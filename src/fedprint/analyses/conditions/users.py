"""Are users harder to distinguish the more of them there are (papers.md 2.5: AP by number of users)?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedprint.analyses.base import SELECTED, Analysis, Bench, Facts
from fedprint.analyses.trials import AnswerSet, Asked, Key, QuestionSet, Trial
from fedprint.attacks.problem import among
from fedprint.rng import numpy_rng

_PREFIX = "users-"


class Users(Analysis):
    """``users``: AP among 10, 20 ... all users, as if nobody else had taken part.

    Random subsets, drawn ``repeats`` times and nested: those of 20 include that of 10. The attack learns from and names
    only the chosen users' updates. Keys: ``attack``, ``options`` (number of users), ``repeat``.
    """

    name: Literal["users"] = "users"
    attack: str = SELECTED
    sizes: tuple[Annotated[int, Field(ge=2)], ...] | None = Field(default=None, min_length=1)
    repeats: int = Field(default=3, ge=1)

    def ask(self, facts: Facts) -> Iterator[Asked]:
        """Yield a question set per subset: who sent each of its anonymous updates; facts: the users in it."""
        users = np.array(facts.users, dtype=np.int64)
        rows = facts.rows("anonymous")
        owner = facts.owner[rows]
        obs_id = facts.index["obs_id"].to_numpy(dtype=np.int64)[rows]
        for repeat in range(self.repeats):
            order = numpy_rng(facts.seed, self.name, repeat).permutation(users)
            for size in self.sizes or usual_sizes(len(users)):
                chosen = np.sort(order[:size])
                inside = np.isin(owner, chosen)
                if (size == len(users) and repeat) or len(np.unique(owner[inside])) < 2:
                    continue
                subset = {"users": chosen, "repeat": np.array(repeat)}
                name = f"{_PREFIX}{len(chosen):05d}-{repeat}"
                yield (
                    QuestionSet(name=name, kind="user", subjects=obs_id[inside], facts=subset),
                    AnswerSet(name=name, answers=owner[inside], users=owner[inside]),
                )

    def trials(self, bench: Bench) -> Iterator[Trial]:
        """Yield one trial per subset."""
        attack = bench.attack(self.attack)[0].name
        for name, questions in sorted(bench.questions.items()):
            if name.startswith(_PREFIX):
                bench.progress(name)
                repeat = int(questions.facts["repeat"])
                keys: dict[str, Key] = {"attack": attack, "options": len(questions.facts["users"]), "repeat": repeat}
                yield self._trial(bench, questions, keys)

    def _trial(self, bench: Bench, questions: QuestionSet, keys: dict[str, Key]) -> Trial:
        users = questions.facts["users"]
        obs_id = bench.view.store.index["obs_id"].to_numpy()
        order = np.argsort(obs_id)
        ask = order[np.searchsorted(obs_id[order], questions.subjects)]
        columns = np.searchsorted(bench.options, users).tolist()
        problem = among(bench.problem, columns, ask.astype(np.int64))
        scores = bench.scores(self.attack, problem, questions.name)
        rows = np.arange(len(ask), dtype=np.int64)
        return Trial(questions=questions.name, rows=rows, options=users, scores=scores, keys=keys)


def usual_sizes(users: int) -> tuple[int, ...]:
    """Return 10, 20 ... 100, then 200, 400 ..., and all."""
    steps = [*range(10, 101, 10), *(100 * 2**i for i in range(1, 20))]
    return (*(step for step in steps if step < users), users)
