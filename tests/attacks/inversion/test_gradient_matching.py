"""Gradient matching recovers small images, and every setting of it does what it says."""

from __future__ import annotations

from dataclasses import replace

import inversion_cases as cases
import pytest
import torch

from fedprint.attacks.inversion.matching import GradientMatching
from fedprint.attacks.inversion.objectives import Knowledge, Prior, distance, nat, prior_cost, total_variation
from fedprint.attacks.inversion.optimisers.starts import start_images
from fedprint.attacks.inversion.simulate import LocalSteps, as_descent, mean_loss, simulation
from fedprint.federation.backends import make_backend
from fedprint.federation.client import batch_schedule
from fedprint.rng import torch_rng
from fedprint.types import ClientJob, FedprintError, LocalTraining

QUICK = GradientMatching(evaluations=300, target=1e-18)

# ---- what a client would have sent ---------------------------------------------------------------------------------


def test_the_simulated_gradient_is_that_of_the_models_own_loss() -> None:
    net = cases.network()
    net.reset(torch_rng(0))
    x, y = (part[0] for part in cases.images(1, 3))
    params = {name: p.detach() for name, p in net.named_parameters()}
    targets = torch.nn.functional.one_hot(y, cases.CLASSES).double()
    found = simulation(net)(params, x, targets)
    expected = torch.autograd.grad(net({"x": x, "y": y}).mean(), list(net.parameters()))
    assert all(torch.allclose(found[name], g, rtol=1e-10) for name, g in zip(found, expected, strict=True))
    own = float(net({"x": x, "y": y}).detach().mean())
    assert float(mean_loss(net, multi_label=False)(params, x, targets)) == pytest.approx(own)


def test_unrolled_steps_equal_the_update_of_a_client() -> None:
    net, training = cases.network(), LocalTraining(epochs=2, batch_size=2, lr=0.3)
    net.reset(torch_rng(0))
    x, y = (part[0] for part in cases.images(1, 5))
    params = {name: p.detach().clone() for name, p in net.named_parameters()}
    job = ClientJob(device_id="d", examples={"x": x, "y": y}, seed=4)
    (result,) = make_backend("sequential", net).run([job], params, training)
    order = tuple(tuple(batch.tolist()) for batch in batch_schedule(5, training, 4))
    found = simulation(net, steps=LocalSteps(batches=order, lr=0.3))(
        params, x, torch.nn.functional.one_hot(y, cases.CLASSES).double()
    )
    observed = as_descent(result.update, 0.3)
    assert len(order) == 6
    assert all(torch.allclose(found[name], observed[name], rtol=1e-9, atol=1e-12) for name in found)


def test_a_push_may_differ_from_step_to_step() -> None:
    net = cases.network()
    net.reset(torch_rng(0))
    x, y = (part[0] for part in cases.images(1, 2))
    params = {name: p.detach() for name, p in net.named_parameters()}
    targets = torch.nn.functional.one_hot(y, cases.CLASSES).double()
    simulate = simulation(net, steps=LocalSteps(batches=((0, 1), (1,)), lr=0.3))
    one = torch.ones(2, net.head.in_features).double()
    constant, each = simulate(params, x, targets, one), simulate(params, x, targets, torch.stack([one, one]))
    assert all(torch.equal(constant[name], each[name]) for name in each)
    later = simulate(params, x, targets, torch.stack([one, torch.stack([-5 * one[0], one[1]])]))
    assert all(torch.equal(later[name], each[name]) for name in each), "the second step does not take the first image"
    other = simulate(params, x, targets, torch.stack([one, 0 * one]))
    assert not torch.allclose(other["conv1.weight"], each["conv1.weight"])


# ---- the distance and the prior ------------------------------------------------------------------------------------


def test_both_distances_are_free_of_scale_and_zero_for_the_same() -> None:
    rng = torch_rng(0)
    a = {"w": torch.randn(3, 4, generator=rng), "b": torch.randn(3, generator=rng)}
    b = {name: t + 0.5 * torch.randn(t.shape, generator=rng) for name, t in a.items()}
    flat_a, flat_b = (torch.cat([t.flatten() for t in p.values()]) for p in (a, b))
    assert float(distance("l2", a, b)) == pytest.approx(float((flat_a - flat_b).norm() ** 2 / flat_b.norm() ** 2))
    cosine = torch.nn.functional.cosine_similarity(flat_a, flat_b, 0)
    assert float(distance("cosine", a, b)) == pytest.approx(1 - float(cosine), rel=1e-4)
    for kind in ("l2", "cosine"):
        assert float(distance(kind, a, a)) == pytest.approx(0, abs=1e-6)
        scaled = [{name: 7 * t for name, t in p.items()} for p in (a, b)]
        assert float(distance(kind, *scaled)) == pytest.approx(float(distance(kind, a, b)), rel=1e-4)


def test_a_mask_forgives_small_entries_that_were_not_sent_and_no_large_ones() -> None:
    observed = {"w": torch.tensor([2.0, 0.0, -1.0, 0.0])}
    found = {"w": torch.tensor([2.0, 0.9, -1.0, -1.5])}
    assert float(distance("l2", found, observed, masked=True)) == pytest.approx(0.25 / 5)
    assert float(distance("l2", found, observed)) == pytest.approx((0.81 + 2.25) / 5)


