"""An audit of recorded updates finds what was planted, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from recorded_folder import ROUNDS, USERS, write_recording

from fedprint.attacks.reidentification.ridge import PENALTIES
from fedprint.errors import FedprintError
from fedprint.records.attack import FIXED_PENALTY, FIXED_TRANSFORM
from fedprint.records.judge import number
from fedprint.records.run import LIMITED, Result, attack, run
from fedprint.records.scene import scene_of
from fedprint.store.recorded.recording import open_recording


def audited(folder: Path, **more: object) -> Result:
    return run(folder, scratch=folder.parent / "scratch", **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("planted") / "rec"
    claims = {"epsilon": 0.1, "delta": 1e-5, "of": "update"}
    return audited(write_recording(folder, claims=claims, counts=range(10, 10 + 4 * USERS, 4)))


def test_a_planted_signal_is_found(planted: Result) -> None:
    summary = planted.summary()
    assert summary["top1"] > 0.9 and summary["ap_lo"] > 5 * summary["chance"] and summary["risk"] == "high"
    assert (summary["n_questions"], summary["n_users"]) == (USERS * ROUNDS, USERS)
    assert summary["ap_linked"] >= summary["ap"] and set(LIMITED) <= set(summary)
    assert {row["linked_updates"] for row in summary["linked"]} == {1, 3}
    assert [row["training_updates"] for row in summary["amounts"]] == [1, 2, 4, 6]
    assert [row["layer"] for row in summary["layers"]] == ["body", "head"]
    assert not any(name in str(summary) for name in planted.names)


def test_counts_are_a_side_channel_and_equal_rounds_are_none(planted: Result) -> None:
    count = number(planted.judged.rows, "ap", linkage="update", attack="count")
    rounds = number(planted.judged.rows, "ap", linkage="update", attack="participation")
    assert count is not None and count["value"] > 0.9
    assert rounds is not None and rounds["lo"] <= rounds["chance"]
    assert any("number of examples" in text for text in planted.verdict.changes)


def test_a_claim_that_the_updates_refute_is_named(planted: Result) -> None:
    bound = planted.judged.bound
    assert bound is not None and 0.1 < bound.epsilon <= bound.ceiling
    assert any("The claimed epsilon of 0.1 does not hold" in text for text in planted.verdict.sentences)


def test_a_shuffled_truth_gives_chance_within_the_interval(tmp_path: Path) -> None:
    inside = []
    for seed in range(2, 6):
        folder = write_recording(tmp_path / f"rec-{seed}", shuffled=True, signal=0.1, seed=seed)
        result = audited(folder, attacks=("ridge", "knn"))
        row = number(result.judged.rows, "ap", linkage="update", attack=result.found.selected)
        assert row is not None and row["p_chance"] > 0.01
        inside.append(row["lo"] <= row["chance"] <= row["hi"])
        assert result.verdict.risk == "low" and result.judged.bound is not None and result.judged.bound.epsilon == 0
    assert sum(inside) >= 3, "intervals of 95 %"


def test_clumps_of_alike_updates_are_no_recognition(tmp_path: Path) -> None:
    """A device's updates are neighbours in every ranking, whoever it is: only the permutation test sees that."""
    result = audited(write_recording(tmp_path / "rec", shuffled=True, seed=1), attacks=("ridge",))
    row = number(result.judged.rows, "ap", linkage="update", attack="ridge")
    assert row is not None and row["p_chance"] > 0.05 and result.verdict.risk == "low"


def test_without_a_truth_later_updates_of_known_users_are_asked(tmp_path: Path) -> None:
    result = audited(write_recording(tmp_path / "rec", truth=False), attacks=("ridge", "participation"))
    scene = result.found.scene
    assert scene.split and set(scene.rounds.tolist()) == {3, 4, 5}
    assert "participation" in result.found.left_out and result.summary()["top1"] > 0.9
    assert any("upper estimate" in text and "across time" in text for text in result.verdict.sentences)


def test_the_attack_runs_where_the_truth_does_not_exist(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "rec")
    recording = open_recording(folder, tmp_path / "scratch")
    (folder / "truth.csv").unlink()
    found, labels = attack(recording, ("ridge",), 0, split=False)
    assert found.selected == "ridge" and not isinstance(labels, str)
    with pytest.raises(FedprintError, match="truth"):
        audited(folder)


def test_validation_is_between_devices_where_users_have_two(tmp_path: Path) -> None:
    recording = open_recording(write_recording(tmp_path / "rec"), tmp_path / "scratch")
    scene = scene_of(recording, split=False, seed=0)
    assert scene.basis == "rounds" and all(len(fold.answers) == USERS * ROUNDS // 2 for fold in scene.folds)
    known = recording.index["user"].notna()
    turns = recording.index["round"].astype(str)
    recording.index.loc[known, "device"] = (
        recording.index["device"][known] + "-" + (turns[known].astype(int) % 2).astype(str)
    )
    scene = scene_of(recording, split=False, seed=0)
    assert scene.basis == "devices"
    for fold in scene.folds:
        devices = recording.index["device"].to_numpy()[scene.problem.fit]
        assert not set(devices[fold.problem.fit]) & set(devices[fold.problem.ask])


def test_rounds_of_the_same_device_choose_no_penalty(tmp_path: Path) -> None:
    """They prefer what tells a device's examples apart, and not its user."""
    found = audited(write_recording(tmp_path / "rec")).found
    fixed = found.settings["ridge"]
    assert found.scene.basis == "rounds" and fixed["penalty"] == FIXED_PENALTY
    assert [transform for _, transform in fixed["blocks"]] == [FIXED_TRANSFORM]
    split = audited(write_recording(tmp_path / "split", truth=False)).found
    assert split.scene.basis == "rounds" and split.scene.split, "there the question is about the same device"
    assert split.settings["ridge"]["penalty"] in PENALTIES and split.settings["ridge"] != fixed


def test_equal_folders_and_seeds_give_equal_numbers(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "rec", signal=0.3)
    first, second = (audited(folder, attacks=("ridge",)).summary() for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"users": ("only",)}, "1 known users"),
        ({"truth": False, "rounds": 1}, "known users with two updates or more"),
    ],
)
def test_too_little_is_named(tmp_path: Path, more: dict[str, object], said: str) -> None:
    with pytest.raises(FedprintError, match=said):
        audited(write_recording(tmp_path / "rec", **more))  # type: ignore[arg-type]


def test_one_update_of_each_user_is_enough_to_attack(tmp_path: Path) -> None:
    result = audited(write_recording(tmp_path / "rec", rounds=1))
    assert result.found.scene.basis == "nothing" and result.summary()["top1"] > 0.9
    assert result.summary()["ap_linked"] is None
    assert any("nothing" in text or "fixed in advance" in text for text in result.verdict.sentences)


def test_updates_of_one_direction_are_an_error_in_words(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "rec")
    values = np.load(folder / "updates.npy")
    lengths = np.random.default_rng(0).uniform(1, 2, size=(len(values), 1)).astype(np.float32)
    np.save(folder / "updates.npy", np.ones_like(values) * lengths)
    with pytest.raises(FedprintError, match="hardly differ in direction"):
        audited(folder, attacks=("ridge",))


def test_an_unknown_attack_is_named(tmp_path: Path) -> None:
    with pytest.raises(FedprintError, match="there is no attack 'rigde'"):
        audited(write_recording(tmp_path / "rec"), attacks=("rigde",))
