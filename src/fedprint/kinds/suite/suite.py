"""Suites: several experiments under changed settings, run through the one pipeline and reported together.

A suite is a file in configs/experiments with ``members``. Each member runs in a DVC workspace of its own, named
``<suite>.<member>``, so that a plain run of the same experiment stays what it was, and a repeated suite resumes.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from fedprint.component import Component
from fedprint.kinds.config_files import experiment_file, merge, one_line, read_yaml
from fedprint.kinds.federation.config import Experiment, ReportConfig, check_experiment, resolved_values
from fedprint.kinds.named_files import files_sha256
from fedprint.kinds.workspace import Request, run_experiment, workspace_lock
from fedprint.types import FedprintError


class MemberConfig(Component):
    """One member: an ``experiment``, settings ``with`` which it differs, and entries that ``plus`` adds to its lists.

    ``name`` tells two members of one experiment apart; by default it is the experiment's.
    """

    experiment: str
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    changes: Mapping[str, Any] = Field(default_factory=dict, alias="with")
    plus: Mapping[str, list[Any]] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """The member's folder below reports/<suite>/."""
        return self.name or self.experiment


class SuiteConfig(Component):
    """A suite's file: a title, settings ``with`` which all members differ from their own files, and the members."""

    report: ReportConfig
    changes: Mapping[str, Any] = Field(default_factory=dict, alias="with")
    members: tuple[MemberConfig, ...] = Field(min_length=1)

    @field_validator("members")
    @classmethod
    def _members_have_their_own_names(cls, members: tuple[MemberConfig, ...]) -> tuple[MemberConfig, ...]:
        labels = [member.label for member in members]
        if len(set(labels)) < len(labels):
            raise ValueError(f"names must differ, got {labels}; give the second one a name")
        return members


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member ready to run: ``settings`` are its merged file, ``words`` what the resolve stage gets besides."""

    suite: str
    label: str
    experiment: str
    settings: Mapping[str, Any]
    words: tuple[str, ...]
    config: Experiment

    def request(self, data_dir: Path | None) -> Request:
        """Return what to run. Raises FedprintError when the data are missing."""
        return Request(
            experiment=self.config.name,
            priors=list(self.config.split.priors),
            seeds=list(self.config.seeds),
            dataset_sha256=self.config.data.fingerprint(data_dir),
            files_sha256=files_sha256(self.config),
            arguments=self.words,
            shareable=self.config.data.name == "albums",
            settings=self.settings,
            report=f"{self.suite}/{self.label}",
        )


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite with all its members resolved; ``fast`` is set when they use their ``fast`` sections."""

    name: str
    title: str
    members: tuple[Member, ...]
    fast: bool


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a member ended: its published report, or the reason why there is none."""

    member: Member
    seconds: float
    report: Path | None = None
    error: FedprintError | None = None


class SuiteFailed(FedprintError):
    """Some members failed; the others' reports and the suite's are written."""

    exit_code = 1


def load_suite(root: Path, name: str, *, fast: bool = False, assignments: Sequence[str] = ()) -> Suite:
    """Read a suite and resolve every member.

    ``assignments`` change all members, or one: ``mnist-writers.federation.rounds=20``. Raises FedprintError (one line)
    for an unknown member, a member that is itself a suite, or settings that a member does not have.
    """
    path = experiment_file(root, name)
    config = _checked(read_yaml(path), str(path))
    labels = [member.label for member in config.members]
    members = [
        _resolve(root, name, config, member, (fast, _assignments_of(member.label, labels, assignments)))
        for member in config.members
    ]
    return Suite(name=name, title=config.report.title, members=tuple(members), fast=fast)


def run_members(root: Path, suite: Suite, data_dir: Path | None, jobs: int = 1) -> list[Outcome]:
    """Run the members, ``jobs`` at a time; one that fails does not stop the others.

    One at a time shows everything live; several write to work/logs/<suite>.<member>.log, and lines tell how far they
    are. Results do not depend on ``jobs``.
    """
    started = time.monotonic()
    if jobs == 1:
        outcomes = []
        for position, member in enumerate(suite.members):
            _say(progress_line(position, len(suite.members), member.label, time.monotonic() - started))
            outcomes.append(_report_failure(_run(root, member, data_dir)))
    else:
        outcomes = _run_several(root, suite, data_dir, jobs)
    _say(f"{suite.name}: {len(suite.members)} members in {minutes(time.monotonic() - started)}")
    return outcomes


def _run_several(root: Path, suite: Suite, data_dir: Path | None, jobs: int) -> list[Outcome]:
    started = time.monotonic()
    logs = {member.label: root / "work" / "logs" / f"{suite.name}.{member.label}.log" for member in suite.members}
    for log in logs.values():
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
    print(f"{jobs} members at a time; follow one with: tail -f {logs[suite.members[0].label]}", flush=True)
    with ThreadPoolExecutor(jobs) as pool:
        pending = {pool.submit(_run, root, member, data_dir, logs[member.label]): member for member in suite.members}
        finished: dict[str, Outcome] = {}
        while pending:
            done, _ = wait(pending, timeout=15.0, return_when=FIRST_COMPLETED)
            for future in done:
                member = pending.pop(future)
                finished[member.label] = _report_failure(future.result())
                _say(f"{member.label} done in {minutes(finished[member.label].seconds)}")
            elapsed = time.monotonic() - started
            running = [
                f"{label} {stage}" for label, log in logs.items() if label not in finished and (stage := _stage(log))
            ]
            done_so_far = f"{len(finished)} of {len(suite.members)} members, {minutes(elapsed)} elapsed"
            print(f"{suite.name}: {done_so_far}; running {', '.join(running) or '-'}", flush=True)
    return [finished[member.label] for member in suite.members]


def _stage(log: Path) -> str:
    """Return the stage that a member's log is at, and its last line of progress; empty before it began."""
    if not log.exists():
        return ""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    stage = next((line.split("'")[1] for line in reversed(lines) if line.startswith("Running stage '")), "starting")
    return f"{stage} ({lines[-1][:60]})" if lines else stage


