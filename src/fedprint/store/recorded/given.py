"""What a manifest gives beside the updates: a network of this project, and the models that devices received."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedprint.errors import FedprintError
from fedprint.store.recorded.arrays import SUFFIXES, ArraysFile, opened
from fedprint.store.recorded.findings import Finding, Unreadable, inside, quoted
from fedprint.store.recorded.manifest import MANIFEST, Manifest
from fedprint.store.recorded.tables import Shapes
from fedprint.types import Floats

if TYPE_CHECKING:
    from fedprint.models.base import FedModule

_BROKEN = (FedprintError, ValueError, TypeError, RuntimeError, OverflowError, ArithmeticError, LookupError)
"""What building a network of foolish settings raises."""


def given_findings(folder: Path, manifest: Manifest, shapes: Shapes, rounds: Iterable[int]) -> list[Finding]:
    """Return every problem with ``model`` and ``globals``, against the ``shapes`` and ``rounds`` of the updates."""
    if not shapes:  # no update can be read, which is a finding of its own
        return []
    return [*_model_findings(manifest, shapes), *_globals_findings(folder, manifest, shapes, sorted(set(rounds)))]


def network_of(manifest: Manifest, shapes: Shapes, device: str = "meta") -> FedModule:
    """Return the network of ``model``, by default without memory for its parameters.

    Raises Unreadable for settings that are none, and for a network that takes no images.
    """
    import torch
    from pydantic import TypeAdapter, ValidationError

    from fedprint.models.components import Model, models_for
    from fedprint.models.networks import build_network

    try:
        config = TypeAdapter(Model).validate_python(manifest.model)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(["model", *(str(part) for part in first["loc"][1:])])
        what = f"{quoted(where)} is '{quoted(first['input'])}'"
        raise Unreadable(what, quoted(first["msg"].lower())) from None
    if config.name not in models_for("single_label"):
        raise Unreadable(f"model is '{quoted(config.name)}', which takes no images", "drop it")
    if getattr(config, "weights", None):
        raise Unreadable("model.weights is given", "drop it: the models that devices received are in `globals`")
    classes = len(manifest.classes) or list(shapes.values())[-1][0]
    try:
        with torch.device(device):
            return build_network(config, manifest.input, classes, multi_label=False)
    except _BROKEN as error:
        why = quoted(" ".join(str(error).split()))
        raise Unreadable(f"model cannot be built for input {list(manifest.input)} ({why})", "correct both") from None


def read_global(folder: Path, manifest: Manifest, shapes: Shapes, number: int) -> dict[str, Floats]:
    """Return the model that devices received in round ``number``, by layer; of a folder without findings."""
    path, _, row = _place(inside(folder, manifest.globals), manifest, number)
    with opened(path, _width(shapes)) as file:
        flat = {name: np.concatenate([values for _, values in file.pieces(name, row)]) for name in file.arrays}
    if list(flat) == [""]:
        ends = np.cumsum([math.prod(shape) for shape in shapes.values()])[:-1]
        flat = dict(zip(shapes, np.split(flat[""], ends), strict=True))
    return {name: flat[name].reshape(shape) for name, shape in shapes.items()}


def _model_findings(manifest: Manifest, shapes: Shapes) -> Iterator[Finding]:
    if not manifest.model or not manifest.input or min(manifest.input) < 1:  # findings of the manifest
        return
    try:
        parameters = network_of(manifest, shapes).public_parameters()
    except Unreadable as error:
        yield Finding(file=MANIFEST, what=error.what, remedy=error.remedy)
        return
    expected = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
    remedy = "give the settings of the network that was trained, or drop `model`"
    for name in expected.keys() - shapes.keys():
        yield Finding(file=MANIFEST, what=f"model has '{quoted(name)}', updates have not", remedy=remedy)
    for name, shape in shapes.items():
        if name not in expected:
            yield Finding(file=MANIFEST, what=f"updates have '{quoted(name)}', model has not", remedy=remedy)
        elif expected[name] != shape:
            what = f"'{quoted(name)}' has shape {expected[name]} in model and {shape} in updates"
            yield Finding(file=MANIFEST, what=what, remedy=remedy)


def _globals_findings(folder: Path, manifest: Manifest, shapes: Shapes, rounds: Iterable[int]) -> Iterator[Finding]:
    if not manifest.globals or manifest.format == "fedprint":
        return
    try:
        base = inside(folder, manifest.globals)
    except Unreadable:  # the manifest's own finding
        return
    for number in rounds:
        shown = manifest.globals
        try:
            path, name, row = _place(base, manifest, number)
            shown = f"{manifest.globals}/{name}" if name else shown
            with opened(path, _width(shapes)) as file:
                what = list(_misfits(file, shapes, row)) or list(_not_finite(file, row))
        except Unreadable as error:
            yield Finding(file=shown, what=error.what, remedy=error.remedy)
            if not base.is_dir():
                return
            continue
        yield from (
            Finding(file=shown, what=one, remedy=f"bring the model that devices received in round {number}")
            for one in what
        )


def _place(base: Path, manifest: Manifest, number: int) -> tuple[Path, str, int | None]:
    """Return the file of a round's model, its name in the folder "globals", and its row where all are in one file."""
    suffixes = SUFFIXES[manifest.format]
    if not base.is_dir():
        if base.suffix not in suffixes:
            raise Unreadable(f"is not of format {manifest.format}", f"give a file that ends in {' or '.join(suffixes)}")
        return base, "", number
    name = next((f"{number}{s}" for s in suffixes if (base / f"{number}{s}").exists()), f"{number}{suffixes[0]}")
    return inside(base, name), name, None


def _misfits(file: ArraysFile, shapes: Shapes, row: int | None) -> Iterator[str]:
    """Yield how the arrays of a model differ from the layers of the updates."""
    if row is not None and any(len(stored.shape) < 2 or stored.fortran for stored in file.arrays.values()):
        yield "has an array without rows, or one that is stored column by column"
        return
    held = {name: stored.shape if row is None else stored.shape[1:] for name, stored in file.arrays.items()}
    if row is not None and any(row >= stored.shape[0] for stored in file.arrays.values()):
        yield f"has no row {row}"
    if list(held) == [""]:
        if math.prod(held[""]) != _width(shapes):
            yield f"has {math.prod(held['']):,} numbers for a model instead of {_width(shapes):,}"
        return
    for name in shapes.keys() - held.keys():
        yield f"array '{quoted(name)}' is missing"
    for name, shape in held.items():
        if name not in shapes:
            yield f"array '{quoted(name)}' is not in the updates"
        elif shape != shapes[name]:
            yield f"array '{quoted(name)}' has shape {shape} instead of {shapes[name]}"


def _not_finite(file: ArraysFile, row: int | None) -> Iterator[str]:
    for name in file.arrays:
        bad = sum(int(np.count_nonzero(~np.isfinite(values))) for _, values in file.pieces(name, row))
        if bad:
            of = f"array '{quoted(name)}' " if name else ""
            yield f"{of}has {bad:,} NaN or infinite numbers"


def _width(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())
