"""The error for everything that a user can correct. It is not in types.py, because that imports torch."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class FedprintError(Exception):
    """Bad input or a state that the user can correct; the message is one line that names the value and the remedy.

    ``exit_code`` is the exit status of the command.
    """

    exit_code = 2


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'knn'? `` for a name that is close to what was typed; empty where none is."""
    close = get_close_matches(typed, list(known), n=1)
    return f"did you mean '{close[0]}'? " if close else ""
