"""``fedprint config``: what a run would use."""

from __future__ import annotations

from fedprint.cli.options import Assignments, Fast, Name, What, asked

EPILOG = "Examples: fedprint config mnist-writers --set federation.rounds=20 | fedprint config albums-plane --fast"


def config(what: What, fast: Fast = False, assign: Assignments = None, name: Name = None) -> None:
    """Print the resolved configuration and its hash."""
    from fedprint.kinds.registry import kind_of

    source = asked(what, fast, assign, name)
    found = kind_of(source.values).load(source)
    print(f"{found.text()}# config hash {found.digest()}")
