"""Closed forms, labels, and the statements of papers.md 4.2 on numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional

from fedprint.attacks.inversion.closed_form import (
    LEAST,
    ClosedForm,
    layer_input,
    unexplained,
)
from fedprint.attacks.inversion.labels import check_rule, expected_from, labels_from
from fedprint.attacks.inversion.objectives import Knowledge
from fedprint.attacks.inversion.simulate import simulation
from fedprint.attacks.inversion.victims import Victims
from fedprint.defences.on_update import Noise, TopK
from fedprint.models.base import initialise
from fedprint.models.components import DlNet, FullyConnected
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng
from fedprint.types import FedprintError

# ---- the input of a fully connected layer --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NoisyBound:
    """Theorem 2.2 on systems ``B x = W`` (n of them).

    ``bound`` (n,) of the relative error of x where ``applies`` (n,): ``|B^-1 E_B| < 1``. Elsewhere the theorem says
    nothing: the bound is infinite there, and that is no statement about the attack (papers.md 4.2, erratum 6).
    """

    bound: Tensor
    applies: Tensor


def noisy_bound(b: Tensor, w: Tensor, noise_b: Tensor, noise_w: Tensor) -> NoisyBound:
    """Return the bound for square B (n, k, k), W (n, k) and the perturbations of both, in spectral norms."""
    size, size_noise = torch.linalg.matrix_norm(b, 2), torch.linalg.matrix_norm(noise_b, 2)
    turned = torch.linalg.matrix_norm(torch.linalg.solve(b, noise_b), 2)
    condition = torch.linalg.cond(b, 2)
    relative = size_noise / size + noise_w.norm(dim=1) / w.norm(dim=1)
    applies = turned < 1
    bound = torch.where(applies, condition * relative / (1 - turned), torch.inf)
    return NoisyBound(bound=bound, applies=applies)


def solve_noisy(b: Tensor, w: Tensor, noise_b: Tensor, noise_w: Tensor) -> Tensor:
    """Return x (n, k) of the perturbed systems ``(B + E_B) x = W + E_W``."""
    x: Tensor = torch.linalg.solve(b + noise_b, w + noise_w)
    return x


def layer_gradients(victims: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs (v, 20) and the first layer's gradients of a small smooth network."""
    rng = torch_rng(seed)
    x = torch.rand(victims, 20, generator=rng).double()
    weights, biases = [], []
    for row in x:
        net = nn.Sequential(nn.Linear(20, 15), nn.Sigmoid(), nn.Linear(15, 4)).double()
        initialise(net, rng)
        loss = functional.cross_entropy(net(row[None]), torch.tensor([1]))
        weight, bias = torch.autograd.grad(loss, [net[0].weight, net[0].bias])
        weights.append(weight)
        biases.append(bias)
    return x, torch.stack(weights), torch.stack(biases)


@pytest.mark.parametrize("rows", ["best", "least-squares"])
def test_the_input_of_the_first_layer_is_exact(rows: str) -> None:
    x, weight, bias = layer_gradients(20)
    found = layer_input(weight, bias, rows)  # type: ignore[arg-type]
    assert float(((found - x).norm(dim=1) / x.norm(dim=1)).max()) < 1e-10


def test_under_noise_all_rows_beat_the_best() -> None:
    x, weight, bias = layer_gradients(60)
    rng, size = torch_rng(1), 1e-3
    weight = weight + size * torch.randn(weight.shape, generator=rng).double()
    bias = bias + size * torch.randn(bias.shape, generator=rng).double()
    mean = [
        float(((layer_input(weight, bias, rows) - x).norm(dim=1) / x.norm(dim=1)).mean())  # type: ignore[arg-type]
        for rows in ("best", "least-squares")
    ]
    assert mean[1] < 0.75 * mean[0]


def test_the_head_of_dlnet_gives_its_features() -> None:
    net = build_network(DlNet(), (3, 32, 32), 10, False).double()
    net.reset(torch_rng(0))
    x = torch.rand(1, 3, 32, 32, generator=torch_rng(1)).double()
    weight, bias = torch.autograd.grad(net({"x": x, "y": torch.tensor([3])}).mean(), list(net.parameters())[-2:])
    assert torch.allclose(layer_input(weight[None], bias[None]), net.features(x), rtol=1e-9)  # type: ignore[operator]