def _report_failure(outcome: Outcome) -> Outcome:
    if outcome.error is not None:
        print(f"error: {outcome.error}", file=sys.stderr, flush=True)
    return outcome


def run_suite(root: Path, suite: Suite, data_dir: Path | None, jobs: int = 1) -> list[Outcome]:
    """Run all members, write and log the suite's report on those that have one, and return how each ended."""
    with workspace_lock(root, suite.name):
        outcomes = run_members(root, suite, data_dir, jobs)
        if any(outcome.report for outcome in outcomes):
            publish_suite(root, suite, outcomes)
    return outcomes


def publish_suite(root: Path, suite: Suite, outcomes: Sequence[Outcome]) -> Path:
    """Write ``<root>/reports/<suite>/`` beside its members' folders, log it to MLflow, and return it."""
    from fedprint.reports.suite import MemberReport, write_suite

    members = [
        MemberReport(name=outcome.member.label, experiment=outcome.member.experiment, folder=outcome.report)
        for outcome in outcomes
        if outcome.report
    ]
    failures = {outcome.member.label: str(outcome.error) for outcome in outcomes if outcome.error}
    made = root / "work" / "suites" / suite.name
    write_suite(suite=suite.name, title=suite.title, fast=suite.fast, members=members, failures=failures, out=made)
    _log(root, suite, made)
    folder = root / "reports" / suite.name
    for path in made.iterdir():
        _replace(path, folder / path.name)
    return folder


def raise_failures(suite: Suite, outcomes: Sequence[Outcome]) -> None:
    """Raise SuiteFailed when a member failed."""
    failed = [outcome.member.label for outcome in outcomes if outcome.error is not None]
    if failed:
        raise SuiteFailed(
            f"{len(failed)} of {len(outcomes)} members of '{suite.name}' failed, reasons are above: "
            f"{', '.join(failed)}; mend them and repeat the command (finished stages are kept)"
        )


