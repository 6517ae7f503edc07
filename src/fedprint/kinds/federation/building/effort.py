"""How much the configured adversaries train off line, and about how many updates they are asked."""

from __future__ import annotations

import numpy as np

from fedprint.attacks.adversary.adversaries import Effort
from fedprint.attacks.reidentification.presets import Chance
from fedprint.kinds.federation.config import Experiment
from fedprint.types import Ints


def effort_of(config: Experiment, rounds: int) -> Effort:
    """Return how much the configured adversaries train off line, of a store with ``rounds`` rounds.

    Random scores learn from nothing: a half of each prior, once, is there to compare them with.
    """
    if not _learns(config):
        return Effort(clean_rounds=0, defended_rounds=0, draws=0, validation_rounds=min(2, rounds))
    threat, adaptive = config.threat, "adaptive" in config.adversaries
    # All who train whole priors off line train as many clean ones, so that no AP is low for lack of effort. With
    # ``learn_from: offline`` these are all adversaries; by default an undefended run learns from recorded updates.
    whole = threat.shadow_rounds * (1 + threat.shadow_draws)
    return Effort(
        clean_rounds=whole if adaptive or not learns_from_records(config) else 0,
        defended_rounds=threat.shadow_rounds,
        draws=threat.shadow_draws if adaptive and config.defences else 0,
        validation_rounds=min(config.selection.shadow_rounds, rounds),
    )


MOST_GUESSES = 2000
"""Updates about which random scores are asked, at most: 100,000 of 5,000 users would fill 24 GB and say no more."""


def asked_of(config: Experiment, count: int) -> Ints:
    """Return which of ``count`` anonymous updates are asked about: all, or evenly spread ones where nobody learns."""
    if _learns(config) or count <= MOST_GUESSES:
        return np.arange(count)
    return np.linspace(0, count - 1, MOST_GUESSES).round().astype(np.int64)


def learns_from_records(config: Experiment) -> bool:
    """Return whether the naive adversary learns from recorded updates of its own devices.

    It does where they were not defended, or where nobody learns.
    """
    clean = not config.defences or "prior" not in config.threat.defended_roles()
    return (clean and config.threat.learn_from == "records") or not _learns(config)


def _learns(config: Experiment) -> bool:
    """Return whether any attack does better for having examples; the adaptive adversary asks for them in any case."""
    return "adaptive" in config.adversaries or any(not isinstance(attack, Chance) for attack in config.attacks)
