"""The finished tiny run as analyses see it: from the adversary's side, from the asking side, and with all known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedprint.analyses.base import Analysis, Bench
from fedprint.analyses.trials import AnswerSet, QuestionSet, Trial
from fedprint.evaluation.judge import Setting, judge
from fedprint.types import Measurement

if TYPE_CHECKING:
    from fedprint.lab.graph import Task


def bench(job: Task, questions: Sequence[QuestionSet] = ()) -> Bench:
    """Return the adversary's desk with more questions on it."""
    from fedprint.kinds.federation.stages.analyse import open_bench

    found = open_bench(job, lambda note: None)
    return replace(found, questions={**found.questions, **{asked.name: asked for asked in questions}})


def answered(job: Task, analysis: Analysis) -> tuple[list[Trial], dict[str, AnswerSet]]:
    """Ask the analysis's questions, and answer them."""
    from fedprint.kinds.federation.stages.ask import about_updates, facts_of

    facts = facts_of(job)
    asked = [about_updates(facts), *analysis.ask(facts)]
    answers = {found.name: found for _, found in asked}
    return list(analysis.trials(bench(job, [found for found, _ in asked]))), answers


def ap(trial: Trial, answers: dict[str, AnswerSet]) -> Measurement:
    """Return the trial's mean AP."""
    (found,) = judge(replace(trial, metrics=("ap",)), answers[trial.questions], Setting(seed=0, resamples=200))
    return found


def mean_ap(trials: Sequence[Trial], answers: dict[str, AnswerSet]) -> float:
    """Return the mean over trials."""
    return float(np.mean([ap(trial, answers).value for trial in trials]))
