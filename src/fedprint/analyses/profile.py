"""The profile prior: which devices fit a description, and why the adversary thinks so (papers.md 2.2; v2, figure 3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedprint.analyses.base import Analysis, Bench, Facts, Scene
from fedprint.analyses.trials import AnswerSet, Asked, Key, QuestionSet, Trial, binary_trial
from fedprint.attacks.descriptions.profile import (
    Shadows,
    ShadowSettings,
    background_devices,
    break_ties,
    choose_blocks,
    combine,
    deviations,
    evidence,
    fit_scores,
    has_any,
    head_columns,
    make_shadows,
)
from fedprint.attacks.reidentification.reidentify import mean_by_sender
from fedprint.attacks.reidentification.workspace import Workspace
from fedprint.attacks.updates import Joined
from fedprint.data.dataset import TEXT_TASKS, Task
from fedprint.data.examples import as_input
from fedprint.data.sources.query import read_query
from fedprint.types import Doubles, Examples, FedprintError, Ints, User

SHOWN = ("combined", "ridge")
"""The exhibit shows the list of the first of these attacks that has answers."""


class Profile(Analysis):
    """``profile``: rank anonymous devices by how well they fit a description, without any data of their users.

    ``labels`` describe the profile: class names or numbers, for texts words; the query is all background examples with
    one of them. With ``path``, a text file or a folder in the format of docs/data-format.md, the query is in that file,
    and ``labels`` only say which devices fit (default: the query's commonest class). Each of ``devices`` background
    devices without the profile is trained twice from each of ``rounds`` recorded global models: as it is, and with one
    of ``shares`` of its examples replaced by the query.

    Attacks, with all updates of a pseudonym pooled: ``ridge`` and ``similarity`` on layers chosen between shadow
    devices; ``columns``, how far the labels' outputs moved up; ``combined`` of ridge and columns.

    A device fits (ground truth, held out) when the share of its private examples with one of the labels is among the
    top ``top`` of all devices, or at least ``at_least`` where that is set; a device without such examples never fits.
    Metric: ``fits_ap`` over devices. Exhibit: the ``shown`` best devices, the classes whose outputs moved up most,
    whether they fit, and which labels they have more of than others: those of false positives are typical of the
    profile too.
    """

    name: Literal["profile"] = "profile"
    labels: tuple[int | str, ...] = ()
    path: str | None = None
    top: float = Field(default=0.1, gt=0, lt=1)
    at_least: float | None = Field(default=None, gt=0, le=1)
    devices: int = Field(default=30, ge=4)
    rounds: int = Field(default=4, ge=1)
    shares: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(default=(0.25, 0.5, 1.0), min_length=1)
    shown: int = Field(default=20, ge=1)

    @property
    def reads(self) -> tuple[str, ...]:
        """The query, if it is in a file."""
        return (self.path,) if self.path else ()

    @model_validator(mode="after")
    def _describes_something(self) -> Profile:
        if not self.labels and self.path is None:
            raise ValueError("name labels (classes, or words of a text model) or a path to query examples")
        return self

    def ask(self, facts: Facts) -> Iterator[Asked]:
        """Ask which devices fit; facts: ``devices`` (q,), their pseudonyms in alphabetical order."""
        rows = facts.rows("anonymous")
        owner_of = dict(zip(senders(facts.index["pseudonym"], rows), facts.owner[rows].tolist(), strict=True))
        devices = sorted(owner_of)
        labels = self._ids(facts.class_names, facts.task, shape_of(facts.private))
        share = label_shares(facts.private, labels, facts.task)
        owners = np.array([owner_of[device] for device in devices], dtype=np.int64)
        fits = self._fits(np.array([share[user] for user in owners.tolist()]))
        questions = QuestionSet(
            name=self.name, kind="fits", subjects=np.arange(len(devices)), facts={"devices": np.array(devices)}
        )
        yield questions, AnswerSet(name=self.name, answers=fits.astype(np.int64), users=owners)

    def _fits(self, share: Doubles) -> NDArray[np.bool_]:
        """Return which devices (q,) fit. Raises FedprintError when none or all do: then nothing can be ranked."""
        threshold = self.at_least if self.at_least is not None else float(np.quantile(share, 1 - self.top))
        fits: NDArray[np.bool_] = (share >= threshold) & (share > 0)
        if fits.all() or not fits.any():
            raise FedprintError(
                f"analyses.profile: {fits.sum()} of {len(fits)} devices fit {list(self.labels) or self.path} "
                f"(shares {share.min():.2f} to {share.max():.2f}); choose other labels or another threshold"
            )
        return fits

    def _query(self, class_names: tuple[str, ...], task: Task, shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
        query = read_query(self.path or "", class_names, task, shape)
        return {"x": as_input(query["x"]), "y": query["y"]}

    def _ids(self, class_names: tuple[str, ...], task: Task, shape: tuple[int, ...]) -> list[int]:
        """Return the numbers of the labels; without labels the commonest class of the query file."""
        if self.labels:
            return label_ids(self.labels, class_names)
        if task in TEXT_TASKS:
            raise FedprintError("analyses.profile: texts have no classes; name words as labels beside the path")
        y = self._query(class_names, task, shape)["y"]
        return [int((y.sum(0) if task == "multi_label" else torch.bincount(y)).argmax())]

    def trials(self, bench: Bench) -> Iterator[Trial]:
        """Yield one trial per attack, with evidence per device."""
        asked = bench.questions[self.name]
        devices = [str(name) for name in asked.facts["devices"]]
        bench.progress("shadow devices")
        shadows = self._shadows(bench)
        work, joined = Workspace(bench.view.device), Joined(first=shadows.updates, second=bench.view.store)
        first = len(shadows.positive)
        bench.progress("choosing layers")
        by_attack = fit_scores(shadows, joined, first + bench.view.anonymous_rows, choose_blocks(shadows, work), work)
        sent_by = senders(bench.view.store.index["pseudonym"], bench.view.anonymous_rows)
        pooled = {attack: mean_by_sender(scores, sent_by, devices) for attack, scores in by_attack.items()}
        stands_out = self._deviations(bench, shadows, sent_by, devices)
        if stands_out is not None:
            pooled["columns"] = stands_out[:, self._labels(bench)].mean(1)
            pooled["combined"] = combine(pooled["ridge"], pooled["columns"])
        why = _evidence(bench, devices, stands_out)
        for attack, raw in pooled.items():
            scores = break_ties(raw, bench.rng(self.name, attack))
            keys: dict[str, Key] = {"attack": attack, "profile": self._called(), "linkage": "device"}
            yield binary_trial(self.name, scores, keys, ("fits_ap",), why)

    def _called(self) -> str:
        return ", ".join(map(str, self.labels)) or str(self.path)

    def _labels(self, bench: Bench) -> list[int]:
        return self._ids(bench.class_names, bench.task, shape_of(bench.view.prior_users))

    def _shadows(self, bench: Bench) -> Shadows:
        view, labels = bench.view, self._labels(bench)
        background = background_devices(view, labels, bench.task, bench.rng(self.name, "background"))
        if self.path is not None:
            query: Examples = self._query(bench.class_names, bench.task, shape_of(view.prior_users))
        else:
            query = with_labels(view.background, labels, bench.task)
        settings = ShadowSettings(devices=self.devices, rounds=self.rounds, shares=self.shares)
        return make_shadows(view, query, background, settings, bench.rng(self.name, "shadows"))

    def _deviations(
        self, bench: Bench, shadows: Shadows, sent_by: Sequence[str], devices: Sequence[str]
    ) -> Doubles | None:
        """Return how far each class's output deviates (devices, classes); None for a model without such outputs."""
        usual = head_columns(shadows.updates, len(bench.class_names))
        moved = head_columns(bench.view.store, len(bench.class_names))
        if usual is None or moved is None:
            return None
        pooled = mean_by_sender(moved[bench.view.anonymous_rows], sent_by, devices)
        return deviations(pooled, usual[~shadows.positive])

    def exhibit(self, scene: Scene) -> Mapping[str, Any] | None:
        """Return the ranked list: device, score, classes that moved, whether it fits, and its most unusual labels."""
        by_attack = {trial.keys["attack"]: trial for trial in scene.trials(self.name)}
        trial = next(by_attack[attack] for attack in SHOWN if attack in by_attack)
        labels = self._ids(scene.class_names, scene.task, shape_of(scene.private))
        rows = np.flatnonzero((scene.store.index["role"] == "anonymous").to_numpy())
        owner_of = dict(zip(senders(scene.store.index["pseudonym"], rows), scene.owner[rows].tolist(), strict=True))
        share = label_shares(scene.private, labels, scene.task)
        holds = standing_out(scene.private, scene.class_names, scene.task)
        owners = [owner_of[why["device"]] for why in trial.evidence]
        fits = self._fits(np.array([share[user] for user in owners]))
        order = np.argsort(-trial.scores[:, 0], kind="stable")
        listed = [
            {
                **trial.evidence[i],
                "rank": rank + 1,
                "score": float(trial.scores[i, 0]),
                "user": owners[i],
                "share": share[owners[i]],
                "fits": bool(fits[i]),
                "holds": holds[owners[i]],
            }
            for rank, i in enumerate(order[: self.shown].tolist())
        ]
        return {
            "profile": self._called(),
            "attack": trial.keys["attack"],
            "labels": [scene.class_names[label] for label in labels],
            "devices": listed,
            "fitting": int(fits.sum()),
            "asked": len(fits),
        }


def _evidence(bench: Bench, devices: Sequence[str], stands_out: Doubles | None) -> tuple[Mapping[str, Any], ...]:
    if stands_out is None:
        return tuple({"device": device, "classes": []} for device in devices)
    reasons = evidence(stands_out, bench.class_names)
    return tuple({"device": device, **why} for device, why in zip(devices, reasons, strict=True))


def shape_of(users: Sequence[User]) -> tuple[int, ...]:
    """Return the shape of one example."""
    return tuple(users[0].examples["x"].shape[1:])


def senders(pseudonyms: Any, rows: Ints) -> list[str]:
    """Return the pseudonym of each row; where rounds cannot be linked, every update counts as one device."""
    names = pseudonyms.iloc[rows].tolist()
    return [name if isinstance(name, str) else f"update-{row}" for name, row in zip(names, rows.tolist(), strict=True)]


def label_ids(labels: Sequence[int | str], class_names: Sequence[str]) -> list[int]:
    """Return the numbers of class names, words or numbers. Raises FedprintError for one that the data do not have."""
    number = {name: i for i, name in enumerate(class_names)}
    ids = []
    for label in labels:
        index = label if isinstance(label, int) else number.get(label, -1)
        if not 0 <= index < len(class_names):
            known = ", ".join(class_names[:20])
            raise FedprintError(f"analyses.profile.labels: no label {label!r}; known are {known}")
        ids.append(index)
    return ids


def with_labels(users: Sequence[User], labels: Sequence[int], task: Task) -> dict[str, torch.Tensor]:
    """Return all examples of the users that have one of the labels."""
    chosen = [torch.from_numpy(np.flatnonzero(has_any(user.examples, labels, task))) for user in users]
    if not users:
        raise FedprintError("analyses.profile: the data set has no background to take a query from; give a path")
    return {
        name: torch.cat([user.examples[name][rows] for user, rows in zip(users, chosen, strict=True)])
        for name in ("x", "y")
    }


def label_shares(users: Sequence[User], labels: Sequence[int], task: Task) -> dict[int, float]:
    """Return user id -> share of examples with one of the labels."""
    return {user.user_id: float(has_any(user.examples, labels, task).mean()) for user in users}


def standing_out(users: Sequence[User], names: Sequence[str], task: Task, most: int = 3) -> dict[int, list[str]]:
    """Return user id -> the labels (words) whose share is furthest above that of the mean user.

    In units of the square root of the mean share: otherwise the commonest words would come first for all users.
    """
    shares = np.stack([_content(user.examples, len(names), task) for user in users])
    mean = shares.mean(0)
    beyond = (shares - mean) / np.sqrt(mean + 1e-5)
    labels: dict[int, list[str]] = defaultdict(list)
    for user, row in zip(users, beyond, strict=True):
        labels[user.user_id] = [names[c] for c in np.argsort(-row, kind="stable")[:most].tolist()]
    return labels


def _content(examples: Examples, classes: int, task: Task) -> Doubles:
    """Return the share of examples with each label, or of words that are each word: (classes,)."""
    if task == "multi_label":
        return np.asarray(examples["y"].double().mean(0).numpy())
    values = examples["y"] if task in ("single_label", "language_model") else examples["x"]
    counts = torch.bincount(values[values >= 0].flatten().long(), minlength=classes).double()
    if task in TEXT_TASKS:
        counts[:3] = 0  # the special tokens are not words
    return np.asarray((counts / counts.sum().clamp_min(1)).numpy())
