"""The Blog Authorship Corpus as its authors publish it: one file per blogger, not quite XML, of mixed encodings.

A file is named ``<id>.<gender>.<age>.<industry>.<sign>.xml`` and holds ``<Blog>`` with pairs of ``<date>`` (such as
31,May,2004) and ``<post>``.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import numpy as np

from fedprint.data.files import object_array
from fedprint.data.table import Sidecar, Table
from fedprint.types import FedprintError

ADULT = 18
"""Bloggers below this age are never read."""

LICENCE = "Blog Authorship Corpus: free for non-commercial research; personal writing: do not publish"

_NAME = re.compile(r"(\d+)\.(\w+)\.(\d+)\.([^.]+)\.([^.]+)\.xml")
_ENTRY = re.compile(r"<date>(.*?)</date>\s*<post>(.*?)</post>", re.DOTALL)


def fingerprint_files(folder: Path) -> str:
    """Return a hash of the files' names and sizes; their content is not read."""
    listing = "\n".join(f"{path.name} {path.stat().st_size}" for path in sorted(folder.glob("*.xml")))
    return sha256(listing.encode()).hexdigest()


def read_blog_files(folder: Path, min_posts: int) -> Table:
    """Return the adults with at least ``min_posts`` dated posts as a table: user, order, time, text, group.

    Users are numbered by the bloggers' ids; every third is background. Posts without a readable English date and empty
    posts are left out. Raises FedprintError when no blogger is left.
    """
    blogs = [posts for path in _adults(folder) if len(posts := _posts(path)) >= min_posts]
    if not blogs:
        raise FedprintError(f"{folder}: no adult with {min_posts} posts or more among the *.xml; lower min_posts")
    rows = [(user, order, *post) for user, posts in enumerate(blogs) for order, post in enumerate(posts)]
    user, order, time, text = zip(*rows, strict=True)
    columns = {
        "user": np.array(user, dtype=np.int64),
        "order": np.array(order, dtype=np.int64),
        "time": object_array(time),
        "text": object_array(text),
        "group": object_array(["background" if number % 3 == 2 else "federated" for number in user]),
    }
    files = {"blog.jsonl.gz": {"sha256": fingerprint_files(folder)}}
    sidecar = Sidecar.model_validate({"name": "blog", "licence": LICENCE, "files": files})
    return Table(name="blog", columns=columns, sidecar=sidecar, folder=folder)


def _adults(folder: Path) -> Sequence[Path]:
    named = [(match, path) for path in folder.glob("*.xml") if (match := _NAME.fullmatch(path.name))]
    return [path for match, path in sorted(named, key=lambda pair: int(pair[0][1])) if int(match[3]) >= ADULT]


def _posts(path: Path) -> list[tuple[str, str]]:
    """Return (ISO date, text) oldest first; the files hold the newest first."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    entries = [(_iso(date), _clean(post)) for date, post in reversed(_ENTRY.findall(text))]
    return sorted(((date, post) for date, post in entries if date and post), key=lambda entry: entry[0])


def _iso(date: str) -> str:
    try:
        return datetime.strptime(date.strip(), "%d,%B,%Y").date().isoformat()
    except ValueError:
        return ""


def _clean(post: str) -> str:
    return " ".join(html.unescape(post).replace("urlLink", " ").split())
