"""A process that can open only what it was given: the threat model of a stage, kept by the kernel and by Python.

Two guards, because neither is everywhere: Landlock (Linux 5.13), by which the kernel refuses every other path to any
library of the process; and an audit hook, which refuses them to Python code on every system and says so in words.
"""

from __future__ import annotations

import ctypes
import os
import site
import sys
from collections.abc import Sequence
from pathlib import Path

import fedprint

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""Numbers of Landlock's system calls, the same on all architectures."""
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, list a folder
_ALL_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
"""Every right on files that a version of Landlock knows; later versions add none that matters here."""
_ON_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14  # execute, write, read, truncate

_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/sys", "/dev", "/System", "/Library")
_WRITTEN = ("/dev",)

_OPENED = frozenset({"open", "os.listdir", "os.scandir", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link"})


class Trespass(PermissionError):
    """A stage opened a path that is not among its inputs or outputs."""


def confine(read: Sequence[Path], write: Sequence[Path], *, name: str) -> bool:
    """Let this process, for the rest of its life, open only these paths, what is below them, and installed code.

    Return whether the kernel holds it to that; the audit hook does in any case. ``name`` is the stage's, for the error.
    """
    readable = [*_code(), *(path.resolve() for path in (*read, *write))]
    writable = [Path(each) for each in _WRITTEN] + [path.resolve() for path in write]
    kept = _landlock(readable, writable)
    _audit([*readable, *writable], name)
    return kept


def _code() -> list[Path]:
    """Return where the interpreter, installed packages and this one are."""
    package = str(Path(fedprint.__file__).parent)
    places = (*_SYSTEM, sys.prefix, sys.base_prefix, sys.exec_prefix, package, *site.getsitepackages())
    found = dict.fromkeys(Path(each).resolve() for each in places)
    return [path for path in found if path.exists()]


def _audit(allowed: Sequence[Path], name: str) -> None:
    # Without a trailing slash /work/cache would allow /work/cache-of-somebody-else.
    exact = {str(path) for path in allowed}
    below = tuple(f"{path}{os.sep}" for path in exact)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event not in _OPENED or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path = os.path.realpath(os.fsdecode(arguments[0]))
        # What does not exist is no secret: libraries look for settings in many places.
        if path not in exact and not path.startswith(below) and os.path.exists(path):
            raise Trespass(f"stage '{name}' opened {path}, which is not among its inputs and outputs")

    sys.addaudithook(hook)


def _landlock(readable: Sequence[Path], writable: Sequence[Path]) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if not sys.platform.startswith("linux") or not hasattr(libc, "syscall"):
        return False
    version = libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < 1:
        return False
    rights = _ALL_BY_VERSION[min(version, 3)]
    ruleset = libc.syscall(_CREATE, ctypes.byref(ctypes.c_uint64(rights)), ctypes.c_size_t(8), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    for paths, allowed in ((readable, _READ), (writable, rights)):
        for path in paths:
            _allow(libc, ruleset, path, allowed & rights)
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges, which Landlock asks for
    done = libc.syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)) == 0
    os.close(ruleset)
    return bool(done)


class _Below(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    if not path.exists():
        return
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = _Below(allowed=rights if path.is_dir() else rights & _ON_FILES, folder=handle)
    libc.syscall(_ADD, ctypes.c_int(ruleset), ctypes.c_int(1), ctypes.byref(rule), ctypes.c_uint32(0))
    os.close(handle)
