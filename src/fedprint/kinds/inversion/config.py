"""An experiment on gradient inversion as a value: mechanisms at several strengths, and attacks on their gradients.

A file in configs/experiments with ``mechanisms`` is one. Other experiments ask who sent an update; this one asks what
is in it (docs/adr/0011).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter, model_validator

from fedprint.attacks.inversion.closed_form import ClosedForm
from fedprint.attacks.inversion.matching import GradientMatching
from fedprint.component import Component
from fedprint.data.sources.labelled_images import LabelledImages
from fedprint.defences.on_update import Laplace, Noise, TopK
from fedprint.defences.secret_head import SecretHead
from fedprint.kinds.federation.config import ReportConfig, all_differ
from fedprint.kinds.jobs import ResolvedFile
from fedprint.models.components import AlexNet, DlNet, FullyConnected, SmallCnn, Vgg16
from fedprint.plugins import with_plugins
from fedprint.tuning.space import filled, placeholders
from fedprint.types import AdversaryName

DefenceName = Literal["none", "dp", "ppdl_0.05", "ppdl_0.3", "spn"]
MAIN = "main"
"""The variant of a mechanism that the papers' tables are about, and of an attack that headlines are about."""

VARIANT = r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$"
Adversaries = Annotated[tuple[AdversaryName, ...], AfterValidator(all_differ), Field(min_length=1)]

Mechanic = Annotated[Noise | Laplace | TopK | SecretHead, Field(discriminator="name")]
Network = Annotated[DlNet | AlexNet | Vgg16 | SmallCnn | FullyConnected, Field(discriminator="name")]
Inversion = Annotated[GradientMatching | ClosedForm, Field(discriminator="name")]
STRENGTH = "strength"


def acts_on_updates(defence: Any) -> bool:
    """Return whether a class of defences changes what a client sends; one on its data has no place in a mechanism."""
    return hasattr(defence, "on_device") and hasattr(defence, "on_server")


def names_one_class(model: Any) -> bool:
    """Return whether a class of models can do images of one class each."""
    return "single_label" in model.tasks


if not TYPE_CHECKING:
    Mechanic = with_plugins(Mechanic, "fedprint.defences", acts_on_updates)
    Network = with_plugins(Network, "fedprint.models", names_one_class)

_MECHANICS: TypeAdapter[tuple[Mechanic, ...]] = TypeAdapter(tuple[Mechanic, ...])


class MechanismConfig(Component):
    """A mechanism of the papers: ``defences`` with ``$strength`` in place of each of the ``strengths``.

    ``variant`` separates ablations from the grid of the papers' tables (``main``).
    """

    defence: DefenceName
    variant: str = Field(default=MAIN, pattern=VARIANT)
    defences: tuple[Mapping[str, Any], ...] = ()
    strengths: Annotated[tuple[float, ...], AfterValidator(all_differ), Field(min_length=1)] = (0.0,)

    @model_validator(mode="after")
    def _makes_sense_at_every_strength(self) -> MechanismConfig:
        unknown = set(placeholders(self.defences)) - {STRENGTH}
        if unknown or (len(self.strengths) > 1 and not set(placeholders(self.defences))):
            raise ValueError(f"mechanism '{self.defence}': write ${STRENGTH}, and nothing else, where a strength goes")
        for strength in self.strengths:
            self.at(strength)
        return self

    def at(self, strength: float) -> tuple[Mechanic, ...]:
        """Return the defences at one strength."""
        return _MECHANICS.validate_python(filled(self.defences, {STRENGTH: strength}))


Size = Annotated[int, Field(ge=1)]
"""How many images or participants."""


class LocalSgd(Component):
    """What a client trains before it sends: ``steps`` of plain SGD on batches of ``batch_size``, epoch by epoch.

    It sends its update over ``-lr``, so that a single step on all images sends their gradient, and the noise of a
    mechanism is as large beside an update as it is beside a gradient. The server knows all three: it set them.
    """

    steps: int = Field(ge=1)
    batch_size: int = Field(ge=1)
    lr: float = Field(gt=0)


