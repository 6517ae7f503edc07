"""An analysis asked and answered beside the finished tiny run, without touching its files."""

from __future__ import annotations

from dataclasses import replace

from fedprint.analyses.base import Analysis, Bench
from fedprint.analyses.trials import AnswerSet, QuestionSet, Trial
from fedprint.evaluation.judge import Setting, judge
from fedprint.kinds.federation.stages.analyse import open_bench
from fedprint.kinds.federation.stages.ask import facts_of
from fedprint.lab.graph import Task
from fedprint.types import Measurement


def asked(job: Task, analysis: Analysis) -> tuple[dict[str, QuestionSet], dict[str, AnswerSet]]:
    pairs = list(analysis.ask(facts_of(job)))
    return {q.name: q for q, _ in pairs}, {a.name: a for _, a in pairs}


def desk(job: Task, questions: dict[str, QuestionSet]) -> Bench:
    return replace(open_bench(job, lambda note: None), questions=questions)


def judged(trials: list[Trial], answers: dict[str, AnswerSet], **keys: object) -> dict[str, Measurement]:
    """Return the measurements by metric of the one trial with these keys."""
    (found,) = [t for t in trials if all(t.keys.get(key) == value for key, value in keys.items())]
    return {m.metric: m for m in judge(found, answers[found.questions], Setting(seed=0, resamples=50))}
