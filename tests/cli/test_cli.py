"""The command line, in this process."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tiny_project import CHECKOUT, TINY, Project
from typer.main import get_command

from fedprint.cli.main import app, main
from fedprint.cli.results.open import open_report
from fedprint.errors import FedprintError
from fedprint.lab.cache import Cache


def _fedprint(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run the command and return its exit code."""
    monkeypatch.setattr("sys.argv", ["fedprint", *words])
    monkeypatch.setenv("COLUMNS", "160")
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def _files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_dry_run_estimates_and_writes_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tiny", TINY)
    before = _files(project.root)
    assert _fedprint(monkeypatch, "run", "tiny", "--dry-run") == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("nothing written", "jobs", "time, federations", "disk", "memory", "MiB"))
    assert "64 of " in shown, "8 rounds of half of 16 devices"
    assert _files(project.root) == before


def test_config_prints_the_resolved_settings_and_their_hash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDPRINT_ROOT", str(CHECKOUT))
    hashes = []
    for assignment in ("federation.rounds=20", "federation.rounds=21"):
        assert _fedprint(monkeypatch, "config", "quickstart", "--set", assignment) == 0
        shown = capsys.readouterr().out
        assert assignment.split("=")[1] in shown
        hashes.append(shown.splitlines()[-1])
    assert hashes[0].startswith("# config hash ")
    assert hashes[0] != hashes[1]


