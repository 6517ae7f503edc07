"""The update store keeps what it was given, detects every damage, and gives no anonymous user away."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import store_cases as cases
import torch
from torch import Tensor

from fedprint.store.index import read_truth
from fedprint.store.layout import decode, encode, store_bytes
from fedprint.store.reader import UpdateStore
from fedprint.store.writer import StoreWriter
from fedprint.types import FedprintError


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    cases.run(tmp_path, cases.LAYOUT)
    return tmp_path


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_full_precision_is_exact(tmp_path: Path, precision: str) -> None:
    cases.run(tmp_path, replace(cases.LAYOUT, precision=precision))
    store = UpdateStore.open(tmp_path / "observed")
    assert store.matrix(dtype=precision).tolist() == cases.expected().tolist()


def test_half_precision_errors_stay_in_the_bound(tmp_path: Path) -> None:
    cases.run(tmp_path, replace(cases.LAYOUT, precision="float16"))
    store, truth = UpdateStore.open(tmp_path / "observed"), cases.expected()
    stored = store.matrix(dtype=np.float64)
    for part in store.columns().values():
        largest = np.abs(truth[:, part]).max(axis=1, keepdims=True)
        assert (np.abs(stored - truth)[:, part] <= 2**-11 * np.abs(truth[:, part]) + 2**-24 * largest).all()
    assert np.array_equal(stored == 0, truth == 0) or np.abs(truth[(stored == 0) & (truth != 0)]).max() < 1e-6


def test_half_precision_leaves_attack_scores_unchanged(tmp_path: Path) -> None:
    cases.run(tmp_path, replace(cases.LAYOUT, precision="float16"))
    half, full = UpdateStore.open(tmp_path / "observed").matrix(dtype=np.float64), cases.expected()
    assert np.abs(cases.cosines(half) - cases.cosines(full)).max() < 1e-3
    assert np.abs(cases.cosines(full)).max() > 0.5, "the case has similar users, else it shows nothing"


def test_half_precision_keeps_tiny_and_huge_rows_and_zeros() -> None:
    rows = np.array([[0, 0, 0], [1e-30, -5e-31, 0], [3e30, 1e30, -3e30], [1, 2**-20, 0]], np.float32)
    stored, scale = encode(rows, "float16")
    decoded = np.empty(rows.shape, np.float32)
    decode(stored, scale, decoded)
    np.testing.assert_allclose(decoded, rows, rtol=2**-4)
    np.testing.assert_allclose(decoded[:3], rows[:3], rtol=2**-11)


def test_what_the_server_sees_of_senders_is_in_the_order_of_the_rows(finished: Path) -> None:
    store = UpdateStore.open(finished / "observed")
    sent = store.sent
    assert sent.examples.tolist() == store.index["num_examples"].tolist()
    assert sent.rounds.tolist() == store.index["round"].tolist()
    named = (store.index["pseudonym"] == "name-2").to_numpy()
    assert sent.history[named].all(0).tolist() == [True, False, True, True], "a name that persists"
    assert (sent.history[~named].sum(1) == 1).all(), "one round is known of a sender without a name"


def test_rows_layers_and_blocks_are_cuts_of_one_matrix(finished: Path) -> None:
    store, whole = UpdateStore.open(finished / "observed"), cases.expected().astype(np.float32)
    rows, parts = np.array([5, 0, 3]), store.columns()
    assert list(store.columns(["head"])) == ["head.weight"]
    assert np.array_equal(store.matrix(["head"], rows), whole[rows][:, parts["head.weight"]])
    assert np.array_equal(store.matrix(rows=store.index.eval("role == 'prior'").to_numpy()), whole[cases.prior_rows()])
    for columns in (1, 7, 64, 10_000):
        assert np.array_equal(np.hstack(list(store.blocks(rows=rows, columns=columns))), whole[rows])


def test_gram_by_blocks_equals_gram(finished: Path) -> None:
    store = UpdateStore.open(finished / "observed")
    gram = sum(block @ block.T for block in store.blocks(columns=50, dtype=np.float64))
    np.testing.assert_allclose(gram, cases.expected() @ cases.expected().T, rtol=1e-12)


def test_global_params_history_index_and_truth_come_back(finished: Path) -> None:
    store = UpdateStore.open(finished / "observed")
    for round in range(cases.ROUNDS + 1):
        expected = cases.params(round)
        assert all(torch.equal(store.global_params(round)[name], expected[name]) for name in cases.SHAPES)
    assert store.history() == [{"round": t, **cases.metrics(t)} for t in range(cases.ROUNDS)]
    records = [o for t in range(cases.ROUNDS) for o in cases.observations(t)]
    assert store.index["obs_id"].tolist() == [o.obs_id for o in records]
    assert store.index["user_id"].isna().tolist() == [o.user_id is None for o in records]
    truths = [t for round in range(cases.ROUNDS) for t in cases.truths(round)]
    assert read_truth(finished / "truth")["device_id"].tolist() == [t.device_id for t in truths]


def test_rounds_may_be_short_or_empty(finished: Path) -> None:
    counts = UpdateStore.open(finished / "observed").index.groupby("round").size()
    assert counts.to_dict() == {t: len(cases.observations(t)) for t in range(cases.ROUNDS) if cases.observations(t)}
    assert min(len(cases.observations(t)) for t in range(cases.ROUNDS)) == 0


def test_observed_never_holds_a_device_id_and_needs_no_truth(finished: Path) -> None:
    content = b"".join(path.read_bytes() for path in (finished / "observed").rglob("*") if path.is_file())
    devices = [t.device_id.encode() for round in range(cases.ROUNDS) for t in cases.truths(round)]
    assert devices and not any(device in content for device in devices)
    assert all(device in (finished / "truth" / "journal.jsonl").read_bytes() for device in devices)
    shutil.rmtree(finished / "truth")
    assert len(UpdateStore.open(finished / "observed").matrix()) > 0


def test_observed_is_the_same_whoever_owns_the_anonymous_devices(finished: Path) -> None:
    other = finished / "other"
    cases.run(other, cases.LAYOUT, anonymous_user=lambda user: user + 1000)
    assert cases.contents(other / "observed") == cases.contents(finished / "observed")
    assert cases.contents(other / "truth") != cases.contents(finished / "truth")


def test_an_anonymous_observation_with_a_user_is_refused(tmp_path: Path) -> None:
    marked = [replace(o, user_id=3) if o.role == "anonymous" else o for o in cases.observations(0)]
    with pytest.raises(FedprintError, match=r"round 0: obs_id \d+ \(anonymous\)"):
        cases.append_first(tmp_path, marked)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e39])
@pytest.mark.parametrize("precision", ["float16", "float32"])
def test_values_that_are_not_finite_are_refused_by_name(tmp_path: Path, value: float, precision: str) -> None:
    first, *rest = cases.observations(0)
    update = {name: tensor.double() for name, tensor in first.update.items()}
    update["head.weight"][0, 0] = value
    others = [replace(o, update={n: t.double() for n, t in o.update.items()}) for o in rest]
    with pytest.raises(FedprintError, match=r"round 0, layer head\.weight, slot 0: .*lower the learning rate"):
        cases.append_first(tmp_path, [replace(first, update=update), *others], precision=precision)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p | {"body.bias": torch.full((30,), torch.nan)}, "body.bias: NaN or infinite"),
        (lambda p: p | {"body.bias": torch.zeros(31)}, r"body.bias: of shape \(31,\)"),
        (lambda p: p | {"body.bias": torch.zeros(30).double()}, "body.bias: torch.float64"),
        (lambda p: {"body.bias": p["body.bias"]}, "body.weight: missing"),
    ],
)
def test_global_parameters_that_do_not_fit_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]], message: str
) -> None:
    with StoreWriter.open(tmp_path, cases.LAYOUT) as writer, pytest.raises(FedprintError, match=message):
        writer.set_initial(change(dict(cases.params(0))))


def test_records_out_of_turn_or_beyond_the_cohort_are_refused(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, cases.LAYOUT) as writer:
        with pytest.raises(FedprintError, match="call set_initial first"):
            writer.append(0, [], [], cases.params(1), {})
        writer.set_initial(cases.params(0))
        with pytest.raises(FedprintError, match=r"round 1 is out of order \(next is 0 of"):
            writer.append(1, [], [], cases.params(1), {})
        with pytest.raises(FedprintError, match="metric loss=nan"):
            writer.append(0, [], [], cases.params(1), {"loss": float("nan")})
        with pytest.raises(FedprintError, match="one truth per observation"):
            writer.append(0, cases.observations(0), [], cases.params(1), {})
        with pytest.raises(FedprintError, match="slots; raise the cohort"):
            writer.append(0, cases.observations(0) * 3, cases.truths(0) * 3, cases.params(1), {})
        with pytest.raises(FedprintError, match="round 0 of 4 is next"):
            writer.finalise()


def test_another_fingerprint_or_layout_is_refused(finished: Path) -> None:
    with pytest.raises(FedprintError, match="fingerprint is 'config-1', not 'config-2'"):
        StoreWriter.open(finished, replace(cases.LAYOUT, fingerprint="config-2"))
    with pytest.raises(FedprintError, match="cohort is 5, not 6"):
        StoreWriter.open(finished, replace(cases.LAYOUT, cohort=6))


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, cases.LAYOUT), pytest.raises(FedprintError, match="another process"):
        StoreWriter.open(tmp_path, cases.LAYOUT)
    StoreWriter.open(tmp_path, cases.LAYOUT).close()


def test_unfinished_stores_open_as_partial_only(tmp_path: Path) -> None:
    cases.run(tmp_path, cases.LAYOUT, stop_after=2)
    with pytest.raises(FedprintError, match="partial=True"):
        UpdateStore.open(tmp_path / "observed")
    with pytest.raises(FedprintError, match="holds no finished truth"):
        read_truth(tmp_path / "truth")
    store = UpdateStore.open(tmp_path / "observed", partial=True)
    assert store.rounds == 2
    assert np.array_equal(store.matrix(), cases.expected(rounds=2).astype(np.float32))


ARRAYS = ["layers/body.weight.f16", "layers/head.weight.f16", "scales.f32", "global.f32"]


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("damage", ["flip", "tear", "truncate", "lengthen", "remove"])
def test_damaged_arrays_are_named(tmp_path: Path, name: str, damage: str) -> None:
    layout = replace(cases.LAYOUT, precision="float16")
    cases.run(tmp_path, layout)
    file = next(file for file in layout.files() if file.path == name)
    path, line = tmp_path / "observed" / name, 3
    data, start = bytearray(path.read_bytes()), file.offset(line)
    if damage == "flip":
        data[start + 5] ^= 1
    elif damage == "tear":
        data[start : start + file.block_bytes] = bytes(file.block_bytes)
    elif damage == "truncate":
        del data[start + 4 :]
    path.write_bytes(data + b"x" if damage == "lengthen" else data)
    if damage == "remove":
        path.unlink()
    expected = {
        "flip": rf"round 2, bytes {start} to {start + file.block_bytes}: damaged",
        "tear": rf"round 2, bytes {start} to {start + file.block_bytes}: blank",
        "truncate": "truncated at round 2",
        "lengthen": "too long",
        "remove": "missing",
    }[damage]
    with pytest.raises(FedprintError, match=rf"{name}: .*{expected}"):
        UpdateStore.open(tmp_path / "observed")


@pytest.mark.parametrize("name", ["journal.jsonl", "index.parquet", "layout.json", "complete.json"])
def test_any_flipped_byte_of_the_small_files_is_detected(finished: Path, name: str) -> None:
    path = finished / "observed" / name
    data = path.read_bytes()
    for position in range(0, len(data), max(1, len(data) // 60)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        with pytest.raises(FedprintError):
            UpdateStore.open(finished / "observed")
    path.write_bytes(data)
    UpdateStore.open(finished / "observed")


def test_damage_of_the_truth_is_detected(finished: Path) -> None:
    path = finished / "truth" / "index.parquet"
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    with pytest.raises(FedprintError, match=r"index\.parquet: damaged"):
        read_truth(finished / "truth")


def test_a_corrupt_line_inside_the_journal_is_an_error(tmp_path: Path) -> None:
    cases.run(tmp_path, cases.LAYOUT, stop_after=3)
    path = tmp_path / "observed" / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b"1", b"2", 1), *lines[3:]]))
    with pytest.raises(FedprintError, match=r"journal\.jsonl: line 3 is corrupt"):
        StoreWriter.open(tmp_path, cases.LAYOUT)
    with pytest.raises(FedprintError, match=r"journal\.jsonl: line 3 is corrupt"):
        UpdateStore.open(tmp_path / "observed", partial=True)


def test_a_finished_store_that_lost_its_last_line_is_an_error(finished: Path) -> None:
    path = finished / "observed" / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(FedprintError, match="not the journal marked complete"):
        UpdateStore.open(finished / "observed")
    with pytest.raises(FedprintError, match="no round 3, though the store was complete"):
        StoreWriter.open(finished, cases.LAYOUT)


def test_resuming_checks_the_parameters_it_starts_from(tmp_path: Path) -> None:
    cases.run(tmp_path, cases.LAYOUT, stop_after=2)
    path = tmp_path / "observed" / "global.f32"
    data = bytearray(path.read_bytes())
    data[cases.LAYOUT.global_file.offset(2)] ^= 1
    path.write_bytes(data)
    with StoreWriter.open(tmp_path, cases.LAYOUT) as writer, pytest.raises(FedprintError, match="round 1, bytes"):
        writer.latest_params()


def test_reading_refuses_a_file_that_shrank_after_opening(finished: Path) -> None:
    store = UpdateStore.open(finished / "observed")
    os.truncate(finished / "observed" / "layers" / "head.weight.f32", 100)
    with pytest.raises(FedprintError, match="truncated"):
        store.matrix(["head"])


def test_a_full_disk_is_named_before_training(tmp_path: Path) -> None:
    huge = replace(cases.LAYOUT, rounds=10**12)
    with pytest.raises(FedprintError, match=rf"{store_bytes(huge)} bytes needed, \d+ free; free some space"):
        StoreWriter.open(tmp_path, huge)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_disk_that_fills_up_at_creation_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(os, "posix_fallocate", cases.refusing(code))
    with pytest.raises(FedprintError, match=r"body\.weight\.f32: .*: \d+ bytes needed, \d+ free; free some space"):
        StoreWriter.open(tmp_path, cases.LAYOUT)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("call", ["pwrite", "fsync"])
def test_a_disk_that_fills_up_later_is_named_and_the_run_resumes(tmp_path: Path, call: str, code: int) -> None:
    cases.run(tmp_path / "whole", cases.LAYOUT)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(FedprintError, match=r"bytes needed, \d+ free"):
        fill = {1: lambda: patch.setattr(os, call, cases.refusing(code))}
        cases.run(tmp_path / "broken", cases.LAYOUT, before_round=fill)
    cases.run(tmp_path / "broken", cases.LAYOUT)
    assert cases.contents(tmp_path / "broken") == cases.contents(tmp_path / "whole")


def test_a_writer_that_met_a_full_disk_can_try_the_round_again(tmp_path: Path) -> None:
    cases.run(tmp_path / "whole", cases.LAYOUT)
    with StoreWriter.open(tmp_path / "broken", cases.LAYOUT) as writer:
        writer.set_initial(cases.params(0))
        with pytest.MonkeyPatch.context() as patch, pytest.raises(FedprintError):
            patch.setattr(os, "fsync", cases.refusing(errno.ENOSPC))
            writer.append(0, cases.observations(0), cases.truths(0), cases.params(1), cases.metrics(0))
        writer.append(0, cases.observations(0), cases.truths(0), cases.params(1), cases.metrics(0))
    cases.run(tmp_path / "broken", cases.LAYOUT)
    assert cases.contents(tmp_path / "broken") == cases.contents(tmp_path / "whole")


def test_layers_without_a_match_are_named(finished: Path) -> None:
    with pytest.raises(FedprintError, match=r"layer tail is not stored; choose from body\.weight, head\.weight"):
        UpdateStore.open(finished / "observed").matrix(["head", "tail"])


def test_estimate_covers_what_is_written(tmp_path: Path) -> None:
    layout = replace(cases.LAYOUT, precision="float16")
    cases.run(tmp_path, layout)
    written = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert sum(file.size for file in layout.files()) < store_bytes(layout)
    assert written < store_bytes(layout) + 8192


def test_repeated_obs_ids_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FedprintError, match="obs_id 9000 is of an earlier round"):
        cases.run(tmp_path, cases.LAYOUT, rename=lambda obs_id: 9000 if obs_id in (0, 200) else obs_id)