def progress_line(position: int, members: int, label: str, elapsed: float) -> str:
    """Say which member comes, what has passed, and what is left if the others take as long on average."""
    left = f"about {minutes(elapsed / position * (members - position))} left" if position else "time left unknown"
    return f"member {position + 1} of {members}: {label}  ({minutes(elapsed)} elapsed, {left})"


def minutes(seconds: float) -> str:
    """Return ``12 s`` or ``3.4 min``."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def _run(root: Path, member: Member, data_dir: Path | None, log: Path | None = None) -> Outcome:
    started = time.monotonic()
    try:
        report = run_experiment(root, member.request(data_dir), log=log)
    except FedprintError as error:
        return Outcome(member=member, seconds=time.monotonic() - started, error=error)
    return Outcome(member=member, seconds=time.monotonic() - started, report=report)


def _resolve(root: Path, suite: str, config: SuiteConfig, member: MemberConfig, line: tuple[bool, list[str]]) -> Member:
    fast, assignments = line
    own = read_yaml(experiment_file(root, member.experiment))
    if "members" in own:
        raise FedprintError(f"{suite}: member '{member.label}' is itself a suite; list its members instead")
    settings = _extended(root, merge(merge(own, config.changes), member.changes), member)
    values = resolved_values(root, settings, fast, assignments)
    name = f"{suite}.{member.label}"
    words = [*(["--fast"] if fast else []), *(word for text in assignments for word in ("--set", text))]
    return Member(
        suite=suite,
        label=member.label,
        experiment=member.experiment,
        settings=settings,
        words=tuple(words),
        config=check_experiment({**values, "name": name, "fast": fast}, f"{suite}: member {member.label}"),
    )


def _extended(root: Path, settings: Mapping[str, Any], member: MemberConfig) -> dict[str, Any]:
    """Return the settings with the entries of ``plus`` appended to their lists, or to those of the defaults.

    A list that the ``fast`` section has in place of another gets them too.
    """
    base = merge(read_yaml(root / "configs" / "defaults.yaml"), settings) if member.plus else {}
    found = {**settings, **{key: [*(base.get(key) or []), *more] for key, more in member.plus.items()}}
    fast = settings.get("fast") or {}
    replaced = {key: [*(fast[key] or []), *more] for key, more in member.plus.items() if key in fast}
    return {**found, "fast": {**fast, **replaced}} if replaced else found


def _assignments_of(label: str, labels: Sequence[str], assignments: Sequence[str]) -> list[str]:
    """Return the assignments that concern a member, without its name in front."""
    found = []
    for text in assignments:
        head, _, rest = text.partition(".")
        if head not in labels:
            found.append(text)
        elif head == label:
            found.append(rest)
    return found


def _checked(values: Mapping[str, Any], origin: str) -> SuiteConfig:
    try:
        return SuiteConfig.model_validate(values)
    except ValidationError as error:
        raise FedprintError(one_line(error, origin, SuiteConfig)) from None


def _log(root: Path, suite: Suite, folder: Path) -> None:
    """Log the suite's report as a run of its own; the members log theirs."""
    from fedprint.tracking.runs import log_report

    digests = {f"config_hash.{member.label}": member.config.digest() for member in suite.members}
    key = {"experiment": suite.name, **digests}
    log_report(root, suite.name, key, folder, params={**digests, "fast": suite.fast})


def _replace(source: Path, target: Path) -> None:
    """Replace a file or folder by a copy; readers of the page see the old one or the new one."""
    incoming = target.with_name(f".{target.name}.new")
    shutil.rmtree(incoming, ignore_errors=True)
    if source.is_dir():
        shutil.copytree(source, incoming)
        shutil.rmtree(target, ignore_errors=True)
    else:
        shutil.copyfile(source, incoming)
    incoming.replace(target)


def _say(line: str) -> None:
    print(f"\n── {line} ──", flush=True)
