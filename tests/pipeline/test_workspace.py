"""The plumbing with the real DVC and the project's own dvc.yaml; only the stages are stubs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedprint.kinds.cleaning import clean, reported
from fedprint.kinds.workspace import (
    PipelineFailed,
    Request,
    Workspace,
    find_root,
    open_workspace,
    publish,
    reproduce,
    run_experiment,
    stage_environment,
    workspace_lock,
)
from fedprint.types import FedprintError

PROJECT = Path(__file__).parents[2]
SECTIONS = ("data", "split", "model", "federation", "store", "defences", "attacks", "analyses", "selection",
            "evaluation", "report")  # fmt: skip
CODE = ("accounting", "data", "models", "defences", "federation", "attacks", "analyses", "evaluation", "reports",
        "pipeline")  # fmt: skip
REQUEST = Request(experiment="quickstart", priors=["random"], seeds=[0], dataset_sha256="embedded")

STUB = '''
"""Stages that write down what they were given; each also appends its name to ran.txt."""
import json, os, sys
from pathlib import Path
import yaml

stage, experiment, *rest = sys.argv[1:]
item = "-".join(rest)
here = Path("artifacts") / experiment
with open(os.environ.get("STUB_LOG", "ran.txt"), "a") as log:
    log.write(f"{stage}@{item}\\n" if stage not in ("resolve", "report") else f"{stage}\\n")

def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, sort_keys=True))

if stage == os.environ.get("STUB_FAILS"):
    sys.exit(int(os.environ["STUB_CODE"]))
if stage == "resolve":
    config = yaml.safe_load(Path(f"configs/experiments/{experiment}.yaml").read_text())
    for word in rest:
        if "=" in word:
            config[word.split("=")[0]] = yaml.safe_load(word.split("=")[1])
    write(here / "config.yaml", config)
    sys.exit()
config = yaml.safe_load((here / "config.yaml").read_text())
if stage == "prepare":
    for part in ("prior", "private", "test", "background", "samples"):
        write(here / "prepared" / item / part / "x.json", [item, config["data"], config["split"]])
    write(here / "prepared" / item / "meta.json", item)
if stage == "federate":
    for part in ("observed", "public", "truth", "utility"):
        write(here / "updates" / item / part / "x.json", [item, part, config["model"]])
    write(here / "overhead" / item / "x.json", item)
if stage == "ask":
    for part in ("questions", "answers"):
        write(here / "updates" / item / part / "x.json", [item, part, config["analyses"]])
if stage == "attack":
    write(here / "attack" / item / "x.json", [item, config["attacks"]])
if stage == "analyse":
    write(here / "analysis" / item / "x.json", [item, config["analyses"]])
if stage == "evaluate":
    write(here / "evaluation" / item / "x.json", json.loads((here / "attack" / item / "x.json").read_text()))
if stage == "report":
    seen = {path.parent.name: json.loads(path.read_text()) for path in (here / "evaluation").glob("*/x.json")}
    write(Path("reports") / experiment / "index.html", seen)
    write(here / "metrics.json", {"ap": len(str(seen))})
'''


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without git (as from a ZIP): this one's dvc.yaml and DVC settings around stub stages."""
    project = tmp_path / "project"
    (project / "configs" / "experiments").mkdir(parents=True)
    (project / ".dvc").mkdir()
    shutil.copy(PROJECT / ".dvc" / "config", project / ".dvc" / "config")
    for name in (".dvcignore", "params.yaml"):
        shutil.copy(PROJECT / name, project / name)
    text = (PROJECT / "dvc.yaml").read_text()
    assert "python -m fedprint.kinds.federation.stages" in text
    (project / "dvc.yaml").write_text(text.replace("python -m fedprint.kinds.federation.stages", "python stub.py"))
    (tmp_path / "stub.py").write_text(STUB)
    (project / "dvc.yaml").write_text((project / "dvc.yaml").read_text().replace("stub.py", str(tmp_path / "stub.py")))
    (project / "pyproject.toml").touch()
    for path in _code_dependencies(text):
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text("1") if path.endswith(".py") else (project / path).mkdir(exist_ok=True)
    for folder in CODE:
        (project / "src" / "fedprint" / folder).mkdir(exist_ok=True)
        (project / "src" / "fedprint" / folder / "code.py").write_text("1")
    (project / "configs" / "defaults.yaml").write_text("{}")
    _write_config(project, "quickstart")
    _write_config(project, "other")
    (project / ".dvc" / "config.local").write_text("[core]\nno_scm = true\n")
    monkeypatch.delenv("FEDPRINT_ROOT", raising=False)
    monkeypatch.setenv("STUB_LOG", str(tmp_path / "ran.txt"))
    return project


