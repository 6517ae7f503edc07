"""A process that has imported the code and opened nothing else: every stage runs in a fork of it.

Importing takes seconds, a fork milliseconds. The server never computes, so that no fork inherits threads or data. It
listens on a Unix socket. A connection carries one call as a line of JSON, then the messages of the child, and at last
its result. A child ends with its caller, the server with its owner.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from fedprint.errors import FedprintError

Message = Mapping[str, Any]
BACKLOG = 64
_LOOK_S = 0.05
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def serve(listener: socket.socket, idle_s: float | None = None, owner: int | None = None) -> None:
    """Answer calls until the process ``owner`` is gone, or no call has come for ``idle_s`` seconds."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's; its children end with their connections
    children: dict[int, socket.socket] = {}
    last = time.monotonic()
    while (owner is None or os.getppid() == owner) and (idle_s is None or children or time.monotonic() - last < idle_s):
        ready, _, _ = select.select([listener], [], [], _LOOK_S)
        if ready:
            connection, _ = listener.accept()
            last = time.monotonic()
            child = os.fork()
            if child == 0:
                listener.close()
                for other in children.values():
                    other.close()
                _be_a_child(connection)
            children[child] = connection
        for child, connection in list(children.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                last = time.monotonic()
                _report_end(connection, status)
                del children[child]


def _report_end(connection: socket.socket, status: int) -> None:
    if os.WIFSIGNALED(status):
        with suppress(OSError):
            connection.sendall(_line({"died": signal.Signals(os.WTERMSIG(status)).name}))
    connection.close()


def _be_a_child(connection: socket.socket) -> None:
    """Run the call, send its result, and end."""
    code = 1
    try:
        call = json.loads(read_line(connection))
        threading.Thread(target=_end_with_caller, args=(connection,), daemon=True).start()
        send = _sender(connection)
        try:
            _stand_where(call)
            _redirect(call.get("log"))
            module, _, name = call["function"].partition(":")
            send({"result": getattr(import_module(module), name)(call["call"], send)})
            code = 0
        except FedprintError as error:
            send({"error": str(error), "exit_code": error.exit_code})
        except BaseException as error:
            traceback.print_exc()
            send({"crash": f"{type(error).__name__}: {error}"})
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)  # no clean-up that the server's state would want


def _sender(connection: socket.socket) -> Callable[[Message], None]:
    lock = threading.Lock()

    def send(message: Message) -> None:
        with lock:
            connection.sendall(_line(message))

    return send


def _end_with_caller(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.recv(1)  # the caller sends nothing more: this returns when it is gone
    os._exit(1)


def _stand_where(call: Message) -> None:
    """Take on the caller's folder and environment: the server may have begun elsewhere and under others."""
    if (folder := call.get("folder")) is not None:
        os.chdir(folder)
    if (environment := call.get("environment")) is not None:
        os.environ.clear()
        os.environ.update(environment)


def _redirect(log: str | None) -> None:
    if log is None:
        return
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(sink, stream.fileno())
    os.close(sink)
    faulthandler.enable()


def _line(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


def read_line(connection: socket.socket) -> bytes:
    """Return the bytes up to the next newline, fewer where the connection ends."""
    line = bytearray()
    while not line.endswith(b"\n"):
        part = connection.recv(1)
        if not part:
            break
        line += part
    return bytes(line)


def listen(address: Path) -> socket.socket:
    """Return a listening socket at ``address``."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    address.unlink(missing_ok=True)
    listener.bind(str(address))
    listener.listen(BACKLOG)
    return listener


def private_address() -> Path:
    """Return a path for a socket that only this user can reach; short, as the system allows 100 characters."""
    return Path(tempfile.mkdtemp(prefix="fedprint-")) / "calls"


def main(arguments: list[str]) -> None:
    """``ADDRESS OWNER IDLE_S MODULE...``: listen, import the modules, serve; 0 is no owner, no limit."""
    address, owner, idle, *modules = arguments
    listener = listen(Path(address))
    for module in modules:
        import_module(module)
    try:
        serve(listener, idle_s=float(idle) or None, owner=int(owner) or None)
        Path(address).unlink(missing_ok=True)
        serve(listener, idle_s=2 * _LOOK_S)  # calls that came while the server was ending
    finally:
        Path(address).unlink(missing_ok=True)
        with suppress(OSError):
            Path(address).parent.rmdir()


if __name__ == "__main__":
    main(sys.argv[1:])
