"""The house keeps its promise: a new attack and a new defence are one file each, and a name in the registry."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_project import CHECKOUT, TINY, make_project

ADDED = {
    "new_defence.py": ("defences/rounding.py", "Rounding", "Defence = Annotated["),
    "new_attack.py": ("attacks/reidentification/centroid.py", "Centroid", "Attack = Annotated["),
}


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package in which both examples are installed as they say."""
    source = tmp_path_factory.mktemp("extended") / "src"
    shutil.copytree(CHECKOUT / "src" / "fedprint", source / "fedprint", ignore=shutil.ignore_patterns("__pycache__"))
    registry = source / "fedprint" / "kinds" / "components.py"
    text = registry.read_text(encoding="utf-8")
    for example, (where, name, union) in ADDED.items():
        shutil.copy(CHECKOUT / "examples" / example, source / "fedprint" / where)
        module = "fedprint." + where.removesuffix(".py").replace("/", ".")
        head, found, tail = text.partition(union)
        assert found, f"{registry} has no {union}"
        text = f"{head}from {module} import {name}\n\n{union}\n    {name} | {tail.lstrip()}"
    registry.write_text(text, encoding="utf-8")
    return source


@pytest.mark.parametrize("example", ADDED)
def test_an_example_is_one_file_of_sixty_lines_at_most(example: str) -> None:
    assert len((CHECKOUT / "examples" / example).read_text(encoding="utf-8").splitlines()) <= 60


@pytest.mark.slow
def test_a_run_uses_the_new_attack_and_the_new_defence(extended: Path, tmp_path: Path) -> None:
    attacks = [{"name": "chance"}, {"name": "centroid"}]
    values = {**TINY, "defences": [{"name": "rounding", "step": 0.001}], "attacks": attacks, "analyses": []}
    make_project(tmp_path).write("tiny", values)
    command = [sys.executable, "-m", "fedprint", "run", "tiny"]
    environment = {**os.environ, "PYTHONPATH": str(extended), "FEDPRINT_ROOT": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "reports" / "tiny" / "measurements.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["linkage"] == "update" and row["metric"] == "ap"]
    aps = {row["attack"]: row["value"] for row in rows if row["attack"] in ("chance", "centroid")}
    assert {row["defence"] for row in rows} == {"rounding"}
    assert aps["centroid"] > 1.5 * aps["chance"], aps