def _write_config(project: Path, name: str, **changed: object) -> None:
    config = {section: {"name": section} for section in SECTIONS} | {"threat": {"defended": "everyone"}} | changed
    (project / "configs" / "experiments" / f"{name}.yaml").write_text(yaml.safe_dump(config))


def _code_dependencies(text: str) -> list[str]:
    stages = yaml.safe_load(text)["stages"].values()
    return sorted({path for stage in stages for path in stage["deps"] if path.startswith("src/")})


def _ran(root: Path) -> list[str]:
    """Return the stages that ran since the last call."""
    log = root.parent / "ran.txt"
    names = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return names


def _dvc(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dvc", *words]
    return subprocess.run(
        command, cwd=folder, env=stage_environment(folder, {}), capture_output=True, text=True, check=False
    )


def _page(folder: Path) -> Any:
    return json.loads((folder / "index.html").read_text())


def _stages() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((PROJECT / "dvc.yaml").read_text())["stages"]
    return loaded


# The threat model -----------------------------------------------------------------------------------------------------


def test_attack_depends_on_nothing_that_the_adversary_cannot_see() -> None:
    """The list is exhaustive: a new dependency of the attack has to be defended here."""
    item = "${item.prior}-${item.seed}"
    visible = {
        f"prepared/{item}/prior",
        f"prepared/{item}/background",
        f"prepared/{item}/meta.json",
        f"updates/{item}/observed",
        f"updates/{item}/public",
        f"updates/{item}/questions",
    }
    assert _data_of("attack") <= visible
    assert _data_of("analyse") <= visible | {f"attack/{item}"}


def _data_of(stage: str) -> set[str]:
    return {path.split("/", 2)[2] for path in _stages()[stage]["deps"] if path.startswith("artifacts/")}


def test_only_questioners_and_evaluation_read_the_truth() -> None:
    def readers(name: str) -> set[str]:
        return {stage for stage, spec in _stages().items() if any(path.endswith(name) for path in spec["deps"])}

    assert readers("/truth") == {"ask", "evaluate"}
    assert readers("/answers") == {"evaluate"}


def test_code_dependencies_of_the_stages_exist() -> None:
    missing = [path for path in _code_dependencies((PROJECT / "dvc.yaml").read_text()) if not (PROJECT / path).exists()]
    assert missing == []


# Finding the project, opening a workspace -----------------------------------------------------------------------------


def test_the_root_is_found_from_the_project_and_from_a_nested_workspace(root: Path) -> None:
    workspace = open_workspace(root, REQUEST)
    assert find_root(root / "src" / "fedprint") == root
    assert find_root(workspace.folder) == root


def test_a_root_named_in_the_environment_wins_and_is_checked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPRINT_ROOT", str(root))
    assert find_root(Path("/")) == root
    monkeypatch.setenv("FEDPRINT_ROOT", str(root / "src"))
    with pytest.raises(FedprintError, match=r"holds no pyproject\.toml"):
        find_root(root)


def test_outside_of_a_project_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDPRINT_ROOT", raising=False)
    with pytest.raises(FedprintError, match="change into the clone"):
        find_root(tmp_path)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (replace(REQUEST, experiment="nosuch"), "known: other, quickstart"),
        (replace(REQUEST, experiment="../x"), "is no name"),
        (replace(REQUEST, priors=[]), "priors="),
        (replace(REQUEST, seeds=[0, 0]), "each of them once"),
        (replace(REQUEST, priors=["a b"]), "is no name"),
    ],
)
def test_bad_requests_leave_nothing_behind(root: Path, request_: Request, words: str) -> None:
    for act in (open_workspace, run_experiment):
        with pytest.raises(FedprintError, match=words) as caught:
            act(root, request_)
        assert "\n" not in str(caught.value)
    assert not (root / "work").exists()


def test_opening_changes_no_file_of_the_project(root: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    open_workspace(root, replace(REQUEST, arguments=["--set", "attacks=[a b]"]))
    after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and "work" not in path.parts}
    assert after == before


def test_a_workspace_of_a_moved_project_links_to_the_new_place(root: Path) -> None:
    open_workspace(root, REQUEST)
    moved = root.rename(root.with_name("moved"))
    workspace = open_workspace(moved, REQUEST)
    assert (workspace.folder / "dvc.yaml").resolve() == moved / "dvc.yaml"
    assert str(moved) in (workspace.folder / ".dvc" / "config.local").read_text()


