"""The fenced blocks of README and docs, and a reader's way through the commands of one section of a page.

A block that cannot run says why: ``<!-- not run: REASON -->`` on the line before it. One whose last command is to fail
says how: ``<!-- exits: 3 -->``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tiny_project import CHECKOUT

FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n+|<!-- exits: (?P<exits>\d+) -->\n+)?"
    r"```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.M | re.S,
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block: where it stands, its language, its text, why it is not run, and the exit code of a command."""

    page: Path
    line: int
    language: str
    text: str
    reason: str | None
    exits: int = 0

    def __str__(self) -> str:
        return f"{shown(self.page)}:{self.line}"


def shown(path: Path) -> str:
    """Return the name of a page in the name of a test."""
    return str(path.relative_to(CHECKOUT))


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    return list(_blocks(page, page.read_text(encoding="utf-8")))


def blocks_below(page: Path, heading: str) -> list[Block]:
    """Return the blocks of the section with this heading of level two. Raises ValueError where there is none."""
    text = page.read_text(encoding="utf-8")
    begin = text.index(f"## {heading}\n")
    end = text.find("\n## ", begin)
    return list(_blocks(page, text, begin, len(text) if end < 0 else end))


def _blocks(page: Path, text: str, begin: int = 0, end: int | None = None) -> Iterator[Block]:
    for found in FENCE.finditer(text, begin, len(text) if end is None else end):
        line = text[: found.start("language")].count("\n") + 1
        exits = int(found["exits"] or 0)
        yield Block(
            page=page, line=line, language=found["language"], text=found["text"], reason=found["reason"], exits=exits
        )


def clone(folder: Path) -> Path:
    """Return a clone of this checkout, with what is not committed yet on top of it."""
    subprocess.run(["git", "clone", "--quiet", "--local", str(CHECKOUT), str(folder)], check=True)
    listing = ["git", "ls-files", "-z", "--modified", "--others", "--exclude-standard"]
    for name in subprocess.run(listing, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, folder / name)
    return folder


def follow(blocks: list[Block], folder: Path, env: Mapping[str, str]) -> list[str]:
    """Run blocks of commands in order in a folder, as a reader would type them, and return what each one printed.

    Asserts that each exits as its page says.
    """
    printed = []
    for block in blocks:
        command = ["bash", "-euo", "pipefail", "-c", block.text]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        said = f"{block} ended with {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        assert done.returncode == block.exits, said
        printed.append(done.stdout)
    return printed
