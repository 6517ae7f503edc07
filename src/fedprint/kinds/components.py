"""The defences, attacks and analyses of a federation by name.

Its models are in models/components.py, its data in data/sources/registry.py. Inversions and client sweeps list their
components in their own config.py. Other packages add components by entry point (docs/plug-ins.md), there as here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from fedprint.analyses.attributes import Attributes
from fedprint.analyses.conditions.amounts import PriorExamples
from fedprint.analyses.conditions.base import TrainingUpdates
from fedprint.analyses.conditions.data_space import DataSpace
from fedprint.analyses.conditions.epochs import Epochs
from fedprint.analyses.conditions.layers import Layers
from fedprint.analyses.conditions.users import Users
from fedprint.analyses.cross_modal import CrossModal
from fedprint.analyses.exhibits.class_bias import ClassBias
from fedprint.analyses.exhibits.distances import Distances
from fedprint.analyses.exhibits.raw_features import RawFeatures
from fedprint.analyses.exhibits.recognisable import Recognisable
from fedprint.analyses.matching import Matching
from fedprint.analyses.open_world import OpenWorld
from fedprint.analyses.participation.cohorts import Participation
from fedprint.analyses.participation.membership import Membership
from fedprint.analyses.profile import Profile
from fedprint.attacks.reidentification.mlp_tuned import MlpTuned
from fedprint.attacks.reidentification.presets import Chance, Knn, Mlp, Svm, SvmHard
from fedprint.attacks.reidentification.ridge import Ridge, RidgeOfMeans
from fedprint.attacks.reidentification.side_channels import Count, History, Norm, UpdateAndSideChannels
from fedprint.defences.counterweight import CounterAug
from fedprint.defences.on_counts import CoarseCounts, SameSize
from fedprint.defences.on_data import BkgRepl, MmAug, RandAug, RepeatAug
from fedprint.defences.on_update import DpFedAvg, DpLocal, Laplace, Noise, Quantise, Sign, TopK
from fedprint.defences.secret_head import SecretHead
from fedprint.defences.secure_aggregation import SecureAggregation
from fedprint.plugins import with_plugins

Defence = Annotated[
    BkgRepl
    | RandAug
    | RepeatAug
    | MmAug
    | CounterAug
    | Noise
    | Laplace
    | DpLocal
    | DpFedAvg
    | TopK
    | Quantise
    | Sign
    | CoarseCounts
    | SameSize
    | SecretHead
    | SecureAggregation,
    Field(discriminator="name"),
]
Attack = Annotated[
    Chance
    | Knn
    | Svm
    | SvmHard
    | Mlp
    | MlpTuned
    | Ridge
    | RidgeOfMeans
    | Count
    | Norm
    | History
    | UpdateAndSideChannels,
    Field(discriminator="name"),
]
Analysis = Annotated[
    TrainingUpdates
    | RawFeatures
    | Recognisable
    | ClassBias
    | Distances
    | PriorExamples
    | Layers
    | Epochs
    | Users
    | Matching
    | Attributes
    | DataSpace
    | Profile
    | Participation
    | Membership
    | OpenWorld
    | CrossModal,
    Field(discriminator="name"),
]

if not TYPE_CHECKING:
    Defence = with_plugins(Defence, "fedprint.defences")
    Attack = with_plugins(Attack, "fedprint.attacks")
    Analysis = with_plugins(Analysis, "fedprint.analyses")
