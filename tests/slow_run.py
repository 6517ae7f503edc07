"""Records the last run of all slow tests in ``tests/slow-run.yaml``, which is kept in git.

It is written by ``make test-slow`` only: where all slow tests were asked for (``-m slow`` and nothing that narrows it),
and the run was not broken off. With xdist the process that hands out the tests gathers the results.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

FILE = Path("tests") / "slow-run.yaml"
HEADER = "# The last run of all slow tests, written by `make test-slow`. It may take 60 minutes on 2 cores.\n"
SLOWEST = 10


def register(config: pytest.Config) -> None:
    """Watch the run, unless this is one of xdist's workers or a run of other tests."""
    if not hasattr(config, "workerinput") and asks_for_all(config):
        config.pluginmanager.register(SlowRun(config.rootpath), "fedprint-slow-run")


def asks_for_all(config: pytest.Config) -> bool:
    """Return whether the command line asks for all slow tests and for nothing else."""
    option = config.option
    narrowed = ("keyword", "deselect", "ignore", "ignore_glob", "lf", "collectonly", "stepwise", "maxfail")
    whole = config.args_source == pytest.Config.ArgsSource.TESTPATHS
    return whole and option.markexpr == "slow" and not any(getattr(option, name, None) for name in narrowed)


class SlowRun:
    """Gathers outcomes and writes them at the end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.begun = time.monotonic()
        self.commit = commit_of(root)  # of the tests that run, not of what is committed meanwhile
        self.counts: Counter[str] = Counter()
        self.skips: dict[str, str] = {}
        self.failures: list[str] = []
        self.seconds: Counter[str] = Counter()
        self.written = False

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that skips or fails as a whole has no test to tell of it."""
        if report.skipped:
            self.skips[report.nodeid] = reason_of(report)
        elif report.failed:
            self._count("errors", report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test by its call, or by the set-up or tear-down that kept it from passing."""
        self.seconds[report.nodeid] += report.duration
        if hasattr(report, "wasxfail"):
            if report.when == "call":
                self.counts["xfailed" if report.skipped else "xpassed"] += 1
        elif report.skipped:
            self.counts["skipped"] += 1
            self.skips[report.nodeid] = reason_of(report)
        elif report.failed:
            self._count("failed" if report.when == "call" else "errors", report.nodeid)
        elif report.when == "call":
            self.counts["passed"] += 1

    def _count(self, kind: str, name: str) -> None:
        self.counts[kind] += 1
        self.failures.append(name)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the record of a run that came to its end, whether its tests passed or not."""
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if ended and not session.shouldstop and not session.shouldfail:
            text = yaml.safe_dump(self.record(), sort_keys=False, width=120, allow_unicode=True)
            (self.root / FILE).write_text(HEADER + text, encoding="utf-8")
            self.written = True

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say where the record is."""
        if self.written:
            terminalreporter.write_line(f"{FILE} records this run; commit it")

    def record(self) -> dict[str, Any]:
        """Return what is written."""
        kinds = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed")
        return {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "commit": self.commit,
            "minutes": round((time.monotonic() - self.begun) / 60, 1),
            **{kind: self.counts[kind] for kind in kinds if kind in kinds[:4] or self.counts[kind]},
            "failures": sorted(self.failures),
            "skips": dict(sorted(self.skips.items())),
            "slowest_s": {name: round(seconds) for name, seconds in self.seconds.most_common(SLOWEST)},
        }


def reason_of(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Return why a test was skipped, in one line."""
    found = report.longrepr
    text = str(found[2] if isinstance(found, tuple | list) else found)
    return " ".join(text.removeprefix("Skipped: ").split())


def commit_of(root: Path) -> str:
    """Return the commit that is checked out, and whether files differ from it (the record itself aside)."""
    try:
        commit = _git(root, "rev-parse", "--short=12", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", ".", f":!{FILE.as_posix()}")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit} with uncommitted changes" if changed else commit


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
