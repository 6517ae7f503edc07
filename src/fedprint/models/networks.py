"""The network of each model's configuration."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

from torch import Tensor

from fedprint.component import Component
from fedprint.models.base import FedModule
from fedprint.models.components import (
    AlexNet,
    DlNet,
    FullyConnected,
    HandwritingGradients,
    MobileNet,
    Model,
    NextWordLstm,
    OrientedGradients,
    SmallCnn,
    StarLstm,
    Vgg16,
)
from fedprint.models.convnets import ConvClassifier, MlpClassifier
from fedprint.models.features.gradients import LinearClassifier, oriented_gradients
from fedprint.models.features.handwriting import handwriting_gradients
from fedprint.models.lstm import LanguageModel, StarRegressor
from fedprint.models.mobilenet import MobileNetClassifier
from fedprint.models.spn_networks import AlexNetClassifier, DlNetClassifier, Vgg16Classifier


@runtime_checkable
class OwnNetwork(Protocol):
    """The configuration of a plug-in's model, which builds its network itself."""

    def network(self, shape: tuple[int, ...], classes: int, multi_label: bool) -> FedModule:
        """Return the uninitialised network, as :func:`build_network` does."""


def build_network(config: Model, shape: tuple[int, ...], classes: int, multi_label: bool) -> FedModule:
    """Return the uninitialised network of ``config`` for one example of ``shape``.

    Images: (channels, height, width). Fixed features: (d,). Texts: any; ``classes`` is the size of the vocabulary.
    """
    if isinstance(config, OwnNetwork):
        return config.network(shape, classes, multi_label)
    match config:
        case FullyConnected():
            return MlpClassifier(math.prod(shape), classes, multi_label, config)
        case OrientedGradients() | HandwritingGradients():
            return LinearClassifier(math.prod(shape), classes, multi_label)
        case NextWordLstm():
            return LanguageModel(classes, config)
        case StarLstm():
            return StarRegressor(classes, config)
        case SmallCnn():
            return ConvClassifier(_image(shape), classes, multi_label, config)
        case MobileNet():
            return MobileNetClassifier(_image(shape), classes, multi_label, config)
        case DlNet():
            return DlNetClassifier(_image(shape), classes, multi_label, config)
        case AlexNet():
            return AlexNetClassifier(_image(shape), classes, multi_label, config)
        case Vgg16():
            return Vgg16Classifier(_image(shape), classes, multi_label, config)


def _image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    channels, height, width = shape
    return channels, height, width


def network_inputs(config: Component | None, x: Tensor) -> Tensor:
    """Return what the network of ``config`` reads of model inputs (n, ...): fixed features, or ``x`` itself."""
    if isinstance(config, HandwritingGradients):
        return handwriting_gradients(x, config.orientations, config.cells)
    if isinstance(config, OrientedGradients):
        return oriented_gradients(x, config.orientations, config.cells)
    return x
