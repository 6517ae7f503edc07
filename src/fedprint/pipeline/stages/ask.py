"""Stage ask: questions for the adversary, and apart from them the answers, for evaluation only."""

from __future__ import annotations

import shutil

import numpy as np

from fedprint.analyses.base import Facts
from fedprint.analyses.trials import UPDATES, AnswerSet, Asked, QuestionSet, save_answers, save_questions
from fedprint.data.prepared import load_meta, load_users
from fedprint.federation.store import UpdateStore, read_truth
from fedprint.pipeline.stages.paths import Job, write_json
from fedprint.rng import seed_for


def run(job: Job) -> None:
    """Write questions/ and answers/."""
    facts = gather(job)
    asked = [about_updates(facts), *(found for analysis in job.analyses for found in analysis.ask(facts))]
    questions, answers = job.paths.updates / "questions", job.paths.updates / "answers"
    for folder in (questions, answers):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    # ascending ids: an order that followed the devices would tell who sent what
    write_json(questions / "questions.json", {"kind": "user", "world": "closed", "options": list(facts.users)})
    save_questions(questions, [found for found, _ in asked])
    save_answers(answers, [found for _, found in asked])


def gather(job: Job) -> Facts:
    """Return all that is known about a finished federation."""
    store = UpdateStore.open(job.paths.updates / "observed", verify=False)
    meta = load_meta(job.paths.prepared)
    truth = read_truth(job.paths.updates / "truth").set_index("obs_id")
    return Facts(
        index=store.index,
        owner=truth.loc[store.index["obs_id"], "user_id"].to_numpy(dtype=np.int64),
        prior=load_users(job.paths.prepared / "prior"),
        private=load_users(job.paths.prepared / "private"),
        class_names=meta.class_names,
        task=meta.task,
        seed=seed_for(job.seed, "ask", job.prior),
    )


def about_updates(facts: Facts) -> Asked:
    """Ask who sent each anonymous update."""
    rows = facts.rows("anonymous")
    users = facts.owner[rows]
    subjects = facts.index["obs_id"].to_numpy(dtype=np.int64)[rows]
    questions = QuestionSet(name=UPDATES, kind="user", subjects=subjects)
    return questions, AnswerSet(name=UPDATES, answers=users, users=users)
