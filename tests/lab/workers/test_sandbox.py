"""A confined process opens what it was given and nothing else, whatever library asks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedprint.errors import FedprintError
from fedprint.lab.workers.sandbox import refuse_exposed

CONFINED = """
import json, os, shutil, subprocess, sys
from pathlib import Path
import numpy, pandas, pyarrow
from fedprint.lab.workers import sandbox

given, written, hidden = map(Path, sys.argv[1:4])
if sys.argv[4] == "no Landlock":
    sandbox._landlock = lambda readable, writable: False
sys.prefix = str(given.parent)  # a virtual environment at the project's root
shm = Path(f"/dev/shm/fedprint-{os.getpid()}")
kept = sandbox.confine([given], [written], name="attack")

def said(action):
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done"

secret, own = hidden / "secret.csv", given / "own.csv"
print(json.dumps({
    "kernel": kept,
    "allowed": {
        "read": said(own.read_text), "pandas": said(lambda: pandas.read_csv(own)),
        "numpy": said(lambda: numpy.memmap(own, mode="r")), "arrow": said(lambda: pyarrow.memory_map(str(own))),
        "list": said(lambda: list(given.iterdir())), "write": said(lambda: (written / "x").write_text("1")),
        "rename": said(lambda: (written / "x").rename(written / "y")), "import": said(lambda: __import__("wave")),
        "symlink": said(lambda: (written / "own").symlink_to(own)),
        "truncate": said(lambda: os.truncate(written / "y", 0)),
        "tree": said(lambda: ((written / "a" / "b").mkdir(parents=True), shutil.rmtree(written / "a"))),
        "null": said(lambda: Path("/dev/null").write_text("1")),
        "random": said(lambda: open("/dev/urandom", "rb").read(1)),
        "tables": said(Path("/proc/self/status").read_text),
    },
    "refused": {
        "read": said(secret.read_text), "pandas": said(lambda: pandas.read_csv(secret)),
        "numpy": said(lambda: numpy.memmap(secret, mode="r")), "list": said(lambda: list(hidden.iterdir())),
        "link": said((given / "link.csv").read_text),
        "dots": said((given / ".." / hidden.name / secret.name).read_text),
        "proc": said(Path(f"/proc/{os.getpid()}/root{secret}").read_text),
        "overwrite": said(lambda: own.write_text("1")), "neighbour": said(Path(f"{given}-2/own.csv").read_text),
        "rename": said(lambda: secret.rename(written / "z")), "remove": said(secret.unlink),
        "rename to": said(lambda: (written / "y").rename(hidden / "y")),
        "new": said(lambda: (hidden / "y").write_text("1")),
        "hard link": said(lambda: os.link(secret, written / "z")), "folder": said(lambda: (hidden / "z").mkdir()),
        "hard link to": said(lambda: os.link(written / "y", hidden / "z")),
        "symlink to": said(lambda: (hidden / "z").symlink_to(written / "y")),
        "truncate": said(lambda: os.truncate(secret, 0)), "truncate input": said(lambda: os.truncate(own, 0)),
        "remove input": said(own.unlink), "shared memory": said(lambda: shm.write_text("1")),
        "beside": said(lambda: (given.parent / "new").write_text("1")), "here": said(lambda: os.listdir()),
    },
    "by the kernel": {
        "arrow": said(lambda: pyarrow.memory_map(str(secret))),
        "arrow file": said(lambda: pyarrow.OSFile(str(secret))),
    },
    "child": said(lambda: subprocess.run(["cat", str(secret)], capture_output=True, check=True)),
}))
"""


@pytest.fixture(scope="module", params=["Landlock", "no Landlock"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("sandbox")
    given, written, hidden = (root / name for name in ("given", "written", "hidden"))
    for folder in (given, written, hidden, root / "given-2"):
        folder.mkdir()
    for path in (given / "own.csv", hidden / "secret.csv", root / "given-2" / "own.csv"):
        path.write_text("a,b\n1,2\n")
    (given / "link.csv").symlink_to(hidden / "secret.csv")
    command = [sys.executable, "-c", CONFINED, *map(str, (given, written, hidden)), request.param]
    done = subprocess.run(command, cwd=hidden, capture_output=True, text=True, check=True)
    assert (given / "own.csv").read_text() == (hidden / "secret.csv").read_text() == "a,b\n1,2\n"
    assert [path.name for path in hidden.iterdir()] == ["secret.csv"]
    return {"guard": request.param, **json.loads(done.stdout)}


def test_inputs_outputs_and_installed_code_are_open(found: Any) -> None:
    assert {what: said for what, said in found["allowed"].items() if said != "done"} == {}


def test_python_code_is_refused_everything_else(found: Any) -> None:
    errors = ("Trespass", "PermissionError")
    assert {what: said for what, said in found["refused"].items() if not said.startswith(errors)} == {}
    assert found["refused"]["read"].endswith("secret.csv, which is not among its inputs and outputs")
    assert "stage 'attack' opened" in found["refused"]["read"]
    assert found["refused"]["overwrite"].endswith("own.csv, which is not among its outputs")


def test_the_kernel_refuses_libraries_that_do_not_ask_python(found: Any) -> None:
    if found["guard"] == "no Landlock":
        assert not found["kernel"] and "started 'cat', which without Landlock could open anything" in found["child"]
        return
    if not found["kernel"]:
        pytest.skip("this kernel has no Landlock: only the audit hook guards")
    assert found["child"].startswith("CalledProcessError"), "a program may run, and opens no more than the stage"
    assert all(said.startswith("PermissionError") for said in found["by the kernel"].values())


def test_a_project_among_installed_code_is_refused_and_one_beside_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "lib").mkdir()
    refuse_exposed([tmp_path / "work", Path("/usr/src/app/work"), Path("/dev/shm/work")])
    (tmp_path / "data").symlink_to(tmp_path / "lib")
    with pytest.raises(FedprintError, match=r"data/photos lies in .*/lib, which every stage may open: move it out"):
        refuse_exposed([tmp_path / "data" / "photos"])
