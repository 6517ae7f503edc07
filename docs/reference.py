"""The reference as Markdown, from the code itself: commands from typer, settings from pydantic, docstrings' modules."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from markdown_text import table
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from typer.main import get_command

SOURCE = Path(__file__).resolve().parents[1] / "src" / "fedprint"
DOCUMENTED = ("types", "component", "errors", "rng", "defences", "attacks", "analyses", "evaluation", "data", "models",
              "federation", "store", "accounting", "audit")  # fmt: skip
"""Modules and folders of fedprint whose docstrings have a page."""
_LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}

Schema = Mapping[str, Any]


def reference_pages() -> Mapping[str, str]:
    """Return the reference: path of a page below docs/ -> Markdown."""
    return {
        "reference/command-line.md": command_line(),
        "reference/configuration.md": configuration(),
        **{f"reference/docstrings/{name}.md": docstrings(name) for name in DOCUMENTED},
    }


# Command line ---------------------------------------------------------------------------------------------------------


def command_line() -> str:
    """Return every command of ``fedprint`` with its arguments, options and examples."""
    from fedprint.cli.main import app

    parts = ["# Command line", "Written from the commands themselves. `fedprint COMMAND --help` says the same."]
    for path, command in _commands(get_command(app), ("fedprint",)):
        context = command.make_context(" ".join(path), [], resilient_parsing=True)
        rows = [_option(param, context) for param in command.params if param.name != "help"]
        usage = command.get_usage(context).removeprefix("Usage: ")
        parts += [f"## {' '.join(path)}", inspect.cleandoc(command.help or ""), f"```text\n{usage}\n```"]
        parts += [table(("argument or option", "meaning", "default"), rows)] if rows else []
        parts += _examples(command.epilog or "")
    return "\n\n".join(parts) + "\n"


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*path, name))


def _option(param: Any, context: Any) -> tuple[str, str, str]:
    argument = param.param_type_name == "argument"
    name = " ".join(param.get_usage_pieces(context)) if argument else ", ".join(param.opts)
    default = "required" if param.required else "" if param.default in (None, False, ()) else f"`{param.default}`"
    variable = f" Or the environment variable `{param.envvar}`." if getattr(param, "envvar", None) else ""
    return f"`{name}`", f"{getattr(param, 'help', None) or ''}{variable}", default


def _examples(epilog: str) -> list[str]:
    examples = epilog.partition(":")[2].strip()
    return ["```sh\n" + "\n".join(re.split(r"\s\|\s", examples)) + "\n```"] if examples else []


# Configuration --------------------------------------------------------------------------------------------------------


def configuration() -> str:
    """Return every key that a file of settings may have: of each kind of experiment, and of the parts of each."""
    kinds = _kinds()
    found, schema = models_json_schema([(model, "validation") for model in kinds.values()], by_alias=True)
    text = [
        "# Configuration",
        "Written from the models that check every file. `configs/defaults.yaml` holds what experiments share, and "
        "`--set a.b=c` changes any key for one run.",
    ]
    seen: set[str] = set()
    for title, model in kinds.items():
        name = _referred(found[(model, "validation")])
        text += [f"## {title}", *_model(name, schema["$defs"])]
        for key, part in _parts(name, schema["$defs"], seen):
            text += [f"### {_title(key, part, schema['$defs'])} {{ #{_anchor(part)} }}", *_model(part, schema["$defs"])]
    return "\n\n".join(text) + "\n"


def _kinds() -> Mapping[str, type[BaseModel]]:
    from fedprint.kinds.audit.config import AuditConfig
    from fedprint.kinds.clients.config import ClientsConfig
    from fedprint.kinds.federation.config import Experiment
    from fedprint.kinds.hardware import Hardware
    from fedprint.kinds.inversion.config import InversionConfig
    from fedprint.kinds.plane.config import PlaneConfig
    from fedprint.kinds.study.config import StudyConfig
    from fedprint.kinds.suite.config import SuiteConfig

    return {
        "Any file: hardware": Hardware,
        "An experiment": Experiment,
        "A plane: files with `strategies`": PlaneConfig,
        "A study: files in `configs/studies`": StudyConfig,
        "A suite: files with `members`": SuiteConfig,
        "An inversion: files with `mechanisms`": InversionConfig,
        "A comparison by number of clients: files with `methods`": ClientsConfig,
        "An audit of epsilon: files with `canaries`": AuditConfig,
    }


def _parts(name: str, models: Mapping[str, Schema], seen: set[str]) -> Iterator[tuple[str, str]]:
    """Yield what a model consists of, and what that consists of, each once: the key where it stands, and its name."""
    for key, value in models[name].get("properties", {}).items():
        for part in _references(value):
            if part not in seen:
                seen.add(part)
                yield key, part
                yield from _parts(part, models, seen)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get("$ref"), str):
            yield _referred(value)
        for key, inside in value.items():
            if key not in ("discriminator", "default"):
                yield from _references(inside)
    elif isinstance(value, list):
        for inside in value:
            yield from _references(inside)


def _referred(value: Schema) -> str:
    return str(value["$ref"]).rpartition("/")[2]


def _component(name: str, models: Mapping[str, Schema]) -> str | None:
    """Return the ``name`` (or names) that chooses this component in a file, None for a part that has none."""
    key = models[name].get("properties", {}).get("name", {})
    names = [key["const"]] if "const" in key else key.get("enum", [])
    return " or ".join(names) or None


def _called(name: str, models: Mapping[str, Schema]) -> str:
    """Return the component's name, or names, else that of a part that has none."""
    return _component(name, models) or name.rpartition("__")[2].removesuffix("Config").lower()


