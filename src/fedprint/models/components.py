"""The models' configurations. The networks are in other files, so that reading a config does not import Lightning.

``tasks`` are those that the network can do; data of any other task are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_args

from pydantic import Field

from fedprint.component import Component
from fedprint.data.dataset import Task
from fedprint.plugins import names_of, with_plugins

Width = Annotated[int, Field(ge=1, le=2**16)]
"""Units of a layer."""

Channels = Annotated[int, Field(ge=1, le=4096)]
"""Channels of a convolution."""


class SmallCnn(Component):
    """``cnn``: the small network for images of at least 8 x 8 pixels.

    With ``hidden`` 0 the head reads the convolutions. ``centred`` maps inputs [0, 1] to [-1, 1].
    """

    tasks: ClassVar[tuple[Task, ...]] = ("single_label", "multi_label")

    name: Literal["cnn"] = "cnn"
    channels: tuple[Channels, Channels] = (16, 32)
    hidden: int = Field(default=64, ge=0, le=2**16)
    centred: bool = False


class MobileNet(Component):
    """``mobilenet``: MobileNet v1 with ``width`` times the paper's channels, for images of at least 8 x 8 pixels.

    Its batch norm would keep running statistics of a device's data. ``normalisation`` group is GroupNorm with
    ``groups`` groups, or the next smaller number that divides the channels: it has none. frozen is batch norm with the
    statistics of ``weights`` as constants, as in evaluation (without a file: constants that keep the signal's size at
    the start). Images that the paper's five halvings would leave with fewer than ``least_map`` pixels a side are halved
    less often, the stem first: 224 pixels end in 7, as in the paper; 64 and 32 in 4. ``weights``: a file of trained
    weights (models/weights.py); None starts from noise. ``centred`` maps inputs [0, 1] to [-1, 1].
    """

    tasks: ClassVar[tuple[Task, ...]] = ("single_label", "multi_label")

    name: Literal["mobilenet"] = "mobilenet"
    width: float = Field(default=1.0, gt=0, le=64)
    normalisation: Literal["group", "frozen"] = "group"
    groups: int = Field(default=8, ge=1, le=1024)
    least_map: int = Field(default=4, ge=1)
    weights: str | None = None
    centred: bool = True

    @property
    def reads(self) -> tuple[str, ...]:
        """The file of trained weights, if there is one."""
        return (self.weights,) if self.weights else ()


class FullyConnected(Component):
    """``mlp``: one hidden layer, whose gradient holds the image in closed form (papers.md 4.2).

    ``centred`` maps inputs [0, 1] to [-1, 1].
    """

    tasks: ClassVar[tuple[Task, ...]] = ("single_label", "multi_label")

    name: Literal["mlp"] = "mlp"
    hidden: Width = 64
    activation: Literal["relu", "sigmoid"] = "relu"
    centred: bool = False


class OrientedGradients(Component):
    """``oriented-gradients``: a linear layer on hand-made features that need no data (models/features/gradients.py).

    Histograms of ``orientations`` signed directions in ``cells`` x ``cells`` cells: features of norm 1 that separate
    classes before any training. Under the noise of a guarantee they do better than learned ones (Tramer and Boneh
    2021).
    """

    tasks: ClassVar[tuple[Task, ...]] = ("single_label", "multi_label")

    name: Literal["oriented-gradients"] = "oriented-gradients"
    orientations: int = Field(default=8, ge=2, le=64)
    cells: int = Field(default=7, ge=2, le=64)


class HandwritingGradients(Component):
    """``handwriting-gradients``: as ``oriented-gradients``, for noisy handwriting (models/features/handwriting.py).

    Images are put upright by their own moments, and what the features share with those of random pen strokes is taken
    off, so that it fills no clipping norm. No data are in them.
    """

    tasks: ClassVar[tuple[Task, ...]] = ("single_label", "multi_label")

    name: Literal["handwriting-gradients"] = "handwriting-gradients"
    orientations: int = Field(default=8, ge=2, le=64)
    cells: int = Field(default=7, ge=2, le=64)


class DlNet(Component):
    """``dlnet``: the network of deep leakage as spn runs it (spn, table 6), for images of any size.

    Four 5x5 convolutions of ``channels``, strides 2, 2, 1, 1, and one fully connected layer. ``activation``: sigmoid;
    tanh for SVHN, where sigmoid does not train (spn, appendix D). ``bound``: all parameters start uniform in +-bound
    (spn, table 2: .3); with null they start like those of the other networks. ``centred`` maps inputs [0, 1] to [-1,
    1].
    """

    tasks: ClassVar[tuple[Task, ...]] = ("single_label", "multi_label")

    name: Literal["dlnet"] = "dlnet"
    channels: Channels = 12
    activation: Literal["sigmoid", "tanh"] = "sigmoid"
    bound: float | None = Field(default=0.3, gt=0)
    centred: bool = False


class AlexNet(Component):
    """``alexnet``: AlexNet for 32 pixels (spn, table 4; papers.md, erratum 8), for images of at least 8 x 8 pixels.

    It starts from Kaiming's uniform rule (spn, table 3). ``centred`` maps inputs [0, 1] to [-1, 1].
    """

    tasks: ClassVar[tuple[Task, ...]] = ("single_label", "multi_label")

    name: Literal["alexnet"] = "alexnet"
    hidden: Width = 256
    centred: bool = True


class Vgg16(Component):
    """``vgg16``: VGG16 with group norm after each convolution, for images of at least 32 x 32 pixels.

    The standard five stages: at 32 pixels one pixel of 512 channels enters the hidden layer, where spn's table 5 prints
    4096 (papers.md, erratum 8). ``groups`` of the norm are our choice (Wu and He 2018: 32); the norm has a bias, the
    convolutions have none. Convolutions start from Kaiming's uniform rule, the last two layers from a normal one with a
    standard deviation of .01, as in torchvision's VGG: from Kaiming's rule, and from torch's default, the hidden layer
    dies within some dozen steps at the paper's rate. ``centred`` maps inputs [0, 1] to [-1, 1].
    """

    tasks: ClassVar[tuple[Task, ...]] = ("single_label", "multi_label")

    name: Literal["vgg16"] = "vgg16"
    hidden: Width = 256
    groups: Literal[1, 2, 4, 8, 16, 32, 64] = 32
    centred: bool = True


class NextWordLstm(Component):
    """``lm``: the paper's next-word model (embedding 100, LSTM 64)."""

    tasks: ClassVar[tuple[Task, ...]] = ("language_model",)

    name: Literal["lm"] = "lm"
    embedding: Width = 100
    hidden: Width = 64


