"""The attack cannot see the truth: by its types, by its dependencies, and by running without it."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_project import CHECKOUT

from fedprint.attacks.view import AttackerView
from fedprint.kinds.federation.building.view import open_view
from fedprint.kinds.federation.graph import FEDERATION, POINT
from fedprint.kinds.federation.stages import analyse, attack
from fedprint.lab.graph import Graph, Task
from fedprint.types import Observation, Questions


def test_the_view_has_these_fields_and_none_for_the_truth() -> None:
    """A new field has to be defended here."""
    assert {field.name for field in dataclasses.fields(AttackerView)} == {
        "store", "prior_users", "background", "model", "training", "rule", "chronological", "by_album", "defences",
        "seed", "labels", "device",
    }  # fmt: skip


def test_questions_hold_no_answers() -> None:
    assert {field.name for field in dataclasses.fields(Questions)} == {"kind", "linkage", "subjects", "options"}


def test_observations_name_the_user_of_prior_devices_only(tiny_run: Task) -> None:
    view, _ = open_view(tiny_run, "naive")
    index = view.store.index
    assert index["user_id"][index["role"] == "anonymous"].isna().all()
    assert index["user_id"][index["role"] == "prior"].notna().all()
    assert {field.name for field in dataclasses.fields(Observation)} == {
        "obs_id", "round", "role", "num_examples", "pseudonym", "user_id", "update",
    }  # fmt: skip


def test_prior_and_anonymous_device_of_a_user_have_unrelated_pseudonyms(tiny_run: Task) -> None:
    index = open_view(tiny_run, "naive")[0].store.index
    names = {role: set(index["pseudonym"][index["role"] == role]) for role in ("prior", "anonymous")}
    assert not names["prior"] & names["anonymous"]


def test_the_options_are_in_no_order_that_follows_the_devices(tiny_run: Task) -> None:
    """Sorted by id: a list in the order of the private devices would tell who sent what."""
    _, questions = open_view(tiny_run, "naive")
    assert list(questions.options) == sorted(questions.options)


HIDDEN = {"truth", "answers", "private", "test", "utility", "samples"}
"""What the adversary does not have."""


@pytest.mark.parametrize("graph", [FEDERATION, POINT], ids=["federation", "point"])
@pytest.mark.parametrize("name", ["attack", "analyse", "embed"])
def test_who_attacks_may_open_neither_the_truth_nor_anybodys_data(graph: Graph, name: str) -> None:
    for stage in (stage for stage in graph.stages if stage.name == name):
        assert not HIDDEN & set(stage.inputs)
        assert not stage.data, "the data folder holds every user's examples"
        assert not [path for path in stage.code if "evaluat" in path or "scores" in path]
    assert {output for stage in graph.stages for output in stage.outputs} >= HIDDEN, "a new name hides nothing"


def test_what_depends_on_the_truth_is_never_an_input_of_the_attack() -> None:
    """Of what may be opened, only the server's records and the adversary's own users come from stages that know all."""
    assert set(FEDERATION.stage("attack").inputs) == {
        "prior", "background", "meta", "observed", "public"
    }  # fmt: skip
    assert set(FEDERATION.stage("analyse").inputs) == {*FEDERATION.stage("attack").inputs, "questions", "attack"}


def test_only_who_asks_and_who_judges_reads_the_truth() -> None:
    def readers(name: str) -> set[str]:
        return {stage.name for graph in (FEDERATION, POINT) for stage in graph.stages if name in stage.inputs}

    assert readers("truth") == {"ask", "evaluate", "collect"}
    assert readers("answers") == {"evaluate", "collect"}
    assert readers("collected") == {"point"}


def test_clusters_and_drawings_of_updates_are_computed_where_the_list_says() -> None:
    assert "data/clusters.py" in FEDERATION.stage("federate").code
    assert {"attacks/embed.py", "models"} <= set(FEDERATION.stage("evaluate").code)


def test_the_attack_stage_imports_no_evaluation() -> None:
    code = (
        "import sys, fedprint.kinds.federation.stages.attack, fedprint.kinds.federation.stages.analyse; "
        "print([m for m in sys.modules if m.startswith(('fedprint.evaluation', 'fedprint.reports'))])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_without_truth_and_private_data_the_attack_gives_the_same_scores(tiny: Task, tiny_run: Task) -> None:
    for hidden in (
        tiny.at("truth"),
        tiny.at("answers"),
        tiny.at("utility"),
        tiny.at("private"),
        tiny.at("test"),
        tiny.at("samples"),
        tiny.at("evaluation"),
        tiny.at("attack"),
        tiny.at("analysis"),
    ):
        shutil.rmtree(hidden)
    attack.run(tiny)
    analyse.run(tiny)
    for name in ("scores.npz", "attack.json"):
        assert (tiny.at("attack") / "naive" / name).read_bytes() == (
            tiny_run.at("attack") / "naive" / name
        ).read_bytes()
    assert list(tiny_run.at("analysis").glob("*.npz"))
    for path in tiny_run.at("analysis").iterdir():
        assert (tiny.at("analysis") / path.name).read_bytes() == path.read_bytes()


def test_the_attack_does_use_the_prior_users(tiny: Task, tiny_run: Task, tmp_path: Path) -> None:
    """The counterpart: exchange what the adversary knows, and the answers change."""
    from fedprint.data.prepared import load_users, save_users

    users = load_users(tiny.at("prior"))
    turned = [replace(u, examples=v.examples) for u, v in zip(users, (*users[1:], users[0]), strict=True)]
    save_users(tiny.at("prior"), turned)
    attack.run(tiny)
    with (
        np.load(tiny.at("attack") / "naive" / "scores.npz") as new,
        np.load(tiny_run.at("attack") / "naive" / "scores.npz") as old,
    ):
        assert not np.array_equal(new["update/ridge"], old["update/ridge"])


def test_import_contracts_hold() -> None:
    cli = pytest.importorskip("importlinter.cli")
    assert cli.lint_imports(config_filename=str(CHECKOUT / "pyproject.toml"), no_cache=True) == 0
