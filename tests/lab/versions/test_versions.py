"""What DVC reads and keeps, with the real DVC and git around stub stages (the real ones: kinds/test_pushed.py)."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from dvc_project import CONFIGS, GRAPH, PIPELINE, build, commit, dvc, git, set_rounds, work

from fedprint.lab.versions.dvc_yaml import Published, check_configuration, dvc_yaml, lock_data, published_yaml
from fedprint.lab.versions.repository import (
    NO_REMOTE,
    collect_garbage,
    freed_bytes,
    link_tree,
    pull,
    record,
    recorded,
    refuse_while_dvc_runs,
    unused_objects,
    write_digests,
)
from fedprint.types import FedprintError

BLOG = Published(experiment="blog", command="fedprint run blog", data=("albums",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project in which nothing has run, with a default remote beside it."""
    project = build(tmp_path / "project")
    settings = project / ".dvc" / "config"
    shelf = "['remote \"shelf\"']\n    url = ../../shelf\n"
    settings.write_text(settings.read_text().replace("[core]", "[core]\n    remote = shelf") + shelf)
    commit(project, "a remote")
    return project


def clone(root: Path) -> Path:
    """Return a fresh clone."""
    git(root.parent, "clone", "-q", "project", "clone")
    return root.parent / "clone"


def publish(root: Path, experiment: str = "blog", *, updates: bool) -> None:
    """Write what an experiment leaves in its folder, and record it."""
    folder = root / "experiments" / experiment
    for path, text in {
        folder / "config.yaml": "a: 1\n",
        folder / "data.json": '{"data": []}\n',
        folder / "metrics.json": '{"ap": 0.7}\n',
        folder / "measurements.jsonl": '{"ap": 0.7}\n',
        folder / "updates" / "point" / "observed.bin": "secret of a person",
        root / "reports" / experiment / "index.html": "page",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    record(root, experiment, published_yaml(replace(BLOG, experiment=experiment, updates=updates)))


def content(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder, times left out."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "overhead" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


# The files that DVC reads ---------------------------------------------------------------------------------------------


def test_the_generated_file_says_what_the_graph_says() -> None:
    stages = yaml.safe_load(dvc_yaml(PIPELINE))["stages"]
    assert list(stages) == ["configuration", *[stage.name for stage in GRAPH.stages], "report"]
    item = "experiments/quickstart/${item.prior}-${item.seed}"
    assert stages["attack"] == {
        "matrix": {"prior": "${priors}", "seed": "${seeds}"},
        "cmd": "python client.py attack quickstart ${item.prior} ${item.seed}",
        "params": [{"experiments/quickstart/config.yaml": ["attacks"]}],
        "deps": ["ds://albums", "src/fedprint/attack.py", f"{item}/background", f"{item}/observed"],
        "outs": [f"{item}/attack"],
    }
    assert "experiments/quickstart/config.yaml" in stages["evaluate"]["deps"], "it reads all settings"
    assert all("config.yaml" not in str(stage["outs"]) for stage in stages.values())


def test_what_differs_between_equal_runs_is_no_output_and_no_stage_may_open_it() -> None:
    assert "overhead" not in dvc_yaml(PIPELINE)
    with pytest.raises(FedprintError, match=r"stage 'evaluate' opens \['truth'\], which differ"):
        dvc_yaml(replace(PIPELINE, unversioned=("overhead", "truth")))


def test_a_published_experiment_is_one_frozen_stage_and_its_updates_are_in_only_on_request() -> None:
    stage = yaml.safe_load(published_yaml(BLOG))["stages"]["run"]
    assert (stage["frozen"], stage["cmd"]) == (True, "fedprint run blog")
    assert stage["deps"] == ["experiments/blog/config.yaml", "experiments/blog/data.json", "datasets/albums.yaml"]
    assert "updates" not in str(stage)
    assert (
        "experiments/blog/updates"
        in yaml.safe_load(published_yaml(replace(BLOG, updates=True)))["stages"]["run"]["outs"]
    )


def test_an_old_configuration_is_refused_in_one_line_that_names_the_command(root: Path) -> None:
    check_configuration(root, "quickstart", CONFIGS, "fedprint config quickstart --write")
    before = (root / "experiments" / "quickstart" / "configured").read_bytes()
    (root / CONFIGS[1]).write_text("seeds: [1]\n")
    with pytest.raises(FedprintError, match=r"changed since .*: run `fedprint config quickstart --write`") as caught:
        check_configuration(root, "quickstart", CONFIGS, "fedprint config quickstart --write")
    assert "\n" not in str(caught.value)
    assert before == b"yes\n", "the same for all configurations: a comment makes no stage stale"


def test_the_lock_names_the_data_and_keeps_what_else_is_in_it(root: Path) -> None:
    path = root / "dvc.lock"
    path.write_text(path.read_text() + "stages: {a: {cmd: b}}\n")
    before = path.read_bytes()
    lock_data(root, PIPELINE)
    assert path.read_bytes() == before
    (root / "datasets" / "albums.yaml").write_text("sha256: 'new'\n")
    lock_data(root, PIPELINE)
    lock = yaml.safe_load(path.read_text())
    assert lock["datasets"][0]["rev_lock"] == "new"
    assert lock["stages"] == {"a": {"cmd": "b"}}
    (root / "datasets" / "albums.yaml").unlink()
    with pytest.raises(FedprintError, match="fedprint data add"):
        lock_data(root, PIPELINE)


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_linked_tree_is_the_same_files_and_replaces_what_was_there(tmp_path: Path) -> None:
    source, target = tmp_path / "cache" / "out", tmp_path / "experiments" / "out"
    (source / "a").mkdir(parents=True)
    (source / "a" / "x").write_text("1")
    (source / "link").symlink_to("a/x")
    for _ in range(2):
        link_tree(source, target)
        (target / "stale").touch()
    link_tree(source, target)
    assert sorted(path.name for path in target.rglob("*")) == ["a", "link", "x"]
    assert (target / "a" / "x").samefile(source / "a" / "x")
    assert os.readlink(target / "link") == "a/x"
    link_tree(source / "a" / "x", target)
    assert target.read_text() == "1"
    assert (source / "a" / "x").stat().st_nlink == 2


def test_a_disk_without_hard_links_gets_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "x").write_text("1")
    link_tree(tmp_path / "x", tmp_path / "y")
    assert (tmp_path / "y").read_text() == "1"
    assert (tmp_path / "x").stat().st_nlink == 1


def test_a_file_with_two_names_frees_its_bytes_once_and_only_with_its_last_name(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    (tmp_path / "a" / "x").write_bytes(b"1" * 10)
    os.link(tmp_path / "a" / "x", tmp_path / "b" / "x")
    assert freed_bytes([tmp_path / "a"]) == 0
    assert freed_bytes([tmp_path / "a", tmp_path / "b"]) == 10


def test_nothing_is_cleaned_while_dvc_runs(root: Path) -> None:
    (root / ".dvc" / "tmp").mkdir(exist_ok=True)
    refuse_while_dvc_runs(root)
    held = {"/x": {"write": {"pid": os.getpid(), "cmd": "dvc repro"}}}
    (root / ".dvc" / "tmp" / "rwlock").write_text(json.dumps(held))
    with pytest.raises(FedprintError, match=f"process {os.getpid()} runs DVC"):
        refuse_while_dvc_runs(root)


def test_updates_that_may_not_leave_are_named_by_digest(root: Path) -> None:
    folder = root / "experiments" / "blog"
    (folder / "updates" / "p").mkdir(parents=True)
    (folder / "updates" / "p" / "x.bin").write_bytes(b"1")
    assert write_digests(root, "blog") == folder / "updates.json"
    digest = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
    assert json.loads((folder / "updates.json").read_text()) == {"updates/p/x.bin": {"bytes": 1, "sha256": digest}}
    shutil.rmtree(folder / "updates")
    assert write_digests(root, "blog") is None
    assert not (folder / "updates.json").exists()


# With DVC -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_clone_pulls_every_commits_dump_byte_for_byte(root: Path) -> None:
    """The runner makes the outputs, DVC records them: no stage runs twice, nothing is staged, no byte is doubled."""
    folder = root / "experiments" / "quickstart"
    states = {}
    for rounds in (3, 5):
        set_rounds(root, rounds)
        work(root)
        link_tree(folder / "random-0" / "observed", root / "work" / "cache" / "federate" / str(rounds) / "observed")
        record(root, "quickstart")
        states[rounds] = content(folder)
        assert (folder / "random-0" / "observed" / "x.bin").stat().st_nlink == 3, "workspace, our cache, DVC's"
        assert git(root, "diff", "--cached", "--name-only") == ""
        commit(root, f"{rounds} rounds")
        # Not once with --all-commits: DVC 3.67 then uploads a single version of every path.
        assert dvc(root, "push").returncode == 0
    assert git(root, "status", "--short") == ""
    fresh = clone(root)
    done = dvc(fresh, "pull")
    assert done.returncode == 0, done.stderr
    assert content(fresh / "experiments" / "quickstart") == states[5]
    assert content(fresh / "reports") == content(root / "reports")
    git(fresh, "checkout", "-q", "HEAD~1")
    assert re.match(r"\d+ files? fetched", pull(fresh))
    assert content(fresh / "experiments" / "quickstart") == states[3]
    assert git(fresh, "status", "--short") == ""


def test_a_record_without_its_outputs_leaves_no_stage_that_breaks_every_pull(root: Path) -> None:
    (root / "experiments" / "blog").mkdir()
    with pytest.raises(FedprintError, match="dvc commit failed") as caught:
        record(root, "blog", published_yaml(BLOG))
    assert "\n" not in str(caught.value)
    assert not (root / "experiments" / "blog" / "dvc.yaml").exists()
    assert recorded(root) == ("quickstart",)
    with pytest.raises(FedprintError, match=r"no lock of 'blog' .*recorded: quickstart"):
        pull(root, ["blog"])


@pytest.mark.slow
def test_before_any_run_dvc_shows_what_it_would_do(root: Path) -> None:
    for words in (
        ("repro", "--dry"),
        ("exp", "run", "-S", "params.yaml:seeds=[1]", "--dry"),
        ("exp", "run", "-S", "experiments/quickstart/config.yaml:federation.rounds=5", "--dry"),
        ("dag", "--collapse-foreach-matrix"),
        ("status",),
        ("metrics", "show"),
        ("plots", "show"),
    ):
        done = dvc(root, *words)
        assert done.returncode == 0, (words, done.stderr)
        if words[0] == "exp":
            assert ("attack@random-1" in done.stdout) == ("params.yaml" in words[3])
    assert git(root, "diff", "HEAD", "--name-only") == ""


@pytest.mark.slow
def test_dvc_runs_compares_and_repeats_itself(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "ran.txt"
    monkeypatch.setenv("STUB_LOG", str(log))
    assert dvc(root, "repro").returncode == 0
    assert len(log.read_text().split()) == 10, "four stages of two priors, configuration and report"
    assert git(root, "diff", "--cached", "--name-only") == "", "nothing is staged"
    commit(root, "run")
    assert "up to date" in dvc(root, "status").stdout
    assert dvc(root, "repro", "--force").returncode == 0
    assert git(root, "status", "--short") == "", "a forced run changes no byte"
    log.unlink()
    done = dvc(root, "exp", "run", "-S", "experiments/quickstart/config.yaml:federation.rounds=5")
    assert done.returncode == 0, done.stderr
    assert {line.split("@")[0] for line in log.read_text().split()} == {"federate", "attack", "evaluate", "report"}
    assert git(root, "diff", "--cached", "--name-only") == ""
    assert (
        json.loads(dvc(root, "metrics", "diff", "--json").stdout)["experiments/quickstart/metrics.json"]["ap"]["new"]
        == 0.5
    )
    commit(root, "five rounds")
    assert "federation.rounds" in dvc(root, "params", "diff", "HEAD~1", "HEAD").stdout
    assert "0.2" in dvc(root, "metrics", "diff", "HEAD~1", "HEAD").stdout
    assert dvc(root, "plots", "diff", "HEAD~1", "HEAD", "-o", str(tmp_path / "plots")).returncode == 0
    page = (tmp_path / "plots" / "index.html").read_text()
    assert all(title in page for title in ("AP by attacker", "Utility by round", "HEAD~1"))
    assert dvc(root, "exp", "run", "-S", "params.yaml:seeds=[1]").returncode == 0
    assert {path.name for path in (root / "experiments/quickstart/evaluation").iterdir()} == {"random-1", "chrono-1"}
    assert "up to date" in dvc(root, "status").stdout


@pytest.mark.slow
def test_bare_repro_refuses_an_old_configuration_before_anything_else_runs(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_LOG", str(tmp_path / "ran.txt"))
    (root / CONFIGS[0]).write_text("seeds: [1]\n")
    done = dvc(root, "repro")
    assert done.returncode != 0
    assert "run `fedprint config quickstart --write`" in done.stderr
    assert (tmp_path / "ran.txt").read_text().split() == ["configuration"]


@pytest.mark.slow
def test_updates_that_may_not_leave_are_on_no_remote_and_pull_still_succeeds(root: Path) -> None:
    work(root)
    record(root, "quickstart")
    publish(root, "private", updates=False)
    write_digests(root, "private")
    publish(root, "shared", updates=True)
    assert recorded(root) == ("quickstart", "private", "shared")
    commit(root, "published")
    assert git(root, "ls-files", "experiments/private").split() == [
        f"experiments/private/{name}"
        for name in (
            *("config.yaml", "data.json", "dvc.lock", "dvc.yaml"),
            *("measurements.jsonl", "metrics.json", "updates.json"),
        )
    ]
    assert "metrics.json" in dvc(root, "metrics", "show").stdout
    assert dvc(root, "push").returncode == 0
    fresh = clone(root)
    assert dvc(fresh, "pull").returncode == 0
    assert (fresh / "experiments" / "shared" / "updates" / "point" / "observed.bin").is_file()
    assert (fresh / "reports" / "private" / "index.html").is_file()
    assert not (fresh / "experiments" / "private" / "updates").exists()
    assert "up to date" in dvc(fresh, "status").stdout
    assert dvc(fresh, "repro", "experiments/shared/dvc.yaml").returncode == 0, "frozen: its command does not run"


@pytest.mark.slow
def test_pull_says_in_one_line_what_is_missing(root: Path) -> None:
    work(root)
    record(root, "quickstart")
    publish(root, updates=True)
    commit(root, "published")
    assert pull(root) == "Everything is up to date"
    assert dvc(root, "push").returncode == 0
    fresh = clone(root)
    lock = yaml.safe_load((root / "experiments" / "blog" / "dvc.lock").read_text())["stages"]["run"]["outs"]
    digest = next(out["md5"] for out in lock if out["path"] == "experiments/blog/updates")
    (root.parent / "shelf" / "files" / "md5" / digest[:2] / digest[2:]).unlink()
    assert re.fullmatch(r"\d+ files? fetched.*; the remote lacks experiments/blog/updates", pull(fresh, ["blog"]))
    assert "lacks" not in pull(fresh, ["quickstart"])
    settings = fresh / ".dvc" / "config"
    settings.write_text(settings.read_text().replace("remote = shelf", ""))
    assert pull(fresh) == NO_REMOTE


@pytest.mark.slow
def test_garbage_is_what_no_lock_names(root: Path) -> None:
    work(root)
    record(root, "quickstart")
    assert unused_objects(root) == []
    set_rounds(root, 5)
    work(root)
    record(root, "quickstart")
    unused = unused_objects(root)
    assert unused
    assert all(path.is_file() for path in unused)
    collect_garbage(root)
    assert not any(path.exists() for path in unused)
    shutil.rmtree(root / "reports")
    assert dvc(root, "checkout").returncode == 0
    assert (root / "reports" / "quickstart" / "index.html").is_file()


@pytest.mark.slow
def test_a_zip_without_git_works_too(root: Path) -> None:
    shutil.rmtree(root / ".git")
    (root / ".dvc" / "config.local").write_text("[core]\n    no_scm = true\n")
    work(root)
    record(root, "quickstart")
    assert "up to date" in dvc(root, "status").stdout
    assert dvc(root, "repro", "--dry").returncode == 0


# An S3-compatible remote ----------------------------------------------------------------------------------------------


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server with an empty bucket `shelf`."""
    for module in ("moto", "dvc_s3", "flask_cors"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f'{module} is not installed: pip install -e ".[s3]"')
    import boto3
    from moto.server import ThreadedMotoServer

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    boto3.client("s3", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket="shelf")
    yield f"http://{host}:{port}"
    server.stop()


@pytest.mark.slow
def test_a_clone_pulls_from_an_s3_compatible_remote(root: Path, bucket: str) -> None:
    for words in (("add", "--force", "shelf", "s3://shelf/fedprint"), ("modify", "shelf", "endpointurl", bucket)):
        assert dvc(root, "remote", *words).returncode == 0
    work(root)
    record(root, "quickstart")
    commit(root, "run")
    done = dvc(root, "push")
    assert done.returncode == 0, done.stderr
    fresh = clone(root)
    done = dvc(fresh, "pull")
    assert done.returncode == 0, done.stderr
    assert content(fresh / "experiments" / "quickstart") == content(root / "experiments" / "quickstart")
