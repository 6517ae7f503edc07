from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from scene_cases import scene, store, text_scene, user
from scipy.stats import spearmanr

from fedprint.analyses.exhibits.base import divergence, entropy, extremes, labels, points
from fedprint.analyses.exhibits.class_bias import ClassBias, output_layer
from fedprint.analyses.exhibits.distances import Distances
from fedprint.analyses.exhibits.raw_features import RawFeatures
from fedprint.analyses.exhibits.recognisable import REASONS, Recognisable, correlation

if TYPE_CHECKING:
    from fedprint.lab.graph import Task

WORDS = {1: [[2, 4, 4, 0], [2, 5, 0, 0]], 2: [[2, 7, 8, 9], [2, 9, 9, 9]]}


def _writers() -> tuple[object, ...]:
    return tuple(user(i, rows, [[4, 4, -100, -100]] * 2) for i, rows in WORDS.items())


@pytest.mark.parametrize(
    "analysis", [Distances(), ClassBias(), Recognisable(), RawFeatures(users=4)], ids=lambda a: a.name
)
def test_exhibits_are_small_json_and_equal_every_time(tiny_run: Task, analysis: Distances) -> None:
    from fedprint.evaluation.rows import plain_value

    first, again = (json.dumps(plain_value(analysis.exhibit(scene(tiny_run))), allow_nan=False) for _ in range(2))
    assert first == again
    assert 100 < len(first) < 300_000


def test_points_are_unit_vectors_of_at_most_so_many_examples(tiny_run: Task) -> None:
    found = scene(tiny_run)
    some = points(found, found.private[0], 5)
    assert some.shape == (5, 16)
    np.testing.assert_allclose(np.linalg.norm(some, axis=1), 1)


def test_without_features_texts_are_counted_and_images_are_pixels(tiny_run: Task) -> None:
    known = scene(tiny_run)
    found = text_scene(known, "language_model", _writers())  # type: ignore[arg-type]
    expected = np.zeros((2, 10))
    expected[0, [2, 4]] = 1, 2
    expected[1, [2, 5]] = 1, 1
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(points(found, found.private[0], 5), expected)
    pixels = points(replace(known, features=None), known.private[0], 3)
    assert pixels.shape == (3, known.private[0].examples["x"][0].numel())


def test_labels_of_every_task_are_counted(tiny_run: Task) -> None:
    known = scene(tiny_run)
    single = replace(
        known, task="single_label", class_names=("a", "b", "c"), private=(user(1, [[0.0]] * 3, [2, 0, 2]),)
    )
    assert labels(single, single.private).counts[1].tolist() == [1, 0, 2]
    multi = replace(single, task="multi_label", private=(user(1, [[0.0]] * 2, [[1.0, 0, 1], [1, 1, 0]]),))
    assert labels(multi, multi.private).counts[1].tolist() == [2, 1, 1]
    words = text_scene(known, "language_model", _writers())  # type: ignore[arg-type]
    assert labels(words, words.private).counts[1].tolist() == [0, 0, 0, 0, 4, 0, 0, 0, 0, 0]
    rated = text_scene(known, "regression", (user(1, [[2]] * 3, [1.5, 4.0, 4.0]), user(2, [[2]], [3.0])))
    found = labels(rated, rated.private[:1])
    assert found.names == ("1.5", "3", "4")
    assert found.counts[1].tolist() == [1, 0, 2]


def test_divergence_and_entropy_in_bits() -> None:
    even, left, right = np.array([0.5, 0.5]), np.array([1.0, 0]), np.array([0, 1.0])
    assert entropy(even) == 1
    assert entropy(left) == 0
    assert divergence(left, right) == 1
    assert divergence(even, even) == 0


def test_extremes_are_disjoint_and_in_order() -> None:
    ap = {1: 0.9, 2: 0.1, 3: 0.5, 4: float("nan"), 5: 0.7}
    assert extremes(ap, 2) == {"most": [1, 5], "least": [2, 3]}
    assert extremes(ap, 9) == {"most": [1, 5], "least": [2, 3]}


def test_distances_tell_users_that_resemble_themselves(tiny_run: Task) -> None:
    known = scene(tiny_run)
    rng = torch.Generator().manual_seed(0)
    apart = tuple(
        user(i, 100 * torch.eye(6)[i] + torch.rand(12, 6, generator=rng), torch.zeros(12, dtype=torch.int64))
        for i in range(6)
    )
    found = Distances().exhibit(replace(known, private=apart, features=None))
    assert found is not None
    assert found["share_closer"]["value"] == 1
    assert 0.5 < found["share_closer"]["lo"] < 1
    assert all(row["intra"] < 0.1 < row["inter"] for row in found["users"])
    # everybody's examples from one distribution: no user is closer than chance allows
    same = tuple(user(i, torch.rand(30, 6, generator=rng), torch.zeros(30, dtype=torch.int64)) for i in range(40))
    mixed = Distances().exhibit(replace(known, private=same, features=None))
    assert mixed is not None
    assert mixed["share_closer"]["lo"] < 0.5 < mixed["share_closer"]["hi"]
    assert mixed["n"] == 40
    assert Distances().exhibit(replace(known, private=same[:1], features=None)) is None