class StarLstm(Component):
    """``stars``: the paper's rating model of a text (embedding 50, LSTM 128, FC to one number).

    Before training it predicts about ``centre``, the middle of the scale. ``loss`` huber is squared below an error of
    one star and absolute above. ``forget_bias`` is added to the forget gate, so that the LSTM keeps its memory from the
    start (1 in the paper's library).
    """

    tasks: ClassVar[tuple[Task, ...]] = ("regression",)

    name: Literal["stars"] = "stars"
    embedding: Width = 50
    hidden: Width = 128
    centre: float = 3.0
    forget_bias: float = 1.0
    loss: Literal["absolute", "squared", "huber"] = "huber"


Model = Annotated[
    SmallCnn
    | FullyConnected
    | OrientedGradients
    | HandwritingGradients
    | MobileNet
    | DlNet
    | AlexNet
    | Vgg16
    | NextWordLstm
    | StarLstm,
    Field(discriminator="name"),
]

if not TYPE_CHECKING:
    Model = with_plugins(Model, "fedprint.models")


def models_for(task: Task) -> tuple[str, ...]:
    """Return the names of the models that can do ``task``, in the order of :data:`Model`."""
    known = get_args(get_args(Model)[0])
    return tuple(name for model in known if task in model.tasks for name in names_of(model))
