"""Where stages run: a pool takes a call and returns its result.

The pools here fork processes on this machine; :mod:`fedprint.lab.workers.ray_pool` uses a cluster.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from types import TracebackType
from typing import Any, Protocol

from fedprint.errors import FedprintError
from fedprint.lab.gpus import only
from fedprint.lab.workers.forkserver import ONE_THREAD, private_address
from fedprint.plugins import code_files, installed_roots

Send = Callable[[Mapping[str, Any]], None]
PACKAGE = Path(__file__).parents[2]
_START_S = 120.0
_servers: dict[tuple[str, ...], tuple[subprocess.Popen[bytes], Path]] = {}
_starting = threading.Lock()


class Crashed(FedprintError):
    """A call ended without a result: the program's fault, or a lack of memory."""

    exit_code = 1


class Lost(Crashed):
    """A call ended because the machine or the process that ran it is gone: another may run it again."""


class Stopped(Crashed):
    """A call ended because the pool was stopped: no fault."""


class Pool(Protocol):
    """Runs calls in other processes; a call is JSON, so that it may run on another machine."""

    def run(
        self,
        function: str,
        call: Mapping[str, Any],
        send: Send,
        log: Path | None = None,
        gpus: Sequence[int] | None = None,
    ) -> Any:
        """Return what ``module:function(call, send)`` returns there, and pass on the messages that it sends.

        The call sees only these ``gpus``, by their numbers here (None: all of them).
        Raises its FedprintError, and :class:`Crashed` where it ended otherwise.
        """

    def stop(self) -> None:
        """End all calls that run now."""


@dataclass
class LocalPool:
    """A fork server of this process; ``modules`` are imported once, before any call.

    The server stays for the next pool, and ends with this process: in a notebook, the second run begins at once.
    """

    modules: Sequence[str]
    _server: subprocess.Popen[bytes] | None = None
    _address: Path | None = None
    _open: set[socket.socket] = field(default_factory=set, repr=False)
    _stopped: bool = False

    def __enter__(self) -> LocalPool:
        """Start the server; it imports while the caller goes on."""
        key = (code_digest(self.modules), os.environ.get("PYTHONPATH", ""))
        with _starting:
            if key not in _servers or _servers[key][0].poll() is not None:
                _servers[key] = _start(self.modules)
            self._server, self._address = _servers[key]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what still runs."""
        self.stop()

    def run(
        self,
        function: str,
        call: Mapping[str, Any],
        send: Send,
        log: Path | None = None,
        gpus: Sequence[int] | None = None,
    ) -> Any:
        """Run one call in a fork of the server; several threads may do so at a time."""
        connection = self.connected()
        self._open.add(connection)
        try:
            if self._stopped:  # a job between two stages when all were to end
                raise Stopped("it was stopped")
            return converse(connection, function, call, send, log, gpus)
        except Crashed:
            if self._stopped:
                raise Stopped("it was stopped") from None
            raise
        finally:
            self._open.discard(connection)

    def connected(self) -> socket.socket:
        """Return a connection for one call."""
        if self._address is None or self._server is None:
            raise FedprintError("the pool is closed: open it with `with`")
        return connect(self._address, self._server)

    def stop(self) -> None:
        """End all calls that run now, for good: a child ends with its connection."""
        self._stopped = True
        for connection in tuple(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True)
class ServerPool:
    """A fork server that another process started, at an ``address``."""

    address: Path

    def run(
        self,
        function: str,
        call: Mapping[str, Any],
        send: Send,
        log: Path | None = None,
        gpus: Sequence[int] | None = None,
    ) -> Any:
        """Run one call in a fork of the server."""
        return converse(connect(self.address), function, call, send, log, gpus)

    def stop(self) -> None:
        """Do nothing: calls end with the process that made them."""


def _start(modules: Sequence[str]) -> tuple[subprocess.Popen[bytes], Path]:
    address = private_address()
    command = [sys.executable, "-m", "fedprint.lab.workers.forkserver", str(address), str(os.getpid()), "0", *modules]
    return subprocess.Popen(command, env=server_environment()), address


@atexit.register
def _end_servers() -> None:
    for server, address in _servers.values():
        server.terminate()
        server.wait()
        rmtree(address.parent, ignore_errors=True)


def code_digest(modules: Sequence[str]) -> str:
    """Return a name for the interpreter, what it is to import, and the sources as they are on disk now."""
    states = [sys.executable, sys.version, *modules]
    plug_ins = [path for root in installed_roots() for path in code_files(root)]
    for path in (*sorted(PACKAGE.rglob("*.py")), *plug_ins):
        state = path.stat()
        states.append(f"{path} {state.st_size} {state.st_mtime_ns}")
    return hashlib.sha256("\n".join(states).encode()).hexdigest()[:16]


def server_environment() -> dict[str, str]:
    """Return the environment of a fork server: one thread in each library, because processes are what is parallel."""
    return {**os.environ, **dict.fromkeys(ONE_THREAD, "1"), "MLFLOW_DISABLE_TELEMETRY": "true"}


def connect(address: Path, server: subprocess.Popen[bytes] | None = None) -> socket.socket:
    """Return a connection to the server at ``address``, which may still be starting."""
    end = time.monotonic() + _START_S
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(address))
            return connection
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
        if time.monotonic() > end or (server is not None and server.poll() is not None):
            raise Crashed("the process that runs stages did not start; its reason is above")
        time.sleep(0.02)


def converse(
    connection: socket.socket,
    function: str,
    call: Mapping[str, Any],
    send: Send,
    log: Path | None = None,
    gpus: Sequence[int] | None = None,
) -> Any:
    """Send one call, pass on its messages, and return its result (:meth:`Pool.run`).

    It has the folder and the environment of this process.
    """
    environment = server_environment() | (only(gpus) if gpus is not None else {})
    return received(conversation(connection, request_of(function, call, log, environment, os.getcwd())), send)


def request_of(
    function: str, call: Mapping[str, Any], log: Path | None, environment: Mapping[str, str], folder: str | None = None
) -> dict[str, Any]:
    """Return what a fork server reads of a call; without a ``folder``, its process stays in the server's."""
    where = {"environment": dict(environment), "folder": folder, "log": str(log) if log else None}
    return {"function": function, "call": call, **where}


def conversation(connection: socket.socket, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Send one request, and yield the messages of the call until the connection ends."""
    # A process that ends at a bad moment resets the connection.
    with suppress(ConnectionError), connection, connection.makefile("rwb") as lines:
        lines.write(json.dumps(request).encode() + b"\n")
        lines.flush()
        yield from map(json.loads, lines)


def received(messages: Iterable[Mapping[str, Any]], send: Send) -> Any:
    """Pass on the messages of a call until one says how it ended; return its result or raise its error."""
    for message in messages:
        if "result" in message:
            return message["result"]
        if "error" in message:
            error = FedprintError(message["error"])
            error.exit_code = message["exit_code"]
            raise error
        if "crash" in message:
            raise Crashed(message["crash"])
        if "died" in message:
            memory = ", perhaps for lack of memory: try fewer --jobs" if message["died"] == "SIGKILL" else ""
            raise Crashed(f"its process was ended by {message['died']}{memory}")
        send(message)
    raise Crashed("its process ended without a result")
