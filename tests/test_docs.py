"""Every fenced block of README and docs: Python runs, commands and settings are checked by the program itself.

A block that cannot run here says why: ``<!-- not run: REASON -->`` on the line before it. Blocks without a language,
and ``text``, are no code. Python blocks of one page share their names, and run in order in an empty folder.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from doc_blocks import Block, blocks_of, shown
from tiny_project import CHECKOUT, Project, make_project
from typer.main import get_command

from fedprint.cli.main import app
from fedprint.kinds.registry import kind_of
from fedprint.kinds.requests import FOLDERS, request_for
from fedprint.store.recorded.manifest import Manifest

PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]
LANGUAGES = ("", "text", "python", "sh", "bash", "yaml", "toml")
ELSEWHERE = ("cd", "createdb", "export", "git", "mlflow", "mv", "pip", "printf", "ray", "srun")
"""Programs that are not ours, whose words are not checked (mlflow's are, where a test starts it: mlflow_page.py)."""


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
CHECKED = [block for block in BLOCKS if block.reason is None]


def test_every_fence_is_a_block_in_a_language_that_is_checked() -> None:
    """A fence that the expression does not match would hide its code from all tests here."""
    for page in PAGES:
        fences = [line for line in page.read_text(encoding="utf-8").splitlines() if line.lstrip().startswith("```")]
        assert len(fences) == 2 * len(blocks_of(page)), page
    assert [str(block) for block in BLOCKS if block.language not in LANGUAGES] == []


# Python ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", sorted({block.page for block in CHECKED if block.language == "python"}), ids=shown)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.language == "python" and block.reason is None:
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)


# Commands -------------------------------------------------------------------------------------------------------------


def commands_of(text: str) -> Iterator[list[str]]:
    """Yield the words of each command, without comments and environment variables; continued lines are joined."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("&|;"):
                if plain := without_environment(words):
                    yield plain
                words = []
            else:
                words.append(word)


def without_environment(words: Sequence[str]) -> list[str]:
    """Return the words from the program on."""
    first = next((i for i, word in enumerate(words) if not re.match(r"[A-Z_]+=", word)), len(words))
    return list(words[first:])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with the repository's settings, of which nothing is run."""
    return make_project(tmp_path_factory.mktemp("project"))


@pytest.mark.parametrize("block", [b for b in CHECKED if b.language in ("sh", "bash")], ids=str)
def test_commands_are_understood(block: Block, root: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPRINT_ROOT", str(root.root))
    commands = list(commands_of(block.text))
    assert commands, "no command in it"
    for words in commands:
        check(words, root.root)


def check(words: Sequence[str], root: Path) -> None:
    """Have a command read by the program that it is for, up to the point where it would begin to work."""
    program, *rest = words
    program = program.removeprefix(".venv/bin/").removeprefix(".venv-flower/bin/")
    if program == "fedprint":
        check_fedprint(rest, root)
    elif program == "make":
        known = re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.M)
        assert {word for word in rest if "=" not in word} <= set(known), words
    elif program == "dvc":
        check_dvc(rest)
    elif program == "python" and rest[0] == "-m":
        assert importlib.util.find_spec(rest[1]) is not None, words
    elif program == "python":
        assert (CHECKOUT / rest[0]).is_file(), words
    else:
        assert program in ELSEWHERE, f"{program}: is it ours? Else name it in ELSEWHERE"


def check_fedprint(words: list[str], root: Path) -> None:
    """Parse a command as typer does, and resolve the settings of those that have any."""
    command = get_command(app)
    name, rest = words[0], words[1:]
    while hasattr(command, "commands"):
        command = command.commands[name]
        if hasattr(command, "commands"):
            name, rest = rest[0], rest[1:]
    params = command.make_context(name, rest).params
    if what := params.get("what", params.get("study")):
        folders = FOLDERS[:: -1 if "study" in params else 1]
        given = {
            "assignments": params.get("assign") or (),
            "name": params.get("name"),
            "fast": bool(params.get("fast")),
        }
        request = request_for(root, what, folders=folders, **given)
        kind_of(request.values).load(request)