class AttackConfig(Component):
    """An attack on one network, on gradients of ``batches`` images or, with ``local``, on updates of local training.

    ``variant`` separates other attackers from the one of headlines (``main``), which is on gradients. Others attack the
    papers' grid, or its ``mechanisms`` that are named, and no ablations. ``adversaries`` and ``victims`` stand in
    for the experiment's, where given. ``row-sum`` labels are counted for several images; where the last layer's inputs
    are signed (tanh), where sums of rows say nothing, they come from the signs of one image, from the bias of several.
    """

    network: Network
    attack: Inversion
    local: LocalSgd | None = None
    mechanisms: Annotated[tuple[DefenceName, ...], AfterValidator(all_differ), Field(min_length=1)] | None = None
    batches: Annotated[tuple[Size, ...], AfterValidator(all_differ), Field(min_length=1)] = (1,)
    variant: str = Field(default=MAIN, pattern=VARIANT)
    adversaries: Adversaries | None = None
    victims: int | None = Field(default=None, ge=2)

    @model_validator(mode="after")
    def _fits_its_network(self) -> AttackConfig:
        wrong = self._closed_form_needs() if isinstance(self.attack, ClosedForm) else self._labels_need(self.attack)
        if wrong := wrong or self._a_variant_needs():
            raise ValueError(wrong)
        return self

    def _a_variant_needs(self) -> str | None:
        """Return what is wrong with what only variants may do."""
        for what in ("local", "mechanisms", "victims") if self.variant == MAIN else ():
            if getattr(self, what):
                return f"{what}: headlines are of all victims' gradients under every mechanism; give it a variant"
        local, most = self.local, max(self.batches)
        if local and self.victims:
            return "victims: updates of local steps are set beside the gradients of the same victims; leave it out"
        if local and local.steps * local.batch_size < most:
            reach = f"{local.steps} steps of {local.batch_size} reach {local.steps * local.batch_size} of {most} images"
            return f"local: {reach}; raise local.steps or local.batch_size"
        return None

    def _closed_form_needs(self) -> str | None:
        if not isinstance(self.network, FullyConnected):
            return f"closed-form needs a fully connected first layer, which {self.network.name} has not; choose mlp"
        if self.batches != (1,):
            return f"batches: closed-form solves gradients of one image, got {list(self.batches)}; write [1]"
        if self.local:
            return "local: closed-form solves single gradients; choose gradient-matching for updates of local steps"
        return None

    def _labels_need(self, attack: GradientMatching) -> str | None:
        if attack.labels == "known":
            return "attack.labels: known, but adversaries of an experiment are given no labels; choose row-sum or joint"
        if attack.labels == "sign" and max(self.batches) > 1:
            return f"attack.labels: sign is for one image, but batches are {list(self.batches)}; choose row-sum"
        if attack.labels == "counts" and self._signed:
            return f"attack.labels: counts adds up inputs, which {self.network.name} with tanh signs; choose row-sum"
        return None

    @property
    def label(self) -> str:
        """The attack, with its variant where it is not the one of headlines."""
        return self.attack.name if self.variant == MAIN else f"{self.attack.name} ({self.variant})"

    @property
    def _signed(self) -> bool:
        """Whether the last layer's inputs may be negative; a plug-in's may, unless it says that they are not."""
        if hasattr(self.network, "network"):
            return bool(getattr(self.network, "signed_features", True))
        return isinstance(self.network, DlNet) and self.network.activation == "tanh"

    def attack_on(self, batch: int) -> GradientMatching | ClosedForm:
        """Return the attack as a gradient of ``batch`` images needs it."""
        attack = self.attack
        if isinstance(attack, GradientMatching) and attack.labels == "row-sum":
            one, several = ("sign", "bias") if self._signed else ("row-sum", "counts")
            return attack.model_copy(update={"labels": one if batch == 1 else several})
        return attack


