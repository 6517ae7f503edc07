"""The AP of recorded updates by one simple attack, without the command that audits them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedprint.attacks.features import Updates
from fedprint.attacks.problem import Problem
from fedprint.attacks.reidentification.presets import Svm
from fedprint.attacks.reidentification.reidentify import ranked
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.evaluation.measure import measure_reidentification
from fedprint.store.recorded.recording import open_recording
from fedprint.store.recorded.truth import read_recorded_truth
from fedprint.types import Measurement


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Updates of known users (``fit`` rows with ``labels``) and of others, whose users only the judge is told."""

    updates: Updates
    fit: np.ndarray
    labels: np.ndarray
    ask: np.ndarray
    answers: np.ndarray


def ap(asked: Asked) -> Measurement:
    """Return the AP of one update by a linear SVM on standardised updates."""
    options = int(asked.labels.max()) + 1
    problem = Problem(updates=asked.updates, fit=asked.fit, labels=asked.labels, ask=asked.ask, options=options)
    scores = Svm(name="svm-std").scores(problem, {}, Workspace(), torch.Generator().manual_seed(0))
    ranking = ranked(scores, 1.0, torch.Generator().manual_seed(1))  # ties are broken at random
    measured = measure_reidentification(ranking.scores, asked.answers, asked.answers, seed=0)
    return next(one for one in measured if one.metric == "ap")


def recorded(folder: Path, scratch: Path) -> Asked:
    recording = open_recording(folder, scratch)
    index, truth = recording.index, read_recorded_truth(folder, recording.manifest)
    users = sorted(index["user"].dropna().unique())
    number, owner = {user: i for i, user in enumerate(users)}, dict(zip(truth["device"], truth["user"], strict=True))
    fit, ask = np.flatnonzero(index["user"].notna()), np.flatnonzero(index["user"].isna())
    labels = np.array([number[user] for user in index["user"].iloc[fit]])
    answers = np.array([number[owner[device]] for device in index["device"].iloc[ask]])
    return Asked(updates=recording, fit=fit, labels=labels, ask=ask, answers=answers)
