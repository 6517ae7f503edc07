from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import analysis_cases as cases
import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fedprint.analyses.profile import Profile, label_ids, label_shares, senders, standing_out
from fedprint.analyses.trials import AnswerSet, Trial, load_trials, save_trials
from fedprint.data.formats.describe import write_table
from fedprint.data.sources.query import read_query
from fedprint.evaluation.judge import Setting, judge
from fedprint.types import FedprintError, User

if TYPE_CHECKING:
    from fedprint.lab.graph import Task

QUICK = Profile(labels=("sun",), top=0.3, devices=8, rounds=2)


@pytest.fixture(scope="module")
def answered(tiny_run: Task) -> tuple[list[Trial], dict[str, AnswerSet]]:
    return cases.answered(tiny_run, QUICK)


def test_devices_that_fit_have_most_examples_with_the_label(tiny_run: Task) -> None:
    from fedprint.kinds.federation.stages.ask import facts_of

    facts = facts_of(tiny_run)
    ((questions, answers),) = QUICK.ask(facts)
    share = label_shares(facts.private, [facts.class_names.index("sun")], facts.task)
    owned = [share[user] for user in answers.users.tolist()]
    fits = answers.answers == 1
    assert 1 <= fits.sum() <= 3
    assert min(s for s, f in zip(owned, fits, strict=True) if f) > max(
        s for s, f in zip(owned, fits, strict=True) if not f
    )
    assert list(questions.facts["devices"]) == sorted(questions.facts["devices"])
    assert set(questions.facts) == {"devices"}


def test_a_threshold_can_be_given(tiny_run: Task) -> None:
    from fedprint.kinds.federation.stages.ask import facts_of

    facts = facts_of(tiny_run)
    share = label_shares(facts.private, [facts.class_names.index("sun")], facts.task)
    level = sorted(share.values())[-2]
    ((_, answers),) = QUICK.model_copy(update={"at_least": level}).ask(facts)
    assert answers.answers.tolist() == [int(share[user] >= level) for user in answers.users.tolist()]
    with pytest.raises(FedprintError, match="choose other labels"):
        list(QUICK.model_copy(update={"at_least": 1.0}).ask(facts))


def test_trials_rank_devices_with_evidence(answered: tuple[list[Trial], dict[str, AnswerSet]], tmp_path: Path) -> None:
    trials, answers = answered
    assert [trial.keys["attack"] for trial in trials] == ["ridge", "similarity", "columns", "combined"]
    for trial in trials:
        (found,) = judge(trial, answers["profile"], Setting(seed=0, resamples=200))
        assert 0 <= found.lo <= found.value <= found.hi <= 1
        assert len(trial.evidence) == len(trial.scores)
        assert all(len(why["classes"]) == 3 for why in trial.evidence)
    save_trials(tmp_path, "profile", trials)
    again = list(load_trials(tmp_path))
    assert [trial.evidence for trial in again] == [trial.evidence for trial in trials]


def test_the_exhibit_lists_devices_from_best_to_worst(
    tiny_run: Task, answered: tuple[list[Trial], dict[str, AnswerSet]]
) -> None:
    from fedprint.data.prepared import load_meta
    from fedprint.kinds.federation.stages.evaluating.analyses import open_scene

    trials, answers = answered
    scene = open_scene(tiny_run, load_meta(tiny_run.at("meta")), {})
    shown = QUICK.exhibit(replace(scene, trials=lambda name: tuple(trials)))
    assert shown is not None
    listed = shown["devices"]
    assert [row["score"] for row in listed] == sorted((row["score"] for row in listed), reverse=True)
    assert sum(row["fits"] for row in listed) == shown["fitting"] == answers["profile"].answers.sum()
    index = scene.store.index.set_index("pseudonym")
    for row in listed:
        assert index.loc[[row["device"]], "role"].unique().tolist() == ["anonymous"]
        assert len(row["holds"]) == 3
    assert shown["labels"] == ["sun"]


def test_names_and_numbers_of_labels() -> None:
    assert label_ids(("b", 0), ("a", "b")) == [1, 0]
    with pytest.raises(FedprintError, match="no label 'c'; known are a, b"):
        label_ids(("c",), ("a", "b"))
    with pytest.raises(FedprintError, match="no label 2"):
        label_ids((2,), ("a", "b"))
    with pytest.raises(ValidationError, match="name labels"):
        Profile()


def test_without_pseudonyms_every_update_is_a_device() -> None:
    import pandas as pd

    names = pd.Series(["x", None, "x"], dtype="string")
    assert senders(names, np.array([0, 1, 2])) == ["x", "update-1", "x"]


def test_what_stands_out_is_not_what_everybody_holds() -> None:
    common = {"x": torch.zeros(4, 1), "y": torch.tensor([0, 0, 0, 1])}
    special = {"x": torch.zeros(4, 1), "y": torch.tensor([0, 0, 2, 2])}
    found = standing_out(
        [User(user_id=1, examples=common), User(user_id=2, examples=special)], ("a", "b", "c"), "single_label", most=1
    )
    assert found == {1: ["b"], 2: ["c"]}


# Queries from files ---------------------------------------------------------------------------------------------------


def _folder(root: Path, classes: int, size: int = 8) -> Path:
    rng = np.random.default_rng(0)
    columns = {
        "images": rng.integers(0, 255, (6, size, size, 3)).astype(np.uint8),
        "labels": np.arange(6) % classes,
        "users": np.zeros(6, np.int64),
    }
    folder = root / "query"
    write_table(folder, columns, {"name": "query", "licence": "CC0", "class_names": list("abcdef")[:classes]})
    return folder


def test_images_of_a_folder_are_a_query(tmp_path: Path) -> None:
    folder = _folder(tmp_path, 3)
    found = read_query(str(folder), ("a", "b", "c"), "single_label", (3, 8, 8))
    assert found["x"].shape == (6, 3, 8, 8)
    assert found["y"].tolist() == [0, 1, 2, 0, 1, 2]
    for names, shape in ((("a", "b", "d"), (3, 8, 8)), (("a", "b", "c"), (3, 9, 9))):
        with pytest.raises(FedprintError, match="use images like its"):
            read_query(str(folder), names, "single_label", shape)


def test_a_text_file_is_a_query_of_a_language_model(tmp_path: Path) -> None:
    path = tmp_path / "query.txt"
    path.write_text("The cat sat here.\nA dog sat there!\n", encoding="utf-8")
    names = ("<pad>", "<unknown>", "<start>", "the", "cat", "sat", "dog")
    found = read_query(str(path), names, "language_model", (5,))
    assert found["y"].tolist()[0][:3] == [3, 4, 5]
    with pytest.raises(FedprintError, match="language model only"):
        read_query(str(path), names, "regression", (5,))
    with pytest.raises(FedprintError, match="no file or folder"):
        read_query(str(tmp_path / "nothing"), names, "language_model", (5,))
    with pytest.raises(FedprintError, match="name words"):
        Profile(path=str(path))._ids(names, "language_model", (5,))


def test_a_folder_without_labels_means_its_commonest_class(tmp_path: Path) -> None:
    folder = _folder(tmp_path, 4)
    assert Profile(path=str(folder))._ids(("a", "b", "c", "d"), "single_label", (3, 8, 8)) == [0]
