"""The Ray cluster that a process belongs to: one that exists, or one of its own on this machine."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from typing import Any

from fedprint.errors import FedprintError

ADDRESS = "RAY_ADDRESS"
"""The variable of the environment in which Ray itself looks for a cluster's address."""
_QUIET: dict[str, Any] = {"configure_logging": False, "log_to_driver": False, "include_dashboard": False}


def connect(address: str | None, **options: Any) -> None:
    """Connect to the cluster at ``address`` as ``ray.init`` does; by default to a new one of this process.

    Raises FedprintError where Ray or the cluster is missing.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise FedprintError("Ray is not installed: pip install 'fedprint[ray]'") from None
    try:
        if address and ":" in address:  # Ray would try for minutes
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address or "local", **_QUIET, **options)  # by default Ray would join any cluster of this machine
    except (OSError, ValueError) as error:
        remedy = "start one with `ray start --head`, or name none for one on this machine"
        raise FedprintError(f"no Ray cluster at '{address}' ({error}); {remedy}") from None


def join() -> None:
    """Connect to the cluster at $RAY_ADDRESS, or else start one of this process; nothing happens when it has joined.

    A stage joins before it is confined. What Ray swaps to the disk is then in the stage's temporary folder, which it
    may empty when it leaves. Raises as :func:`connect`.
    """
    if (ray := sys.modules.get("ray")) is not None and ray.is_initialized():
        return
    if address := os.environ.get(ADDRESS):
        connect(address)
    else:
        connect("local", object_spilling_directory=tempfile.gettempdir())


def leave() -> None:
    """Leave the cluster; one that this process has started ends."""
    import ray

    ray.shutdown()
