"""The recorder of the slow suite, on small suites of its own, in processes of their own."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import slow_run
import yaml

pytest_plugins = "pytester"
HERE = Path(__file__).parent
SUITE = """
    import pytest

    def test_quick(): assert False, "not asked for"

    @pytest.mark.slow
    @pytest.mark.parametrize("n", range(3))
    def test_that_passes(n): pass

    @pytest.mark.slow
    def test_without_a_browser(): pytest.skip("no\\n  browser")

    @pytest.mark.slow
    @pytest.mark.skipif(True, reason="needs a GPU")
    def test_on_a_gpu(): pass

    @pytest.mark.slow
    @pytest.mark.xfail(strict=True)
    def test_known_to_fail(): assert False
"""
BROKEN = """
    import pytest

    @pytest.fixture
    def broken(): raise OSError("no disk")

    @pytest.fixture
    def left_behind():
        yield
        raise OSError("still there")

    @pytest.mark.slow
    def test_that_fails(): assert False

    @pytest.mark.slow
    def test_without_its_fixture(broken): pass

    @pytest.mark.slow
    def test_that_leaves_something(left_behind): pass
"""
SKIPPED = 'import pytest; pytest.skip("no package", allow_module_level=True)'


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """Return a project with a slow suite that passes."""
    pytester.makeini(
        "[pytest]\ntestpaths = tests\nmarkers = slow\naddopts = -p no:cacheprovider -p no:unraisableexception"
    )
    (pytester.path / "tests").mkdir()
    add(pytester, "conftest", f"import sys; sys.path.insert(0, {str(HERE)!r})\nfrom slow_run import register\n"
        "def pytest_configure(config): register(config)")  # fmt: skip
    add(pytester, "test_of_the_recorder", SUITE)
    (pytester.path / ".gitignore").write_text("__pycache__/\nrunpytest*/\n")
    git(pytester.path, "init", "-q")
    git(pytester.path, "add", ".")
    git(pytester.path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    return pytester


def add(project: pytest.Pytester, name: str, text: str) -> None:
    made = project.makepyfile(**{name: text})
    made.rename(project.path / "tests" / f"{name}.py")


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def recorded(project: pytest.Pytester) -> dict[str, Any] | None:
    file = project.path / slow_run.FILE
    return yaml.safe_load(file.read_text()) if file.exists() else None


def test_a_run_of_all_slow_tests_is_recorded(suite: pytest.Pytester) -> None:
    suite.runpytest_inprocess("-q", "-m", "slow")
    found = recorded(suite)
    assert found is not None
    counts = {name: found[name] for name in ("passed", "failed", "errors", "skipped", "xfailed")}
    assert counts == {"passed": 3, "failed": 0, "errors": 0, "skipped": 2, "xfailed": 1}
    assert found["skips"] == {
        "tests/test_of_the_recorder.py::test_on_a_gpu": "needs a GPU",
        "tests/test_of_the_recorder.py::test_without_a_browser": "no browser",
    }
    assert found["failures"] == [] and "xpassed" not in found
    assert found["commit"] == git(suite.path, "rev-parse", "--short=12", "HEAD")
    assert found["date"].endswith(" UTC") and 0 <= found["minutes"] < 5
    assert "tests/test_of_the_recorder.py::test_that_passes[1]" in found["slowest_s"]


@pytest.mark.parametrize("processes", ["", "2"])
def test_failures_of_every_kind_and_skipped_files_are_named(
    suite: pytest.Pytester, processes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(suite, "test_broken", BROKEN)
    add(suite, "test_skipped", SKIPPED)
    if processes:
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # quicker
        suite.runpytest_subprocess("-q", "-m", "slow", "-p", "xdist", "-n", processes)
    else:
        suite.runpytest_inprocess("-q", "-m", "slow")
    found = recorded(suite)
    assert found is not None
    assert (found["passed"], found["failed"], found["errors"]) == (4, 1, 2)
    assert found["failures"] == [
        f"tests/test_broken.py::{name}"
        for name in ("test_that_fails", "test_that_leaves_something", "test_without_its_fixture")
    ]
    assert found["skips"]["tests/test_skipped.py"] == "no package"
    assert found["commit"].endswith(" with uncommitted changes")


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        ("-m slow", True),
        ("-q -n 2 -m slow --durations=5", True),
        ("", False),
        ("-m 'not slow'", False),
        ("-m slow tests", False),
        ("-m slow tests/test_of_the_recorder.py", False),
        ("-m slow -k passes", False),
        ("-m slow --deselect tests/test_of_the_recorder.py::test_on_a_gpu", False),
        ("-m slow --ignore tests/test_of_the_recorder.py", False),
        ("-m slow --collect-only", False),
        ("-m slow -x", False),
    ],
)
def test_only_a_run_of_everything_is_watched(suite: pytest.Pytester, arguments: str, whole: bool) -> None:
    config = suite.parseconfigure(*shlex.split(arguments))
    assert config.pluginmanager.has_plugin("fedprint-slow-run") == whole == slow_run.asks_for_all(config)


def test_a_run_that_is_broken_off_is_not_recorded(suite: pytest.Pytester) -> None:
    add(suite, "test_interrupted", "import pytest\n@pytest.mark.slow\ndef test_it(): raise KeyboardInterrupt")
    suite.runpytest_inprocess("-q", "-m", "slow", no_reraise_ctrlc=True)
    assert recorded(suite) is None


def test_the_command_of_the_makefile_is_watched(suite: pytest.Pytester) -> None:
    recipe = (HERE.parent / "Makefile").read_text(encoding="utf-8").split("test-slow:")[1].splitlines()[1]
    program, *arguments = shlex.split(recipe)
    assert program == "pytest"
    assert slow_run.asks_for_all(suite.parseconfigure(*arguments))
    assert 'testpaths = ["tests"]' in (HERE.parent / "pyproject.toml").read_text(encoding="utf-8")


def test_the_record_that_is_kept_is_complete() -> None:
    if (file := HERE.parent / slow_run.FILE).exists():  # before the first run there is none
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert {"date", "commit", "minutes", "passed", "failed", "errors", "skipped", "skips"} <= set(found)


def test_without_git_the_commit_is_unknown(tmp_path: Path) -> None:
    assert slow_run.commit_of(tmp_path) == "unknown"
