"""What the numbers of one job depend on: of a federation under a mechanism, and of an attack on what it lets out."""

from __future__ import annotations

from fedprint.data.sources.labelled_images import LabelledImages
from fedprint.kinds.inversion.config import CandidatesConfig, Inversion, LocalSgd, Mechanic, Network, TrainingConfig
from fedprint.kinds.jobs import JobSettings


class AccuracySettings(JobSettings):
    """A federation under one mechanism, the ``run``-th. Its accuracy depends on these settings and on nothing else."""

    data: LabelledImages
    network: Network
    training: TrainingConfig
    defences: tuple[Mechanic, ...]
    seed: int
    run: int = 0


class ExposureSettings(JobSettings):
    """The gradients of some images under one mechanism, or updates of ``local`` training, and an attack on them."""

    data: LabelledImages
    network: Network
    defences: tuple[Mechanic, ...]
    attack: Inversion
    participants: tuple[int, ...]
    candidates: CandidatesConfig
    batch: int
    victims: int
    seed: int
    local: LocalSgd | None = None
