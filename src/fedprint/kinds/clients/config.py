"""An experiment on accuracy by the number of clients, as a value (papers.md 4.5; spn, section 4.3).

A file in configs/experiments with ``methods`` is one: no user is attacked, so it is no :class:`Experiment`.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

from fedprint.component import Component
from fedprint.data.partition import Partition
from fedprint.data.sources.labelled_images import LabelledImages
from fedprint.defences.on_update import Noise, TopK
from fedprint.defences.schedules import Constant, Schedule
from fedprint.defences.secret_head import SecretHead
from fedprint.defences.strength import single
from fedprint.kinds.federation.config import BACKENDS, ReportConfig, all_differ, names_differ
from fedprint.kinds.inversion.config import DefenceName, Network, acts_on_updates
from fedprint.kinds.jobs import JobSettings, ResolvedFile
from fedprint.plugins import with_plugins
from fedprint.types import LocalOptimiser, LocalTraining, Precision

Mechanism = Annotated[Noise | TopK | SecretHead, Field(discriminator="name")]

if not TYPE_CHECKING:
    Mechanism = with_plugins(Mechanism, "fedprint.defences", acts_on_updates)


class Method(Component):
    """How clients train: ``alone``, each with a model of its own, or together under ``defences``.

    ``noise`` is on every gradient that a client steps along, as in the paper, not on its update. ``defence`` is the
    papers' name of these defences, on which no number depends.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    alone: bool = False
    defence: DefenceName = "none"
    defences: tuple[Mechanism, ...] = ()

    @model_validator(mode="after")
    def _nothing_is_sent_alone(self) -> Method:
        if self.alone and any(not isinstance(defence, SecretHead) for defence in self.defences):
            raise ValueError(f"method '{self.name}': clients that train alone send nothing; leave defences out")
        return self

    @model_validator(mode="after")
    def _defences_have_a_name(self) -> Method:
        if (self.defence == "none") != (not self.defences):
            names = ", ".join(name for name in get_args(DefenceName) if name != "none")
            listed = [defence.name for defence in self.defences]
            raise ValueError(
                f"method '{self.name}': defence {self.defence} with defences {listed}; name them ({names}), or neither"
            )
        return self

    @model_validator(mode="after")
    def _one_noise_for_all(self) -> Method:
        sigmas = [defence.sigma for defence in self.defences if isinstance(defence, Noise)]
        if len(sigmas) > 1 or any(isinstance(sigma, tuple) for sigma in sigmas):
            raise ValueError(f"method '{self.name}': noise on gradients is one number for all clients, got {sigmas}")
        return self

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on every gradient."""
        return sum(single(defence.sigma) for defence in self.defences if isinstance(defence, Noise))

    @property
    def on_updates(self) -> tuple[Mechanism, ...]:
        """The defences that act before and after a round's local steps."""
        return tuple(defence for defence in self.defences if not isinstance(defence, Noise))


class ClientTraining(Component):
    """What every method does: ``rounds`` of all clients, in which each trains ``epochs`` on its own examples.

    ``lr_schedule`` multiplies the learning rate by round: the papers' halvings are step at 100, 200 of .5, .25.
    ``backend`` is what trains the clients, and ``precision`` how products are rounded there, as in a federation;
    backend ``auto`` tries what is fastest on this machine.
    """

    rounds: int = Field(default=100, ge=1, le=100_000)
    epochs: int = Field(default=1, ge=1)
    batch_size: int = Field(default=32, ge=1)
    lr: float = Field(default=1e-3, gt=0)
    lr_schedule: Schedule = Constant()
    optimiser: LocalOptimiser = "adam"
    aggregation: Literal["fedavg", "mean", "round-robin"] = "mean"
    backend: str = Field(default="sequential", pattern=BACKENDS)
    precision: Precision = "full"

    def local(self, noise: float = 0.0) -> LocalTraining:
        """What a client does in one round, before ``lr_schedule``, with ``noise`` on its gradients."""
        return LocalTraining(
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            optimiser=self.optimiser,
            noise=noise,
            precision=self.precision,
        )


class ClientsConfig(Component):
    """The file: every method on every partition among every number of clients.

    The first of ``seeds`` draws the images for all of them; each partitions these, and trains, anew.
    """

    report: ReportConfig
    data: LabelledImages
    partitions: Annotated[tuple[Partition, ...], AfterValidator(names_differ), Field(min_length=1)]
    clients: Annotated[tuple[Annotated[int, Field(ge=1)], ...], AfterValidator(all_differ), Field(min_length=1)]
    network: Network
    training: ClientTraining = ClientTraining()
    methods: Annotated[tuple[Method, ...], AfterValidator(names_differ), Field(min_length=1)]
    seeds: Annotated[tuple[int, ...], AfterValidator(all_differ), Field(min_length=1)] = (0,)


class SweepSettings(JobSettings):
    """One federation, and all that its result depends on.

    ``data_seed`` draws the images, ``seed`` all else. No number depends on the names of the method.
    """

    data: LabelledImages
    data_seed: int
    partition: Partition
    clients: int
    network: Network
    training: ClientTraining
    method: Method
    seed: int

    @property
    def label(self) -> str:
        """Method, number of clients, partition and seed."""
        return f"{self.method.name}, {self.clients} clients, {self.partition.name}, seed {self.seed}"


class ClientsExperiment(ResolvedFile[ClientsConfig]):
    """The file, resolved."""

    @property
    def federations(self) -> tuple[SweepSettings, ...]:
        """Every federation; few clients first, so that a stopped run has whole columns."""
        config = self.config
        grid = product(config.seeds, config.clients, config.partitions, config.methods)
        return tuple(
            SweepSettings(
                data=config.data,
                data_seed=config.seeds[0],
                partition=partition,
                clients=clients,
                network=config.network,
                training=config.training,
                method=method,
                seed=seed,
            )
            for seed, clients, partition, method in grid
        )
