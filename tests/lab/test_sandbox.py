"""A confined process opens what it was given and nothing else, whatever library asks."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

CONFINED = """
import json, os, subprocess, sys
from pathlib import Path
import numpy, pandas, pyarrow
from fedprint.lab.sandbox import confine

given, written, hidden = map(Path, sys.argv[1:])
kept = confine([given], [written], name="attack")

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
    },
    "refused": {
        "read": said(secret.read_text), "pandas": said(lambda: pandas.read_csv(secret)),
        "numpy": said(lambda: numpy.memmap(secret, mode="r")), "list": said(lambda: list(hidden.iterdir())),
        "link": said((given / "link.csv").read_text),
        "dots": said((given / ".." / hidden.name / secret.name).read_text),
        "proc": said(Path(f"/proc/{os.getpid()}/root{secret}").read_text),
        "overwrite": said(lambda: own.write_text("1")), "neighbour": said(Path(f"{given}-2/own.csv").read_text),
        "rename": said(lambda: secret.rename(written / "z")), "remove": said(secret.unlink),
    },
    "by the kernel": {
        "arrow": said(lambda: pyarrow.memory_map(str(secret))),
        "arrow file": said(lambda: pyarrow.OSFile(str(secret))),
        "child": subprocess.run(["cat", str(secret)], capture_output=True).stdout.decode() or "refused",
    },
}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("sandbox")
    given, written, hidden = (root / name for name in ("given", "written", "hidden"))
    for folder in (given, written, hidden, root / "given-2"):
        folder.mkdir()
    for path in (given / "own.csv", hidden / "secret.csv", root / "given-2" / "own.csv"):
        path.write_text("a,b\n1,2\n")
    (given / "link.csv").symlink_to(hidden / "secret.csv")
    command = [sys.executable, "-c", CONFINED, *map(str, (given, written, hidden))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (given / "own.csv").read_text() == "a,b\n1,2\n" and (hidden / "secret.csv").exists()
    return json.loads(done.stdout)


def test_inputs_outputs_and_installed_code_are_open(found: Any) -> None:
    assert {what: said for what, said in found["allowed"].items() if said != "done"} == {}


def test_python_code_is_refused_everything_else(found: Any) -> None:
    errors = ("Trespass", "PermissionError")
    assert {what: said for what, said in found["refused"].items() if not said.startswith(errors)} == {}
    assert found["refused"]["read"].endswith("secret.csv, which is not among its inputs and outputs")
    assert "stage 'attack' opened" in found["refused"]["read"]


def test_the_kernel_refuses_libraries_that_do_not_ask_python(found: Any) -> None:
    if not found["kernel"]:
        pytest.skip("this kernel has no Landlock: only the audit hook guards")
    assert found["by the kernel"].pop("child") == "refused"
    assert all(said.startswith("PermissionError") for said in found["by the kernel"].values())
