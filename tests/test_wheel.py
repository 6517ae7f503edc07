"""What an installed wheel can do outside of any clone: audit, record, the Python API, and a project of one's own."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tiny_project import CHECKOUT

pytestmark = pytest.mark.slow

RECORD = """
import sys
import fedprint.record
heavy = {name.partition('.')[0] for name in sys.modules} & {'torch', 'pandas', 'pydantic', 'scipy', 'yaml', 'lightning'}
assert not heavy, heavy
assert '@SITE@' in fedprint.__file__, fedprint.__file__
import numpy as np
rng = np.random.default_rng(0)
own = rng.normal(size=(8, 60))
with fedprint.record.Recorder('recorded', title='From a wheel') as recorder:
    for turn in range(10):
        for user in range(8):
            for half in 'ab':
                update = {'w': 0.5 * own[user] + rng.normal(size=60)}
                known = f'person {user}' if half == 'a' else None
                recorder.record(turn, f'{half}{user}', update, num_examples=10 + user, user=known)
    recorder.write_truth({f'b{user}': f'person {user}' for user in range(8)})
"""


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without this checkout on Python's path."""
    hidden = ("PYTHONPATH", "FEDPRINT_ROOT", "FEDPRINT_DATA")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def checked(*command: str | Path, cwd: Path) -> str:
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment in which the wheel is installed; what it needs is this environment's."""
    if importlib.util.find_spec("pip") is None or importlib.util.find_spec("setuptools") is None:
        pytest.skip("no pip or setuptools to build a wheel with: pip install pip 'setuptools>=77'")
    base = tmp_path_factory.mktemp("wheel")
    source = base / "source"
    for part in ("src", "configs"):
        shutil.copytree(
            CHECKOUT / part, source / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for part in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / part, source / part)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    checked(*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", base, source, cwd=base)
    checked(sys.executable, "-m", "venv", "--without-pip", base / "env", cwd=base)
    interpreter = base / "env" / "bin" / "python"
    wheel = next(base.glob("fedprint-*.whl"))
    checked(*pip, "--python", interpreter, "install", "--no-deps", "--no-index", wheel, cwd=base)
    site = next((base / "env" / "lib").glob("python*/site-packages"))
    (site / "of_the_tests.pth").write_text(sysconfig.get_paths()["purelib"], encoding="utf-8")
    return interpreter


def test_it_records_and_audits_a_folder(python: Path, tmp_path: Path) -> None:
    fedprint = python.with_name("fedprint")
    checked(python, "-c", RECORD.replace("@SITE@", str(python.parents[1])), cwd=tmp_path)
    found = json.loads(checked(fedprint, "audit", "recorded", "--json", "--attacks", "ridge,count", cwd=tmp_path))
    assert found["ap"] > 2 * found["chance"], found
    assert (tmp_path / "recorded-audit" / "index.html").is_file()
    code = "import fedprint; print(fedprint.audit('recorded', attacks=['ridge']).ap)"
    assert float(checked(python, "-c", code, cwd=tmp_path).splitlines()[-1]) > 2 * found["chance"]
    gate = run(fedprint, "audit", "recorded", "--attacks", "ridge", "--fail-above", "ap_over_chance=1.1", cwd=tmp_path)
    assert gate.returncode == 3


def test_it_makes_a_project_in_which_shipped_experiments_are_known(python: Path, tmp_path: Path) -> None:
    fedprint = python.with_name("fedprint")
    outside = run(fedprint, "run", "quickstart", cwd=tmp_path)
    assert outside.returncode == 2 and "fedprint init DIR" in outside.stderr
    checked(fedprint, "init", "mine", cwd=tmp_path)
    assert "quickstart" in checked(fedprint, "config", "quickstart", cwd=tmp_path / "mine")
    assert run(fedprint, "init", "mine", cwd=tmp_path).returncode == 2


def test_it_runs_a_shipped_experiment_there(python: Path, tmp_path: Path) -> None:
    fedprint = python.with_name("fedprint")
    checked(fedprint, "init", "mine", cwd=tmp_path)
    small = ("--set", "data.users=8", "--set", "federation.rounds=8", "--set", "evaluation.resamples=200")
    checked(fedprint, "run", "quickstart", "--fast", "--name", "small", *small, cwd=tmp_path / "mine")
    assert (tmp_path / "mine" / "reports" / "small" / "index.html").is_file()
