"""Defences at point 1: on a device's own data, once, before training (papers.md 2.6; gradient-leaks, 6.2)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from fedprint.data.examples import CLUSTER
from fedprint.defences.strength import Amount, Defence, Fraction, average, single
from fedprint.types import Examples, FedprintError


class BkgRepl(Defence):
    """``bkg-repl``: a fraction ``alpha`` of the user's examples is replaced by background."""

    neutral: ClassVar[Mapping[str, Any]] = {"alpha": 0}

    name: Literal["bkg-repl"] = "bkg-repl"
    alpha: Fraction | Annotated[tuple[Fraction, ...], Field(min_length=1)]

    def on_data(self, examples: Examples, background: Examples, rng: Generator) -> Examples:
        """Return n examples, ``round(alpha * n)`` of them drawn from the background (without replacement if it can)."""
        n = len(examples["y"])
        replaced = round(single(self.alpha) * n)
        if replaced == 0:
            return examples
        positions = torch.randperm(n, generator=rng)[:replaced]
        drawn = draw(background_positions(background, self.name), replaced, rng)
        out = {}
        for column in ("x", "y"):
            values = examples[column].clone()
            values[positions] = background[column][drawn].to(values)  # its type and device
            out[column] = values
        return out


class Augmentation(Defence):
    """Adds ``alpha * n`` background examples to the user's n; subclasses choose them."""

    neutral: ClassVar[Mapping[str, Any]] = {"alpha": 0}

    name: str
    alpha: Amount | Annotated[tuple[Amount, ...], Field(min_length=1)]

    @property
    def growth(self) -> float:
        """1 + alpha."""
        return 1 + average(self.alpha)

    def on_data(self, examples: Examples, background: Examples, rng: Generator) -> Examples:
        """Return ``n + round(alpha * n)`` examples, the user's own first. Raises FedprintError without a background."""
        added = round(single(self.alpha) * len(examples["y"]))
        if added == 0:
            return examples
        drawn = self.choose(added, examples, background, background_positions(background, self.name), rng)
        return {
            column: torch.cat([examples[column], background[column][drawn].to(examples[column])])
            for column in ("x", "y")
        }

    @abstractmethod
    def choose(self, count: int, examples: Examples, background: Examples, every: Tensor, rng: Generator) -> Tensor:
        """Return the positions (count,) of the background examples to add, out of all positions ``every``."""


class RandAug(Augmentation):
    """``rand-aug``: ``alpha * n`` random background examples are added to the user's n."""

    name: Literal["rand-aug"] = "rand-aug"

    def choose(self, count: int, examples: Examples, background: Examples, every: Tensor, rng: Generator) -> Tensor:
        """Draw from all."""
        return draw(every, count, rng)


class RepeatAug(Augmentation):
    """``repeat-aug`` (ours): ``alpha * n`` background examples are added, few different ones, each ``repeats`` times.

    To first order an update is the sum of its examples' gradients, and the variance of the added part hides the user's
    part. k independent examples that each occur r times have variance r (r k): r times that of ``rand-aug`` at equal
    cost, in every direction in which examples differ. The modes of ``mm-aug`` vary as much, but they are few, so an
    adversary with the same background can project them out and keep the user's part. ``repeats`` 1 is ``rand-aug``.
    """

    name: Literal["repeat-aug"] = "repeat-aug"
    repeats: int = Field(default=4, ge=1)

    def choose(self, count: int, examples: Examples, background: Examples, every: Tensor, rng: Generator) -> Tensor:
        """Draw few examples and repeat each."""
        return draw(every, math.ceil(count / self.repeats), rng).repeat_interleave(self.repeats)[:count]


class MmAug(Augmentation):
    """``mm-aug``: the background is cut into ``clusters`` modes; a user adds ``alpha * n`` examples of one mode.

    The device picks its mode at random, once. Modes are k-means clusters of ``features``: PCA of pixels, TF-IDF and SVD
    of texts, the penultimate activations of the task's model trained on the background, or those of a MobileNet with
    the trained ``weights`` in a file (imagenet; the paper's choice); auto is pixels for images and tfidf for texts. The
    paper has M = 100 (PIPA), 500 (OpenImages), 300 (text).
    """

    name: Literal["mm-aug"] = "mm-aug"
    clusters: int = Field(default=100, ge=2)
    features: Literal["auto", "pixels", "tfidf", "model", "imagenet"] = "auto"
    weights: str | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The file of trained weights, if there is one."""
        return (self.weights,) if self.weights else ()

    def choose(self, count: int, examples: Examples, background: Examples, every: Tensor, rng: Generator) -> Tensor:
        """Draw from one mode."""
        if CLUSTER not in background:
            raise FedprintError(f"defences.{self.name}: the background has no clusters; run the stage federate again")
        modes = torch.unique(background[CLUSTER])
        mode = modes[int(torch.randint(len(modes), (), generator=rng))]
        return draw(torch.nonzero(background[CLUSTER] == mode)[:, 0], count, rng)


def background_positions(background: Examples, name: str) -> Tensor:
    """Return the positions of all background examples. Raises FedprintError if there are none."""
    available = len(background.get("y", ()))
    if available == 0:
        raise FedprintError(f"defences.{name}: this data set has no background examples; choose a source that has some")
    return torch.arange(available)


def draw(members: Tensor, count: int, rng: Generator) -> Tensor:
    """Draw ``count`` of the positions without replacement; when all are used, all are available again."""
    rounds = math.ceil(count / len(members))
    order = torch.cat([torch.randperm(len(members), generator=rng) for _ in range(rounds)])
    return members[order[:count]]