@pytest.mark.parametrize("centred", [False, True])
def test_the_attack_gives_the_images_of_a_network_without_convolutions(centred: bool) -> None:
    net = build_network(FullyConnected(centred=centred, activation="sigmoid"), (3, 8, 8), 5, False).double()
    net.reset(torch_rng(0))
    x, y = torch.rand(6, 1, 3, 8, 8, generator=torch_rng(1)).double(), torch.arange(6)[:, None] % 5
    params = {name: p.detach() for name, p in net.named_parameters()}
    descents = vmap(simulation(net), in_dims=(None, 0, 0))(params, x, functional.one_hot(y, 5).double())
    victims = Victims(model=net, params=params, descents=descents, shape=(3, 8, 8), classes=5)
    for rows in ("best", "least-squares"):
        found = ClosedForm(rows=rows).run(victims)  # type: ignore[arg-type]
        assert float((found - x).abs().max()) < 1e-10
    with pytest.raises(FedprintError, match="is no fully connected layer on all pixels"):
        ClosedForm(layer="head").run(victims)
    with pytest.raises(FedprintError, match="for gradients of one image"):
        ClosedForm().run(replace(victims, images=2))


def veiled(victims: int, sigma: float, share: float) -> tuple[Victims, Tensor]:
    """Return victims of a network without convolutions whose gradients had noise, then the largest entries kept."""
    net = build_network(FullyConnected(activation="sigmoid", hidden=32), (1, 8, 8), 5, False).double()
    rng = torch_rng(3)
    x, y = torch.rand(victims, 1, 1, 8, 8, generator=rng).double(), torch.arange(victims)[:, None] % 5
    params, sent = [], []
    for victim in range(victims):
        net.reset(torch_rng(0, victim))
        params.append({name: p.detach().clone() for name, p in net.named_parameters()})
        gradient = simulation(net)(params[-1], x[victim], functional.one_hot(y[victim], 5).double())
        loud = Noise(sigma=sigma).on_device(gradient, torch_rng(1, victim))
        sent.append(TopK(share=share, per_layer=True).on_device(loud, torch_rng(2, victim)))
    stacked = [{name: torch.stack([one[name] for one in each]) for name in each[0]} for each in (params, sent)]
    known = {"model": net, "shape": (1, 8, 8), "classes": 5, "shared": False}
    return Victims(params=stacked[0], descents=stacked[1], **known), x  # type: ignore[arg-type]


def relative(found: Tensor, x: Tensor) -> Tensor:
    return (found - x).flatten(1).norm(dim=1) / x.flatten(1).norm(dim=1)


@pytest.mark.parametrize(("sigma", "share"), [(0.0, 0.3), (1e-3, 0.3), (0.01, 1.0), (0.03, 1.0)])
def test_the_closed_form_of_one_who_knows_the_mechanism_is_better(sigma: float, share: float) -> None:
    victims, x = veiled(24, sigma, share)
    plain, knowing = (
        relative(ClosedForm().run(victims, known).clamp(0, 1), x).mean()
        for known in (Knowledge(), Knowledge(sigma=sigma, masked=share < 1))
    )
    assert float(knowing) < 0.95 * float(plain)


def test_only_rows_that_sent_a_pixel_are_averaged_over() -> None:
    x, weight, bias = layer_gradients(5)
    weight[:, ::2, :10] = 0.0
    weight[:, :, 3] = 0.0  # an entry that was not sent
    found = layer_input(weight, bias, knowledge=Knowledge(masked=True))
    kept = [i for i in range(20) if i != 3]
    assert torch.allclose(found[:, kept], x[:, kept], rtol=1e-9) and not bool(found[:, 3].any())
    assert float((layer_input(weight, bias) - x)[:, kept].abs().max()) > 0.1
    assert float(unexplained(weight, bias, x, masked=True).abs().max()) < 1e-12


def test_the_squares_of_noisy_biases_are_taken_for_what_they_are() -> None:
    """Over many rows the noise of the biases is ``rows sigma^2``: without it the input keeps its size."""
    rng, sigma = torch_rng(5), 0.5
    b, x = torch.randn(1, 20_000, generator=rng).double(), torch.rand(1, 6, generator=rng).double()
    noise = sigma * torch.randn(1, 20_000, 7, generator=rng).double()
    weight, bias = b[:, :, None] * x[:, None] + noise[..., :6], b + noise[..., 6]
    plain, known = (layer_input(weight, bias, knowledge=Knowledge(sigma=s)) for s in (0.0, sigma))
    assert torch.allclose(plain, x / (1 + sigma**2), atol=0.02) and torch.allclose(known, x, atol=0.02)
    assert float(unexplained(weight, bias, known)) < float(unexplained(weight, bias, plain))
    drowned = layer_input(weight, bias, knowledge=Knowledge(sigma=10.0))
    assert torch.allclose(drowned, plain / LEAST), "what is left has a floor"


def test_a_layer_without_a_gradient_is_refused() -> None:
    with pytest.raises(FedprintError, match="all zero"):
        layer_input(torch.zeros(2, 3, 4), torch.zeros(2, 3))


# ---- noisy systems -------------------------------------------------------------------------------------------------


