"""Which layer identifies users (papers.md 2.5: 27 layers of MobileNet, 3 of the LSTMs)?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, cast

from pydantic import Field

from fedprint.analyses.base import Analysis, Bench
from fedprint.analyses.trials import Key, Trial
from fedprint.attacks.features import layer_groups
from fedprint.attacks.reidentification.reidentify import answer, tune
from fedprint.attacks.reidentification.workspace import Attack
from fedprint.component import Component

Group = tuple[str, ...]


class Layers(Analysis):
    """``layers``: AP from one layer alone, for every recorded layer.

    Each attack is tuned again on each layer, on the prior alone: ridge chooses the transform and the penalty there.
    Keys: ``attack``, ``layer`` (name), ``depth`` (1 is next to the input), ``parameters``, ``layers`` (tensors).
    """

    name: Literal["layers"] = "layers"
    attacks: tuple[str, ...] = Field(default=("ridge", "knn"), min_length=1)

    def trials(self, bench: Bench) -> Iterator[Trial]:
        """Yield one trial per attack and layer."""
        groups = layer_groups(bench.view.store)
        sizes = bench.view.store.sizes
        for depth, (layer, group) in enumerate(zip(layer_names(groups), groups, strict=True), 1):
            parameters = sum(sizes[name] for name in group)
            for name in self.attacks:
                bench.progress(f"layer {layer}, {name}")
                keys: dict[str, Key] = {"attack": bench.attack(name)[0].name, "layers": ",".join(group)}
                keys |= {"layer": layer, "depth": depth, "parameters": parameters}
                yield self._trial(bench, name, group, keys)

    def _trial(self, bench: Bench, name: str, group: Group, keys: dict[str, Key]) -> Trial:
        attack = on_layers(bench.attack(name)[0], group)
        rng = bench.rng(self.name, name, *group)
        tuned = tune(attack, bench.folds, bench.work, rng)
        ranking = answer(attack, bench.problem, tuned, bench.work, rng)
        return bench.trial(bench.problem, ranking.scores, keys)


def on_layers(attack: Attack, layers: Group) -> Attack:
    """Return the attack with the same configuration, on some layers only."""
    return cast(Attack, cast(Component, attack).model_copy(update={"layers": layers}))


def layer_names(groups: Sequence[Group]) -> list[str]:
    """Name each group of parameter tensors: ``fc1`` for weight and bias, the full name for a part of a layer."""
    stems = [group[0].rpartition(".")[0] or group[0] for group in groups]
    shared = Counter(stems)
    whole = [shared[stem] == 1 and not group[0].endswith(".bias") for stem, group in zip(stems, groups, strict=True)]
    return [
        stem if alone or len(group) > 1 else group[0] for stem, group, alone in zip(stems, groups, whole, strict=True)
    ]
