"""The Blog Authorship Corpus as its authors publish it: one file per blogger, not quite XML, of mixed encodings.

A file is named ``<id>.<gender>.<age>.<industry>.<sign>.xml`` and holds ``<Blog>`` with pairs of ``<date>`` (such as
31,May,2004) and ``<post>``.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import numpy as np

from fedprint.data.formats.files import known_sha256, object_array
from fedprint.data.formats.table import Sidecar, Table
from fedprint.types import FedprintError

ADULT = 18
"""Bloggers below this age are never read."""

LICENCE = "Blog Authorship Corpus: free for non-commercial research; personal writing: do not publish"

_NAME = re.compile(r"(\d+)\.(\w+)\.(\d+)\.([^.]+)\.([^.]+)\.xml")
_ENTRY = re.compile(r"<date>(.*?)</date>\s*<post>(.*?)</post>", re.DOTALL)


def fingerprint_files(folder: Path) -> str:
    """Return a hash of the files' names and contents."""
    listing = "\n".join(f"{path.name} {known_sha256(path)}" for path in sorted(folder.glob("*.xml")))
    return sha256(listing.encode()).hexdigest()


def read_blog_files(folder: Path, min_posts: int) -> Table:
    """Return the adults with at least ``min_posts`` dated posts as a table: user, order, time, text, group.

    Users are numbered by the bloggers' ids; every third is background. Posts without a readable English date and empty
    posts are left out. Raises FedprintError when no blogger is left.
    """
    blogs = [posts for path in _adults(folder) if len(posts := _posts(path)) >= min_posts]
    if not blogs:
        raise FedprintError(f"{folder}: no adult with {min_posts} posts or more among the *.xml; lower min_posts")
    return _table(folder, blogs, ["background" if number % 3 == 2 else "federated" for number in range(len(blogs))])


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The bloggers that are kept, as a table; ``left_out`` counts everything else in the folder by reason."""

    table: Table
    left_out: Mapping[str, int]


def read_corpus(folder: Path, min_posts: int, background_users: int) -> Corpus:
    """Return all adults with ``min_posts`` dated posts or more, and as background those of the others with most posts.

    The table is that of :func:`read_blog_files`: users are numbered by the ids of the bloggers that are kept. Only
    these are held in memory. Raises FedprintError when either group is empty.
    """
    adults = _adults(folder)
    bound = {path: path.read_bytes().count(b"<post>") for path in adults}
    many = {path: posts for path in adults if bound[path] >= min_posts and len(posts := _posts(path)) >= min_posts}
    others = sorted((path for path in adults if path not in many), key=lambda path: -bound[path])
    few = {path: posts for path in others[:background_users] if (posts := _posts(path))}
    for kept, says in ((many, f"no adult with {min_posts} posts or more"), (few, "no other adult for the vocabulary")):
        if not kept:
            raise FedprintError(f"{folder}: {says} among the *.xml; lower data.min_posts or unpack the whole corpus")
    read = {**few, **many}
    blogs = {path: read[path] for path in adults if path in read}
    groups = ["federated" if path in many else "background" for path in blogs]
    unread = sum(bound[path] for path in blogs) - sum(map(len, blogs.values()))
    left_out = {
        "bloggers under 18": sum(1 for match, _ in _named(folder) if int(match[3]) < ADULT),
        "adults beyond background_users": len(adults) - len(blogs),
        "posts without a date or text": unread,
    }
    return Corpus(table=_table(folder, list(blogs.values()), groups), left_out=left_out)


def _table(folder: Path, blogs: Sequence[Sequence[tuple[str, str]]], groups: Sequence[str]) -> Table:
    """Return the table of (ISO date, text) by blogger and the bloggers' groups."""
    rows = [(user, order, *post) for user, posts in enumerate(blogs) for order, post in enumerate(posts)]
    user, order, time, text = zip(*rows, strict=True)
    columns = {
        "user": np.array(user, dtype=np.int64),
        "order": np.array(order, dtype=np.int64),
        "time": object_array(time),
        "text": object_array(text),
        "group": object_array([groups[number] for number in user]),
    }
    files = {"blog.jsonl.gz": {"sha256": fingerprint_files(folder)}}
    sidecar = Sidecar.model_validate({"name": "blog", "licence": LICENCE, "files": files})
    return Table(name="blog", columns=columns, sidecar=sidecar, folder=folder)


def _named(folder: Path) -> list[tuple[re.Match[str], Path]]:
    return [(match, path) for path in folder.glob("*.xml") if (match := _NAME.fullmatch(path.name))]


def _adults(folder: Path) -> Sequence[Path]:
    return [path for match, path in sorted(_named(folder), key=lambda pair: int(pair[0][1])) if int(match[3]) >= ADULT]


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
