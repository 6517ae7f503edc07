"""A federation whose attack stage has the declaration of the real one, and opens what that does not allow."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedprint.kinds.federation.graph import ASK, ATTACK, CHOOSE, FEDERATE, FEDERATION_WORK, PREPARE
from fedprint.lab.graph import Graph, Task, Work


def openers() -> dict[str, Callable[[Path], object]]:
    """Return ways to open a file: of Python, and of libraries that do not ask Python."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    return {
        "open": lambda path: path.open("rb").read(),
        "numpy": lambda path: np.memmap(path, mode="r"),
        "pandas": lambda path: pd.read_parquet(path),
        "pandas csv": lambda path: pd.read_csv(path),
        "arrow": lambda path: pa.memory_map(str(path)).read(),
        "arrow parquet": lambda path: pq.read_table(path),
    }


HIDDEN = {
    "truth": ("observed", "truth/index.parquet"),
    "answers": ("questions", "answers/updates.npz"),
    "private": ("prior", "private/users.npz"),
    "test": ("prior", "test/users.npz"),
}
"""What lies in the same folder as an input of the attack."""


def hidden(task: Task, name: str) -> Path:
    """Return the absolute path of what the attack may not open."""
    given, path = HIDDEN[name]
    return task.at(given).resolve().parent / path


def snoop(task: Task) -> None:
    """Try to open everything, and write what was said to it."""
    found: dict[str, Any] = {}
    for name in HIDDEN:
        path = hidden(task, name)
        for how, opener in openers().items():
            found[f"{name} by {how}"] = said_of(lambda path=path, opener=opener: opener(path))
        found[f"{name} by listing"] = said_of(lambda path=path: list(path.parent.iterdir()))
    own = task.at("observed") / "index.parquet"
    found["own"] = [said_of(lambda how=how: openers()[how](own)) for how in ("open", "numpy", "pandas", "arrow")]
    task.at("attack").mkdir()
    (task.at("attack") / "found.json").write_text(json.dumps(found))


def said_of(opening: Callable[[], object]) -> str:
    """Return ``opened``, or the error."""
    try:
        opening()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "opened"


def cheat(task: Task) -> None:
    """Open the truth by its absolute path, as an attack with a fault would."""
    hidden(task, "truth").read_bytes()


def _work(name: str, run: str, also: str) -> Work:
    """Return a federation with another attack; ``also`` is code that gives it a key of its own."""
    inputs = (*ATTACK.inputs, "questions")  # beside the answers
    stage = replace(ATTACK, inputs=inputs, run=f"{__name__}:{run}", code=(*ATTACK.code, also))
    graph = Graph((PREPARE, CHOOSE, FEDERATE, ASK, stage))
    return Work(path=f"{__name__}:{name}", graph=graph, parse=FEDERATION_WORK.parse)


SNOOPING = _work("SNOOPING", "snoop", "errors.py")
CHEATING = _work("CHEATING", "cheat", "component.py")