def test_class_bias_is_the_mean_norm_of_each_class_column(tiny_run: Task) -> None:
    known = scene(tiny_run)
    found = ClassBias(users=4).exhibit(known)
    assert found is not None
    assert (found["kind"], found["layer"]) == ("classes", "head.weight")
    assert [row["group"] for row in found["users"]] == ["most", "most", "least", "least"]
    assert found["users"][0]["ap"] >= found["users"][-1]["ap"]
    row = found["users"][0]
    for device, role in (("prior", "prior"), ("private", "anonymous")):
        sent = np.flatnonzero((known.owner == row["user_id"]) & (known.store.index["role"] == role).to_numpy())
        updates = known.store.matrix(["head.weight"], sent).reshape(len(sent), len(known.class_names), -1)
        expected = np.mean([[np.linalg.norm(update[c]) for c in range(updates.shape[1])] for update in updates], axis=0)
        np.testing.assert_allclose(row[device]["norm"], expected, rtol=1e-3)
        assert sum(row[device]["share"]) == pytest.approx(1, abs=1e-3)
        assert row[device]["updates"] == len(sent) > 0


def test_a_language_model_shows_the_words_that_rise_most(tiny_run: Task) -> None:
    bias = np.zeros((4, 10), dtype=np.float32)
    bias[0, [4, 6]], bias[1, [4, 6]] = (3, 1), (1, 0)  # user 1, prior
    bias[2, 7] = bias[3, 9] = 1
    roles = ["prior", "prior", "anonymous", "anonymous"]
    recorded = store([1, 1, 1, 2], roles, {"lstm.weight_hh": np.ones((4, 10, 2)), "head.bias": bias})
    # user 2 sent nothing from the prior device: it cannot be shown
    found = text_scene(scene(tiny_run), "language_model", _writers(), store=recorded, owner=np.array([1, 1, 1, 2]))  # type: ignore[arg-type]
    shown = ClassBias(users=2, top=2).exhibit(replace(found, ap={1: 0.9, 2: 0.1}))
    assert shown is not None
    assert shown["users"] == []
    both = replace(found, owner=np.array([1, 2, 1, 2]))
    shown = ClassBias(users=2, top=2).exhibit(replace(both, ap={1: 0.9, 2: 0.1}))
    assert shown is not None
    assert [row["user_id"] for row in shown["users"]] == [1, 2]
    assert shown["users"][0]["prior"]["words"] == [
        {"word": "word4", "change": 3.0, "used": True},
        {"word": "word6", "change": 1.0, "used": False},
    ]
    assert shown["users"][0]["private"]["words"][0]["word"] == "word7"


def test_there_is_no_class_bias_without_an_output_layer(tiny_run: Task) -> None:
    known = scene(tiny_run)
    body = store([1], ["prior"], {"conv.weight": np.ones((1, 5, 3))})
    assert output_layer(replace(known, store=body)) is None
    assert ClassBias().exhibit(replace(known, store=body)) is None
    assert ClassBias().exhibit(replace(known, task="regression")) is None


def test_recognisable_users_come_with_reasons(tiny_run: Task) -> None:
    known = scene(tiny_run)
    found = Recognisable(shown=2, top=3).exhibit(known)
    assert found is not None
    rows = found["users"]
    assert {row["user_id"]: row["ap"] for row in rows} == dict(known.ap)
    assert list(found["reasons"]) == list(REASONS)
    rho = found["reasons"]["divergence"]
    expected = spearmanr([row["divergence"] for row in rows], [row["ap"] for row in rows])
    assert rho["correlation"] == pytest.approx(expected.statistic)
    assert rho["lo"] < rho["correlation"] < rho["hi"]
    assert min(row["ap"] for row in found["most"]) >= max(row["ap"] for row in found["least"])
    for row in (*found["most"], *found["least"]):
        assert all(top["share"] > top["population"] for top in row["top"])


def test_a_correlation_needs_variation_and_enough_users() -> None:
    assert correlation([1, 2, 3], [1, 2, 3])["correlation"] is None
    assert correlation([1, 1, 1, 1, 1, 1], [1, 2, 3, 4, 5, 6])["correlation"] is None
    perfect = correlation(list(range(20)), list(range(20)))
    assert perfect["correlation"] == pytest.approx(1)
    assert perfect["p"] is not None
    assert perfect["p"] < 1e-6
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        found = correlation(rng.normal(size=30).tolist(), rng.normal(size=30).tolist())
        assert found["lo"] is not None
        assert found["hi"] is not None
        inside += found["lo"] <= 0 <= found["hi"]
    assert 180 <= inside <= 199, "a 95 % interval of unrelated columns holds 0 about 190 times in 200"


def test_both_panels_show_the_same_users_and_both_devices(tiny_run: Task) -> None:
    known = scene(tiny_run)
    found = RawFeatures(users=3).exhibit(known)
    assert found is not None
    shown = {panel: {point["user_id"] for point in found[panel]} for panel in ("raw", "updates")}
    assert shown["raw"] == shown["updates"]
    assert len(shown["raw"]) == 3
    for panel in ("raw", "updates"):
        assert {point["role"] for point in found[panel]} == {"prior", "private"}
        assert np.isfinite([(point["x"], point["y"]) for point in found[panel]]).all()
        assert len(found[panel]) <= 600
    assert len(found["updates"]) == np.isin(known.owner, list(shown["raw"])).sum()
