"""A reader types what the docs say, from a fresh clone to an audit of updates made by a program that is not ours."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doc_blocks import blocks_below, clone, follow
from tiny_project import CHECKOUT

DOCS = CHECKOUT / "docs"


def environment(folder: Path) -> dict[str, str]:
    """Return variables under which the clone in ``folder`` is what Python finds, with this environment's packages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FEDPRINT_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**kept, "PATH": path, "PYTHONPATH": str(folder / "src")}


def test_the_foreign_program_imports_nothing_of_ours() -> None:
    code = (CHECKOUT / "examples" / "foreign_federation.py").read_text(encoding="utf-8")
    roots = set(re.findall(r"^(?:import|from) (\w+)", code, re.M))
    assert roots - {"__future__"} <= {"csv", "sys", "pathlib", "numpy"}


@pytest.mark.slow
def test_the_commands_of_the_docs_lead_from_a_clone_to_a_verdict_and_a_gate(tmp_path: Path) -> None:
    folder = clone(tmp_path / "clone")
    blocks = [block for block in blocks_below(DOCS / "auditing.md", "From a clone to a verdict") if not block.reason]
    assert [block.exits for block in blocks] == [0, 3]
    said, *_ = follow(blocks, folder, environment(folder))
    assert "the risk is high" in said
    found = json.loads((folder / "verdict" / "audit.json").read_text())
    assert found["risk"] == "high" and found["ap_lo"] > 2 * found["chance"], found["verdict"]
    assert (folder / "verdict" / "index.html").is_file() and (folder / "gate" / "audit.json").is_file()


@pytest.mark.slow
def test_the_commands_of_the_docs_lead_from_a_flower_simulation_to_a_verdict_and_a_gate(tmp_path: Path) -> None:
    """Runs ``make flower`` too, which needs a package index; without one the test is skipped."""
    folder = clone(tmp_path / "clone")
    env = {**environment(folder), "FLWR_TELEMETRY_ENABLED": "0", "RAY_worker_niceness": "0"}
    made = subprocess.run(["make", "flower"], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"Flower cannot be installed: {(made.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    blocks = [block for block in blocks_below(DOCS / "flower.md", "The whole example") if not block.reason]
    assert [block.exits for block in blocks] == [0, 3]
    follow(blocks, folder, env)
    plain, protected = (
        json.loads((folder / name / "audit.json").read_text()) for name in ("verdict", "verdict-protected")
    )
    assert plain["ap_lo"] > plain["chance"], plain["verdict"]
    assert protected["ap"] < plain["ap_lo"], (protected["ap"], plain["ap_lo"])
    shutil.rmtree(folder / ".venv-flower")  # gigabytes