def systems(count: int, size: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return B, x, W = B x, and perturbations of B and W of sizes between 1e-4 and 3 times theirs."""
    rng = torch_rng(seed, "systems", size)
    b = torch.randn(count, size, size, generator=rng).double()
    x = torch.randn(count, size, generator=rng).double()
    scale = 10 ** (torch.rand(2, count, 1, generator=rng).double() * 4.5 - 4)
    w = torch.einsum("nij,nj->ni", b, x)
    noise_b = scale[0, :, :, None] * torch.randn(count, size, size, generator=rng).double()
    noise_w = scale[1] * torch.randn(count, size, generator=rng).double()
    return b, x, w, noise_b, noise_w


def test_the_error_bound_holds_wherever_it_applies_in_ten_thousand_systems() -> None:
    applied = beyond = 0
    for size in (1, 2, 3, 5, 10):
        b, x, w, noise_b, noise_w = systems(2000, size, 0)
        found = noisy_bound(b, w, noise_b, noise_w)
        error = (solve_noisy(b, w, noise_b, noise_w) - x).norm(dim=1) / x.norm(dim=1)
        assert not bool((error > found.bound * (1 + 1e-9) + 1e-12)[found.applies].any())
        assert bool(found.bound[~found.applies].isinf().all())
        applied += int(found.applies.sum())
        beyond += int((error[~found.applies] < 0.5).sum())
    assert 4000 < applied < 9000
    assert beyond > 20, "where the bound does not apply, systems are solved all the same"


def test_perturbations_twice_as_large_as_the_system_can_be_solved_exactly() -> None:
    """E_B = 2 B, E_W = 2 W: the paper's claim that |E_B| > |B| defeats every attack does not follow (erratum 6)."""
    b, x, w, _, _ = systems(100, 6, 1)
    assert torch.allclose(solve_noisy(b, w, 2 * b, 2 * w), x, rtol=1e-8)
    assert not bool(noisy_bound(b, w, 2 * b, 2 * w).applies.any())
    rng = torch_rng(0)
    weight, bias = torch.randn(5, 8, 12, generator=rng).double(), torch.randn(5, 8, generator=rng).double()
    weight = bias[..., None] * weight[:, :1]
    assert torch.allclose(layer_input(3 * weight, 3 * bias), layer_input(weight, bias), rtol=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 8))
def test_the_error_is_bounded_by_the_inverse_times_the_residuals(seed: int, size: int) -> None:
    """Lemma 5.2: |x - x'| <= |B^-1| (|W - W'| + |B - B'| |x'|)."""
    b, x, w, noise_b, noise_w = (part[:20] for part in systems(20, size, seed))
    other = solve_noisy(b, w, noise_b, noise_w)
    inverse = torch.linalg.matrix_norm(torch.linalg.inv(b), 2)
    right = inverse * (noise_w.norm(dim=1) + torch.linalg.matrix_norm(noise_b, 2) * other.norm(dim=1))
    assert bool(((x - other).norm(dim=1) <= right * (1 + 1e-6) + 1e-9).all())


# ---- existence -----------------------------------------------------------------------------------------------------


def test_full_rank_and_a_bias_gradient_determine_the_input() -> None:
    """Theorem 2.1: solve the second layer for its input, then undo the first, which is injective."""
    rng = torch_rng(0)
    for trial in range(20):
        first, second, last = nn.Linear(8, 12).double(), nn.Linear(12, 10).double(), nn.Linear(10, 3).double()
        for layer in (first, second, last):
            initialise(layer, rng, 2.0)
        x = torch.rand(8, generator=rng).double()
        scores = last(torch.tanh(second(torch.tanh(first(x)))))
        loss = functional.cross_entropy(scores[None], torch.tensor([trial % 3]))
        weight, bias = torch.autograd.grad(loss, [second.weight, second.bias])
        jacobian = torch.autograd.functional.jacobian(lambda z, f=first: torch.tanh(f(z)), x)
        assert int(torch.linalg.matrix_rank(jacobian)) == 8 and bool((bias != 0).all())
        hidden = layer_input(weight[None], bias[None])[0]
        found = torch.linalg.lstsq(first.weight.detach(), (torch.atanh(hidden) - first.bias.detach())[:, None]).solution
        assert torch.allclose(found[:, 0], x, rtol=1e-6, atol=1e-9)


def test_a_first_layer_that_loses_directions_does_not_determine_the_input() -> None:
    """Without full rank two inputs give the same gradients."""
    first, last = nn.Linear(8, 5).double(), nn.Linear(5, 3).double()
    for layer in (first, last):
        initialise(layer, torch_rng(1), 2.0)
    null = torch.linalg.svd(first.weight.detach()).Vh[-1]
    x = torch.rand(8, generator=torch_rng(2)).double()
    gradients = []
    for point in (x, x + 0.5 * null):
        loss = functional.cross_entropy(last(torch.tanh(first(point)))[None], torch.tensor([1]))
        gradients.append(torch.autograd.grad(loss, list(last.parameters())))
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(*gradients, strict=True))


