"""A model: softmax regression on the pixels. The network is built late, so that its configuration imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from fedprint.component import Component
from fedprint.data.dataset import Task

if TYPE_CHECKING:
    from fedprint.models.base import FedModule


class Softmax(Component):
    """``softmax``: one linear layer on all pixels, for images of any size."""

    tasks: ClassVar[tuple[Task, ...]] = ("single_label", "multi_label")

    name: Literal["softmax"] = "softmax"

    def network(self, shape: tuple[int, ...], classes: int, multi_label: bool) -> FedModule:
        """Return the network for one example of ``shape``."""
        from fedprint_example.network import SoftmaxNetwork

        return SoftmaxNetwork(shape, classes, multi_label)
