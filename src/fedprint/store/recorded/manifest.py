"""``manifest.yaml`` of a recorded folder: what format its updates have and where everything is."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedprint.store.recorded.findings import Finding, Unreadable, did_you_mean, inside, quoted, regular

MANIFEST = "manifest.yaml"
_MOST_BYTES = 1 << 22
_MOST_NUMBERS = 1 << 28
"""Numbers of one example at most."""
_UNUSED = {"prior_data": "drop it: an audit trains nothing; its adversary knows the updates whose `user` the index has"}
"""Keys that somebody may expect -> why there are none."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class Claims(_Record):
    """What the federation promises: ``(epsilon, delta)`` of one update, or of all that a device sends."""

    epsilon: float = Field(gt=0)
    delta: float = Field(gt=0, lt=1)
    of: Literal["update", "device"]


class Gradients(_Record):
    """Every update is one step of plain SGD, at the rate ``lr``, on all examples of its device."""

    lr: float = Field(gt=0)


class Manifest(_Record):
    """Where the parts of a recorded folder are; every path is relative to the folder and inside of it.

    ``layers`` maps the names to the shapes of an update's arrays, in order; empty where the files name them. ``model``
    are the settings of a network of this project, ``input`` is the shape of one example, ``globals`` has the models
    that devices received, by round.
    """

    format: Literal["npz", "safetensors", "npy", "fedprint"]
    updates: str
    index: str = ""
    truth: str = ""
    layers: dict[str, tuple[int, ...]] = {}
    model: dict[str, Any] = {}
    input: tuple[int, ...] = ()
    globals: str = ""
    gradients: Gradients | None = None
    sign: Literal["local_minus_global", "global_minus_local"] = "local_minus_global"
    title: str = ""
    claims: Claims | None = None
    classes: tuple[str, ...] = ()

    @property
    def paths(self) -> dict[str, str]:
        """Return the paths that are given, by key; without ``truth``, which only the evaluation opens."""
        keys = ("updates", "index", "globals")
        return {key: value for key in keys if (value := getattr(self, key))}


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses aliases, with which few bytes describe any amount of data, and repeated keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not read")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        repeated = next((key for number, key in enumerate(keys) if key in keys[:number]), None)
        if repeated is not None:
            raise yaml.YAMLError(f"key '{quoted(repeated)}' occurs twice")
        return super().construct_mapping(node, deep)


def read_manifest(folder: Path) -> tuple[Manifest | None, tuple[Finding, ...]]:
    """Return the manifest, None where it cannot be used, and every problem with it; the truth is not looked at."""
    try:
        raw = _load(folder)
    except Unreadable as error:
        return None, (Finding(file=MANIFEST, what=error.what, remedy=error.remedy),)
    try:
        manifest = Manifest.model_validate_json(json.dumps(raw))
    except ValidationError as error:
        return None, tuple(_finding(problem) for problem in error.errors(include_url=False))
    except (TypeError, ValueError, RecursionError):
        return None, (Finding(file=MANIFEST, what="holds dates, NaN or other values", remedy="use text and numbers"),)
    return manifest, (*_paths(folder, manifest), *_consistent(manifest))


def _load(folder: Path) -> dict[str, Any]:
    path = regular(inside(folder, MANIFEST))
    if path.stat().st_size > _MOST_BYTES:
        raise Unreadable(f"is larger than {_MOST_BYTES:,} bytes", "keep only the keys of the format")
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, OSError, AttributeError) as error:
        raise Unreadable(f"is not YAML ({quoted(' '.join(str(error).split()))})", "correct it") from None
    if not isinstance(raw, dict):
        raise Unreadable("is not a mapping of keys to values", "write lines such as 'format: npz'")
    return raw


def _finding(problem: Any) -> Finding:
    """Return what pydantic found, in our words."""
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        parts: dict[object, type[_Record]] = {"claims": Claims, "gradients": Gradients}
        known = parts.get(problem["loc"][0], Manifest).model_fields
        remedy = _UNUSED.get(where) or did_you_mean(str(problem["loc"][-1]), known)
        return Finding(file=MANIFEST, what=f"unknown key '{quoted(where)}'", remedy=remedy)
    if problem["type"] == "missing":
        return Finding(file=MANIFEST, what=f"key '{quoted(where)}' is missing", remedy="add it")
    if problem["type"] == "literal_error":
        expected = problem["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        remedy = did_you_mean(str(problem["input"]), expected)
        return Finding(file=MANIFEST, what=f"{quoted(where)} is '{quoted(problem['input'])}'", remedy=remedy)
    what = f"{quoted(where)} is '{quoted(problem['input'])}'"
    return Finding(file=MANIFEST, what=what, remedy=problem["msg"].lower())


def _paths(folder: Path, manifest: Manifest) -> Iterable[Finding]:
    for key, path in manifest.paths.items():
        try:
            inside(folder, path)
        except Unreadable as error:
            yield Finding(file=MANIFEST, what=f"{key}: {error.what}", remedy=error.remedy)


def _consistent(manifest: Manifest) -> Iterable[Finding]:
    if not manifest.index and manifest.format != "fedprint":
        yield Finding(file=MANIFEST, what="key 'index' is missing", remedy="add it")
    if manifest.index and manifest.format == "fedprint":
        yield Finding(file=MANIFEST, what="index is given", remedy="drop it: a fedprint store has its own")
    if manifest.format == "fedprint" and manifest.sign != "local_minus_global":
        yield Finding(file=MANIFEST, what=f"sign is {manifest.sign}", remedy="drop it: a fedprint store fixes it")
    if manifest.format == "fedprint" and manifest.globals:
        yield Finding(file=MANIFEST, what="globals is given", remedy="drop it: a fedprint store has its own")
    if any(size < 1 for size in manifest.input) or math.prod(manifest.input) > _MOST_NUMBERS:
        what = f"input is {quoted(list(manifest.input))}"
        yield Finding(file=MANIFEST, what=what, remedy="give the shape of one example, such as [1, 28, 28]")
    if manifest.model and not manifest.input:
        yield Finding(file=MANIFEST, what="model is given, but not input", remedy="add the shape of one example")
    for name, shape in manifest.layers.items():
        if any(size < 1 for size in shape):
            yield Finding(file=MANIFEST, what=f"layer '{quoted(name)}' has shape {shape}", remedy="give sizes above 0")
    if manifest.truth and manifest.truth in (manifest.index, manifest.updates):
        yield Finding(
            file=MANIFEST, what=f"truth and another key are both '{quoted(manifest.truth)}'", remedy="keep them apart"
        )
