"""A private training that is killed again and again: the ledger never counts too little, the model is the same."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from test_ledger import contents, private, train
from test_store_resume import alone, in_child, wait_for

from fedprint.defences.clipping import QuantileClip
from fedprint.federation.ledger import read_ledger

ROUNDS, KILLS = 24, 100


def spent_and_released(folder: Path) -> tuple[int, int]:
    """Return the ledger's whole lines, and the rounds whose model any byte in the store may be of."""
    spent = len(read_ledger(folder / "ledger", "run"))
    models = next((folder / "observed").glob("global.*"), None)
    if models is None or not models.stat().st_size:
        return spent, 0
    data, size = models.read_bytes(), models.stat().st_size // (ROUNDS + 1)
    written = [t for t in range(ROUNDS + 1) if any(data[t * size : (t + 1) * size])]
    return spent, max(written, default=0)


@pytest.mark.slow
@alone
def test_a_hundred_kills_never_hide_a_round_and_change_no_bit(tmp_path: Path) -> None:
    plan, defence = private(rounds=ROUNDS, rule=QuantileClip(start=0.02, count_noise=0.5))
    train(tmp_path / "whole", plan, defence)
    whole, rng, hits, run = contents(tmp_path / "whole"), random.Random(0), 0, 0
    journal = "observed/journal.jsonl"
    while hits < KILLS:
        folder, run = tmp_path / str(run), run + 1
        done = False
        while not done:
            before = (folder / journal).stat().st_size if (folder / journal).exists() else 0
            child = in_child(lambda folder=folder: train(folder, plan, defence))
            wait_for(folder / journal, before + rng.uniform(0, 0.2) * len(whole[journal]))
            time.sleep(rng.uniform(0, 0.02))
            os.kill(child, signal.SIGKILL)
            killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
            hits, done = hits + killed, not killed
            if (folder / "ledger").exists():
                spent, released = spent_and_released(folder)
                assert spent >= released, f"{released} models and {spent} lines after kill {hits} (run {run})"
        train(folder, plan, defence)
        assert contents(folder) == whole, f"run {run}, after {hits} kills in all"
    print(f"{hits} kills in {run} runs of {ROUNDS} rounds")
