"""Defences at point 2: on the update as it leaves the device, and on the server's mean (papers.md 2.6, 3, 4.4)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Generator, Tensor

from fedprint.accounting.budget import Budget
from fedprint.defences.clipping import MedianClip, QuantileClip
from fedprint.defences.correlated import noise_weights
from fedprint.defences.schedules import Constant, Schedule
from fedprint.defences.strength import Amount, Defence, single
from fedprint.params import clip, flatten, norm, unflatten
from fedprint.types import FedprintError, Params

Bits = Annotated[int, Field(ge=1, le=32)]


class UpdateDefenceBase(Defence):
    """What most defences of the update share: the server does nothing."""

    def on_server(self, mean: Params, cohort_size: int, rng: Generator) -> Params:
        """Return the mean as it is."""
        return mean


class Noise(UpdateDefenceBase):
    """``noise``: every coordinate of the update gets N(0, sigma^2) before it leaves the device (gradient-leaks, 6.1).

    ``sigma`` is the standard deviation; the paper's grid is in sigma^2. Without clipping the update's sensitivity is
    unbounded, so no privacy event is claimed.
    """

    neutral: ClassVar[Mapping[str, Any]] = {"sigma": 0}

    name: Literal["noise"] = "noise"
    sigma: Amount | Annotated[tuple[Amount, ...], Field(min_length=1)]

    def on_device(self, update: Params, rng: Generator) -> Params:
        """Return ``update + N(0, sigma^2)``; sigma 0 returns the update itself."""
        return _noisy(update, single(self.sigma), rng)


class Laplace(UpdateDefenceBase):
    """``laplace``: as ``noise``, with Laplace's distribution (spn's ablation). ``sigma`` is its standard deviation."""

    neutral: ClassVar[Mapping[str, Any]] = {"sigma": 0}

    name: Literal["laplace"] = "laplace"
    sigma: Amount | Annotated[tuple[Amount, ...], Field(min_length=1)]

    def on_device(self, update: Params, rng: Generator) -> Params:
        """Return the update plus noise of variance sigma^2 per coordinate; sigma 0 returns the update itself."""
        sigma = single(self.sigma)
        if sigma == 0:
            return update
        scale = sigma / math.sqrt(2)  # the variance of Laplace(s) is 2 s^2
        return {name: tensor + scale * _laplace_like(tensor, rng) for name, tensor in update.items()}


class DpLocal(UpdateDefenceBase):
    """``dp-local``: the update is clipped to L2 norm ``clip`` and noised with z * clip on the device.

    Each device protects itself, against the server too: at a noise multiplier ``z`` of 1 a single update holds nothing
    but noise in most coordinates. (gradient-leaks does not state where dp-fedavg's noise is added; it may be here.)
    """

    name: Literal["dp-local"] = "dp-local"
    clip: float = Field(default=50.0, gt=0)
    z: Amount | Annotated[tuple[Amount, ...], Field(min_length=1)]

    def on_device(self, update: Params, rng: Generator) -> Params:
        """Return the clipped update plus ``N(0, (z clip)^2)`` per coordinate."""
        return _noisy(clipped(update, self.clip), single(self.z) * self.clip, rng)


class DpFedAvg(Defence):
    """``dp-fedavg``: updates are clipped to norm S on the device, the server noises their sum (client-dp, algorithm 1).

    The sum gets N(0, (z S)^2) per coordinate and is divided by the planned cohort m, all devices of equal weight. z may
    follow a schedule, S is ``clip`` or follows a rule (defences/clipping.py), training ends with the ``budget``. The
    server sees every clipped update before it adds the noise: this protects a client against readers of the released
    models, not against the server. The guarantee needs every device of a cohort clipped (``defended: everyone``), and
    real noise: ours is a simulation from a seed. All users have the same strength, because S and z belong to the sum.

    With ``bands`` above 1 the noise of a round takes back part of that of the rounds before (defences/correlated.py).
    The devices then fall into as many groups, and a round samples from one group, in turn.
    """

    name: Literal["dp-fedavg"] = "dp-fedavg"
    clip: Annotated[float, Field(gt=0)] | MedianClip | QuantileClip = 50.0
    z: float = Field(ge=0)
    z_schedule: Schedule = Constant()
    bands: int = Field(default=1, ge=1)
    budget: Budget | None = None

    def at(self, t: int, rounds: int, norm: float) -> Self:
        """Return the defence as round ``t`` of ``rounds`` planned ones runs it: S is ``norm``, z a single number."""
        z = self.z * self.z_schedule.factor(t, rounds)
        return self.model_copy(update={"clip": norm, "z": z, "z_schedule": Constant()})

    def multiplier(self, t: int, rounds: int, expected: int) -> float:
        """Return the noise multiplier of all that round ``t`` releases: of the update, and of a bit on its norm."""
        z = self.z * self.z_schedule.factor(t, rounds)
        return self.clip.multiplier(z, expected) if z and isinstance(self.clip, QuantileClip) else z

    def on_device(self, update: Params, rng: Generator) -> Params:
        """Return the clipped update, or the whole one where a rule has not set S yet (see :meth:`at`)."""
        return clipped(update, self.clip) if isinstance(self.clip, float) else update

    def on_server(self, mean: Params, cohort_size: int, rng: Generator) -> Params:
        """Return the mean plus ``N(0, (z S / m)^2)`` per coordinate."""
        if not isinstance(self.clip, float):
            raise FedprintError(f"defences.{self.name}: {self.clip.name} has not set a clipping norm; call at() first")
        return _noisy(mean, self.z * self.clip / cohort_size, rng)

    def on_server_correlated(self, mean: Params, cohort_size: int, rngs: Sequence[Generator]) -> Params:
        """Return the mean plus a round's correlated noise; ``rngs`` are those of all rounds so far, the last first.

        The earlier rounds' draws are made again from their seeds: there is nothing to keep, or to lose in a crash.
        """
        if not isinstance(self.clip, float):
            raise FedprintError(f"defences.{self.name}: bands need a clip that is a number, not {self.clip.name}")
        for weight, rng in zip(noise_weights(self.bands, len(rngs)), rngs, strict=True):
            mean = _noisy(mean, weight * self.z * self.clip / cohort_size, rng)
        return mean


class TopK(UpdateDefenceBase):
    """``top-k`` (PPDL): only the largest ``share`` of the update's entries by absolute value leave the device.

    Over the whole update or ``per_layer`` (spn leaves it open). Exactly ``round(share * d)`` entries, at least one; of
    equal entries the first ones.
    """

    neutral: ClassVar[Mapping[str, Any]] = {"share": 1}

    name: Literal["top-k"] = "top-k"
    share: (
        Annotated[float, Field(gt=0, le=1)]
        | Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(min_length=1)]
    )
    per_layer: bool = False

    def on_device(self, update: Params, rng: Generator) -> Params:
        """Return the update with all smaller entries set to 0."""
        share = single(self.share)
        if share == 1:
            return update
        if self.per_layer:
            return {name: _largest(tensor.flatten(), share).view_as(tensor) for name, tensor in update.items()}
        return unflatten(_largest(flatten(update), share), update)


class Quantise(UpdateDefenceBase):
    """``quantise``: each tensor is rounded at random to ``bits`` bits between its least and greatest entry.

    Stochastic rounding keeps the mean (QSGD; Alistarh et al. 2017). 32 bits change nothing.
    """

    neutral: ClassVar[Mapping[str, Any]] = {"bits": 32}

    name: Literal["quantise"] = "quantise"
    bits: Bits | Annotated[tuple[Bits, ...], Field(min_length=1)]

    def on_device(self, update: Params, rng: Generator) -> Params:
        """Return the rounded update."""
        bits = single(self.bits)
        return update if bits == 32 else {name: _rounded(tensor, bits, rng) for name, tensor in update.items()}


class Sign(UpdateDefenceBase):
    """``sign``: each tensor leaves as its signs, times the mean absolute value of the entries that are not 0.

    signSGD (Bernstein et al. 2018) with a scale. ``enabled: false`` changes nothing; of a population
    ``[true, false]`` half sends signs.
    """

    neutral: ClassVar[Mapping[str, Any]] = {"enabled": False}

    name: Literal["sign"] = "sign"
    enabled: bool | Annotated[tuple[bool, ...], Field(min_length=1)] = True

    def on_device(self, update: Params, rng: Generator) -> Params:
        """Return the signs, scaled so that each tensor keeps its L1 norm."""
        if not single(self.enabled):
            return update
        return {name: tensor.sign() * _mean_size(tensor) for name, tensor in update.items()}


def clipped(update: Params, max_norm: float) -> Params:
    """Return the update at L2 norm ``max_norm`` or less. Raises FedprintError for one that is not finite."""
    if not math.isfinite(norm(update)):
        raise FedprintError("an update that is not finite cannot be clipped; lower federation.lr")
    return clip(update, max_norm)


def _noisy(update: Params, sigma: float, rng: Generator) -> Params:
    if sigma == 0:
        return update
    return {name: tensor + sigma * _normal_like(tensor, rng) for name, tensor in update.items()}


def _normal_like(tensor: Tensor, rng: Generator) -> Tensor:
    """Draw on the CPU, so that the noise does not depend on where the model runs."""
    return torch.randn(tensor.shape, generator=rng, dtype=tensor.dtype).to(tensor.device)


def _laplace_like(tensor: Tensor, rng: Generator) -> Tensor:
    """Draw Laplace(1) as the difference of two exponential variables."""
    first, second = (torch.empty(tensor.shape, dtype=tensor.dtype).exponential_(generator=rng) for _ in range(2))
    return (first - second).to(tensor.device)


def _rounded(tensor: Tensor, bits: int, rng: Generator) -> Tensor:
    low, high = tensor.min(), tensor.max()
    step = (high - low) / (2**bits - 1)
    if step == 0:
        return tensor
    level = ((tensor - low) / step).clamp(max=2**bits - 1)  # float rounding may exceed the last level
    floor = level.floor()
    up = torch.rand(tensor.shape, generator=rng).to(tensor) < level - floor
    rounded: Tensor = low + step * (floor + up)
    return rounded


def _mean_size(tensor: Tensor) -> Tensor:
    return tensor.abs().sum() / tensor.count_nonzero().clamp(min=1)


def _largest(vector: Tensor, share: float) -> Tensor:
    """Return ``vector`` (d,) with all but the ``round(share * d)`` largest absolute entries 0."""
    k = max(1, round(share * len(vector)))
    # stable: of equal entries the first are kept, and exactly k in all
    kept = torch.argsort(vector.abs(), descending=True, stable=True)[:k]
    out = torch.zeros_like(vector)
    out[kept] = vector[kept]
    return out
