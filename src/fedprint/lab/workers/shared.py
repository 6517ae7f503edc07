"""A fork server that outlives the command that started it, so that many short commands share its imports.

One per project and state of the code: a server that was started from older sources is never called. It ends by itself
when no call has come for a while. Only the standard library is imported here, so that a caller starts at once.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedprint.lab.workers.forkserver import private_address
from fedprint.lab.workers.pool import code_digest, connect, server_environment

IDLE_S = 30.0


def connected(root: Path, modules: Sequence[str], idle_s: float = IDLE_S) -> tuple[Path, socket.socket]:
    """Return the address of the project's server, which has imported ``modules``, and a connection for one call.

    It is started unless one of this code answers; other callers wait for it meanwhile. While the call runs, the server
    stays, and the call may use it too.
    """
    folder = root / "work" / "forkserver"
    name = code_digest(modules)
    record = folder / f"{name}.address"
    with _alone(folder):
        if record.is_file() and (known := _try(Path(record.read_text(encoding="utf-8")))):
            return known
        for old in (*folder.glob("*.address"), *folder.glob("*.log")):
            old.unlink()
        address = private_address()
        server = _start(address, modules, idle_s, root, folder / f"{name}.log")
        connection = connect(address, server)
        record.write_text(str(address), encoding="utf-8")
    return address, connection


def _try(address: Path) -> tuple[Path, socket.socket] | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(address))
    except OSError:  # it has ended
        connection.close()
        return None
    return address, connection


def _start(address: Path, modules: Sequence[str], idle_s: float, folder: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fedprint.lab.workers.forkserver", str(address), "0", str(idle_s), *modules]
    with log.open("wb") as sink:
        # A session of its own: Ctrl-C and the end of the caller's terminal are not for it.
        return subprocess.Popen(
            command, cwd=folder, env=server_environment(), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
            start_new_session=True,
        )  # fmt: skip


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
