"""The questions of an analysis, the adversary's answers, and the truth: three records that only evaluation joins."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fedprint.types import Doubles, FedprintError, Ints

Kind = Literal["user", "same", "attribute", "fits"]
Key = str | int | float | bool | None

UPDATES = "updates"
"""The set of questions that always exists: who sent each anonymous update (in the store's order)."""

UNSEEN = -1
"""The option of the open world: none of the users whose data the adversary knows."""


@dataclass(frozen=True, kw_only=True)
class QuestionSet:
    """Questions without answers, as the adversary gets them.

    ``user``: which user is behind each subject; ``same``: do both subjects of a row belong together; ``attribute``:
    which class; ``fits``: does the device fit a description. ``subjects`` (q,) or (q, 2) are observation ids unless the
    analysis says otherwise. ``facts`` are arrays by name that the adversary gets beside the questions (the seen users
    of an open world, say).
    """

    name: str
    kind: Kind
    subjects: Ints
    facts: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AnswerSet:
    """The truth of one question set: ``answers`` (q,) are option values, 0/1 for ``same`` and ``fits``.

    ``users`` (q,) are the users that the questions are about.
    """

    name: str
    answers: Ints
    users: Ints


Asked = tuple[QuestionSet, AnswerSet]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One attack's answers under one condition.

    ``rows`` (q,) index the question set's questions; ``scores`` (q, m), higher = more likely, one column per entry of
    ``options`` (m,); for ``same`` and ``fits`` one column without an option. ``keys`` become columns of the
    measurements; ``metrics`` are what evaluation measures of it (evaluation/judge.py).

    An attack whose training is random may answer once per seed: ``scores`` (s, q, m), measured seed by seed, then
    averaged. ``baseline``, of the same shape, are the answers of another attack, for metrics that are a paired
    difference. ``evidence`` (q,) are the adversary's reasons for each answer, JSON-ready, for an exhibit.
    """

    questions: str
    rows: Ints
    options: Ints
    scores: Doubles
    keys: Mapping[str, Key]
    metrics: tuple[str, ...] = ("ap",)
    baseline: Doubles | None = None
    evidence: tuple[Mapping[str, Any], ...] = ()


def binary_trial(
    questions: str,
    scores: Doubles,
    keys: Mapping[str, Key],
    metrics: tuple[str, ...],
    evidence: tuple[Mapping[str, Any], ...] = (),
) -> Trial:
    """Return the trial on all questions of a set of kind ``same`` or ``fits``, from one score per question (q,)."""
    return Trial(
        questions=questions,
        rows=np.arange(len(scores)),
        options=np.zeros(0, dtype=np.int64),
        scores=scores[:, None],
        keys=keys,
        metrics=metrics,
        evidence=evidence,
    )


def save_questions(folder: Path, sets: Iterable[QuestionSet]) -> None:
    """Write one npz per set; equal sets give equal bytes."""
    for questions in sets:
        arrays: dict[str, Any] = {f"fact.{name}": np.asarray(value) for name, value in questions.facts.items()}
        np.savez(folder / f"{questions.name}.npz", kind=np.array(questions.kind), subjects=questions.subjects, **arrays)


def load_questions(folder: Path) -> dict[str, QuestionSet]:
    """Return the sets that :func:`save_questions` wrote, by name."""
    sets = {}
    for path in sorted(folder.glob("*.npz")):
        arrays = _read(path)
        kind: Kind = str(arrays.pop("kind"))  # type: ignore[assignment]
        subjects = arrays.pop("subjects")
        facts = {name.removeprefix("fact."): value for name, value in arrays.items()}
        sets[path.stem] = QuestionSet(name=path.stem, kind=kind, subjects=subjects, facts=facts)
    return sets


def save_answers(folder: Path, sets: Iterable[AnswerSet]) -> None:
    """Write one npz per set."""
    for answers in sets:
        np.savez(folder / f"{answers.name}.npz", answers=answers.answers, users=answers.users)


def load_answers(folder: Path) -> dict[str, AnswerSet]:
    """Return the sets that :func:`save_answers` wrote, by name."""
    return {path.stem: AnswerSet(name=path.stem, **_read(path)) for path in sorted(folder.glob("*.npz"))}


def save_trials(folder: Path, name: str, trials: Iterable[Trial]) -> int:
    """Write ``<name>.npz`` and ``<name>.json``; return how many trials there were."""
    arrays: dict[str, Any] = {}
    heads = []
    for i, trial in enumerate(trials):
        arrays |= {f"{i}.rows": trial.rows, f"{i}.options": trial.options, f"{i}.scores": trial.scores}
        if trial.baseline is not None:
            arrays[f"{i}.baseline"] = trial.baseline
        evidence = [dict(reasons) for reasons in trial.evidence]
        heads.append(
            {
                "questions": trial.questions,
                "keys": dict(trial.keys),
                "metrics": list(trial.metrics),
                "evidence": evidence,
            }
        )
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{name}.npz", **arrays)
    (folder / f"{name}.json").write_text(json.dumps(heads, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return len(heads)


def load_trials(folder: Path) -> Iterable[Trial]:
    """Yield the trials of every analysis in the folder, analyses by name."""
    if not folder.is_dir():
        raise FedprintError(f"{folder} is missing; run the stage analyse")
    for path in sorted(folder.glob("*.json")):
        arrays = _read(path.with_suffix(".npz"))
        for i, head in enumerate(json.loads(path.read_text(encoding="utf-8"))):
            yield Trial(
                questions=head["questions"],
                rows=arrays[f"{i}.rows"],
                options=arrays[f"{i}.options"],
                scores=arrays[f"{i}.scores"],
                keys={"analysis": path.stem, **head["keys"]},
                metrics=tuple(head["metrics"]),
                baseline=arrays.get(f"{i}.baseline"),
                evidence=tuple(head["evidence"]),
            )


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise FedprintError(f"{path}: cannot be read ({error}); run the stage that makes it again") from error
