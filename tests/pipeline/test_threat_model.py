"""The attack cannot see the truth: by its types, by its dependencies, and by running without it."""

from __future__ import annotations

import ast
import dataclasses
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from tiny_project import CHECKOUT

from fedprint.attacks.view import AttackerView
from fedprint.kinds.federation.stages import analyse, attack
from fedprint.kinds.federation.stages.paths import Job
from fedprint.types import Observation, Questions


def test_the_view_has_these_fields_and_none_for_the_truth() -> None:
    """A new field has to be defended here."""
    assert {field.name for field in dataclasses.fields(AttackerView)} == {
        "store", "prior_users", "background", "model", "training", "rule", "chronological", "by_album", "defences",
        "seed", "labels",
    }  # fmt: skip


def test_questions_hold_no_answers() -> None:
    assert {field.name for field in dataclasses.fields(Questions)} == {"kind", "linkage", "subjects", "options"}


def test_observations_name_the_user_of_prior_devices_only(tiny_run: Job) -> None:
    view, _ = attack.open_view(tiny_run, "naive")
    index = view.store.index
    assert index["user_id"][index["role"] == "anonymous"].isna().all()
    assert index["user_id"][index["role"] == "prior"].notna().all()
    assert {field.name for field in dataclasses.fields(Observation)} == {
        "obs_id", "round", "role", "num_examples", "pseudonym", "user_id", "update",
    }  # fmt: skip


def test_prior_and_anonymous_device_of_a_user_have_unrelated_pseudonyms(tiny_run: Job) -> None:
    index = attack.open_view(tiny_run, "naive")[0].store.index
    names = {role: set(index["pseudonym"][index["role"] == role]) for role in ("prior", "anonymous")}
    assert not names["prior"] & names["anonymous"]


def test_the_options_are_in_no_order_that_follows_the_devices(tiny_run: Job) -> None:
    """Sorted by id: a list in the order of the private devices would tell who sent what."""
    _, questions = attack.open_view(tiny_run, "naive")
    assert list(questions.options) == sorted(questions.options)


def test_the_attack_stage_depends_on_no_code_that_reads_the_truth() -> None:
    stages = yaml.safe_load((CHECKOUT / "dvc.yaml").read_text())["stages"]
    deps = [*stages["attack"]["deps"], *stages["analyse"]["deps"]]
    forbidden = ("truth", "answers", "private", "/test", "/utility", "evaluation", "evaluate")
    assert [path for path in deps if any(word in path for word in forbidden)] == []


READERS = {"dataset", "files", "locate", "prepared", "table", "text_columns"}
"""Modules of fedprint.data that compute nothing: constants, places, and readers of files."""


@pytest.mark.parametrize("stage", ["prepare", "federate", "ask", "attack", "analyse", "evaluate"])
def test_a_stage_depends_on_the_data_code_that_it_computes_with(stage: str) -> None:
    deps = yaml.safe_load((CHECKOUT / "dvc.yaml").read_text())["stages"][stage]["deps"]
    places = [CHECKOUT / dep for dep in deps if dep.startswith("src/")]
    files = {file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place])}
    data = CHECKOUT / "src" / "fedprint" / "data"
    # query reads a file with all that a source reads one with: of that, what makes examples is in the lists.
    used = {module for file in files - {data / "query.py"} for module in _data_modules(file)}
    assert {module for module in used - READERS if data / f"{module}.py" not in files} == set()


def _data_modules(file: Path) -> set[str]:
    """Return the modules of fedprint.data that a file imports more than types of."""
    found = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    return {
        node.module.removeprefix("fedprint.data.")
        for node in found
        if node.module and node.module.startswith("fedprint.data.") and {a.name for a in node.names} - {"Prior"}
    }


def test_clusters_and_drawings_of_updates_are_computed_where_the_list_says() -> None:
    stages = yaml.safe_load((CHECKOUT / "dvc.yaml").read_text())["stages"]
    assert "src/fedprint/data/clusters.py" in stages["federate"]["deps"]
    assert {"src/fedprint/attacks/embed.py", "src/fedprint/models"} <= set(stages["evaluate"]["deps"])


def test_the_attack_stage_imports_no_evaluation() -> None:
    code = (
        "import sys, fedprint.kinds.federation.stages.attack, fedprint.kinds.federation.stages.analyse; "
        "print([m for m in sys.modules if m.startswith(('fedprint.evaluation', 'fedprint.reports'))])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_without_truth_and_private_data_the_attack_gives_the_same_scores(tiny: Job, tiny_run: Job) -> None:
    for hidden in (
        tiny.paths.updates / "truth",
        tiny.paths.updates / "answers",
        tiny.paths.updates / "utility",
        tiny.paths.prepared / "private",
        tiny.paths.prepared / "test",
        tiny.paths.prepared / "samples",
        tiny.paths.evaluation,
        tiny.paths.attack,
        tiny.paths.analysis,
    ):
        shutil.rmtree(hidden)
    attack.run(tiny)
    analyse.run(tiny)
    for name in ("scores.npz", "attack.json"):
        assert (tiny.paths.attack_of("naive") / name).read_bytes() == (
            tiny_run.paths.attack_of("naive") / name
        ).read_bytes()
    assert list(tiny_run.paths.analysis.glob("*.npz"))
    for path in tiny_run.paths.analysis.iterdir():
        assert (tiny.paths.analysis / path.name).read_bytes() == path.read_bytes()


def test_the_attack_does_use_the_prior_users(tiny: Job, tiny_run: Job, tmp_path: Path) -> None:
    """The counterpart: exchange what the adversary knows, and the answers change."""
    from fedprint.data.prepared import load_users, save_users

    users = load_users(tiny.paths.prepared / "prior")
    turned = [replace(u, examples=v.examples) for u, v in zip(users, (*users[1:], users[0]), strict=True)]
    save_users(tiny.paths.prepared / "prior", turned)
    attack.run(tiny)
    with (
        np.load(tiny.paths.attack_of("naive") / "scores.npz") as new,
        np.load(tiny_run.paths.attack_of("naive") / "scores.npz") as old,
    ):
        assert not np.array_equal(new["update/ridge"], old["update/ridge"])


def test_import_contracts_hold() -> None:
    cli = pytest.importorskip("importlinter.cli")
    assert cli.lint_imports(config_filename=str(CHECKOUT / "pyproject.toml"), no_cache=True) == 0
