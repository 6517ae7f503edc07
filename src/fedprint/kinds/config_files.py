"""Files of settings: reading and writing them, how settings override one another, and errors in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fedprint.errors import FedprintError, did_you_mean


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` overridden by ``over``, mappings merged key by key unless their ``name`` differs."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        together = isinstance(old, Mapping) and isinstance(value, Mapping)
        if together and value.get("name", old.get("name")) == old.get("name"):  # type: ignore[union-attr]
            out[key] = merge(old, value)  # type: ignore[arg-type]
        else:
            out[key] = value
    return out


LIKE = "like"
"""The key of a file of settings that names another (``mnist-writers-linked``, a file beside it, or ``../folder/name``).

Its settings hold where the file has none.
"""


def read_yaml(path: Path) -> dict[str, Any]:
    """Return a YAML file that holds a mapping; anything else is a FedprintError.

    A file that is ``like`` another is merged over that one, which is like no third.
    """
    values = _mapping(path)
    if (other := values.pop(LIKE, None)) is None:
        return values
    file = path.parent / f"{other}.yaml"
    if not file.is_file():
        raise FedprintError(f"{path}: like: {other}: there is no {file}; name a file beside it, without .yaml")
    base = _mapping(file)
    if LIKE in base:
        raise FedprintError(f"{path}: like: {other}: that file is like another itself ({base[LIKE]}); name that one")
    return merge(base, values)


def _mapping(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise FedprintError(f"{path}: not a readable YAML file ({' '.join(str(error).split())}); mend it") from None
    if not isinstance(values, dict):
        raise FedprintError(
            f"{path}: holds {type(values).__name__}, not a mapping of settings; see configs/experiments"
        )
    return values


def as_yaml(values: Mapping[str, Any]) -> str:
    """Return settings as YAML, in their order."""
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)


def apply_assignments(values: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Apply ``a.b=c`` assignments (c is YAML) one after another; a number in the path indexes a list."""
    out = dict(values)
    for assignment in assignments:
        out = _assign(out, assignment)
    return out


def _assign(values: Mapping[str, Any], assignment: str) -> dict[str, Any]:
    """Apply ``a.b=c`` (c is YAML); a number in the path indexes a list: ``attacks.0.k=5``."""
    key, equals, text = assignment.partition("=")
    if not equals or not key:
        raise FedprintError(f"--set {assignment}: write KEY=VALUE, for example --set federation.rounds=20")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise FedprintError(f"--set {assignment}: '{text}' is not YAML; quote it") from None
    return dict(_with(values, key.split("."), value, assignment))


def _with(node: Any, path: Sequence[str], value: Any, assignment: str) -> Any:
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(node, list | tuple):
        if not head.isdigit() or int(head) >= len(node):
            raise FedprintError(
                f"--set {assignment}: '{head}' does not index a list of {len(node)}; use 0 to {len(node) - 1}"
            )
        items = list(node)
        items[int(head)] = _with(items[int(head)], rest, value, assignment)
        return items
    if node is not None and not isinstance(node, Mapping):
        raise FedprintError(f"--set {assignment}: '{head}' is below a plain value {node!r}; shorten the key")
    inner = dict(node or {})
    inner[head] = _with(inner.get(head), rest, value, assignment)
    return inner


_PLAIN = ("constrained-float", "float", "int", "str")
"""pydantic's names of alternatives that are plain values."""


def one_line(error: ValidationError, origin: str, whole: type[BaseModel], assignments: Sequence[str] = ()) -> str:
    """Return the first error in the values of a ``whole`` in one line: what, where, and which keys are allowed.

    ``origin`` names the file; for a value that one of the ``assignments`` set, that assignment is named instead.
    """
    first, *others = _alternatives_joined(error.errors(include_url=False))
    keys, classes = _owners(first["loc"], whole)
    given = first.get("input")
    shown = "" if isinstance(given, Mapping) else f" (got {given!r})"
    allowed = ""
    if first["type"] == "extra_forbidden":
        known = [(name, field) for one in classes for name, field in one.model_fields.items()]
        fields = dict.fromkeys(field.alias or name for name, field in known)
        hint = did_you_mean(keys[-1], fields)
        allowed = f"; {hint}allowed keys: {', '.join(fields)}" if fields else "; remove this key"
    elif first["type"] == "union_tag_invalid":
        expected = first["ctx"]["expected_tags"].replace("'", "").split(", ")
        allowed = f"; {hint}" if (hint := did_you_mean(str(first["ctx"]["tag"]), expected)) else ""
    more = f"; and {len(others)} more" if others else ""
    where = f"{_origin(keys, origin, assignments)}: {'.'.join(keys) or '(whole file)'}"
    return " ".join(f"{where}: {first['msg']}{shown}{allowed}{more}".split())


def _origin(keys: Sequence[str], file: str, assignments: Sequence[str]) -> str:
    """Return the last assignment that set the value at ``keys``, a part of it or what holds it; else the file.

    An error of the whole file is named with all assignments: the file alone is right or wrong without them.
    """
    if not keys:
        return " ".join([file, *(f"--set {text}" for text in assignments)])

    def sets(text: str) -> bool:
        pairs = zip(text.partition("=")[0].split("."), keys, strict=False)
        return all(a == b for a, b in pairs)

    return next((f"--set {text}" for text in reversed(assignments) if sets(text)), file)


def _alternatives_joined(errors: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Return one error per value: of "a number, or a list of numbers" the one about the form that was given."""
    kept: dict[str, ErrorDetails] = {}
    for error in errors:
        path = [str(part) for part in error["loc"]]
        field = next((i for i, part in enumerate(path) if "[" in part or part in _PLAIN), len(path))
        key = ".".join(path[:field])
        known = kept.get(key)
        if known is None or isinstance(known.get("input"), list | tuple):
            kept[key] = error
    return list(kept.values())


def _owners(location: Sequence[int | str], whole: type[BaseModel]) -> tuple[list[str], list[type[BaseModel]]]:
    """Return the keys as the file has them, without pydantic's union tags, and the classes that own the last one."""
    keys: list[str] = []
    owners: list[type[BaseModel]] = []
    classes: list[type[BaseModel]] = [whole]
    for part in location:
        tagged = [c for c in classes if (tag := c.model_fields.get("name")) and part in get_args(tag.annotation)]
        if tagged:
            classes = tagged
            continue
        if isinstance(part, str) and keys and not classes:
            continue  # the name of one alternative of a plain value
        keys.append(str(part))
        if isinstance(part, str):
            owners = classes
            inner = [c.model_fields[part].annotation for c in classes if part in c.model_fields]
            classes = [member for annotation in inner for member in _members(annotation)]
    return keys, owners


def _members(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _members(argument)
