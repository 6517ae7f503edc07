"""Labels of a batch when the mask and the noise are known."""

from __future__ import annotations

import inversion_cases as cases
import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional

from fedprint.attacks.inversion.label_counts import likeliest_labels
from fedprint.attacks.inversion.labels import labels_from
from fedprint.attacks.inversion.matching import GradientMatching
from fedprint.attacks.inversion.objectives import NAIVE, Knowledge
from fedprint.attacks.inversion.search import expected_of
from fedprint.attacks.inversion.simulate import LocalSteps, simulation
from fedprint.attacks.inversion.victims import Victims
from fedprint.models.components import DlNet
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng

CLASSES, SHAPE = 10, (3, 16, 16)


def batches(images: int, activation: str = "sigmoid", number: int = 20) -> tuple[Victims, Tensor]:
    """Return victims of made-up images, each with a random network of its own, and their labels (v, b)."""
    rng = torch_rng(0, "batches", images)
    net = build_network(DlNet.model_validate({"activation": activation}), SHAPE, CLASSES, False)
    coarse = torch.rand(number * images, 3, 4, 4, generator=rng)
    x = functional.interpolate(coarse, size=16, mode="bilinear").reshape(number, images, *SHAPE)
    y = torch.randint(CLASSES, (number, images), generator=rng)
    params = cases.parameters(net, number)
    descents = vmap(simulation(net))(params, x, functional.one_hot(y, CLASSES).float())
    found = Victims(
        model=net, params=params, descents=descents, shape=SHAPE, classes=CLASSES, images=images, shared=False
    )
    return found, y


def in_common(found: Tensor, y: Tensor) -> float:
    """Return the share of labels found, each as often as it occurs."""
    counts = (functional.one_hot(labels, CLASSES).sum(1) for labels in (found, y))
    return float(torch.minimum(*counts).sum() / y.numel())


def share_found(victims: Victims, y: Tensor, knowledge: Knowledge) -> float:
    """Return the share that the attack finds, whose rule for several images is counts."""
    found = GradientMatching(labels="counts", evaluations=2).run(victims, knowledge, seed=0)
    return in_common(found.targets.argmax(-1), y)


@pytest.mark.parametrize("images", [4, 8])
@pytest.mark.parametrize(("sent", "sigma"), [(0.05, 0.0), (0.05, 0.1), (0.3, 0.1)])
def test_who_knows_the_mask_and_the_noise_finds_more_labels(images: int, sent: float, sigma: float) -> None:
    victims, y = batches(images)
    known = Knowledge(sigma=sigma, masked=True)
    hidden = cases.top_share(cases.noisy(victims, sigma), sent)
    naive, adaptive = (share_found(hidden, y, knowledge) for knowledge in (NAIVE, known))
    assert adaptive > naive + 0.05 or adaptive == 1
    assert adaptive > (0.9 if sigma else 0.6)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_the_label_of_one_image_is_found_by_whatever_was_sent(activation: str) -> None:
    victims, y = batches(1, activation, 40)
    for sent, sigma in ((0.05, 0.0), (0.05, 0.1), (1.0, 0.5)):
        hidden = cases.top_share(cases.noisy(victims, sigma), sent)
        assert in_common(likeliest_labels(hidden, Knowledge(sigma=sigma, masked=sent < 1)), y) >= 0.95


def test_signed_inputs_are_no_hindrance_in_a_batch() -> None:
    victims, y = batches(4, "tanh")
    hidden = cases.top_share(victims, 0.3)
    found = in_common(likeliest_labels(hidden, Knowledge(masked=True)), y)
    assert found > in_common(labels_from("bias", hidden.descents, 4), y)


def test_noise_alone_costs_no_more_labels_than_by_the_rule() -> None:
    victims, y = batches(8)
    hidden = cases.noisy(victims, 0.5)
    by_rule = labels_from("counts", hidden.descents, 8, expected_of(hidden, hidden.params))
    assert in_common(likeliest_labels(hidden, Knowledge(sigma=0.5)), y) >= in_common(by_rule, y) > 0.5


def test_a_shared_model_rounds_and_steps_count() -> None:
    victims, y = batches(4, number=6)
    hidden, known = cases.noisy(victims, 0.05), Knowledge(sigma=0.05)
    once = likeliest_labels(hidden, known)
    one = hidden.of_one_model(2)
    assert torch.equal(likeliest_labels(one, known)[0], once[2])
    steps = LocalSteps(batches=((0, 1, 2, 3),) * 2, lr=1e-6)
    doubled = {name: 2 * d for name, d in hidden.descents.items()}
    twice = Victims(**{**vars(hidden), "descents": doubled, "steps": steps})
    assert torch.equal(likeliest_labels(twice, Knowledge(sigma=0.1)), once)
    loud = [cases.noisy(victims, 3.0, seed) for seed in range(12)]
    rounds = Victims(
        **{
            **vars(victims),
            "rounds": 12,
            "params": {name: torch.stack([p] * 12, 1) for name, p in victims.params.items()},
            "descents": {name: torch.stack([v.descents[name] for v in loud], 1) for name in victims.descents},
        }
    )
    alone = in_common(likeliest_labels(loud[0], Knowledge(sigma=3.0)), y)
    assert in_common(likeliest_labels(rounds, Knowledge(sigma=3.0)), y) > alone