def test_the_prior_is_the_posterior_of_known_noise() -> None:
    observed = {"w": torch.tensor([3.0, 4.0])}
    x = torch.tensor([[[[0.0, 0.5], [0.0, 1.2]]]])
    assert float(total_variation(x)) == pytest.approx(0.5 + 1.2 + 0.7, rel=1e-3)
    known = Knowledge(sigma=0.1)
    assert float(prior_cost(x, Prior(nats=3), known, observed)) == pytest.approx(2 * 0.01 * 3 * 2.4 / 25, rel=1e-3)
    assert float(prior_cost(x, Prior(nats=3), Knowledge(), observed)) == 0
    assert float(prior_cost(x, Prior(box=1), known, observed)) == pytest.approx(0.04 / 4)
    assert float(prior_cost(x, Prior(tv=2), Knowledge(), observed)) == pytest.approx(2 * 2.4 / 4, rel=1e-3)


@pytest.mark.parametrize("sigma", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("kind", ["l2", "cosine"])
def test_a_nat_is_as_much_of_a_distance_as_one_of_the_likelihood(kind: str, sigma: float) -> None:
    """Two gradients beside the true one: their log likelihoods differ by as many nats as their distances."""
    rng = torch_rng(0)
    true = torch.randn(4000, generator=rng).double()
    observed = {"w": true + sigma * torch.randn(4000, generator=rng)}
    side = torch.randn(4000, generator=rng).double()

    def log_likelihood(found: torch.Tensor) -> float:
        length = found @ observed["w"] / (found @ found) if kind == "cosine" else 1
        return float(-(length * found - observed["w"]).square().sum() / (2 * sigma**2))

    pair = [true + step * sigma * side for step in (0.0, 0.2)]
    apart = [float(distance(kind, {"w": found}, observed)) for found in pair]  # type: ignore[arg-type]
    nats = log_likelihood(pair[0]) - log_likelihood(pair[1])
    worth = float(nat(kind, Knowledge(sigma=sigma), observed))  # type: ignore[arg-type]
    assert (apart[1] - apart[0]) / worth == pytest.approx(nats, rel=0.05)


def test_starts_have_their_shapes() -> None:
    grey, pair = (start_images("grey", n, (3, 32, 32), torch_rng(0)) for n in (1, 2))
    assert set(grey.unique().tolist()) == {0.5} and not torch.equal(pair[0], pair[1])
    pattern = start_images("pattern", 2, (3, 28, 28), torch_rng(0))
    assert pattern.shape == (2, 3, 28, 28)
    assert torch.equal(pattern[..., :7, :7], pattern[..., 7:14, 21:28]) and len(pattern[0].unique()) == 3 * 7 * 7
    assert 0.9 < float(start_images("random", 2, (3, 32, 32), torch_rng(0)).std()) < 1.1


# ---- the attack ----------------------------------------------------------------------------------------------------


def test_single_images_are_recovered_with_labels_from_the_rule() -> None:
    victims, x, y = cases.victims(3)
    found = QUICK.run(victims, seed=0)
    assert float(cases.errors(found.images, x).max()) < 0.02
    assert torch.equal(found.targets.argmax(-1), y)
    assert bool((found.values < 1e-8).all())


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": "counts"},
        {"labels": "joint", "start": "pattern"},
        {"start": "random"},
        {"distance": "cosine"},
        {"optimiser": "adam", "evaluations": 600, "lr": 0.05},
        {"labels": "sign"},
    ],
    ids=lambda c: "-".join(map(str, c.values())),
)
def test_other_settings_lower_the_error_well_below_that_of_a_grey_image(changes: dict[str, object]) -> None:
    victims, x, _ = cases.victims(3)
    found = QUICK.model_copy(update=changes).run(victims, seed=0)
    grey = cases.errors(torch.full_like(x, 0.5), x)
    assert float((cases.errors(found.images, x) / grey).median()) < 0.3


def test_two_images_are_recovered_when_labels_are_known() -> None:
    victims, x, y = cases.victims(2, 2, seed=3)
    found = QUICK.model_copy(update={"labels": "known", "evaluations": 800}).run(replace(victims, labels=y), seed=0)
    either = torch.minimum(cases.errors(found.images, x).mean(1), cases.errors(found.images.flip(1), x).mean(1))
    assert float(either.max()) < 0.1


def test_updates_of_several_local_steps_are_recovered_by_unrolling_and_not_without() -> None:
    steps = LocalSteps(batches=((0,), (0,), (0,)), lr=0.5)
    victims, x, _ = cases.victims(2, steps=steps)
    unrolled = QUICK.run(victims, seed=0)
    single = QUICK.run(replace(victims, steps=None), seed=0)
    assert float(cases.errors(unrolled.images, x).max()) < 0.05
    assert float(cases.errors(single.images, x).min()) > 2 * float(cases.errors(unrolled.images, x).max())


