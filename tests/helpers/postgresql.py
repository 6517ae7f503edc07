"""A PostgreSQL server for a test: its own data, no port (a socket in its own folder), gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROLE = "fedprint"


def installed() -> Path | None:
    """Return the folder of the newest server's programs, or None; Debian keeps them off PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    named = shutil.which("initdb")
    return Path(named).resolve().parent if named and shutil.which("pg_ctl") else None


@contextmanager
def server() -> Iterator[str]:
    """Start a server and yield the URL of its database, for SQLAlchemy with psycopg.

    The server refuses to run as root; then it runs as the user postgres, which the package creates.
    """
    programs = installed()
    assert programs is not None
    as_user: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
    # Below the system's folder for temporary files: pytest's own cannot be entered by another user.
    folder = Path(tempfile.mkdtemp(prefix="fedprint-postgresql-"))

    def call(program: str, *arguments: str) -> None:
        command = [str(programs / program), *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **as_user)
        log = folder / "log"
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}{log.read_text() if log.exists() else ''}"

    try:
        if as_user:
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data = str(folder / "data")
        call("initdb", "-D", data, "-U", ROLE, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        call("pg_ctl", "-D", data, "-l", str(folder / "log"), "-w", "-o", options, "start")
        try:
            yield f"postgresql+psycopg://{ROLE}@/postgres?host={folder}"
        finally:
            call("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