def check_dvc(words: list[str]) -> None:
    from dvc.cli import parse_args

    with contextlib.redirect_stderr(None):
        parse_args([word for word in words if not re.fullmatch(r"<\w+>|\.\.\.", word)])


@pytest.mark.parametrize(
    "command",
    [
        "fedprint run quickstart --no-such-option",
        "fedprint run no-such-experiment",
        "fedprint run quickstart --set federation.no_such_key=1",
        "fedprint no-such-command",
        "make no-such-target",
        "dvc no-such-command",
        "python -m benchmarks.no_such_module",
        "no-such-program",
    ],
)
def test_a_wrong_command_is_seen(command: str, root: Project) -> None:
    with pytest.raises((Exception, SystemExit)):
        check(next(commands_of(command)), root.root)


@pytest.mark.slow
def test_the_tutorial_runs(root: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its commands, with ``--fast``; the report of a fast variant of ``X`` is ``X-fast``."""
    monkeypatch.setenv("FEDPRINT_ROOT", str(root.root))
    monkeypatch.chdir(root.root)
    for block in blocks_of(CHECKOUT / "docs" / "tutorial.md"):
        if block.language == "python":
            exec(block.text, {})
        for program, *words in commands_of(block.text) if block.language == "sh" else ():
            if program == "fedprint":
                subprocess.run([sys.executable, "-m", "fedprint", *fast(words)], cwd=root.root, check=True)
    made = {path.parent.name for path in (root.root / "reports").glob("*/index.html")}
    assert {"quickstart-fast", "alike", "defended", "albums-plane-fast", "study-albums-fast", "operating-point"} <= made
    assert (root.root / "my_updates-audit" / "audit.json").is_file()


def fast(words: Sequence[str]) -> list[str]:
    """Return the words of a command that takes seconds, or that looks at the result of one."""
    if words[0] in ("run", "tune"):
        return [*words, "--fast"]
    return [f"{word}-fast" if word in ("quickstart", "albums-plane") else word for word in words]


# Settings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [block for block in CHECKED if block.language == "yaml"], ids=str)
def test_settings_are_valid(block: Block, root: Project) -> None:
    """A whole file as it is, a part of one as a change to the quickstart; the manifest of recorded updates too."""
    values = yaml.safe_load(block.text)
    if "updates" in values:
        Manifest.model_validate(values, strict=False)
        return
    whole = "report" in values
    path = root.root / "block.yaml"
    path.write_text(yaml.safe_dump(values))
    given = (
        () if whole else [f"{key}={yaml.safe_dump(value, default_flow_style=True)}" for key, value in values.items()]
    )
    request = request_for(root.root, str(path) if whole else "quickstart", assignments=given)
    kind_of(request.values).load(request)


@pytest.mark.parametrize("block", [block for block in CHECKED if block.language == "toml"], ids=str)
def test_toml_is_a_project_file(block: Block) -> None:
    assert tomllib.loads(block.text)["project"]["name"]


def test_wrong_settings_are_seen(root: Project) -> None:
    block = Block(page=CHECKOUT / "README.md", line=1, language="yaml", text="defences: [{name: none}]", reason=None)
    with pytest.raises(Exception, match="none"):
        test_settings_are_valid(block, root)


# Links ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.S)
    broken = [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not leads_somewhere(page, target)]
    assert broken == []


def leads_somewhere(page: Path, target: str) -> bool:
    """Return whether a link's file exists, and has the heading; pages that are written while building are not files."""
    path, _, anchor = target.partition("#")
    if "://" in target or path.removeprefix("../").startswith(("reference/", "papers/")):
        return True
    to = page.parent / path if path else page
    return to.exists() and (not anchor or to.suffix != ".md" or anchor in headings(to))


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and mkdocs make them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title.lower())).strip("-") for title in found}


# The site -------------------------------------------------------------------------------------------------------------


def test_the_site_is_built_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    build = pytest.importorskip("mkdocs.commands.build", reason="mkdocs is not installed: make docs")
    pytest.importorskip("material", reason="mkdocs-material is not installed: make docs")
    from mkdocs.config import load_config

    config = load_config(str(CHECKOUT / "mkdocs.yml"), site_dir=str(tmp_path / "site"))
    build.build(config)
    assert (tmp_path / "site" / "index.html").is_file()