def test_relative_remotes_hold_in_the_workspace_and_only_shareable_data_have_a_default(root: Path) -> None:
    assert _dvc(root, "remote", "add", "--default", "shelf", "../shelf").returncode == 0
    settings = {}
    for shareable in (True, False):
        workspace = open_workspace(root, replace(REQUEST, shareable=shareable))
        assert str(root.parent / "shelf") in _dvc(workspace.folder, "remote", "list").stdout
        settings[shareable] = _dvc(workspace.folder, "config", "core.remote").stdout.strip()
    assert settings == {True: "shelf", False: ""}


def test_two_processes_do_not_run_one_experiment(root: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fedprint.kinds.workspace import workspace_lock\n"
        "with workspace_lock(Path(sys.argv[1]), 'other'): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(FedprintError, match="running in another process"):
            run_experiment(root, replace(REQUEST, experiment="other"))
        with workspace_lock(root, "quickstart"):
            pass
        holder.kill()
    with workspace_lock(root, "other"):
        pass


# Running --------------------------------------------------------------------------------------------------------------


def test_a_run_publishes_its_report_and_a_second_run_does_nothing(root: Path) -> None:
    folder = run_experiment(root, REQUEST)
    assert folder == root / "reports" / "quickstart"
    assert _ran(root) == [
        "resolve",
        "prepare@random-0",
        "federate@random-0",
        "ask@random-0",
        "attack@random-0",
        "analyse@random-0",
        "evaluate@random-0",
        "report",
    ]
    assert _page(folder) == {"random-0": ["random-0", {"name": "attacks"}]}
    assert os.access(folder / "index.html", os.W_OK)
    run_experiment(root, REQUEST)
    assert _ran(root) == []
    assert [path.name for path in (root / "reports").iterdir()] == ["quickstart"]


def test_arguments_reach_resolve_word_by_word_and_rerun_only_what_reads_them(root: Path) -> None:
    run_experiment(root, REQUEST)
    _ran(root)
    arguments = ["--set", "attacks=[a b, '$HOME', {k: 11}]"]
    page = _page(run_experiment(root, replace(REQUEST, arguments=arguments)))
    assert page["random-0"][1] == ["a b", "$HOME", {"k": 11}]
    assert _ran(root) == ["resolve", "attack@random-0", "analyse@random-0", "evaluate@random-0", "report"]
    assert _page(run_experiment(root, REQUEST))["random-0"][1] == {"name": "attacks"}
    assert _ran(root) == [], "the plain run comes from DVC's cache"


@pytest.mark.parametrize(("stage", "code"), [("attack", 3), ("prepare", 2)])
def test_a_failed_stage_is_named_with_its_exit_code_and_nothing_is_published(root: Path, stage: str, code: int) -> None:
    workspace = open_workspace(root, REQUEST)
    with pytest.raises(
        PipelineFailed, match=f"stage '{stage}@random-0' of 'quickstart' failed with exit code {code}"
    ) as caught:
        reproduce(workspace, {"STUB_FAILS": stage, "STUB_CODE": str(code)})
    assert (caught.value.stage, caught.value.exit_code) == (f"{stage}@random-0", code)
    with pytest.raises(FedprintError, match="has no report yet"):
        publish(workspace)


def test_what_dvc_itself_refuses_is_reported_too(root: Path) -> None:
    shutil.rmtree(root / "src" / "fedprint" / "attacks")
    with pytest.raises(PipelineFailed, match=r"attack") as caught:
        run_experiment(root, REQUEST)
    assert caught.value.exit_code > 0


@pytest.mark.slow
def test_fewer_priors_leave_no_trace_in_the_report(root: Path) -> None:
    assert set(_page(run_experiment(root, replace(REQUEST, priors=["random", "chrono"])))) == {"random-0", "chrono-0"}
    _ran(root)
    assert set(_page(run_experiment(root, REQUEST))) == {"random-0"}
    assert _ran(root) == ["report"]


@pytest.mark.slow
def test_bare_repro_restores_the_plain_quickstart_after_a_changed_run(root: Path) -> None:
    assert _dvc(root, "repro").returncode == 0
    plain = (root / "reports" / "quickstart" / "index.html").read_text()
    assert set(json.loads(plain)) == {"random-0", "chrono-0", "iid-0"}
    assert len(_ran(root)) == 20, "six stages of three priors, resolve and report"
    assert _dvc(root, "repro").returncode == 0
    assert _ran(root) == []
    run_experiment(root, replace(REQUEST, arguments=["--set", "model=big"]))
    assert (root / "reports" / "quickstart" / "index.html").read_text() != plain
    _ran(root)
    assert _dvc(root, "repro").returncode == 0
    assert _ran(root) == [], "restored from DVC's cache"
    assert (root / "reports" / "quickstart" / "index.html").read_text() == plain


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("data", {"resolve", "prepare"}),
        ("federation", {"resolve", "federate", "attack", "analyse"}),
        ("attacks", {"resolve", "attack", "analyse"}),
        ("evaluation", {"resolve", "evaluate"}),
        ("reports", {"resolve", "report"}),
    ],
)
def test_changed_code_reruns_the_stages_that_use_it(root: Path, folder: str, expected: set[str]) -> None:
    """The stubs' outputs stay equal, so nothing below the changed stage runs."""
    run_experiment(root, REQUEST)
    _ran(root)
    (root / "src" / "fedprint" / folder / "code.py").write_text("2")
    (root / "src" / "fedprint" / folder / "__pycache__").mkdir()
    run_experiment(root, REQUEST)
    assert {name.split("@")[0] for name in _ran(root)} == expected
    (root / "src" / "fedprint" / folder / "__pycache__" / "code.pyc").write_text("3")
    run_experiment(root, REQUEST)
    assert _ran(root) == [], "compiled files are not code"