def test_a_shared_model_equals_copies_of_it() -> None:
    victims, x, _ = cases.victims(2)
    one = {name: p[0] for name, p in victims.params.items()}
    copies = {name: torch.stack([p, p]) for name, p in one.items()}
    y = torch.tensor([[1], [2]])
    descents = cases.sent(victims.model, copies, x, y)
    short = QUICK.model_copy(update={"evaluations": 20})
    a = short.run(replace(victims, params=one, descents=descents, shared=True), seed=0)
    b = short.run(replace(victims, params=copies, descents=descents), seed=0)
    assert torch.allclose(a.images, b.images, atol=1e-6)


# ---- adaptive and naive --------------------------------------------------------------------------------------------


def test_an_adversary_who_knows_the_noise_sees_more() -> None:
    victims, x, _ = cases.victims(4)
    size = float(sum(d.square().sum() for d in victims.descents.values()) / 4) ** 0.5
    hidden = cases.noisy(victims, sigma := 1e-3 * size)
    naive = QUICK.run(hidden, seed=0)
    adaptive = QUICK.model_copy(update={"nats": 3.0, "box": 1.0}).run(hidden, Knowledge(sigma=sigma), seed=0)
    assert float(cases.errors(adaptive.images, x).mean()) < 0.8 * float(cases.errors(naive.images, x).mean())


def test_an_adversary_who_knows_the_mask_sees_more() -> None:
    victims, x, _ = cases.victims(4)
    hidden = cases.top_share(victims, 0.3)
    naive = QUICK.run(hidden, seed=0)
    adaptive = QUICK.run(hidden, Knowledge(masked=True), seed=0)
    assert float(cases.errors(adaptive.images, x).mean()) < 0.6 * float(cases.errors(naive.images, x).mean())


# ---- bookkeeping ---------------------------------------------------------------------------------------------------


def test_the_trajectory_has_the_first_and_the_last_state_and_blocks_fit_together() -> None:
    victims, _, _ = cases.victims(3)
    attack = QUICK.model_copy(update={"evaluations": 60, "keep_images": True})
    found = attack.run(victims, seed=0)
    trail = found.trajectory
    assert trail.evaluations == (1, 2, 5, 10, 20, 50, 60)
    assert trail.images.shape == (7, 3, 1, *cases.SHAPE)
    assert set(trail.images[0].unique().tolist()) == {0.5}
    assert torch.equal(trail.images[-1].clamp(0, 1), found.images)
    assert torch.equal(trail.images[-1], found.raw), "the papers measure what the search left"
    assert bool((trail.values[1:] <= trail.values[:-1]).all()) and torch.equal(trail.values[-1], found.values)
    blocks = attack.model_copy(update={"block": 2}).run(victims, seed=0)
    assert blocks.trajectory.values.shape == (7, 3)
    assert torch.allclose(blocks.images, found.images, atol=1e-4)
    assert attack.model_copy(update={"keep_images": False}).run(victims, seed=0).trajectory.images.numel() == 0


def test_equal_seeds_give_equal_bits_and_the_global_generator_no_part() -> None:
    victims, _, _ = cases.victims(2)
    attack = QUICK.model_copy(update={"start": "pattern", "evaluations": 30})
    torch.manual_seed(1)
    first = attack.run(victims, seed=0)
    torch.manual_seed(2)
    assert torch.equal(attack.run(victims, seed=0).images, first.images)
    assert not torch.equal(attack.run(victims, seed=1).images, first.images)


def test_restarts_keep_the_lowest_objective_and_count() -> None:
    victims, _, _ = cases.victims(2)
    short = QUICK.model_copy(update={"evaluations": 25, "target": 0.0})
    once, twice = short.run(victims, seed=0), short.model_copy(update={"restarts": 1}).run(victims, seed=0)
    assert bool((twice.values <= once.values).all())
    assert bool((twice.evaluations > once.evaluations).all())
    easy = short.model_copy(update={"restarts": 1, "target": 1e9}).run(victims, seed=0)
    assert easy.evaluations.tolist() == [1, 1], "what is good enough neither goes on nor starts again"


def test_labels_that_must_be_known_and_are_not_are_refused() -> None:
    victims, _, _ = cases.victims(1)
    with pytest.raises(FedprintError, match=r"attack.labels: known, but this adversary has no labels"):
        QUICK.model_copy(update={"labels": "known"}).run(victims, seed=0)
    with pytest.raises(FedprintError, match="is for one label per image"):
        QUICK.run(replace(victims, multi_label=True), seed=0)


def test_shuffled_gradients_give_nothing() -> None:
    """Planted control: with the gradient of someone else's image the error is that of a wrong image."""
    victims, x, _ = cases.victims(4)
    one = {name: p[0] for name, p in victims.params.items()}
    copies = {name: torch.stack([p] * 4) for name, p in one.items()}
    y = torch.zeros(4, 1, dtype=torch.long)
    descents = cases.sent(victims.model, copies, x, y)
    found = QUICK.run(replace(victims, params=one, descents=descents, shared=True), seed=0)
    own, other = cases.errors(found.images, x), cases.errors(found.images.roll(1, 0), x)
    assert float(own.max()) < 0.05 < 0.2 < float(other.median())
