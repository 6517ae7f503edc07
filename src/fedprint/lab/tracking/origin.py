"""What MLflow shows beside a run's numbers: names and values that it takes, and where a run comes from."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

LONGEST_NAME = 250
LONGEST_PARAM = 6000
LONGEST_TAG = 8000


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings as ``data.clients`` and their values; a list of components as ``attacks.0.name``."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
            yield from flat({str(index): each for index, each in enumerate(value)}, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def shorten(value: object, longest: int) -> str:
    """Return a value as text of at most ``longest`` characters, the last one an ellipsis when it was cut."""
    text = str(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def plain_name(name: str) -> str:
    """Return a name that MLflow takes for metrics, parameters and tags; other characters become ``_``.

    Longer names than MLflow's 250 characters end in a digest instead.
    """
    plain = re.sub(r"[^\w./ :-]", "_", name)
    if len(plain) <= LONGEST_NAME:
        return plain
    return f"{plain[: LONGEST_NAME - 9]}-{sha256(plain.encode()).hexdigest()[:8]}"


def canonical_key(key: Mapping[str, str]) -> str:
    """Return the text by which a run is found again: equal for equal keys only, in any order."""
    return json.dumps({name: str(value) for name, value in key.items()}, sort_keys=True)


def param_texts(params: Mapping[str, object]) -> dict[str, str]:
    """Return parameters as MLflow stores them, whole up to its limit of 6000 characters."""
    return {plain_name(name): shorten(value, LONGEST_PARAM) for name, value in params.items()}


def tag_texts(tags: Mapping[str, object]) -> dict[str, str]:
    """Return tags as MLflow stores them, whole up to its limit of 8000 characters."""
    return {plain_name(name): shorten(value, LONGEST_TAG) for name, value in tags.items()}


def origin_tags(root: Path) -> dict[str, str]:
    """Return where a run comes from: user, command, git commit (``-dirty`` when files differ), DVC's stage and root."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "unknown"
    tags = {
        "mlflow.user": user,
        "mlflow.source.name": command_line(),
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": git_commit(root),
    }
    named = {"DVC_STAGE": "dvc.stage", "DVC_ROOT": "dvc.root"}
    return tags | {tag: os.environ[variable] for variable, tag in named.items() if variable in os.environ}


def command_line() -> str:
    """Return the command that this process is; of a stage that DVC started, ``dvc repro``."""
    if "DVC_STAGE" in os.environ:
        return "dvc repro"
    return " ".join([Path(sys.argv[0]).name or "python", *sys.argv[1:]])


def git_commit(root: Path) -> str:
    """Return the commit of the working tree, with ``-dirty`` when tracked files differ; ``unknown`` without git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"
