"""What some tests need beyond the Python packages: they skip without it, or fail where FEDPRINT_REQUIRE names it.

``FEDPRINT_REQUIRE=chromium,postgresql`` is what continuous integration sets; ``data`` stands for the real data sets.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

NEEDS = ("chromium", "postgresql", "data")


def missing(need: str, reason: str) -> NoReturn:
    """Skip the test because of what is missing, or fail it where that is required."""
    required = {name.strip() for name in os.environ.get("FEDPRINT_REQUIRE", "").split(",")} - {""}
    if unknown := required - set(NEEDS):
        pytest.fail(f"FEDPRINT_REQUIRE names {', '.join(sorted(unknown))}; choose of {', '.join(NEEDS)}", pytrace=False)
    if need in required:
        pytest.fail(f"{need} is required here (FEDPRINT_REQUIRE): {reason}", pytrace=False)
    pytest.skip(reason)
