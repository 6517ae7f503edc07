"""A privacy budget as a setting."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedprint.component import Component

AccountantName = Literal["prv", "rdp", "pld", "rdp-wor", "moments"]


class Budget(Component):
    """(epsilon, delta) and accountant. ``delta`` is far below 1 / clients; without ``epsilon`` training is not limited.

    ``accountant`` None is prv where sampling is Poisson and rdp-wor where cohorts have a fixed size.
    """

    epsilon: float | None = Field(default=None, gt=0)
    delta: float = Field(gt=0, lt=1)
    accountant: AccountantName | None = None