# ---- labels --------------------------------------------------------------------------------------------------------


def head_gradients(
    count: int, images: int, activation: str = "sigmoid", *, grey: bool = False
) -> tuple[dict[str, Tensor], Tensor]:
    """Return the head's gradients of DLNet, anew for every victim, on noise images, and the labels (v, b).

    ``grey``: on grey images of class 0 instead.
    """
    net = build_network(DlNet.model_validate({"activation": activation}), (3, 32, 32), 10, False)
    rng = torch_rng(0, "labels", images)
    y = torch.randint(10, (count, images), generator=rng)
    gradients: list[tuple[Tensor, ...]] = []
    for victim in range(count):
        net.reset(torch_rng(0, "net", victim))
        x = torch.rand(images, 3, 32, 32, generator=rng)
        if grey:
            x, y[victim] = torch.full_like(x, 0.5), 0
        head = list(net.parameters())[-2:]
        gradients.append(torch.autograd.grad(net({"x": x, "y": y[victim]}).mean(), head))
    weight, bias = (torch.stack(parts) for parts in zip(*gradients, strict=True))
    return {"head.weight": weight, "head.bias": bias}, y


def in_common(found: Tensor, y: Tensor) -> float:
    """Return the share of labels found, each as often as it occurs."""
    counts = (functional.one_hot(labels, 10).sum(1) for labels in (found, y))
    return float(torch.minimum(*counts).sum() / y.numel())


def accuracy(found: Tensor, y: Tensor) -> float:
    return float((found == y.sort(1).values).float().mean())


@pytest.mark.parametrize("rule", ["row-sum", "sign", "bias"])
def test_every_rule_finds_the_label_of_one_image(rule: str) -> None:
    head, y = head_gradients(60, 1)
    assert accuracy(labels_from(rule, head, 1), y) == 1  # type: ignore[arg-type]


def test_row_sums_survive_noise_that_hides_the_bias() -> None:
    """Issue 6, number 5: at sigma = .5 the row sums give at least 95 % of labels among ten classes."""
    head, y = head_gradients(300, 1)
    rng = torch_rng(1)
    hidden = {name: t + 0.5 * torch.randn(t.shape, generator=rng) for name, t in head.items()}
    assert accuracy(labels_from("row-sum", hidden, 1), y) >= 0.95
    assert 0.2 < accuracy(labels_from("bias", hidden, 1), y) < 0.9


def test_the_sign_rule_needs_no_positive_features() -> None:
    head, y = head_gradients(60, 1, "tanh")
    assert accuracy(labels_from("sign", head, 1), y) == 1


def test_rules_that_add_up_features_are_refused_where_these_are_signed() -> None:
    signed, positive = (
        build_network(DlNet.model_validate({"activation": name}), (3, 32, 32), 10, False)
        for name in ("tanh", "sigmoid")
    )
    for rule in ("row-sum", "counts"):
        check_rule(rule, positive)
        with pytest.raises(
            FedprintError, match=rf"rule '{rule}' adds up .* choose sign for one image, bias for several"
        ):
            check_rule(rule, signed)
    check_rule("sign", signed)
    head, y = head_gradients(60, 4, "tanh")
    assert in_common(labels_from("bias", head, 4), y) > 0.7, "the bias knows no features"


@pytest.mark.parametrize("images", [4, 8])
def test_most_labels_of_a_batch_are_found_and_nearly_all_with_the_expected_outputs(images: int) -> None:
    head, y = head_gradients(40, images)
    grey = expected_from(head_gradients(40, 1, grey=True)[0])
    by_rows, by_counts = labels_from("row-sum", head, images), labels_from("counts", head, images, grey)
    assert by_rows.shape == by_counts.shape == y.shape
    assert in_common(by_rows, y) > 0.7
    assert in_common(by_counts, y) > 0.95


def test_a_label_that_occurs_twice_is_found_twice() -> None:
    weight = torch.tensor([[[-0.9], [-0.4], [0.3], [1.0]]])
    assert labels_from("row-sum", {"head.weight": weight}, 3).tolist() == [[0, 0, 1]]


def test_rules_that_cannot_work_say_so() -> None:
    with pytest.raises(FedprintError, match=r"the update holds no 'head.bias'; choose one of head.weight"):
        labels_from("bias", {"head.weight": torch.zeros(1, 2, 3)}, 1)
    with pytest.raises(FedprintError, match="is for one image, not 2"):
        labels_from("sign", {"head.weight": torch.zeros(1, 2, 3)}, 2)
    with pytest.raises(FedprintError, match="needs the model's outputs for images"):
        labels_from("counts", {"head.weight": torch.zeros(1, 2, 3)}, 2)
