"""How a quantity changes over training: factors on a cohort m_t, on noise z_t, on a learning rate.

(client-dp, section 6; papers.md 4.5.) They change in a few steps and not in every round, because an accountant's time
grows with the number of *different* rounds.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fedprint.component import Component


class Constant(Component):
    """``constant``: the same in every round."""

    name: Literal["constant"] = "constant"

    def factor(self, t: int, rounds: int) -> float:
        """Return 1."""
        return 1.0


class Linear(Component):
    """``linear``: from 1 to ``to`` times in ``levels`` equal steps over the planned rounds."""

    name: Literal["linear"] = "linear"
    to: float = Field(gt=0)
    levels: int = Field(default=10, ge=2)

    def factor(self, t: int, rounds: int) -> float:
        """Return the factor of round ``t`` of ``rounds``."""
        level = min(t * self.levels // rounds, self.levels - 1)
        return 1 + (self.to - 1) * level / (self.levels - 1)


class Step(Component):
    """``step``: from round ``at[i]`` on ``factors[i]`` times, before that once."""

    name: Literal["step"] = "step"
    at: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    factors: tuple[Annotated[float, Field(gt=0)], ...]

    @model_validator(mode="after")
    def _steps_fit(self) -> Self:
        if len(self.at) != len(self.factors) or list(self.at) != sorted(set(self.at)):
            raise ValueError(f"at {list(self.at)} must ascend and have one of factors {list(self.factors)} each")
        return self

    def factor(self, t: int, rounds: int) -> float:
        """Return the factor of round ``t``."""
        passed = sum(t >= start for start in self.at)
        return self.factors[passed - 1] if passed else 1.0


Schedule = Annotated[Constant | Linear | Step, Field(discriminator="name")]
