"""The secret head as a defence in an experiment: configured, trained, recorded without it, attacked."""

from __future__ import annotations

import json

import pytest
import torch
from tiny_project import TINY, Project

from fedprint.kinds.federation.config import check_experiment
from fedprint.store.reader import UpdateStore
from fedprint.types import FedprintError


def test_an_experiment_with_a_secret_head_runs_and_none_of_it_is_in_its_outputs(project: Project) -> None:
    attacks = [{"name": "knn", "k": 3, "layers": ["head"]}]
    spn = {"name": "spn", "bits": 8, "alpha2": [0.01, 0.1]}
    changes = {"attacks": attacks, "analyses": [], "defences": [spn], "threat": {"defended": "anonymous"}}
    federation = {**TINY["federation"], "aggregation": "round-robin"}
    job = project.run("secret", {**TINY, **changes, "federation": federation}, until="attack")
    store = UpdateStore.open(job.at("observed"))
    assert not [name for name in store.layers if "secret" in name]
    named = [path for path in project.root.rglob("*") if path.is_file() and b"secret_head" in path.read_bytes()]
    assert named == [], "nothing of the heads is left, in no output and in no checkpoint"
    strengths = json.loads((job.at("truth") / "strengths.json").read_text())
    drawn = {d["defences"][0]["alpha2"] for name, d in strengths.items() if name.endswith("anonymous")}
    assert drawn == {0.01, 0.1}
    moved = torch.cat([p.flatten() for p in store.global_params(8).values()])
    assert float((moved - torch.cat([p.flatten() for p in store.global_params(0).values()])).abs().max()) > 0.01


@pytest.mark.parametrize("model", ["lm", "stars"])
def test_a_model_without_classes_is_refused_when_the_configuration_is_read(model: str) -> None:
    values = {**TINY, "name": "x", "model": {"name": model}, "defences": [{"name": "spn"}]}
    with pytest.raises(FedprintError, match=f"spn needs classes with a code each, which '{model}' has not") as caught:
        check_experiment(values, "x.yaml")
    assert "\n" not in str(caught.value)


def test_data_defences_behind_it_are_refused() -> None:
    values = {**TINY, "name": "x", "defences": [{"name": "spn"}, {"name": "rand-aug", "alpha": 1}]}
    with pytest.raises(FedprintError, match="rand-aug after spn would add examples without codes; put spn behind it"):
        check_experiment(values, "x.yaml")
