"""A study whose trials are in PostgreSQL: workers share them as they share a journal."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from pathlib import Path

import pytest
from toy_studies import Toy, plan, run_worker

from fedprint.tuning import worker
from fedprint.tuning.score import ranked
from fedprint.tuning.storage import open_study
from fedprint.tuning.worker import records

SPAWN = multiprocessing.get_context("spawn")


@pytest.mark.slow
def test_two_workers_share_a_study_on_a_real_server(postgresql: str, tmp_path: Path) -> None:
    made = plan(tmp_path, 10, url=postgresql, sampler="random")
    study = open_study(made.url, made.name)  # its tables are there before the workers come
    processes = [SPAWN.Process(target=run_worker, args=(made, Toy(meet=str(tmp_path / "meet")))) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    trials = records(study)
    assert len(trials) == 10 and {trial.state for trial in trials} == {"complete"}
    assert len({trial.values["sigma"] for trial in trials}) == 10, "no point was measured twice"
    owners = Counter(trial.user_attrs[worker.WORKER] for trial in study.get_trials())
    assert len(owners) == 2, "both took trials"
    best = ranked(trials)[0]
    assert best.feasible and best.utility == max(t.utility for t in trials if t.feasible and t.utility is not None)