class TrainingConfig(Component):
    """The federation that gives each mechanism its accuracy (federation/gradient_rounds.py; papers.md 4.5).

    Ten clients hold iid parts of the training images. The papers train 300 rounds of local epochs; a round here is one
    gradient of every client. ``seeds`` federations, on the same images, give one accuracy.
    """

    clients: int = Field(default=10, ge=1)
    rounds: int = Field(default=300, ge=1, le=100_000)
    batch_size: int = Field(default=32, ge=1)
    lr: float = Field(default=1e-3, gt=0)
    aggregation: Literal["round-robin", "mean"] = "round-robin"
    seeds: int = Field(default=1, ge=1)


class CandidatesConfig(Component):
    """Images that the adversary has and looks for in gradients: those that were attacked, and strangers.

    It looks in the first ``gradients``, because every image is looked for in each. ``pairs`` of a stranger and a
    gradient, at least: a false positive rate of .1 % takes a thousand. ``public`` more images show it what gradients of
    any images have in common (attacks/inversion/alignment.py).

    ``lira`` members (at most all) and ``lira_strangers`` (None: as many) of every gradient are asked about by
    likelihood ratios too, which cost the gradients of ``shadows`` clients each (attacks/inversion/membership.py); 0 is
    none. ``lira_batches`` are the batch sizes in which they are, None is all: a single image is its gradient's own.
    """

    gradients: int = Field(default=100, ge=2)
    public: int = Field(default=256, ge=1)
    pairs: int = Field(default=1000, ge=1)
    lira: int = Field(default=0, ge=0)
    lira_strangers: int | None = Field(default=None, ge=1)
    lira_batches: Annotated[tuple[Size, ...], AfterValidator(all_differ), Field(min_length=1)] | None = None
    shadows: int = Field(default=16, ge=2)

    def asked(self, batch: int) -> tuple[int, int]:
        """Return how many members and strangers of each gradient of ``batch`` images are asked about by ratios."""
        if not self.lira or not (self.lira_batches is None or batch in self.lira_batches):
            return 0, 0
        return self.lira, self.lira_strangers or self.lira

    def searched(self, victims: int) -> int:
        """Return in how many of so many gradients candidates are looked for."""
        return min(self.gradients, victims)

    def strangers(self, victims: int) -> int:
        """Return how many strangers so many gradients take."""
        return -(-self.pairs // self.searched(victims))

    def lacking(self, images: int, victims: int, batch: int) -> str | None:
        """Return what is wrong with so many training images for gradients of ``batch``, None where nothing is."""
        inside, strangers, (members, others) = victims * batch, self.strangers(victims), self.asked(batch)
        if others > strangers:
            return f"candidates.lira: {others} strangers, but there are {strangers}; raise candidates.pairs"
        if members and self.public < 2 * batch:  # one half is for shadows, the other whitens
            return f"candidates.public: {self.public}, but lira takes {2 * batch} for batches of {batch}; raise it"
        if inside + strangers + self.public <= images:
            return None
        return (
            f"data.train: {images} images, but {inside} are attacked, {strangers} are strangers and {self.public} are "
            "public; raise it, or lower candidates.pairs or candidates.public"
        )


class InversionConfig(Component):
    """The file: what is attacked and how. ``images`` of each attack batch are the first of one random order.

    At least ``victims`` gradients are attacked: batches that are too large for ``images`` get more. Participants of
    tracing are the victims, grouped into each number of ``participants`` that they suffice for, and one by one.
    """

    report: ReportConfig
    data: LabelledImages
    mechanisms: Annotated[tuple[MechanismConfig, ...], Field(min_length=1)]
    attacks: Annotated[tuple[AttackConfig, ...], Field(min_length=1)]
    adversaries: Adversaries = ("naive", "adaptive")
    images: int = Field(default=16, ge=2)
    victims: int = Field(default=3, ge=2)
    participants: Annotated[tuple[Size, ...], AfterValidator(all_differ)] = (2, 4, 8)
    candidates: CandidatesConfig = CandidatesConfig()
    training: TrainingConfig = TrainingConfig()
    seed: int = 0

    @model_validator(mode="after")
    def _names_differ(self) -> InversionConfig:
        names = [(mechanism.defence, mechanism.variant) for mechanism in self.mechanisms]
        if len(set(names)) < len(names):
            raise ValueError(f"mechanisms: two are the same, got {names}; give an ablation a variant of its own")
        if ("none", MAIN) not in names:
            raise ValueError("mechanisms: add {defence: none}, beside which the others are read")
        kinds = [(one.attack.name, one.variant) for one in self.attacks]
        if len(set(kinds)) < len(kinds):
            raise ValueError(f"attacks: {kinds} has one twice; give it a variant, or --set another network")
        if self.attacks[0].variant != MAIN:
            raise ValueError(f"attacks: the first is variant '{self.attacks[0].variant}'; headlines need one of {MAIN}")
        defences = {mechanism.defence for mechanism in self.mechanisms if mechanism.variant == MAIN}
        for one in self.attacks:
            if missing := [name for name in one.mechanisms or () if name not in defences]:
                raise ValueError(f"attacks: '{one.label}' is to attack {missing}; the grid has {sorted(defences)}")
        networks = {one.network.name: one.network for one in self.attacks}
        if any(one.network != networks[one.network.name] for one in self.attacks):
            raise ValueError("attacks: two networks of one name differ; another network is another experiment (--set)")
        return self

    @model_validator(mode="after")
    def _has_images_enough(self) -> InversionConfig:
        if lacking := self.lacking(self.data.train):
            raise ValueError(lacking)
        return self

    def lacking(self, images: int) -> str | None:
        """Return what is wrong with so many training images for some batch, None where nothing is."""
        grid = ((attack, batch) for attack, one in enumerate(self.attacks) for batch in one.batches)
        errors = (self.candidates.lacking(images, self.victims_of(attack, batch), batch) for attack, batch in grid)
        return next((error for error in errors if error), None)

    def traced_among(self, attack: int) -> int:
        """Return among how many participants CAP's tracing asks: as many as every batch has victims for, at least.

        Those of headlines and, where a variant has fewer victims, its own. Batches and images have no part in it, so
        that cells of one batch size are those of a run with more.
        """
        asked = (one for number, one in enumerate(self.attacks) if one.variant == MAIN or number == attack)
        return min(one.victims or self.victims for one in asked)

    def adversaries_of(self, attack: int) -> tuple[AdversaryName, ...]:
        """Return the adversaries of an attack."""
        return self.attacks[attack].adversaries or self.adversaries

    def repeats(self, attack: int, batch: int) -> bool:
        """Return whether an earlier attack is on the same messages, so that results without any search are the same."""
        here = self.attacks[attack]
        before = (one for one in self.attacks[:attack] if (one.network, one.local) == (here.network, here.local))
        return any(batch in one.batches for one in before)

    def victims_of(self, attack: int, batch: int) -> int:
        """Return how many gradients of ``batch`` images are attacked."""
        return max(self.images // batch, self.attacks[attack].victims or self.victims)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A mechanism at one strength."""

    defence: DefenceName
    variant: str
    strength: float
    defences: tuple[Mechanic, ...]

    @property
    def label(self) -> str:
        """Mechanism, variant and strength."""
        return f"{self.defence}{'' if self.variant == MAIN else f' ({self.variant})'} {self.strength:g}"


class InversionExperiment(ResolvedFile[InversionConfig]):
    """The file, resolved."""

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Every mechanism at every strength."""
        return tuple(
            Setting(defence=m.defence, variant=m.variant, strength=strength, defences=m.at(strength))
            for m in self.config.mechanisms
            for strength in m.strengths
        )

    def digest(self) -> str:
        """Return the first 12 of the digits."""
        return super().digest()[:12]
