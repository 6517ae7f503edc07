"""A stage's key names the code that its numbers come from: what it calls and its list lacks is found here."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from fedprint.lab.graph import Stage, Work
from fedprint.lab.keys import PACKAGE

FREE = {
    "lab": "runs stages, and computes nothing in them",
    "errors.py": "wording",
    "types.py": "nouns and protocols",
    "component.py": "the base of settings",
    "kinds/components.py": "the names of components; settings choose among them, and lists name their folders",
    "kinds/jobs.py": "digests of settings",
    "kinds/federation/named_files.py": "places and digests of files; what they hold is in the key",
    "data/formats/files.py": "reads and writes",
    "data/formats/locate.py": "places",
    "data/formats/checks.py": "refuses tables that are not as they are declared",
    "data/prepared.py": "reads what prepare wrote: a new format changes those files",
    "data/dataset.py": "a noun",
    "data/text_columns.py": "names of columns",
    "store": "reads what federate wrote: a new format changes those files",
    "reports/wording.py": "words of progress",
    "plugins.py": "finds plug-ins; their code is in the keys of its own (lab/keys.py)",
}
"""Code that may change without a new key, and why. What it calls is not looked at."""

SETTINGS = {"config.py", "settings.py"}
"""Modules that check settings: stages name those that they read. What they call themselves only refuses settings."""

_FEDERATION = PACKAGE / "kinds" / "federation" / "config.py"
_OF_ANYTHING = {"text", "digest", "section_digest"}

Symbol = tuple[Path, str]
"""A function, class or constant of a module."""


def stages() -> dict[str, Stage]:
    """Return every stage of every kind of job, by its function and code: graphs share some."""
    found = {}
    for path in sorted((PACKAGE / "kinds").glob("*/*.py")):
        if "Work(" in path.read_text(encoding="utf-8"):
            module = import_module(".".join(("fedprint", *path.relative_to(PACKAGE).with_suffix("").parts)))
            works = [value for value in vars(module).values() if isinstance(value, Work)]
            found |= {stage.run.removeprefix("fedprint.kinds."): stage for work in works for stage in work.graph.stages}
    return found


STAGES = stages()


@pytest.mark.parametrize("run", STAGES)
def test_the_list_of_a_stages_code_names_all_that_computes(run: str) -> None:
    stage = STAGES[run]
    if stage.settled:
        return  # of a choice, later stages depend on what was chosen
    assert unlisted(stage) == {}, "name these in the stage's code, or in FREE with a reason"


def test_every_kind_of_job_is_looked_at() -> None:
    assert [place for place in FREE if not (PACKAGE / place).exists()] == []
    assert "training_by_round" in _computed_by_settings()
    assert {run.split(".")[0] for run in STAGES} == {"audit", "clients", "federation", "inversion", "reconstruction"}
    assert {run.rpartition(":")[2] for run in STAGES} >= {"train", "expose", "invert", "judge", "hold", "compare"}


def unlisted(stage: Stage) -> dict[str, str]:
    """Return the modules that a stage's function needs and its list lacks, with one that calls each."""
    module, _, function = stage.run.partition(":")
    todo = [(_file(module), function)]
    callers, lacking = {todo[0]: ""}, {}
    while todo:
        file, name = symbol = todo.pop()
        where = file.relative_to(PACKAGE)
        if not _among(where, stage.code):
            if not _among(where, FREE):
                lacking[str(where)] = f"{name}, from {callers[symbol]}"
        elif where.name not in SETTINGS:
            for called in _called(symbol):
                if called not in callers:
                    callers[called] = f"{where}:{name}"
                    todo.append(called)
    return lacking


def _among(where: Path, places: Iterable[str]) -> bool:
    return any(where.is_relative_to(place) for place in places)


@cache
def _called(symbol: Symbol) -> frozenset[Symbol]:
    """Return what a definition names, in its module and in those that the module imports."""
    file, name = symbol
    own, imported = _definitions(file), _imports(file)
    found: set[Symbol] = set()
    for node in (each for definition in own.get(name, ()) for each in ast.walk(definition)):
        if isinstance(node, ast.Name):
            found |= {(file, node.id)} if node.id in own else set()
            found |= {imported[node.id]} if imported.get(node.id, (file, ""))[1] else set()
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and imported.get(node.value.id, (file, "x"))[1] == "":
                found.add((imported[node.value.id][0], node.attr))
            if node.attr in _computed_by_settings():
                found.add((_FEDERATION, node.attr))
    if name not in own and name in imported:
        found.add(imported[name])
    return frozenset(found)


@cache
def _computed_by_settings() -> frozenset[str]:
    """Return what an experiment computes when it is asked: who asks names no module."""
    classes = [node for node in _tree(_FEDERATION).body if isinstance(node, ast.ClassDef)]
    settings = [
        one for one in classes if any(isinstance(base, ast.Name) and base.id == "Component" for base in one.bases)
    ]
    found = {node.name for one in settings for node in one.body if isinstance(node, ast.FunctionDef)}
    return frozenset(name for name in found - _OF_ANYTHING if not name.startswith("_"))


@cache
def _definitions(file: Path) -> dict[str, list[ast.stmt]]:
    found: dict[str, list[ast.stmt]] = {}
    for node in _tree(file).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
        else:
            continue
        for name in names:
            found.setdefault(name, []).append(node)
    return found


@cache
def _imports(file: Path) -> dict[str, Symbol]:
    """Return what each imported name is, wherever the import stands; of a whole module the name in it is empty."""
    found = {}
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "fedprint":
            for alias in node.names:
                whole = _file(f"{node.module}.{alias.name}")
                found[alias.asname or alias.name] = (whole, "") if whole.is_file() else (_file(node.module), alias.name)
    return found


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _file(module: str) -> Path:
    place = PACKAGE.joinpath(*module.split(".")[1:])
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
