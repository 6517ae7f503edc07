"""``fedprint config``: the settings of a run."""

from __future__ import annotations

from fedprint.cli.options import Assignments, Fast, Name, What, request_of

EPILOG = "Examples: fedprint config mnist-writers --set federation.rounds=20 | fedprint config albums-plane --fast"


def print_config(what: What, fast: Fast = False, assign: Assignments = None, name: Name = None) -> None:
    """Print the resolved configuration and its hash."""
    from fedprint.kinds.registry import kind_of

    request = request_of(what, fast, assign, name)
    config = kind_of(request.values).load(request)
    print(f"{config.text()}# config hash {config.digest()}")
