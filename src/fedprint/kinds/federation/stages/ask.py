"""Stage ask: questions for the adversary, and apart from them the answers, for evaluation only."""

from __future__ import annotations

import numpy as np

from fedprint.analyses.base import Facts
from fedprint.analyses.trials import UPDATES, AnswerSet, Asked, QuestionSet, save_answers, save_questions
from fedprint.data.prepared import load_meta, load_users
from fedprint.lab.graph import Task
from fedprint.rng import seed_for
from fedprint.store.index import read_truth
from fedprint.store.reader import UpdateStore


def run(task: Task) -> None:
    """Write questions/ and answers/."""
    facts = facts_of(task)
    asked = [
        about_updates(facts),
        *(asked for analysis in task.config.analyses_under(task.prior) for asked in analysis.ask(facts)),
    ]
    questions, answers = task.at("questions"), task.at("answers")
    for folder in (questions, answers):
        folder.mkdir(parents=True)
    save_questions(questions, [question for question, _ in asked])
    save_answers(answers, [answer for _, answer in asked])


def facts_of(task: Task) -> Facts:
    """Return all facts about a finished federation."""
    store = UpdateStore.open(task.at("observed"), verify=False)
    meta = load_meta(task.at("meta"))
    truth = read_truth(task.at("truth")).set_index("obs_id")
    return Facts(
        index=store.index,
        owner=truth.loc[store.index["obs_id"], "user_id"].to_numpy(dtype=np.int64),
        prior=load_users(task.at("prior")),
        private=load_users(task.at("private")),
        class_names=meta.class_names,
        task=meta.task,
        seed=seed_for(task.seed, "ask", task.prior),
    )


def about_updates(facts: Facts) -> Asked:
    """Ask who sent each anonymous update."""
    rows = facts.rows("anonymous")
    users = facts.owner[rows]
    subjects = facts.index["obs_id"].to_numpy(dtype=np.int64)[rows]
    questions = QuestionSet(name=UPDATES, kind="user", subjects=subjects)
    return questions, AnswerSet(name=UPDATES, answers=users, users=users)
