"""The flat space of a strategy: named parameters, and defences with placeholders for them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from fedprint.component import Component
from fedprint.types import FedprintError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Value = float | int
Values = Mapping[str, Value]
MARK = "$"
"""A setting ``$alpha`` stands for the parameter ``alpha``."""


DIGITS = 3
"""Significant digits of measured values: a search that ends at a bound suggests 19.99 after 20, which is the same."""


class Parameter(Component):
    """One parameter: a number from ``low`` to ``high``, uniform in its logarithm when ``log``, whole when ``integer``.

    Set ``log`` for a parameter that varies over orders of magnitude (sigma, clip).
    """

    low: float
    high: float
    log: bool = False
    integer: bool = False

    @model_validator(mode="after")
    def _is_a_range(self) -> Parameter:
        if self.low >= self.high or (self.log and self.low <= 0):
            raise ValueError(f"low={self.low:g} must be below high={self.high:g}, and above 0 with log")
        if self.integer and not (self.low.is_integer() and self.high.is_integer()):
            raise ValueError(f"low={self.low:g} and high={self.high:g} of an integer must be whole")
        return self

    def distribution(self) -> BaseDistribution:
        """Return Optuna's form."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.integer:
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def centre(self) -> Value:
        """Return the middle, on the scale that is searched."""
        middle = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        return round(middle) if self.integer else middle

    def end(self) -> Value:
        """Return the upper end."""
        return round(self.high) if self.integer else self.high

    def rounded(self, value: Value) -> Value:
        """Return the value to ``DIGITS`` digits, within the range."""
        if self.integer:
            return value
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


class Strategy(Component):
    """A way to defend: ``defences`` as in an experiment, with ``$name`` where a parameter of ``space`` goes.

    ``changes`` are other settings of the experiment that belong to the strategy, such as its federation's; they may
    hold parameters too. The space is flat: every parameter always has an effect, which a Gaussian process needs.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    defences: Annotated[tuple[Mapping[str, Any], ...], Field(min_length=1)]
    changes: Mapping[str, Any] = Field(default_factory=dict, alias="with")
    space: Annotated[Mapping[str, Parameter], Field(min_length=1)]

    @model_validator(mode="after")
    def _space_is_used(self) -> Strategy:
        used = {*placeholders(self.defences), *placeholders(self.changes)}
        if used != set(self.space):
            raise ValueError(
                f"strategy '{self.name}': defences use {sorted(used) or 'no parameter'}, "
                f"space has {sorted(self.space)}; write ${'{name}'} in defences or with for each parameter of space"
            )
        return self

    def filled(self, values: Values) -> list[dict[str, Any]]:
        """Return the defences with ``values`` in place of the placeholders."""
        return [dict(filled(defence, values)) for defence in self.defences]

    def rounded(self, values: Values) -> dict[str, Value]:
        """Return the values as they are measured and reported."""
        return {name: self.space[name].rounded(value) for name, value in values.items()}

    def changed(self, values: Values) -> dict[str, Any]:
        """Return the other settings with ``values`` in place of the placeholders."""
        return dict(filled(self.changes, values))

    def distributions(self) -> dict[str, BaseDistribution]:
        """Return the space as Optuna takes it."""
        return {name: parameter.distribution() for name, parameter in self.space.items()}

    def centre(self) -> dict[str, Value]:
        """Return the middle of the space."""
        return {name: parameter.centre() for name, parameter in self.space.items()}

    def first(self) -> list[dict[str, Value]]:
        """Return what is measured before a sampler proposes: the centre, and the upper end of a single parameter.

        Most defences are strongest there: a search of few trials learns whether any strength keeps below the ceiling.
        """
        ends = [{name: parameter.end() for name, parameter in self.space.items()}]
        return [self.centre(), *(ends if len(self.space) == 1 else ())]


def placeholders(node: Any) -> Iterator[str]:
    """Yield the names of all parameters that a nested value refers to."""
    if isinstance(node, str) and node.startswith(MARK):
        yield node.removeprefix(MARK)
    elif isinstance(node, Mapping):
        for value in node.values():
            yield from placeholders(value)
    elif isinstance(node, Sequence) and not isinstance(node, str):
        for value in node:
            yield from placeholders(value)


def settings_of(node: Any, parameter: str) -> Iterator[str]:
    """Yield the names of the settings, anywhere in a nested value, that refer to a parameter (``alpha``)."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            plain = value if isinstance(value, list | tuple) else [value]
            if f"{MARK}{parameter}" in plain:
                yield str(key)
            else:
                yield from settings_of(value, parameter)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from settings_of(value, parameter)


def filled(node: Any, values: Values) -> Any:
    """Return a nested value with every placeholder replaced. Raises FedprintError for one without a value."""
    if isinstance(node, str) and node.startswith(MARK):
        name = node.removeprefix(MARK)
        if name not in values:
            raise FedprintError(f"parameter '{name}' has no value; choose from {', '.join(values)}")
        return values[name]
    if isinstance(node, Mapping):
        return {key: filled(value, values) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [filled(value, values) for value in node]
    return node
