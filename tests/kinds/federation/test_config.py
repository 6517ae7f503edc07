from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from tiny_project import CHECKOUT, TINY, Project, resolved

from fedprint.kinds.config_files import apply_assignments, merge, read_yaml
from fedprint.kinds.federation.config import Experiment, check_experiment, read_resolved
from fedprint.kinds.registry import kind_of
from fedprint.types import FedprintError

FOLDER = CHECKOUT / "configs" / "experiments"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
SHIPPED = [name for name in NAMES if kind_of(read_yaml(FOLDER / f"{name}.yaml")).name == "federation"]


def _tiny(**changed: Any) -> Experiment:
    return check_experiment({**TINY, "name": "tiny", **changed}, "tiny.yaml")


def _refused(values: Mapping[str, Any]) -> str:
    with pytest.raises(FedprintError) as caught:
        check_experiment(merge({**TINY, "name": "tiny"}, values), "configs/experiments/tiny.yaml")
    message = str(caught.value)
    assert message.startswith("configs/experiments/tiny.yaml: ")
    assert "\n" not in message
    return message


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"federation": {"round": 3}}, ["federation.round", "3", "rounds, fraction, epochs"]),
        ({"report": None}, ["report", "dictionary", "None"]),
        ({"colour": "red"}, ["colour", "red", "name, data, split"]),
        ({"data": {"biass": 1}}, ["data.biass", "got 1", "users, skip, images, bias"]),
        ({"attacks": [{"name": "knn", "kk": 3}]}, ["attacks.0.kk", "3", "name, layers, k"]),
        ({"attacks": [{"name": "knn-std", "kk": 3}]}, ["attacks.0.kk", "3", "name, layers, k"]),
        ({"federation": {"rounds": "many"}}, ["federation.rounds", "'many'", "integer"]),
        ({"federation": {"rounds": 0}}, ["federation.rounds", "0", "greater than or equal to 1"]),
        ({"federation": {"lr": -0.1}}, ["federation.lr", "-0.1", "greater than 0"]),
        ({"federation": {"lr": float("nan")}}, ["federation.lr", "nan", "finite"]),
        ({"federation": {"dtype": "float8"}}, ["federation.dtype", "'float8'", "'float32' or 'float64'"]),
        ({"split": {"priors": ["past"]}}, ["split.priors.0", "'past'", "'random', 'chrono', 'photoset' or 'iid'"]),
        ({"split": {"priors": []}}, ["split.priors", "at least 1"]),
        ({"split": {"test_fraction": 1.0}}, ["split.test_fraction", "1.0", "less than 1"]),
        ({"data": {"name": "album"}}, ["data", "'album'", "'albums'", "'blog'"]),
        ({"model": {"name": "resnet"}}, ["model", "'resnet'", "'cnn'", "'lm'", "'stars'"]),
        ({"attacks": [{"name": "knn"}, {"name": "oracle"}]}, ["attacks.1", "'oracle'", "'chance'", "'ridge'"]),
        ({"split": {"priors": ["iid", "iid"]}}, ["split.priors", "differ", "'iid', 'iid'"]),
        ({"selection": {"linkages": ["update", "update"]}}, ["selection.linkages", "differ"]),
        ({"selection": {"linkages": []}}, ["selection.linkages", "at least 1"]),
        ({"defences": [{"name": "dp"}]}, ["defences.0", "'dp'", "'noise'"]),
        ({"defences": [{"name": "noise", "sigma": -1}]}, ["defences.0.sigma", "-1", "greater than or equal to 0"]),
        ({"defences": [{"name": "rand-aug", "alpha": [0, -2]}]}, ["defences.0.alpha.1:", "-2", "or equal to 0"]),
        ({"defences": [{"name": "top-k", "share": "much"}]}, ["defences.0.share:", "'much'", "valid number"]),
        ({"threat": {"defended": "nobody"}}, ["threat.defended", "'nobody'", "'everyone' or 'anonymous'"]),
        ({"data": {"bias": 1.5}}, ["data.bias", "1.5", "less than or equal to 1"]),
        ({"attacks": []}, ["attacks", "at least 1"]),
        ({"attacks": [{"name": "chance"}, {"name": "chance"}]}, ["attacks", "chance", "differ"]),
        ({"seeds": [1, 1]}, ["seeds", "1", "differ"]),
        ({"seeds": []}, ["seeds", "at least 1"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_error_names_file_key_value_and_what_is_allowed(values: Mapping[str, Any], words: list[str]) -> None:
    message = _refused(values)
    assert [word for word in words if word not in message] == [], message


def test_error_says_how_many_more_there_are() -> None:
    assert "and 1 more" in _refused({"federation": {"rounds": 0, "lr": 0}})


def test_a_missing_key_is_named() -> None:
    values = {key: value for key, value in TINY.items() if key != "report"}
    with pytest.raises(FedprintError, match=r"tiny\.yaml: report: Field required"):
        check_experiment({**values, "name": "tiny"}, "tiny.yaml")


@pytest.mark.parametrize("text", ["a: [1", "- 1\n- 2", "plain"])
def test_a_file_that_is_no_mapping_is_one_line(project: Project, text: str) -> None:
    path = project.root / "configs" / "experiments" / "broken.yaml"
    path.write_text(text)
    with pytest.raises(FedprintError, match=str(path)) as caught:
        resolved(project.root, "broken")
    assert "\n" not in str(caught.value)


def test_unknown_experiment_lists_the_known_ones() -> None:
    with pytest.raises(FedprintError, match=r"unknown experiment 'quickest'.*quickstart") as caught:
        resolved(CHECKOUT, "quickest")
    assert all(name in str(caught.value) for name in SHIPPED)


# Merging --------------------------------------------------------------------------------------------------------------


def test_mappings_merge_and_lists_are_replaced() -> None:
    base = {"a": {"x": 1, "y": 2}, "l": [1, 2], "kept": 0}
    assert merge(base, {"a": {"y": 3}, "l": [9]}) == {"a": {"x": 1, "y": 3}, "l": [9], "kept": 0}
    assert base == {"a": {"x": 1, "y": 2}, "l": [1, 2], "kept": 0}


def test_another_name_replaces_the_component() -> None:
    base = {"data": {"name": "albums", "users": 4, "bias": 1.0}}
    assert merge(base, {"data": {"name": "albums", "users": 5}})["data"] == {"name": "albums", "users": 5, "bias": 1.0}
    assert merge(base, {"data": {"users": 5}})["data"]["bias"] == 1.0
    assert merge(base, {"data": {"name": "blog"}})["data"] == {"name": "blog"}


def test_defaults_own_file_fast_section_and_assignments_override_in_that_order(project: Project) -> None:
    """Four layers, each of which sets one key more than the next."""
    keys = ("rounds", "epochs", "batch_size", "evaluate_every")
    (project.root / "configs" / "defaults.yaml").write_text(yaml.safe_dump({"federation": dict.fromkeys(keys, 11)}))
    quick = {"federation": dict.fromkeys(keys[2:], 13)}
    project.write("layers", {**TINY, "federation": dict.fromkeys(keys[1:], 12), "fast": quick})
    found = resolved(project.root, "layers", fast=True, assignments=["federation.evaluate_every=14"])
    assert [getattr(found.federation, key) for key in keys] == [11, 12, 13, 14]
    assert found.fast
    assert resolved(project.root, "layers").federation.batch_size == 12


def test_assignments_reach_into_lists_and_replace_them() -> None:
    values = {"attacks": [{"name": "chance"}, {"name": "knn", "k": 10}], "split": {"priors": ["iid"]}}
    changed = apply_assignments(values, ["attacks.1.k=3", "split.priors=[random, chrono]", "seeds=[1, 2]"])
    assert changed["attacks"] == [{"name": "chance"}, {"name": "knn", "k": 3}]
    assert changed["split"] == {"priors": ["random", "chrono"]}
    assert changed["seeds"] == [1, 2]
    assert values["attacks"][1] == {"name": "knn", "k": 10}


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("federation.rounds", "write KEY=VALUE"),
        ("=3", "write KEY=VALUE"),
        ("attacks.7.k=3", "use 0 to 2"),
        ("attacks.k=3", "use 0 to 2"),
        ("federation.rounds.x=3", "shorten the key"),
        ("seeds=[1", "is not YAML"),
    ],
)
def test_a_malformed_assignment_is_quoted_with_a_remedy(assignment: str, words: str) -> None:
    with pytest.raises(FedprintError) as caught:
        apply_assignments(TINY, [assignment])
    assert f"--set {assignment}" in str(caught.value)
    assert words in str(caught.value)


