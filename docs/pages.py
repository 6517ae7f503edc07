"""What mkdocs adds to docs/ (``make docs``): pages made from code, README as the start page, links out of docs/.

Nothing that it writes is kept in git. A built page that would load anything from another host is an error.
"""

from __future__ import annotations

import fnmatch
import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

from paper_pages import paper_pages  # noqa: E402
from reference import reference_pages  # noqa: E402

ELSEWHERE = {"README.md": "index.md", "LOG.md": "log.md", "benchmarks/RESULTS.md": "benchmarks.md"}
"""File of the repository -> page of the site."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"(```.*?```|`(?:[^`\n]|\n(?!\n))*`)", re.DOTALL)
_ROLE = re.compile(r":(?:meth|class|func|data|attr|mod|exc):<code>~?")
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|srcset|data)=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?![^>]*rel=["']?canonical)[^>]*?\bhref=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|(?:@import\s*|url\()["']?((?:https?:)?//[^"')\s]+)"""
)
"""What a browser loads by itself from another host."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each pattern in the navigation by the pages that it names."""
    config.nav = [_listed(entry) for entry in config.nav or ()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files in docs/."""
    for source, name in ELSEWHERE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    for name, text in written_pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links that leave docs/ to their pages; what has none is named by its path in the repository."""
    name = page.file.src_uri
    source = next((ROOT / path for path, own in ELSEWHERE.items() if own == name), ROOT / "docs" / name)
    parts = _CODE.split(markdown)
    return "".join(
        part if i % 2 else _LINK.sub(lambda m: _linked(m, source, name), part) for i, part in enumerate(parts)
    )


def on_page_content(html: str, **_: Any) -> str:
    """Take the roles off the names in docstrings (``:class:`~fedprint.types.User```): a reader needs the name alone."""
    return _ROLE.sub("<code>", html)


def on_post_build(config: MkDocsConfig) -> None:
    """Raise PluginError where a built page loads anything from another host."""
    site = Path(config.site_dir)
    if found := list(loaded_from_elsewhere(site)):
        raise PluginError(
            "loaded from another host: " + "; ".join(f"{path.relative_to(site)}: {url}" for path, url in found)
        )


@cache
def written_pages() -> Mapping[str, str]:
    """Return the pages that are made from code and results: path below docs/ -> Markdown."""
    return {**reference_pages(), **paper_pages()}


def loaded_from_elsewhere(site: Path) -> Iterator[tuple[Path, str]]:
    """Yield each page or style sheet below ``site`` with what it loads from another host."""
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".css", ".svg"):
            for groups in _LOADED.findall(path.read_text(encoding="utf-8")):
                yield path, next(filter(None, groups))


def _listed(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {title: _listed(inside) for title, inside in entry.items()}
    if isinstance(entry, list):
        return [_listed(each) for each in entry]
    if "*" not in entry:
        return entry
    kept = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").glob(entry)]
    return sorted([*kept, *fnmatch.filter(written_pages(), entry)])


def _linked(match: re.Match[str], source: Path, page: str) -> str:
    image, text, target = match.groups()
    path, _, anchor = target.partition("#")
    if not path or "://" in path or path.startswith("mailto:"):
        return match.group()
    inside = os.path.relpath(source.parent.joinpath(path).resolve(), ROOT)
    to = inside.removeprefix("docs/") if inside.startswith("docs/") else ELSEWHERE.get(inside)
    if to is None or (ROOT / inside).is_dir():
        return text if inside in text else f"{text} (`{inside}`)"
    relative = os.path.relpath(to, Path(page).parent)
    return f"{image}[{text}]({relative}{'#' + anchor if anchor else ''})"
