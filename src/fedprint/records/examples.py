"""Examples and labels that can be read from single updates, in closed form: nothing is trained or searched.

A row of a fully connected layer's gradient is ``delta x``, and its bias holds ``delta`` (attacks/inversion/
closed_form.py). So the row over its bias is the example itself, wherever one example alone moved the row, and sums over
local steps change nothing of that. No truth is needed to see where: rows that were moved by the same example agree.
Letters: h rows, d numbers of an example.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from fedprint.attacks.inversion.closed_form import layer_input, unexplained
from fedprint.records.scene import RecordedUpdates, Scene
from fedprint.rng import numpy_rng
from fedprint.types import Doubles, Floats, Ints

ALIKE, APART = 1e-4, 30.0
"""Rows of length 1 agree where they are so near; the next row must be ``APART`` times as far, or more."""
UNEXPLAINED = 1e-4
"""Most of the squares of an update of one example that may be left unexplained: 1 % of its length."""
LEAST_ROWS, BY_CHANCE = 3, 1e-3
"""Rows that must agree at least; and the number of agreeing sets that chance may make of all rows."""
FAINT = 1e-4
"""Rows shorter than this share of the longest are left out: rounding is most of them."""
MOST_UPDATES, MOST_ROWS, WORK = 500, 512, 1 << 37
"""Updates that are looked at, rows of each (those with the largest biases), and products in all."""
SHOWN = 8


class Layered(RecordedUpdates, Protocol):
    """Recorded updates whose layers have known shapes."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the layers, in order."""


@dataclass(frozen=True, kw_only=True)
class FirstLayer:
    """The fully connected layer that reads the example: its arrays, and whether the weight is (inputs, outputs)."""

    weight: str
    bias: str
    turned: bool
    rows: int
    inputs: int


@dataclass(frozen=True, kw_only=True)
class ReadExamples:
    """What was read from ``updates`` of the asked updates, through ``layer``.

    ``counts`` (updates,) are the examples read from each. ``of_one`` of the updates say that they come from one
    example, and ``of_one_read`` of these gave it. Of an update of several examples ``needed`` rows must agree; None
    where such rows prove nothing (``why``). ``inputs`` (k, d) are the first examples as the layer reads them.
    ``labels`` counts the updates of one example whose label the last bias shows; None where there is no such bias.
    """

    layer: str
    updates: int
    counts: Ints
    of_one: int
    of_one_read: int
    needed: int | None
    why: str
    inputs: Doubles
    labels: int | None

    @property
    def share(self) -> float:
        """The share of the updates from which an example was read."""
        return float((self.counts > 0).mean())


