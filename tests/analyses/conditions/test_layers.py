from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from analysis_cases import answered, ap

from fedprint.analyses.conditions.layers import Layers, layer_names
from fedprint.types import FedprintError

if TYPE_CHECKING:
    from fedprint.lab.graph import Task


def test_every_layer_is_asked_alone_with_its_depth_and_size(tiny_run: Task) -> None:
    trials, _ = answered(tiny_run, Layers(attacks=("ridge", "knn")))
    rows = [(t.keys["attack"], t.keys["layer"], t.keys["depth"], t.keys["layers"]) for t in trials]
    layers = ["conv1", "conv2", "fc1", "head"]
    assert rows == [
        (attack, layer, depth, f"{layer}.weight,{layer}.bias")
        for depth, layer in enumerate(layers, 1)
        for attack in ("ridge", "knn")
    ]
    from fedprint.kinds.federation.building.view import open_view

    sizes = open_view(tiny_run, "naive")[0].store.sizes
    assert {t.keys["layer"]: t.keys["parameters"] for t in trials}["head"] == sizes["head.weight"] + sizes["head.bias"]
    assert sum(int(str(t.keys["parameters"])) for t in trials) == 2 * sum(sizes.values())


def test_layers_differ_and_users_of_biased_classes_show_in_the_head(tiny_run: Task) -> None:
    trials, answers = answered(tiny_run, Layers(attacks=("ridge",)))
    assert not np.allclose(trials[0].scores, trials[-1].scores)
    head = ap(trials[-1], answers)
    assert head.chance is not None
    assert head.value > 1.5 * head.chance


def test_an_attack_that_is_not_configured_is_named(tiny_run: Task) -> None:
    with pytest.raises(FedprintError, match="no attack 'svm' in this experiment; choose of chance, knn, ridge"):
        answered(tiny_run, Layers(attacks=("svm",)))


def test_names_of_layers_in_parts_stay_full() -> None:
    groups = [("embedding.weight",), ("lstm.weight_ih", "lstm.bias"), ("head.weight",), ("head.bias",)]
    assert layer_names(groups) == ["embedding", "lstm", "head.weight", "head.bias"]
    assert layer_names([("head.bias",), ("conv.weight",), ("scale",)]) == ["head.bias", "conv", "scale"]
