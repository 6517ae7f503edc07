"""A search for images whose gradient is a recorded update: a few updates, where model and gradients are given.

Nobody checks an image here. So every update is searched from two different starts, and counts as recovered where both
end in the same images and these explain the update. Letters: v updates, b images of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedprint.attacks.inversion.labels import Rule
from fedprint.attacks.inversion.matching import GradientMatching
from fedprint.attacks.inversion.simulate import as_descent
from fedprint.attacks.inversion.victims import Victims
from fedprint.errors import FedprintError
from fedprint.lab.progress import meter
from fedprint.models.convnets import ImageClassifier
from fedprint.records.scene import Scene
from fedprint.store.recorded.given import network_of
from fedprint.store.recorded.recording import Recording
from fedprint.types import Doubles, Floats, Params

UPDATES, IMAGES, EVALUATIONS = 4, 2, 200
"""Updates that are searched, images that one of them may come from, and gradients for each start."""
MOST_PARAMETERS = 1 << 20
UNEXPLAINED, APART = 1e-3, 0.1
"""Largest share of an update's squares that images may leave unexplained, and distance between two searches' images."""
BATCHED = tuple[int, tuple[int, ...]]
"""A number of images, and the rows of the updates that come from so many."""


@dataclass(frozen=True, kw_only=True)
class SearchedExamples:
    """What a search found for each of the updates ``of`` so many images.

    ``unexplained`` (v,) is the share of the squares of an update that the better images leave, and ``apart`` (v,) the
    relative distance between the images of both starts. ``images`` (k, c, h, w) are those of recovered updates.
    """

    of: tuple[int, ...]
    unexplained: Doubles
    apart: Doubles
    images: Floats

    @property
    def recovered(self) -> int:
        """Number of updates whose images both searches found."""
        return int(_recovered(self.unexplained, self.apart).sum())


def search_examples(recording: Recording, scene: Scene, seed: int) -> SearchedExamples | str:
    """Return what a search finds in the asked updates of fewest examples, or in words why there is none."""
    manifest = recording.manifest
    if not (manifest.model and manifest.gradients):
        return "Images were not searched: that needs `model`, `globals` and `gradients` in the manifest."
    if len(manifest.input) != 3 or recording.global_model(int(scene.rounds[0])) is None:
        return "Images were not searched: `input` is no image, or `globals` is missing."
    if sum(recording.sizes.values()) > MOST_PARAMETERS:
        return f"Images were not searched: the model has more than {MOST_PARAMETERS:,} parameters."
    model = network_of(manifest, recording.shapes, "cpu")
    groups = _chosen(recording.index["num_examples"].to_numpy(), scene.rows.tolist())
    if not isinstance(model, ImageClassifier) or not groups:
        return f"Images were not searched: no update is of 1 to {IMAGES} images."
    found = []
    with meter("searching images", total=len(groups)) as bar, _one_thread():
        try:
            for done, (images, rows) in enumerate(groups):
                bar.update(done, f"{len(rows)} updates of {images}")
                found.append(_searched(_victims(recording, model, images, rows), seed))
        except FedprintError as error:
            return f"Images were not searched: {error}."
        bar.update(len(groups))
    return SearchedExamples(
        of=tuple(images for images, rows in groups for _ in rows),
        unexplained=np.concatenate([one.unexplained for one in found]),
        apart=np.concatenate([one.apart for one in found]),
        images=np.concatenate([one.images for one in found]),
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread: the order of additions, and so the bits, must not depend on the machine's cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _chosen(examples: Any, rows: Sequence[int]) -> list[BATCHED]:
    """Return the updates of fewest examples, the earliest of these, by their number of examples."""
    few = sorted((row for row in rows if 1 <= examples[row] <= IMAGES), key=lambda row: (examples[row], row))[:UPDATES]
    sizes = sorted({int(examples[row]) for row in few})
    return [(size, tuple(row for row in few if examples[row] == size)) for size in sizes]


def _victims(recording: Recording, model: ImageClassifier, images: int, rows: Sequence[int]) -> Victims:
    gradients = recording.manifest.gradients
    assert gradients is not None
    columns, table = recording.columns(), recording.matrix(rows=np.array(rows))
    updates = {
        name: torch.from_numpy(table[:, part].reshape(-1, *recording.shapes[name])) for name, part in columns.items()
    }
    received = [_received(recording, int(recording.index["round"].iloc[row])) for row in rows]
    return Victims(
        model=model,
        params={name: torch.stack([one[name] for one in received]) for name in received[0]},
        descents=as_descent(updates, gradients.lr),
        shape=(recording.manifest.input[0], recording.manifest.input[1], recording.manifest.input[2]),
        classes=recording.shapes["head.bias"][0],
        images=images,
        shared=False,
    )


def _received(recording: Recording, number: int) -> Params:
    model: Mapping[str, Floats] = recording.global_model(number) or {}
    return {name: torch.from_numpy(values) for name, values in model.items()}


def _searched(victims: Victims, seed: int) -> SearchedExamples:
    attack = GradientMatching(evaluations=EVALUATIONS, labels=_rule(victims), target=1e-9)
    first = attack.run(victims, seed=seed)
    second = attack.model_copy(update={"start": "pattern"}).run(victims, seed=seed)
    sizes = first.raw.flatten(1).norm(dim=1)
    # The order of an update's images is free: both orders of two are tried.
    orders = [second.raw, second.raw.flip(1)]
    apart = torch.stack([(first.raw - other).flatten(1).norm(dim=1) for other in orders]).amin(0) / sizes
    values = torch.maximum(first.values, second.values).double().numpy()
    kept = _recovered(values, apart.double().numpy())
    images = first.images[torch.from_numpy(kept)].flatten(0, 1)
    return SearchedExamples(
        of=(victims.images,) * len(victims),
        unexplained=values,
        apart=apart.double().numpy(),
        images=images.float().numpy(),
    )


def _recovered(unexplained: Doubles, apart: Doubles) -> Any:
    return (unexplained <= UNEXPLAINED) & (apart <= APART)


def _rule(victims: Victims) -> Rule:
    """Return the rule for labels that suits the number of images and the signs of the last layer's inputs."""
    if getattr(victims.model, "activation", None) is torch.tanh:
        return "sign" if victims.images == 1 else "bias"
    return "row-sum" if victims.images == 1 else "counts"
