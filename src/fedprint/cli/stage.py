"""``python -m fedprint.cli.stage STAGE EXPERIMENT [PRIOR SEED]``: what the stages of dvc.yaml start.

A client of the project's shared fork server: it imports neither torch nor typer, and starts in a tenth of a second.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fedprint.errors import FedprintError
from fedprint.lab.project import find_root
from fedprint.lab.workers.pool import converse
from fedprint.lab.workers.shared import connected

FUNCTION = "fedprint.kinds.versioned:run_stage"
MODULES = ("fedprint.kinds.preload", "fedprint.kinds.versioned")
USAGE = "usage: python -m fedprint.cli.stage STAGE EXPERIMENT [PRIOR SEED]"
_EVERY_S = 10.0


def main(arguments: Sequence[str]) -> int:
    """Run one stage of an experiment and return its exit code; errors are one line."""
    try:
        call = call_of(arguments)
        root = find_root()
        address, connection = connected(root, MODULES)
        whole = {**call, "root": str(root), "address": str(address)}
        return int(converse(connection, FUNCTION, whole, Shown()) or 0)
    except FedprintError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # closing the connection has ended the stage
        return 130


def call_of(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the call of a stage. Raises FedprintError for arguments unlike :data:`USAGE`."""
    if len(arguments) not in (2, 4) or not all(arguments) or (len(arguments) == 4 and not arguments[3].isdigit()):
        raise FedprintError(USAGE)
    stage, experiment, *item = arguments
    prior, seed = (item[0], int(item[1])) if item else (None, None)
    return {"stage": stage, "experiment": experiment, "prior": prior, "seed": seed}


class Shown:
    """Prints the messages of a stage: its lines, and its progress at most every ten seconds and at the end."""

    def __init__(self) -> None:
        """Start the clock."""
        self._last = time.monotonic()

    def __call__(self, message: Mapping[str, Any]) -> None:
        """Print one message."""
        if "line" in message:
            print(message["line"], flush=True)
        if "progress" in message:
            title, done, total, note = message["progress"]
            if done >= total or time.monotonic() - self._last >= _EVERY_S:
                self._last = time.monotonic()
                print(f"{title} {done}/{total}  {note}".rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
