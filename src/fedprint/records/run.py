"""An audit of recorded updates: open, attack, judge, and say what it means. It needs no project folder."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedprint.errors import FedprintError
from fedprint.lab.progress import meter
from fedprint.records.attack import ATTACKS, Attacked, attacked, count_steps
from fedprint.records.examples import ReadExamples, read_examples
from fedprint.records.judge import Claim, Judged, judge, number
from fedprint.records.labels import LabelShares, label_shares
from fedprint.records.scene import RecordedUpdates, scene_of
from fedprint.records.search import SearchedExamples, search_examples
from fedprint.records.verdict import Verdict, verdict
from fedprint.store.recorded.manifest import Claims
from fedprint.store.recorded.recording import open_recording
from fedprint.store.recorded.truth import read_recorded_truth, truth_findings

DEFAULT = tuple(ATTACKS)
GATES = ("ap", "ap_over_chance", "top1", "top5", "tpr_1", "tpr_01")
"""Metrics that summaries name, of one update, and with ``_linked`` of all updates of a device."""
_PARTS = {"": "value", "_lo": "lo", "_hi": "hi", "_chance": "chance"}
LIMITED = (
    *(f"{gate}{linked}{part}" for linked in ("", "_linked") for gate in GATES for part in _PARTS),
    "ap_any_attack",
    "epsilon_lower",
    "examples_read",
)
"""Names of the plain numbers of a summary that may have a limit."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The whole audit. ``shape`` is that of one example, empty where it is not known.

    ``names`` are the users by column; show them to nobody who may not know them, nor images of ``examples``
    and ``searched``.
    """

    title: str
    seed: int
    found: Attacked
    judged: Judged
    verdict: Verdict
    labels: LabelShares | str
    examples: ReadExamples | str
    searched: SearchedExamples | str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    names: tuple[str, ...]
    numbers: Mapping[str, int]

    def summary(self) -> dict[str, Any]:
        """Return the content of audit.json, without any name of a user: plain numbers first, lists behind."""
        rows, chosen = self.judged.rows, self.found.selected
        plain: dict[str, Any] = {"title": self.title, "seed": self.seed, "risk": self.verdict.risk, "attack": chosen}
        for linkage, ending in (("update", ""), ("device", "_linked")):
            for metric in GATES:
                plain |= _numbers(f"{metric}{ending}", number(rows, metric, linkage=linkage, attack=chosen))
        single = [row for row in rows if row["metric"] == "ap" and row["analysis"] is None]
        most = max(single, key=lambda row: float(row["value"]))
        plain |= {
            "ap_any_attack": most["value"],
            "strongest_attack": most["attack"],
            "strongest_linkage": most["linkage"],
        }
        bound, ap = self.judged.bound, number(rows, "ap", linkage="update", attack=chosen)
        plain |= {
            "epsilon_lower": None if bound is None else bound.epsilon,
            "epsilon_claimed": self.judged.claim.epsilon,
            "examples_read": None if isinstance(self.examples, str) else self.examples.share,
        }
        plain |= {key: None if ap is None else ap[key] for key in ("chance", "n_questions", "n_users", "p_chance")}
        return plain | {
            "conclusive": self.verdict.conclusive,
            "verdict": {key: list(getattr(self.verdict, key)) for key in ("sentences", "leaks", "changes")},
            "epsilon": None if bound is None else {**vars(bound), "of": self.judged.claim.of},
            "attacks": _listed(rows, None, "attack", "linkage", "p_chance"),
            "layers": _listed(rows, "layers", "layer", "parameters"),
            "linked": _listed(rows, "linked", "attack", "linked_updates"),
            "amounts": _listed(rows, "training-updates", "training_updates"),
            "crowds": _listed(rows, "crowds", "options"),
            "users": [
                {
                    "user": self.numbers[self.names[one.user_id]],
                    "ap": one.ap,
                    "chance": one.chance,
                    "updates": one.n_updates,
                }
                for one in self.judged.users
            ],
            "examples": _counted(self.examples),
            "searched": _recovered(self.searched),
            "left_out": dict(self.found.left_out),
            "validated_on": self.found.scene.basis,
            "split_in_time": self.found.scene.split,
        }


def run(
    folder: Path, *, scratch: Path, attacks: Sequence[str] = DEFAULT, seed: int = 0, title: str | None = None
) -> Result:
    """Audit the recording in ``folder``; copies of its updates, where it needs any, go to ``scratch`` and stay there.

    Raises FedprintError for a folder that is no recording, and for one of which nothing can be asked.
    """
    recording = open_recording(folder, scratch, truth_findings(folder))
    manifest = recording.manifest
    name = title or manifest.title or folder.resolve().name
    found, labels = attack(recording, attacks, seed, split=not manifest.truth, classes=manifest.classes)
    examples = read_examples(recording, found.scene, manifest.input, seed)
    searched = search_examples(recording, found.scene, seed)
    truth = read_recorded_truth(folder, manifest) if manifest.truth else None
    judged = judge(found, recording.index, truth, _claim(manifest.claims), title=name, seed=seed)
    seen = recording.index["user"].dropna().astype(str).unique()
    return Result(
        title=name,
        seed=seed,
        found=found,
        judged=judged,
        verdict=verdict(found, judged, examples, searched),
        labels=labels,
        examples=examples,
        searched=searched,
        shape=manifest.input,
        classes=manifest.classes,
        names=found.scene.options,
        numbers={user: i for i, user in enumerate(seen, 1)},
    )


def attack(
    recording: RecordedUpdates, names: Sequence[str], seed: int, *, split: bool, classes: Sequence[str] = ()
) -> tuple[Attacked, LabelShares | str]:
    """Return all answers about a recording, and the labels that it shows; reads no truth."""
    scene = scene_of(recording, split=split, seed=seed)
    updates = f"{len(scene.problem.fit):,} known and {len(scene.rows):,} asked updates of {len(scene.options)} users"
    done = itertools.count()
    with meter(f"audit: {updates}", total=(steps := count_steps(scene, names))) as bar:
        try:
            found = attacked(scene, names, seed, lambda note: bar.update(min(next(done), steps - 1), note))
        except np.linalg.LinAlgError:
            raise FedprintError(
                "the updates hardly differ in direction, so ridge cannot be fitted: record changes, not models, or "
                "name other --attacks"
            ) from None
        bar.update(steps)
    return found, label_shares(scene.problem, scene.senders, classes)


def gate_value(summary: Mapping[str, Any], key: str) -> float:
    """Return a number of :data:`LIMITED` from a summary; FedprintError where it was not measured."""
    if summary[key] is None:
        raise FedprintError(f"--fail-above {key}: it was not measured on these updates; leave it out")
    return float(summary[key])


def _claim(claims: Claims | None) -> Claim:
    return Claim() if claims is None else Claim(epsilon=claims.epsilon, delta=claims.delta, of=claims.of)


def _numbers(name: str, row: Mapping[str, Any] | None) -> dict[str, float | None]:
    return {f"{name}{ending}": None if row is None else row[key] for ending, key in _PARTS.items()}


def _counted(found: ReadExamples | str) -> dict[str, Any] | str:
    """Return the numbers of what was read, without any example; in words why nothing could be."""
    if isinstance(found, str):
        return found
    return {
        "layer": found.layer,
        "updates": found.updates,
        "updates_read": int((found.counts > 0).sum()),
        "examples": int(found.counts.sum()),
        "updates_of_one": found.of_one,
        "updates_of_one_read": found.of_one_read,
        "labels_of_one": found.labels,
        "rows_that_must_agree": found.needed,
    }


def _recovered(found: SearchedExamples | str) -> dict[str, Any] | str:
    if isinstance(found, str):
        return found
    return {
        "updates": len(found.of),
        "updates_recovered": found.recovered,
        "images_of_each": list(found.of),
        "unexplained": found.unexplained.tolist(),
        "between_two_searches": found.apart.tolist(),
    }


def _listed(rows: Sequence[Mapping[str, Any]], analysis: str | None, *keys: str) -> list[dict[str, Any]]:
    """Return the AP of every row of an analysis, with what it is about, its interval, chance and n."""
    parts = (*keys, "value", "lo", "hi", "chance", "n_questions", "n_users")
    of_analysis = [row for row in rows if row["metric"] == "ap" and row.get("analysis") == analysis]
    return [{key: row.get(key) for key in parts} for row in of_analysis]
