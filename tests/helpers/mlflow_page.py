"""MLflow's page on a database, on a port of its own, and what one does there first."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from chromium import Page

from fedprint.lab.tracking.database import PAGE, tracking_uri

START_S = 600  # its end is noticed at once; a loaded machine needs minutes for its start


@contextmanager
def mlflow_page(root: Path) -> Iterator[str]:
    """Start MLflow's page on the database of ``root`` and yield its address."""
    with mlflow_server(root, tracking_uri(root)) as address:
        yield address


@contextmanager
def mlflow_server(root: Path, database: str, *more: str) -> Iterator[str]:
    """Start MLflow's server on a ``database`` and yield its address; its log is ``page.log`` below ``root``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = ["server", "--backend-store-uri", database, "--port", str(port), "--workers", "1", *more]
    with (root / "page.log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", "mlflow", *own], cwd=root, stdout=log, stderr=log)
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, root / "page.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urlopen(address):
                return
        except (URLError, ConnectionError):
            time.sleep(0.2)
    raise RuntimeError(f"MLflow's page did not start: {log.read_text()[-2000:]}")


def visit(page: Page, address: str, link: str) -> None:
    """Open a link of fedprint's on the page that runs at ``address``, with MLflow's assistant closed."""
    page.open(link.replace(PAGE, address))
    page.wait("document.readyState === 'complete' && location.href.startsWith('http')")
    page.run("localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')")
    page.run("localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false')")
    page.open(link.replace(PAGE, address))