def test_the_version_is_the_package_s(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _fedprint(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"fedprint {version('fedprint')}\n"


COMMANDS = (
    "run", "tune", "config", "summary", "compare", "attack", "reconstruct", "budget", "audit", "audit-dp",
    "pull", "clean", "data list", "data describe", "data validate", "data fetch", "data add",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_of_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert _fedprint(monkeypatch, *command.split(), "--help") == 0
    assert f"fedprint {command}" in capsys.readouterr().out.partition("Example")[2]


def test_options_mean_the_same_wherever_they_are() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    found = {
        name: {option: (param.help, param.default) for param in commands[name].params for option in param.opts}
        for name in ("run", "tune", "config", "audit-dp")
    }
    shared = {"--fast", "--set", "--name", "--dry-run", "--jobs", "--keep-updates", "--renew", "--data-dir"}
    assert shared <= found["run"].keys() & found["tune"].keys()
    for options in found.values():
        assert {options[option] for option in shared & options.keys()} <= set(found["run"].values())


SLOW = ("torch", "pandas", "numpy", "mlflow", "dvc", "pydantic", "yaml", "fedprint.types")


@pytest.mark.parametrize(
    ("module", "slow"), [("main", SLOW), ("stage", (*SLOW, "typer", "rich", "fedprint.lab.runner"))]
)
def test_commands_start_without_what_takes_long_to_import(module: str, slow: tuple[str, ...]) -> None:
    code = f"import sys, fedprint.cli.{module}; print([name for name in {slow!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_no_command_asks_for_the_kind() -> None:
    from fedprint.kinds.registry import kinds

    folder = CHECKOUT / "src" / "fedprint" / "cli"
    found = [
        (path.name, kind.name)
        for path in sorted(folder.glob("*.py"))
        for kind in kinds()
        if f'"{kind.name}"' in path.read_text()
    ]
    assert found == []


# Results --------------------------------------------------------------------------------------------------------------

ROW = {"experiment": "tiny", "dataset": "albums", "prior": "random", "training": "federated", "linkage": "update",
       "defence": "none", "adversary": "adaptive",
       "attack": "ridge", "selected": True, "metric": "ap", "unit": "fraction", "value": 0.4, "lo": 0.3, "hi": 0.5,
       "chance": 0.1, "n_questions": 10, "n_users": 5, "seed": 0, "config_hash": "abc"}  # fmt: skip


def published(project: Project, name: str, **changes: object) -> Path:
    """Write what git holds of a published experiment."""
    folder = project.root / "experiments" / name
    folder.mkdir(parents=True)
    rows = [{**ROW, "experiment": name, **changes}, {**ROW, "experiment": name, "metric": "top1"}]
    (folder / "measurements.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "metrics.json").write_text(json.dumps({"ap_update": rows[0]["value"]}))
    return folder


def test_published_numbers_are_shown_and_compared_without_their_reports(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a fresh clone."""
    published(project, "one")
    published(project, "two", value=0.2, lo=0.1, hi=0.25)
    assert _fedprint(monkeypatch, "summary", "one") == 0
    shown = capsys.readouterr().out
    assert "ap_update" in shown and "0.4" in shown and "fedprint pull one" in shown
    assert _fedprint(monkeypatch, "compare", "one", "two") == 0
    page = (next((project.root / "work" / "comparisons").glob("*/index.html"))).read_text(encoding="utf-8")
    assert "fedprint pull two" in page and "index.html" in capsys.readouterr().out


def test_results_are_found_by_name_file_and_folder(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    published(project, "study-albums")
    published(project, "quickstart")
    asked = ("albums", "study-albums", "configs/studies/albums.yaml", "experiments/study-albums")
    for what in asked:
        assert _fedprint(monkeypatch, "summary", what) == 0
        assert "fedprint pull study-albums" in capsys.readouterr().out, what
    quickstart = "configs/experiments/quickstart.yaml"
    assert _fedprint(monkeypatch, "compare", quickstart, "albums") == 0
    assert _fedprint(monkeypatch, "compare", quickstart, "quickstart", "--exact") == 0
    assert "2 rows agree to the byte" in capsys.readouterr().out
    pulled: list[list[str]] = []
    monkeypatch.setattr("fedprint.lab.versions.repository.pull", lambda root, names: pulled.append(list(names)))
    assert _fedprint(monkeypatch, "pull", *asked, quickstart) == 0
    assert pulled == [["study-albums"] * 4 + ["quickstart"]]
    assert _fedprint(monkeypatch, "summary", "configs/experiments/blog.yaml") == 2
    assert "no results of 'blog'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [({}, 0, "2 rows agree to the byte"),
     ({"value": 0.45}, 0, "1 rows agree to the byte (without experiment, config_hash), 1 within"),
     ({"value": 0.2, "lo": 0.1, "hi": 0.25}, 1, "BEYOND"),
     ({"attack": "svm"}, 1, "only in B")],
)  # fmt: skip
def test_exact_comparison_says_how_many_rows_agree(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    code: int,
    words: str,
) -> None:
    published(project, "one")
    other = published(project, "two", config_hash="def", **changes)
    assert _fedprint(monkeypatch, "compare", "one", str(other / "measurements.jsonl"), "--exact") == code
    assert words in capsys.readouterr().out


def test_cleaning_frees_what_no_report_names(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = Cache.of(project.root)
    for key in ("kept", "old"):
        entry = cache.entry("federate", key)
        entry.begin(resume=False)
        (entry.partial / "observed").write_bytes(b"x" * 2**20)
        entry.complete()
    killed = cache.entry("attack", "killed")
    killed.begin(resume=True)
    report = project.root / "reports" / "suite" / "member"
    report.mkdir(parents=True)
    (report / "jobs.json").write_text(json.dumps({"random-0": {"keys": {"federate": "kept", "attack": "made"}}}))
    direct = Cache.direct(project.root).entry("attack", "again")
    direct.begin(resume=False)
    direct.complete()
    assert _fedprint(monkeypatch, "clean", "--dry-run") == 0
    assert capsys.readouterr().out == "would free 1 MiB\n"
    assert cache.entry("federate", "old").finished
    with cache.using(cache.entry("federate", "old")):
        assert _fedprint(monkeypatch, "clean") == 2
        assert "a run is using the cache" in capsys.readouterr().err
    assert _fedprint(monkeypatch, "clean") == 0
    assert capsys.readouterr().out == "freed 1 MiB\n"
    assert [path.name for path in cache.folder.glob("*/[!.]*")] == ["kept"]
    assert not killed.partial.exists() and (report / "jobs.json").exists()
    assert not direct.finished
    (report / "jobs.json").write_text(json.dumps({"random-0": {"federate": "kept"}}))
    assert _fedprint(monkeypatch, "clean") == 2
    assert "jobs.json cannot be read: run its experiment again, or remove the report" in capsys.readouterr().err


# Data -----------------------------------------------------------------------------------------------------------------


def test_data_list_shows_what_is_embedded_and_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("FEDPRINT_DATA", str(tmp_path))
    assert _fedprint(monkeypatch, "data", "list") == 0
    shown = capsys.readouterr().out
    assert "embedded" in shown
    assert [
        name for name in ("albums", "mnist_writers", "ahcd_writers", "blog", "presidents") if name not in shown
    ] == []
    assert "missing" in shown


def test_data_describe_albums_writes_a_contact_sheet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sheet = tmp_path / "albums.png"
    assert _fedprint(monkeypatch, "data", "describe", "albums", "--out", str(sheet)) == 0
    shown = capsys.readouterr().out
    assert "120 / 120 / 120" in shown
    assert "Apache-2.0" in shown
    assert sheet.read_bytes().startswith(b"\x89PNG")


def test_data_describe_and_validate_a_real_data_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data_dir: Path, tmp_path: Path
) -> None:
    """Of real people nothing but numbers is shown."""
    monkeypatch.chdir(tmp_path)
    assert _fedprint(monkeypatch, "data", "describe", "presidents", "--data-dir", str(data_dir)) == 0
    shown = capsys.readouterr().out
    assert "users" in shown
    assert "licence" in shown
    assert _fedprint(monkeypatch, "data", "validate", str(data_dir / "presidents")) == 0
    assert "valid" in capsys.readouterr().out
    assert _fedprint(monkeypatch, "data", "list", "--data-dir", str(data_dir)) == 0
    assert str(data_dir / "presidents") in capsys.readouterr().out.replace("\n", "")
    assert list(tmp_path.iterdir()) == []


def test_open_prints_the_page_of_a_report_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "index.html").write_text("<p>")
    open_report(str(tmp_path), only_print=True)
    assert capsys.readouterr().out.strip() == str(tmp_path / "index.html")


def test_open_says_how_to_get_a_page(tmp_path: Path) -> None:
    with pytest.raises(FedprintError, match="numbers and no page: fedprint pull"):
        open_report(str(tmp_path))