@pytest.mark.slow
@pytest.mark.parametrize("nested", [False, True])
def test_push_and_pull_bring_data_and_updates_back(root: Path, nested: bool) -> None:
    assert _dvc(root, "remote", "add", "--default", "shelf", "../shelf").returncode == 0
    folder = open_workspace(root, REQUEST).folder if nested else root
    assert _dvc(folder, "repro").returncode == 0
    observed = folder / "artifacts" / "quickstart" / "updates" / "random-0" / "observed" / "x.json"
    private = folder / "artifacts" / "quickstart" / "prepared" / "random-0" / "private" / "x.json"
    before = [path.read_bytes() for path in (observed, private)]
    assert _dvc(folder, "push").returncode == 0
    shutil.rmtree(root / ".dvc" / "cache")
    shutil.rmtree(folder / "artifacts")
    assert _dvc(folder, "pull").returncode == 0
    assert [path.read_bytes() for path in (observed, private)] == before


# Cleaning -------------------------------------------------------------------------------------------------------------


def _disk_use(root: Path) -> int:
    stats = [path.lstat() for path in root.rglob("*") if path.is_symlink() or path.is_file()]
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in stats}.values())


@pytest.mark.slow
def test_cleaning_frees_what_it_says_and_keeps_what_reports_need(root: Path) -> None:
    run_experiment(root, REQUEST)
    run_experiment(root, replace(REQUEST, experiment="other", arguments=["--set", "model=big"]))
    shutil.rmtree(root / "reports" / "other")
    (root / "work" / "checkpoints" / "abc").mkdir(parents=True)
    (root / "work" / "checkpoints" / "abc" / "round.bin").write_bytes(b"x" * 1000)
    clean(root, reported(root), dry_run=True)  # DVC's own notes are all there now
    before = _disk_use(root)
    promised = clean(root, reported(root), dry_run=True)
    assert _disk_use(root) == before
    assert promised > 1000
    assert clean(root, reported(root)) == promised
    assert before - _disk_use(root) == promised
    assert not (root / "work" / "checkpoints" / "abc").exists()
    assert not (root / "work" / "experiments" / "other").exists()
    _ran(root)
    run_experiment(root, REQUEST)
    assert _ran(root) == [], "the kept experiment is complete"
    shutil.rmtree(Workspace(root=root, experiment="quickstart").artifacts)
    run_experiment(root, REQUEST)
    assert _ran(root) == [], "its cached objects are too"


def test_cleaning_refuses_while_an_experiment_or_dvc_runs(root: Path) -> None:
    workspace = open_workspace(root, REQUEST)
    record = workspace.folder / ".dvc" / "tmp" / "rwlock"
    record.parent.mkdir()
    record.write_text(json.dumps({"/x": {"write": {"pid": os.getpid(), "cmd": "dvc repro"}}}))
    with pytest.raises(FedprintError, match="runs DVC"):
        clean(root, ["quickstart"])
    assert workspace.folder.exists()
