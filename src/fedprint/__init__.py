"""fedprint: how recognisable is a user from the updates that federated learning calls anonymous?

From Python (docs/python-api.md): ``audit`` and ``attack`` recorded updates, ``run`` an experiment, ``load_report``,
``load_model``. Each is imported when it is first used, so that ``import fedprint`` and ``fedprint.record`` stay light.
"""

import sys
from importlib import import_module
from typing import Any

from fedprint._torchvision_repair import RepairFirst

_API = ("AuditReport", "Report", "attack", "audit", "load_model", "load_report", "run")
__all__ = [*_API]

sys.meta_path.insert(0, RepairFirst())


def __getattr__(name: str) -> Any:
    """Return a part of the Python API (fedprint.api), or a module such as ``fedprint.record`` on its first use."""
    if name in _API:
        return getattr(import_module("fedprint.api"), name)
    if name in ("record", "protect"):
        return import_module(f"fedprint.{name}")
    raise AttributeError(f"module 'fedprint' has no attribute '{name}'; it has {', '.join(_API)}")


def __dir__() -> list[str]:
    """Return what is here, with what is imported on use."""
    return sorted({*globals(), *_API})
