"""A process that can open only its given paths: the threat model of a stage, enforced by the kernel and by Python.

There are two guards, because neither is enough everywhere. With Landlock (Linux 5.13) the kernel refuses every other
path to any library of the process. An audit hook refuses them to Python code on every system, with a clear error.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path

import fedprint
from fedprint.errors import FedprintError
from fedprint.plugins import code_places, installed_roots

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""Numbers of Landlock's system calls, the same on all architectures."""
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, list a folder
_ALL_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
"""Every right on files that a version of Landlock knows; later versions add none that matters here."""
_ON_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14  # execute, write, read, truncate

_CODE = ("bin", "lib", "lib64", "share")
"""What an interpreter's prefix holds of code: beside it, in a container or a clone, the project itself may lie."""
_SYSTEM = (
    *(f"{prefix}/{part}" for prefix in ("/usr", "/usr/local") for part in (*_CODE, "lib32", "sbin", "libexec")),
    *("/usr/local/cuda", "/usr/local/nvidia", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/sys"),
    *("/System", "/Library"),
)
_DEVICES = (
    *("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty"),
    *("/dev/nvidia*", "/dev/dxg", "/dev/kfd", "/dev/dri"),
)
"""Devices, accelerators among them; never /dev/shm, where one stage could leave a message for another."""

_PATHS: Mapping[str, Sequence[tuple[int, int | None]]] = {
    "open": ((0, None),),
    "os.listdir": ((0, None),),
    "os.scandir": ((0, None),),
    "os.truncate": ((0, None),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.symlink": ((1, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
}
"""Python's events about files: the index of each path among the arguments, and of the open folder it is relative to."""
_LISTS = frozenset({"os.listdir", "os.scandir"})
_PROGRAMS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"})
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Trespass(PermissionError):
    """A stage opened a path that is not among its inputs or outputs."""


def confine(read: Sequence[Path], write: Sequence[Path], *, name: str) -> bool:
    """Let this process, for the rest of its life, open only these paths, what is below them, and installed code.

    Return whether the kernel enforces it; the audit hook does in any case. ``name`` is the stage's, for the error.
    """
    readable = [*_code(), *(path.resolve() for path in (*read, *write))]
    writable = [*_devices(), *(path.resolve() for path in write)]
    kept = _landlock(readable, writable)
    _audit([*readable, *writable], writable, name, programs=kept)
    return kept


def refuse_exposed(paths: Iterable[Path]) -> None:
    """Raise FedprintError where one of the paths lies among installed code, which every stage may open."""
    code = _code()
    for path in paths:
        if among := next((each for each in code if path.resolve().is_relative_to(each)), None):
            raise FedprintError(f"{path} lies in {among}, which every stage may open: move it out of there")


def _code() -> list[Path]:
    """Return where the interpreter, installed packages, this one, plug-ins and the system's libraries are."""
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    installed = (f"{prefix}/{part}" for prefix in prefixes for part in _CODE)
    packages = (path for path in sys.path if Path(path).name in ("site-packages", "dist-packages"))
    plug_ins = (str(place) for root in installed_roots() for place in code_places(root))
    folders = (*_SYSTEM, *installed, *packages, *plug_ins, str(Path(fedprint.__file__).parent))
    return [path for path in dict.fromkeys(Path(each).resolve() for each in folders) if path.exists()]


def _devices() -> list[Path]:
    return [Path(path) for pattern in _DEVICES for path in glob(pattern)]


def _audit(readable: Sequence[Path], writable: Sequence[Path], name: str, *, programs: bool) -> None:
    """Refuse other paths to Python code, and ``programs`` where no kernel would refuse them these paths."""
    may_read, may_change = _holding(readable), _holding(writable)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in _PROGRAMS and not programs:
            raise Trespass(f"stage '{name}' started {arguments[0]!r}, which without Landlock could open anything")
        for path in _named(event, arguments):
            changes = _changes(event, arguments)
            if not may_read(path):
                # What does not exist is no secret: libraries look for settings in many folders.
                if changes or os.path.exists(path):
                    raise Trespass(f"stage '{name}' opened {path}, which is not among its inputs and outputs")
            elif changes and not may_change(path):
                raise Trespass(f"stage '{name}' changed {path}, which is not among its outputs")

    sys.addaudithook(hook)


def _holding(paths: Sequence[Path]) -> Callable[[str], bool]:
    """Return a test of whether a path is one of these, or below one."""
    # Without the separator a folder would allow every other whose name begins with its own.
    exact = frozenset(map(str, paths))
    below = tuple(f"{path}{os.sep}" for path in exact)
    return lambda path: path in exact or path.startswith(below)


def _named(event: str, arguments: Sequence[object]) -> Iterator[str]:
    """Yield the real paths that an event is about, where it is about files."""
    for index, folder in _PATHS.get(event, ()):
        path = "." if event in _LISTS and arguments[index] is None else arguments[index]
        # A descriptor, of a file or of the folder that a path counts from, was checked when it was opened.
        if isinstance(path, str | bytes | os.PathLike):
            text = os.fsdecode(path)
            if folder is None or arguments[folder] == -1 or os.path.isabs(text):
                yield os.path.realpath(text)


def _changes(event: str, arguments: Sequence[object]) -> bool:
    """Return whether an event changes files, or would make one."""
    if event == "open":
        return isinstance(flags := arguments[2], int) and bool(flags & _CHANGES)
    return event not in _LISTS


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
