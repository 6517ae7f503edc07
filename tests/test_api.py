"""The Python API: ``import fedprint`` is light, attacks on arrays find planted users, the notebook and the docs run."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_project import CHECKOUT, TINY

import fedprint
from fedprint.errors import FedprintError

USERS, EACH, WIDTH = 8, 6, 120


def arrays(signal: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(USERS), EACH)
    own = signal * rng.normal(size=(USERS, WIDTH))
    known, asked = (own[who] + rng.normal(size=(len(who), WIDTH)) for _ in range(2))
    return known, who, asked


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def test_importing_fedprint_and_its_recorder_is_light(tmp_path: Path) -> None:
    code = (
        "import sys, fedprint\n"
        "assert 'numpy' not in sys.modules\n"
        "import fedprint.record\n"
        "roots = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(roots & set('torch pandas pydantic yaml scipy'.split())))"
    )
    done = python("-c", code, cwd=tmp_path)
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_every_name_of_the_api_is_there() -> None:
    assert set(fedprint.__all__) <= set(dir(fedprint))
    parts = [getattr(fedprint, name) for name in fedprint.__all__]
    assert all(callable(part) or inspect.ismodule(part) for part in parts)
    with pytest.raises(AttributeError, match=r"no attribute 'adit'; it has .*audit"):
        fedprint.adit  # noqa: B018


@pytest.mark.parametrize("name", ["ridge", "knn", "svm"])
def test_an_attack_on_arrays_finds_planted_users(name: str) -> None:
    known, who, asked = arrays(1.0)
    names = np.array([f"person {user}" for user in who])
    scores = fedprint.attack(known, names, asked, name=name)
    assert scores.shape == (len(asked), USERS)
    assert (scores.argmax(1) == who).mean() > 0.9
    assert np.array_equal(scores, fedprint.attack(known, names, asked, name=name))


def test_it_finds_nobody_where_there_is_nothing_to_find() -> None:
    known, who, asked = arrays(0.0)
    assert (fedprint.attack(known, who, asked).argmax(1) == who).mean() < 0.4


def test_a_user_with_one_update_is_an_option_too() -> None:
    known, who, asked = arrays(1.0)
    kept = np.r_[0, EACH : len(who)]
    scores = fedprint.attack(known[kept], who[kept], asked)
    assert scores.shape == (len(asked), USERS) and (scores.argmax(1) == who)[EACH:].mean() > 0.8


def test_layers_are_named_by_their_sizes() -> None:
    known, who, asked = arrays(1.0)
    scores = fedprint.attack(known, who, asked, layers={"body": 100, "head": 20}, most_blocks=1)
    assert (scores.argmax(1) == who).mean() > 0.8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"labels": [0, 1]}, "one user for each of the 48 updates"),
        ({"queries": np.zeros((2, 3))}, "120 columns, queries 3"),
        ({"queries": np.zeros(3)}, r"one row for each update"),
        ({"updates": np.full((48, 120), np.nan)}, "row 0 holds a number that is not finite"),
        ({"labels": np.zeros(48)}, "nobody to tell apart"),
        ({"labels": np.arange(48)}, "no settings can be chosen"),
        ({"name": "rigde"}, "attack 'rigde'"),
        ({"k": 3}, "attack 'ridge': k: Extra inputs"),
        ({"layers": {"head": 3}}, "add up to 3"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, object], said: str) -> None:
    known, who, asked = arrays(1.0)
    given = {"updates": known, "labels": who, "queries": asked, **change}
    with pytest.raises(FedprintError, match=said):
        fedprint.attack(**given)


def test_there_is_no_report_and_no_model_in_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(FedprintError, match="holds no report"):
        fedprint.load_report(tmp_path)
    with pytest.raises(FedprintError, match=r"holds no model\.json"):
        fedprint.load_model(tmp_path)


def test_the_notebook_runs_and_noise_lowers_the_ap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = CHECKOUT / "examples" / "audit_notebook.py"
    lines = notebook.read_text(encoding="utf-8").splitlines()
    assert sum(1 for line in lines if line.strip() and not line.startswith("#")) <= 20
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = python(str(notebook), cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr
    clean, noisy = (int(ap) for ap in re.findall(r"AP (\d+)%", done.stdout))
    assert clean > 80 > 50 > noisy, done.stdout


def test_the_code_of_its_page_runs(tmp_path: Path) -> None:
    page = (CHECKOUT / "docs" / "python-api.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    done = python("-c", code, cwd=tmp_path)
    assert done.returncode == 0 and float(done.stdout) > 0.8, done.stdout + done.stderr


@pytest.mark.slow
def test_it_runs_an_experiment_in_a_folder_that_it_makes(tmp_path: Path) -> None:
    work = tmp_path / "work here"
    values = {**TINY, "attacks": [{"name": "chance"}], "analyses": []}
    report = fedprint.run(values, folder=work, name="mine", jobs=1)
    assert report.page.is_file() and report.summary["experiment"] == "mine"
    assert {"metric", "value", "lo", "hi", "chance"} <= set(report.measurements)
    assert fedprint.load_report(report.folder) == report
    with pytest.raises(FedprintError, match="need a name"):
        fedprint.run(values, folder=work)
