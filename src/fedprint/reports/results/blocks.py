"""Blocks of numbers and pictures in README and docs, written from published experiments alone.

A block begins with ``<!-- results: KIND NAME ... -->`` and ends with ``<!-- end -->``. An experiment is published when
git holds ``experiments/<name>/`` and its ``dvc.lock`` names the same measurements; other names leave no row.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fedprint.reports.results.lines import result_line
from fedprint.reports.results.picture import PICTURE, picture
from fedprint.reports.results.published import Published, find_published
from fedprint.reports.results.tables import (
    NOT_YET,
    attacks,
    claims,
    clients,
    confirmed,
    crowds,
    curves,
    epsilons,
    inversion,
    members,
    plane,
    verdicts,
)

_BLOCK = re.compile(r"(<!-- results: (\w+)([^>]*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

Block = Callable[[Sequence[Published]], str]


def _each(made: Callable[[Published], str]) -> Block:
    """Return the block that has a part for each experiment."""
    return lambda experiments: "\n\n".join(map(made, experiments))


KINDS: Mapping[str, Block] = {
    "attacks": attacks,
    "confirmed": confirmed,
    "epsilons": epsilons,
    "claims": _each(claims),
    "clients": _each(clients),
    "crowds": _each(crowds),
    "curves": _each(curves),
    "inversions": _each(inversion),
    "members": _each(members),
    "planes": _each(plane),
    "verdicts": _each(verdicts),
    "lines": _each(result_line),
    "picture": picture,
}


def rendered(root: Path, path: Path) -> str:
    """Return the text of a file with its blocks written anew."""

    def block(match: re.Match[str]) -> str:
        begin, kind, names, _, end = match.groups()
        experiments = [one for name in names.split() if (one := find_published(root, name)) is not None]
        body = KINDS[kind](experiments) if experiments else NOT_YET
        return f"{begin}{body.replace(str(PICTURE), os.path.relpath(root / PICTURE, path.parent))}\n{end}"

    return _BLOCK.sub(block, path.read_text(encoding="utf-8"))


def documents(root: Path) -> list[Path]:
    """Return the files that may hold blocks."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]