# The value ------------------------------------------------------------------------------------------------------------


def test_an_experiment_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        _tiny().federation.rounds = 3  # type: ignore[misc]


def test_the_resolved_yaml_reads_back_as_the_same_value(tmp_path: Path) -> None:
    config = _tiny(defences=[{"name": "noise", "sigma": 0.1}])
    (tmp_path / "config.yaml").write_text(config.text())
    assert read_resolved(tmp_path / "config.yaml") == config


def test_digest_ignores_the_wording_of_the_report_and_nothing_else() -> None:
    digest = _tiny().digest()
    assert _tiny(report={"title": "Other words"}).digest() == digest
    changes: list[dict[str, Any]] = [{"seeds": [1]}, {"fast": True}, {"evaluation": {"confidence": 0.9}}]
    changes += [{"federation": {"lr": 0.31}}, {"attacks": [{"name": "ridge"}]}, {"name": "other"}]
    assert digest not in {_tiny(**changed).digest() for changed in changes}


def test_digest_is_the_same_in_another_process() -> None:
    code = (
        "from fedprint.kinds.federation.config import load_experiment; from pathlib import Path; "
        "from fedprint.kinds.requests import request_for; "
        f"print(load_experiment(request_for(Path({str(CHECKOUT)!r}), 'quickstart')).digest())"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert run.stdout.strip() == resolved(CHECKOUT, "quickstart").digest()


def test_section_digest_takes_single_settings_too() -> None:
    one, other = (
        check_experiment({**TINY, "name": "a", "threat": {"defended": defended}}, "f")
        for defended in ("everyone", "anonymous")
    )
    assert one.section_digest("data") == other.section_digest("data")
    assert one.section_digest("threat.defended") != other.section_digest("threat.defended")


def test_section_digest_depends_on_its_sections_only() -> None:
    one, other = _tiny(), _tiny(attacks=[{"name": "ridge"}])
    assert one.section_digest("data", "federation") == other.section_digest("data", "federation")
    assert one.section_digest("attacks") != other.section_digest("attacks")


# What we ship ---------------------------------------------------------------------------------------------------------


def test_the_experiments_of_the_issue_are_shipped() -> None:
    assert {"quickstart", "mnist-writers", "ahcd-writers", "blog", "presidents"} <= set(SHIPPED)


@pytest.mark.parametrize("fast", [False, True], ids=["plain", "fast"])
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_experiments_resolve(name: str, fast: bool) -> None:
    config = resolved(CHECKOUT, name, fast=fast)
    assert config.name == (f"{name}-fast" if fast else name)
    assert "random" in config.split.priors
    crowd = max(getattr(config.data, name, None) or 0 for name in ("clients", "users")) > 400  # the file says why
    panel = {"chance"} if crowd else {"chance", "knn", "svm", "mlp", "ridge"}
    assert {attack.name for attack in config.attacks} >= panel


@pytest.mark.parametrize("name", SHIPPED)
def test_the_fast_section_changes_something(name: str) -> None:
    quick, plain = (resolved(CHECKOUT, name, fast=fast) for fast in (True, False))
    assert quick.federation.rounds < plain.federation.rounds


def test_params_yaml_has_the_quickstarts_priors_and_seeds() -> None:
    params = yaml.safe_load((CHECKOUT / "params.yaml").read_text())
    config = resolved(CHECKOUT, "quickstart")
    assert config.data.name == "albums"
    assert params["priors"] == list(config.split.priors)
    assert params["seeds"] == list(config.seeds)
