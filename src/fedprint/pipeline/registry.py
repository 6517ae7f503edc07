"""Every component by name: the one place that knows them all."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fedprint.attacks.reidentify import Chance, Knn, Mlp, MlpTuned, Ridge, Svm
from fedprint.data.sources import AnySource
from fedprint.defences.on_data import BkgRepl
from fedprint.defences.on_update import Noise
from fedprint.models.components import NextWordLstm, SmallCnn

Source = AnySource
Model = Annotated[SmallCnn | NextWordLstm, Field(discriminator="name")]
Defence = Annotated[Noise | BkgRepl, Field(discriminator="name")]
Attack = Annotated[Chance | Knn | Svm | Mlp | MlpTuned | Ridge, Field(discriminator="name")]