def read_examples(recording: Layered, scene: Scene, example: Sequence[int], seed: int) -> ReadExamples | str:
    """Return what single asked updates show, or in words why nothing can be read in closed form.

    ``example`` is the shape of an example, empty where it is not known. Of many updates some are drawn at random.
    """
    layer = first_layer(recording.shapes, math.prod(example) if example else None)
    if isinstance(layer, str):
        return layer
    needed, why = needed_rows(recording.shapes, layer)
    order = numpy_rng(seed, "records", "examples").permutation(scene.rows)
    rows = min(layer.rows, MOST_ROWS)
    drawn = np.sort(order[: min(MOST_UPDATES, max(WORK // (rows**2 * layer.inputs), 20))])
    single = recording.index["num_examples"].to_numpy()[drawn] == 1
    found = [_read(recording, layer, int(row), None if one else needed) for row, one in zip(drawn, single, strict=True)]
    counts = np.array([len(one) for one in found], dtype=np.int64)
    return ReadExamples(
        layer=layer.weight,
        updates=len(drawn),
        counts=counts,
        of_one=int(single.sum()),
        of_one_read=int((counts[single] > 0).sum()),
        needed=needed,
        why=why,
        inputs=np.concatenate([np.zeros((0, layer.inputs)), *found])[:SHOWN],
        labels=_labels(recording, drawn[single]),
    )


def first_layer(shapes: Mapping[str, tuple[int, ...]], inputs: int | None = None) -> FirstLayer | str:
    """Return the first layer where it is fully connected and has a bias, else why it does not show its input."""
    names = list(shapes)
    if len(names) < 2:
        return "The updates do not name their layers: nothing can be read in closed form."
    weight, bias = names[:2]
    shape, size = shapes[weight], shapes[bias]
    if len(shape) != 2 or len(size) != 1 or size[0] not in shape:
        return f"The first layer, {weight}, is not fully connected with a bias: nothing can be read in closed form."
    turned = size[0] != shape[0] or (shape[0] == shape[1] and not weight.endswith("weight"))
    outputs, width = shape[::-1] if turned else shape
    if inputs not in (None, width):
        return f"The first layer, {weight}, reads {width:,} numbers, and an example has {inputs:,}."
    return FirstLayer(weight=weight, bias=bias, turned=turned, rows=outputs, inputs=width)


def needed_rows(shapes: Mapping[str, tuple[int, ...]], layer: FirstLayer) -> tuple[int | None, str]:
    """Return how many rows must agree in an update of several examples; None, and why, where agreement proves nothing.

    Behind a layer of one number, or of two that a softmax binds, every example moves all rows in the same proportions.
    """
    narrow = [name for name, shape in shapes.items() if len(shape) in (1, 2) and min(shape) < LEAST_ROWS]
    if narrow:
        return None, f"{narrow[0]} has so few numbers that rows agree on means of examples too"
    for needed in range(LEAST_ROWS, layer.rows + 1):
        if math.comb(layer.rows, needed) * (10 * ALIKE) ** (needed - 1) < BY_CHANCE:
            return needed, ""
    return None, f"{layer.weight} has too few rows to tell an example from a mean"


def agreeing(weight: Doubles, bias: Doubles, needed: int) -> list[Ints]:
    """Return the sets of rows of ``weight`` (h, d) and ``bias`` (h,) that are multiples of one (x, 1), and no others.

    A set has ``needed`` rows or more, and all further rows are clearly apart from it.
    """
    joined = np.column_stack([weight, bias])
    units = joined / np.linalg.norm(joined, axis=1, keepdims=True) * np.sign(bias)[:, None]
    squares = 2 - 2 * units @ units.T
    alike, near = squares <= ALIKE**2, squares <= (APART * ALIKE) ** 2
    left, found = np.ones(len(bias), dtype=np.bool_), list[Ints]()
    for row in np.argsort(-alike.sum(1), kind="stable"):
        members = np.flatnonzero(alike[row] & left)
        if len(members) >= needed and (alike[row] == near[row]).all():
            found.append(members)
        if len(members) >= needed:
            left &= ~near[row]
    return found


def _read(recording: Layered, layer: FirstLayer, row: int, needed: int | None) -> Doubles:
    """Return the examples (k, d) that one update shows; ``needed`` None: it is of one example, or cannot be read."""
    weight, bias = (_array(recording, name, row).astype(np.float64) for name in (layer.weight, layer.bias))
    weight = weight.T if layer.turned else weight
    used = np.argsort(-np.abs(bias), kind="stable")[:MOST_ROWS]
    length = np.sqrt(np.square(weight[used]).sum(1) + np.square(bias[used]))
    used = used[(bias[used] != 0) & (length > FAINT * length.max())]
    weight, bias = weight[used], bias[used]
    if len(bias) < LEAST_ROWS:
        return np.zeros((0, layer.inputs))
    single = recording.index["num_examples"].iloc[row] == 1
    sets = [np.arange(len(bias))] if single else agreeing(weight, bias, needed) if needed else []
    found = [_input(weight[rows], bias[rows]) for rows in sets]
    return np.stack([x for x in found if x is not None] or [np.zeros(0)]).reshape(-1, layer.inputs)


def _input(weight: Doubles, bias: Doubles) -> Doubles | None:
    """Return the input (d,) of rows that one example moved; None where it does not explain them."""
    rows = torch.from_numpy(weight)[None], torch.from_numpy(bias)[None]
    x = layer_input(*rows)
    rest = float(unexplained(*rows, x)) / float(rows[0].square().sum() + rows[1].square().sum())
    return x[0].numpy() if rest <= UNEXPLAINED else None


def _labels(recording: Layered, rows: Ints) -> int | None:
    """Return how many updates of one example have one rising entry in the last bias: that of the label (cross-entropy).

    None where the last layer is no bias of three classes or more, or no update is of one example.
    """
    last = list(recording.shapes)[-1]
    if not len(rows) or len(recording.shapes[last]) != 1 or recording.shapes[last][0] < LEAST_ROWS:
        return None
    return int(sum(int((_array(recording, last, int(row)) > 0).sum()) == 1 for row in rows))


def _array(recording: Layered, name: str, row: int) -> Floats:
    blocks = [np.asarray(block, np.float32) for block in recording.blocks([name], np.array([row]))]
    array: Floats = np.concatenate(blocks, axis=1)[0].reshape(recording.shapes[name])
    return array
