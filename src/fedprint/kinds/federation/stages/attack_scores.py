"""The scores of the attack beside the truth: opened by the stages that judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprint.data.formats.files import read_json
from fedprint.lab.graph import Task
from fedprint.store.index import read_truth
from fedprint.types import AdversaryName, Ints


class AttackScores:
    """Scores (q, m) with the true column (q,), per linkage."""

    def __init__(self, scores: Mapping[str, NDArray[Any]], truth: Mapping[str, Ints]) -> None:
        self._scores, self.truth = scores, truth

    @classmethod
    def load(cls, task: Task, adversary: AdversaryName) -> AttackScores:
        """Join an adversary's scores with the truth."""
        folder = task.at("attack") / adversary
        attack = read_json(folder / "attack.json")
        with np.load(folder / "scores.npz", allow_pickle=False) as archive:
            scores = {name: archive[name] for name in archive.files}
        table = read_truth(task.at("truth"))
        owner = dict(zip(table["obs_id"].tolist(), table["user_id"].tolist(), strict=True))
        column = {user: i for i, user in enumerate(attack["options"])}
        per_update = np.array([column[owner[obs_id]] for obs_id in attack["subjects"]], dtype=np.int64)
        of_device = dict(zip(attack["senders"], per_update.tolist(), strict=True))
        per_device = np.array([of_device[name] for name in attack["devices"]], dtype=np.int64)
        return cls(scores, {"update": per_update, "device": per_device})

    def of(self, linkage: str, attack: str, *, shuffled: bool = False) -> NDArray[Any]:
        """Return the scores (q, m) of an attack."""
        return self._scores[f"{linkage}/{attack}{'.shuffled' if shuffled else ''}"]

    def half(self, linkage: str, attack: str) -> NDArray[Any] | None:
        """Return the scores (q, m) of an attack that learnt from half of the shadow devices, None without any."""
        return self._scores.get(f"{linkage}/{attack}.half")

    def linked(self, attack: str, k: int) -> NDArray[Any]:
        """Return the scores (g, m) of an attack on ``k`` linked updates at a time."""
        return self.of("update" if k == 1 else f"linked-{k}", attack)
