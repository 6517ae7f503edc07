"""Calls in forks of a process that has imported the code: results, failures, and who ends with whom."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from test_runner import is_alive, wait_until

from fedprint.errors import FedprintError
from fedprint.lab.workers import pool as pool_module
from fedprint.lab.workers.forkserver import private_address
from fedprint.lab.workers.pool import Crashed, LocalPool, ServerPool, code_digest, connect, converse
from fedprint.lab.workers.shared import connected


def test_a_call_returns_what_the_function_returns_and_hands_on_what_it_tells(pool: LocalPool, tmp_path: Path) -> None:
    told: list[Mapping[str, Any]] = []
    log = tmp_path / "logs" / "double.log"
    assert pool.run("toy_work:double", {"n": 21}, told.append, log) == 42
    assert told == [{"line": "doubling 21"}]
    assert log.read_text() == "written to the log\n"


def test_an_error_that_the_user_can_mend_keeps_its_exit_code(pool: LocalPool) -> None:
    for code in (1, 2):
        with pytest.raises(FedprintError, match=r"^not so$") as refused:
            pool.run("toy_work:refuse", {"exit_code": code}, print)
        assert refused.value.exit_code == code and not isinstance(refused.value, Crashed)


@pytest.mark.parametrize(
    ("function", "words"),
    [("crash", "ZeroDivisionError: a fault"), ("die", "ended by SIGKILL, perhaps for lack of memory"),
     ("nothing", "AttributeError")],
)  # fmt: skip
def test_a_call_that_ends_otherwise_has_crashed(pool: LocalPool, tmp_path: Path, function: str, words: str) -> None:
    with pytest.raises(Crashed, match=words):
        pool.run(f"toy_work:{function}", {}, print, tmp_path / "log")
    assert pool.run("toy_work:double", {"n": 1}, lambda message: None, tmp_path / "log") == 2, "the server lives on"


def test_calls_run_with_one_thread_each_in_the_callers_folder_and_environment(
    pool: LocalPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FEDPRINT_DATA", "/somewhere")
    monkeypatch.chdir(tmp_path)
    found = pool.run("toy_work:look", {}, print)
    assert (found["data"], found["threads"], found["folder"]) == ("/somewhere", "1", str(tmp_path))
    monkeypatch.delenv("FEDPRINT_DATA")
    assert pool.run("toy_work:look", {}, print)["data"] is None


def test_pools_share_a_server_that_has_imported_the_code_as_it_is(
    toy_path: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def server() -> int:
        with LocalPool(["toy_work"]) as pool:
            return int(pool.run("toy_work:look", {}, print)["server"])

    first = server()
    with LocalPool(["toy_work"]) as stopped:
        stopped.stop()
    assert server() == first, "a pool that was stopped ends its own calls alone"
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not is_alive(first))
    second = server()
    package = tmp_path / "package"
    package.mkdir()
    (package / "new.py").write_text("1")
    monkeypatch.setattr(pool_module, "PACKAGE", package)
    assert len({first, second, server()}) == 3


def test_a_pool_that_is_closed_or_stopped_takes_no_call(toy_path: None) -> None:
    with pytest.raises(FedprintError, match="open it with `with`"):
        LocalPool(["toy_work"]).run("toy_work:double", {"n": 1}, print)
    with LocalPool(["toy_work"]) as pool:
        pool.stop()
        with pytest.raises(Crashed, match="stopped"):
            pool.run("toy_work:double", {"n": 1}, print)


def test_modules_that_cannot_be_imported_are_no_endless_wait(toy_path: None) -> None:
    with LocalPool(["no_such_module"]) as pool, pytest.raises(Crashed):
        pool.run("toy_work:double", {"n": 1}, print)


def test_a_call_ends_when_its_caller_is_gone(pool: LocalPool) -> None:
    assert pool._address is not None
    connection = connect(pool._address)
    connection.sendall(b'{"function": "toy_work:stay", "call": {}}\n')
    pid = int(connection.recv(100).split(b'"pid": ')[1].split(b",")[0])
    assert is_alive(pid)
    connection.close()
    wait_until(lambda: not is_alive(pid))


OWNER = """
import os, sys, time
from fedprint.lab.workers.pool import LocalPool
with LocalPool(["toy_work"]) as pool:
    print(pool.run("toy_work:look", {}, print)["server"], flush=True)
    time.sleep(600)
"""


def test_a_server_ends_with_its_owner_however_that_ends(toy_path: None) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    server = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    wait_until(lambda: not is_alive(server))


# A server that commands share -----------------------------------------------------------------------------------------


def server_of(found: tuple[Path, socket.socket]) -> int:
    return int(converse(found[1], "toy_work:look", {}, print)["server"])


def test_commands_share_a_server_until_nobody_calls(tmp_path: Path, toy_path: None) -> None:
    first, second = (connected(tmp_path, ["toy_work"], idle_s=1.0) for _ in range(2))
    address, server = first[0], server_of(first)
    assert (second[0], server_of(second)) == (address, server)
    assert ServerPool(address).run("toy_work:double", {"n": 4}, lambda message: None) == 8
    wait_until(lambda: not address.exists() and not is_alive(server))
    again = connected(tmp_path, ["toy_work"], idle_s=1.0)
    assert server_of(again) != server


def test_a_server_of_older_code_is_not_called(tmp_path: Path, toy_path: None, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "a.py").write_text("1")
    monkeypatch.setattr(pool_module, "PACKAGE", package)
    before, server = code_digest(["toy_work"]), server_of(connected(tmp_path, ["toy_work"], idle_s=2.0))
    (package / "a.py").write_text("22")
    assert code_digest(["toy_work"]) != before != code_digest(["other"])
    assert server_of(connected(tmp_path, ["toy_work"], idle_s=2.0)) != server
    assert len(list((tmp_path / "work" / "forkserver").glob("*.address"))) == 1


def test_a_shared_server_keeps_no_data_folder_of_whoever_started_it(
    tmp_path: Path, toy_path: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPRINT_DATA", "/one")
    found = connected(tmp_path, ["toy_work"], idle_s=1.0)
    assert converse(found[1], "toy_work:look", {}, print)["data"] == "/one"
    monkeypatch.delenv("FEDPRINT_DATA")
    assert ServerPool(found[0]).run("toy_work:look", {}, print)["data"] is None


def test_a_server_stays_while_a_call_runs(tmp_path: Path, toy_path: None) -> None:
    address, connection = connected(tmp_path, ["toy_work"], idle_s=0.2)
    connection.sendall(b'{"function": "toy_work:stay", "call": {}}\n')
    connection.recv(100)
    time.sleep(1.0)
    assert address.exists() and ServerPool(address).run("toy_work:double", {"n": 1}, lambda message: None) == 2
    connection.close()
    wait_until(lambda: not address.exists())


def test_addresses_are_private_and_short() -> None:
    address = private_address()
    assert address.parent.stat().st_mode & 0o077 == 0 and address.parent.stat().st_uid == os.getuid()
    assert len(str(address)) < 100
    address.parent.rmdir()
