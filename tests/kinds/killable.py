"""``python killable.py NAME``: run an experiment of the project that is the current folder, without tracking."""

from __future__ import annotations

import sys
from pathlib import Path

from fedprint.kinds.laboratory import PRELOADED, lab_in
from fedprint.kinds.registry import kind_of
from fedprint.kinds.sources import source
from fedprint.lab.pool import LocalPool


def main(name: str) -> None:
    asked = source(Path.cwd(), name)
    kind = kind_of(asked.values)
    config = kind.load(asked)
    with LocalPool(PRELOADED) as pool, lab_in(asked.root, pool, jobs=2, tracker=None) as lab:
        kind.carry_out(config, lab, asked.root / "reports" / name)


if __name__ == "__main__":
    main(sys.argv[1])
