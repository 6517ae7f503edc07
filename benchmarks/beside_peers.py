"""pfl and Flower beside the plain loop on W1, W2 and W3, each in an environment that is made for it.

An environment lies below ``~/.cache/fedprint/bench`` (or ``$XDG_CACHE_HOME``), sees this one's packages too, and so
runs the same torch; pip installs the peer with the user's settings. A peer that cannot be installed is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

from benchmarks.measuring import ROOT, Cell, Section, median, ratio, say
from benchmarks.workloads import WORKLOADS

PEERS = {"pfl": "pfl==0.6.*", "flwr": "flwr[simulation]==1.41.*"}
LIMIT_S = 600


def measure_pfl(quick: bool) -> Section:
    """Compare pfl with the loop."""
    return measure("pfl", quick)


def measure_flwr(quick: bool) -> Section:
    """Compare Flower with the loop."""
    return measure("flwr", quick)


def measure(peer: str, quick: bool) -> Section:
    """Compare a peer with the loop, in turns in one process; its first round stands apart."""
    cells: list[Cell] = []
    try:
        python = environment(peer)
        for name in WORKLOADS:
            cells += row(peer, name, rounds(python, peer, name, 5 if quick else 31))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        missing = f"{peer} is missing: {said[-1] if said else type(error).__name__}"
        say(missing)
        return Section(cells=tuple(cells), notes=(missing,))
    note = (
        f"Column {peer}: the loop's processor time over that of the peer and all its processes, above 1 is faster; "
        "steady state. First round: from the start of the simulation to the end of its first round. Memory: of all its "
        "processes, shared pages divided among them."
    )
    return Section(cells=tuple(cells), notes=(note,))


def environment(peer: str) -> Path:
    """Return the Python of a peer's environment, which is made where it is missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache / "fedprint" / "bench" / f"{peer}-{version}"
    python, stamp = folder / "bin" / "python", folder / "requirement"
    if not stamp.exists() or stamp.read_text() != PEERS[peer]:
        say(f"  installing {PEERS[peer]} into {folder}")
        venv.create(folder, clear=True, with_pip=True)
        (folder / "lib" / version / "site-packages" / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PEERS[peer]]
        subprocess.run(pip, capture_output=True, text=True, check=True, timeout=LIMIT_S)
        stamp.write_text(PEERS[peer])
    return python


def rounds(python: Path, peer: str, workload: str, number: int) -> dict[str, Any]:
    """Return what the peer's script prints: the seconds of its rounds and the loop's."""
    command = [str(python), "-m", "benchmarks.peers", peer, workload, str(number)]
    quiet = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}
    run = subprocess.run(
        command, cwd=ROOT, env=os.environ | quiet, capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    found = [line for line in run.stdout.splitlines() if line.startswith('{"first"')]
    if not found:
        raise ValueError(f"{workload} ended without a result: {run.stderr.strip()[-200:]}")
    return dict(json.loads(found[-1]))


def row(peer: str, workload: str, said: dict[str, Any]) -> list[Cell]:
    """Return the peer's cells in a workload's row."""
    steady, first = said["steady"], said["first"]
    cells = [
        ratio(workload, peer, steady["loop"], steady["peer"]),
        median(workload, f"{peer}, rounds/s on the clock", [1 / s for s in steady["peer_clock"]]),
        Cell(row=workload, column=f"{peer}, first round s", value=first["peer"]),
        Cell(row=workload, column=f"{peer}, first round s on the clock", value=first["peer_clock"]),
        Cell(row=workload, column=f"{peer}, MiB", value=said["mib"]),
    ]
    say(f"  {workload}, {peer}: {cells[0].text()} times the loop")
    return cells
