from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedprint.evaluation.rows import COLUMNS, pool_seeds, read_measurements, to_row, write_measurements
from fedprint.types import FedprintError, Measurement

AP = Measurement(
    metric="ap", unit="fraction", value=0.5, lo=0.4, hi=0.6, chance=0.1, n_questions=90, n_users=9,
    keys={"seed": 1, "attack": "mlp", "zeta": 1, "alpha": 2, "defence_params": {"z": 1, "a": [0.5]}},
)  # fmt: skip


def at(seed: int, value: float, half: float = 0.1, **keys: Any) -> dict[str, Any]:
    keys = {"attack": "mlp", "seed": seed, **keys}
    return to_row(replace(AP, value=value, lo=value - half, hi=value + half, keys=keys))


def test_rows_have_the_fixed_columns_first_and_extras_sorted() -> None:
    row = to_row(AP)
    assert list(row) == [*COLUMNS, "alpha", "zeta"]
    assert row["dataset"] is None and row["seed"] == 1 and row["value"] == 0.5


def test_keys_cannot_overwrite_numbers() -> None:
    with pytest.raises(FedprintError, match="value"):
        to_row(replace(AP, keys={"value": 3}))


def test_both_files_hold_the_same_rows_and_equal_rows_equal_bytes(tmp_path: Path) -> None:
    rows = [to_row(AP), to_row(replace(AP, hi=float("inf"), chance=None, keys={"seed": np.int64(2), "note": "a,b\nc"}))]
    paths = tmp_path / "new" / "m.jsonl", tmp_path / "m.csv"
    write_measurements(*paths, rows)
    first = [p.read_bytes() for p in paths]
    write_measurements(*paths, rows)
    assert first == [p.read_bytes() for p in paths]
    read, table = read_measurements(paths[0]), pd.read_csv(paths[1])
    assert list(read[0]) == list(table.columns) == [*COLUMNS, "alpha", "note", "zeta"]
    assert read[0]["defence_params"] == {"a": [0.5], "z": 1}
    assert read[1]["hi"] is None and read[1]["seed"] == 2 and table["note"][1] == "a,b\nc"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.csv", "new"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, table = tmp_path / "m.jsonl", tmp_path / "m.csv"
    write_measurements(path, table, [to_row(AP)])
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_measurements(path, table, [])
    assert path.read_bytes() == before


def test_damaged_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FedprintError, match="no measurements"):
        read_measurements(tmp_path / "none.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\n{"a"')
    with pytest.raises(FedprintError, match=r"bad.jsonl:2"):
        read_measurements(tmp_path / "bad.jsonl")


def test_a_single_seed_is_pooled_on_request_and_keeps_its_numbers() -> None:
    rows = [at(1, 0.45, 0.01), at(1, 0.3, attack="knn"), at(2, 0.4, attack="knn")]
    assert [row["attack"] for row in pool_seeds(rows) if row["seed"] == "all"] == ["knn"]
    alone, several = (row for row in pool_seeds(rows, least=1) if row["seed"] == "all")
    assert alone == {**rows[0], "seed": "all", "n_seeds": 1} and several["n_seeds"] == 2
    assert pool_seeds(rows[:1], varying=["attack"], least=1)[-1]["attack"] is None


def test_seeds_that_agree_keep_the_interval_of_one_seed() -> None:
    rows = pool_seeds([at(1, 0.5), at(2, 0.5), at(3, 0.5)])
    pooled = rows[-1]
    assert len(rows) == 4 and pooled["seed"] == "all" and pooled["n_seeds"] == 3
    assert (pooled["value"], pooled["lo"], pooled["hi"]) == pytest.approx((0.5, 0.4, 0.6))
    assert pooled["n_questions"] == 270 and pooled["n_users"] == 9 and pooled["chance"] == pytest.approx(0.1)


def test_seeds_that_disagree_widen_it_to_the_t_interval_and_no_further_than_the_range() -> None:
    pooled = pool_seeds([at(1, 0.45, 0.01), at(2, 0.5, 0.01), at(3, 0.55, 0.01)])[-1]
    assert pooled["hi"] - 0.5 == pytest.approx(4.3027 * 0.05 / 3**0.5, rel=1e-3)
    assert pool_seeds([at(1, 0.2), at(2, 0.9)])[-1]["lo"] == 0
    assert pool_seeds([at(1, 0.2), at(2, 0.9)])[-1]["hi"] == 1


def test_the_largest_p_of_the_seeds_is_that_of_all_and_old_rows_have_none() -> None:
    ps = (0.001, 0.2, 0.01)
    rows = [{**at(seed, 0.5), "p_chance": p} for seed, p in enumerate(ps)]
    assert pool_seeds(rows)[-1]["p_chance"] == 0.2
    assert pool_seeds([*rows[:2], {**rows[2], "p_chance": None}])[-1]["p_chance"] is None
    old = [{key: value for key, value in row.items() if key != "p_chance"} for row in rows]
    assert pool_seeds(old)[-1]["p_chance"] is None


def test_only_rows_of_one_condition_are_pooled() -> None:
    rows = [at(1, 0.5), at(2, 0.6), at(1, 0.1, attack="svm"), at(1, 0.2, defence_params={"a": 1})]
    pooled = pool_seeds(rows)
    assert pooled[:4] == rows and len(pooled) == 5 and pooled[4]["attack"] == "mlp"
    assert pool_seeds(pooled) == pooled


def test_keys_declared_varying_do_not_separate_and_duplicates_are_refused() -> None:
    rows = [at(1, 0.5, run_id="a"), at(2, 0.6, run_id="b")]
    assert len(pool_seeds(rows)) == 2
    pooled = pool_seeds(rows, varying=["run_id"])
    assert len(pooled) == 3 and pooled[-1]["run_id"] is None
    with pytest.raises(FedprintError, match="same condition and seed"):
        pool_seeds([at(1, 0.5), at(1, 0.5), at(2, 0.5)])


def test_pooled_interval_covers_when_users_and_training_both_vary() -> None:
    rng, covered = np.random.default_rng(0), 0
    for _ in range(500):
        users, training = rng.normal(0, 0.03), rng.normal(0, 0.02, 5)
        values = 0.5 + users + training
        pooled = pool_seeds([at(i, v, 1.96 * 0.03) for i, v in enumerate(values)])[-1]
        covered += pooled["lo"] <= 0.5 <= pooled["hi"]
    assert covered / 500 > 0.92