def _title(key: str, name: str, models: Mapping[str, Schema]) -> str:
    component = _component(name, models)
    return key if component is None else f"{key}: {component}"


def _anchor(name: str) -> str:
    return name.lower().replace("_", "-")


def _model(name: str, models: Mapping[str, Schema]) -> list[str]:
    model = models[name]
    if "properties" not in model:
        return [_kind_of_value(model, models)]
    chosen = _component(name, models)
    needed = model.get("required", ())
    rows = [
        (f"`{key}`", _kind_of_value(value, models), "required" if key in needed else _shown(value.get("default")))
        for key, value in model["properties"].items()
        if key != "name" or chosen is None
    ]
    text = [inspect.cleandoc(model["description"]).replace("``", "`")] if "description" in model else []
    return [*text, *([table(("key", "value", "default"), rows)] if rows else [])]


def _kind_of_value(value: Schema, models: Mapping[str, Schema]) -> str:
    if "$ref" in value:
        name = _referred(value)
        return f"[{_called(name, models)}](#{_anchor(name)})"
    for either in ("anyOf", "oneOf"):
        if either in value:
            return " or ".join(_kind_of_value(each, models) for each in value[either])
    if "enum" in value:
        return " or ".join(f"`{each}`" for each in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if value.get("type") == "array":
        inside = value.get("items") or {}
        return f"list of {_kind_of_value(inside, models)}" if inside else "list"
    limits = [f"{sign} {value[key]:g}" for key, sign in _LIMITS.items() if key in value]
    kind = {"object": "mapping", "string": "text"}.get(str(value.get("type")), str(value.get("type", "any")))
    return " ".join([kind, *limits])


def _shown(default: Any) -> str:
    """Return a default as YAML has it; of a part, whose own keys have their defaults, nothing."""
    return "" if isinstance(default, Mapping) else f"`{json.dumps(default, ensure_ascii=False)}`"


# Docstrings -----------------------------------------------------------------------------------------------------------


def docstrings(name: str) -> str:
    """Return a page for mkdocstrings with every module of a folder of fedprint, or one module."""
    folder = SOURCE / name
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [SOURCE / f"{name}.py"]
    modules = [".".join(("fedprint", *file.relative_to(SOURCE).with_suffix("").parts)) for file in files]
    own = [module for module in modules if not module.endswith("__init__")]
    return "\n\n".join([f"# fedprint.{name}", *(f"::: {module}" for module in own)]) + "\n"
