"""Let a CUDA build of torchvision import beside a CPU-only torch.

Released Linux wheels of torchvision are CUDA builds; beside a CPU-only torch their compiled operators do not load,
``import torchvision`` fails, and ``import lightning`` fails with it (through torchmetrics). Declaring the two operators
that torchvision registers fake kernels for is enough: data sets, transforms and models then work. Image decoding does
not; fedprint decodes with Pillow. The repair runs when somebody first imports torchvision, so that a command that needs
neither of them starts at once.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept_alive: list[Any] = []  # a collected Library unregisters its operators


def _compiled_operators_load() -> bool:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return True
    import torch

    libraries = sorted(Path(spec.origin).parent.glob("_C*.so"))
    try:
        for library in libraries:
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
    except OSError:
        return False
    return True


def repair() -> None:
    """Declare torchvision's operators when, and only when, its compiled library cannot be loaded."""
    if _kept_alive or _compiled_operators_load():
        return
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for schema in _SCHEMAS:
        library.define(schema)  # type: ignore[no-untyped-call]
    _kept_alive.append(library)


class RepairFirst(MetaPathFinder):
    """Finds nothing itself: sees that torchvision is about to be imported, once, and repairs it."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Repair before the first import of torchvision."""
        if name == "torchvision" and self in sys.meta_path:
            sys.meta_path.remove(self)
            repair()
