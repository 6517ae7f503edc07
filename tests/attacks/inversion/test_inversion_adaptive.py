"""Who knows the defence sees more: a secret head, several rounds under noise, and the choice among tactics."""

from __future__ import annotations

from dataclasses import replace

import inversion_cases as cases
import pytest
import torch
from polarization import polarization
from torch import Tensor
from torch.nn import functional

from fedprint.attacks.inversion.adaptive import reconstruct, tactics, unexplained
from fedprint.attacks.inversion.matching import GradientMatching, either
from fedprint.attacks.inversion.objectives import Knowledge
from fedprint.attacks.inversion.search import objective_at
from fedprint.attacks.inversion.shadows import with_secret_head
from fedprint.attacks.inversion.simulate import simulation
from fedprint.attacks.inversion.victims import Victims
from fedprint.attacks.inversion.weights import WEIGHTS, adaptive, excess
from fedprint.data.examples import CODE, CODE_WEIGHT
from fedprint.defences.secret_head import SecretHead
from fedprint.models.components import DlNet, FullyConnected
from fedprint.models.dual_head import DualHead
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng
from fedprint.types import FedprintError

QUICK = GradientMatching(evaluations=250, target=1e-18)
SECRET = Knowledge(secret_head=True)


def with_heads(number: int = 3, alpha2: float = 0.1, seed: int = 0) -> tuple[Victims, Tensor]:
    """Return victims behind a private head of their own, and their images."""
    victims, x, y = cases.victims(number, seed=seed)
    client = with_secret_head(victims, bits=64, alpha2=alpha2)
    sent = [
        cases.one_client(
            client, {name: p[i] for name, p in victims.params.items()}, x[i], y[i], torch_rng(seed, "head", i)
        )
        for i in range(number)
    ]
    return replace(victims, descents={name: torch.stack([d[name] for d in sent]) for name in sent[0]}), x


# ---- the push ------------------------------------------------------------------------------------------------------


def test_a_push_on_the_features_is_all_that_a_private_head_does_to_public_layers() -> None:
    public = cases.network()
    net = DualHead(public, bits=16).double()
    net.reset(torch_rng(0))
    own = {name: p.double() for name, p in net.draw_private(torch_rng(1)).items()}
    with torch.no_grad():
        for name, p in own.items():
            net.get_parameter(name).copy_(p)
    x, y = (part[0] for part in cases.images(1, 3))
    codes = 2.0 * torch.randint(2, (3, 16), generator=torch_rng(2)).double() - 1
    batch = {"x": x, "y": y, CODE: codes, CODE_WEIGHT: torch.full((3,), 0.3, dtype=torch.float64)}
    names = list(net.public_parameters())
    expected = torch.autograd.grad(net(batch).mean(), [net.get_parameter(name) for name in names])
    below = (1 - net.bits(x) * codes > 0).double()
    push = (-0.3 * (below * codes) @ net.secret_head.weight).detach()
    params = {name: net.get_parameter(name).detach() for name in names}
    found = simulation(public)(params, x, functional.one_hot(y, cases.CLASSES).double(), push)
    assert all(torch.allclose(found[n], g, rtol=1e-9, atol=1e-12) for n, g in zip(names, expected, strict=True))
    without = simulation(public)(params, x, functional.one_hot(y, cases.CLASSES).double())
    assert torch.equal(without["head.weight"], found["head.weight"])
    assert float((without["conv1.weight"] - found["conv1.weight"]).norm()) > 0.1 * float(found["conv1.weight"].norm())


@pytest.mark.parametrize("public", [DlNet(channels=6, bound=0.3), DlNet(channels=6, bound=None), FullyConnected()])
def test_an_imagined_head_perturbs_as_the_defence_does(public: DlNet | FullyConnected) -> None:
    net = build_network(public, cases.SHAPE, cases.CLASSES, False)
    net.reset(torch_rng(0))
    params = {name: p.detach().clone() for name, p in net.named_parameters()}
    x, y = (part[0] for part in cases.images(1, 3))
    x = x.float()
    known = {"shape": cases.SHAPE, "classes": cases.CLASSES, "images": 3}
    victim = Victims(model=net, params=params, descents={name: p[None] for name, p in params.items()}, **known)
    clients = (with_secret_head(victim, bits=64, alpha2=a) for a in (0.0, 0.1))
    clean, sent = (cases.one_client(client, params, x, y, torch_rng(1)) for client in clients)
    added = torch.cat([(sent[name] - clean[name]).flatten() for name in params])
    ratio = float(torch.cat([d.flatten() for d in clean.values()]).norm() / added.norm())

    rng = torch_rng(1)
    dual = DualHead(net, bits=64)
    head = dual.draw_private(rng)
    classes = {"x": x, "y": functional.one_hot(y, cases.CLASSES).float()}
    codes = SecretHead(bits=64, alpha2=0.1).on_data(classes, {}, rng)
    found = polarization(dual, {**params, **head}, {"x": x, "y": y, CODE: codes[CODE], CODE_WEIGHT: codes[CODE_WEIGHT]})
    assert ratio == pytest.approx(found[""].ratio, rel=1e-4)


def test_fitting_the_push_recovers_what_the_secret_head_hides_from_the_naive() -> None:
    victims, x = with_heads()
    naive = QUICK.run(victims, seed=0)
    fitted = QUICK.model_copy(update={"secret": "fit"}).run(victims, SECRET, seed=0)
    assert float(cases.errors(naive.images, x).mean()) > 2 * float(cases.errors(fitted.images, x).mean())
    assert float(cases.errors(fitted.images, x).median()) < 0.1


def test_leaving_out_matches_the_public_head_alone() -> None:
    victims, _ = with_heads(1)
    attack = QUICK.model_copy(update={"secret": "leave-out"})
    broken = {n: d if n.startswith("head.") else torch.full_like(d, torch.nan) for n, d in victims.descents.items()}
    found = attack.run(replace(victims, descents=broken), SECRET, seed=0)
    assert torch.equal(found.images, attack.run(victims, SECRET, seed=0).images)
    assert float(found.values.max()) < 1e-4


def test_a_push_needs_features() -> None:
    victims, _, _ = cases.victims(1)
    net = torch.nn.Linear(4, 2)
    with pytest.raises(FedprintError, match=r"attack.secret: Linear has no features in front of a head; choose ignore"):
        QUICK.model_copy(update={"secret": "fit"}).run(replace(victims, model=net), seed=0)  # type: ignore[arg-type]


# ---- the choice ----------------------------------------------------------------------------------------------------


def test_tactics_follow_from_what_is_known() -> None:
    assert list(tactics(QUICK, Knowledge())) == ["naive"]
    assert list(tactics(QUICK, Knowledge(sigma=0.1))) == ["naive", "prior"]
    tried = tactics(QUICK, Knowledge(sigma=0.1, secret_head=True))
    assert {name: (t.secret, t.nats) for name, t in tried.items()} == {
        "naive": ("ignore", 0.0),
        "head": ("leave-out", 2.0),
        "push": ("fit", 2.0),
    }
    assert [tactics(QUICK, SECRET, images)["push"].tv for images in (1, 4)] == [0.0, 1e-5]


def test_the_choice_is_the_tactic_that_leaves_least_unexplained() -> None:
    victims, x = with_heads()
    attack = QUICK.model_copy(update={"evaluations": 60})
    chosen = reconstruct(attack, victims, SECRET, seed=0)
    tried = tactics(attack, SECRET)
    judge = tried["push"]
    each = [tactic.run(victims, SECRET, seed=0) for tactic in tried.values()]
    costs = torch.stack([unexplained(judge, victims, SECRET, found) for found in each])
    assert torch.allclose(chosen.values, costs.amin(0))
    expected = torch.stack([found.images for found in each])[costs.argmin(0), torch.arange(len(victims))]
    assert torch.equal(chosen.images, expected)
    truth = unexplained(judge, victims, SECRET, replace(each[0], images=x))
    assert bool((truth <= costs[0]).all()), "true images explain what was sent better than the naive's"


def test_joint_labels_are_judged_as_they_were_found() -> None:
    victims, x = with_heads(2)
    joint = QUICK.model_copy(update={"labels": "joint", "evaluations": 30})
    found = joint.run(victims, seed=0)
    right = torch.nn.functional.one_hot(cases.victims(2)[2], cases.CLASSES).double()
    costs = [
        unexplained(joint, victims, SECRET, replace(found, images=x, targets=t)) for t in (right, right.roll(1, 2))
    ]
    assert bool((costs[0] < 0.1 * costs[1]).all())


def test_the_trajectory_is_that_of_each_victims_choice() -> None:
    victims, _ = with_heads()
    attack = QUICK.model_copy(update={"evaluations": 60, "keep_images": True})
    quick, slow = attack.run(victims, seed=0), attack.model_copy(update={"evaluations": 25}).run(victims, seed=0)
    second = torch.tensor([True, False, True])
    trail = either(quick, slow, second).trajectory
    assert trail.evaluations == (1, 2, 5, 10, 20, 25, 50, 60)
    assert torch.equal(trail.values[-1], torch.where(second, slow.values, quick.values))
    assert torch.equal(trail.images[-1][second], slow.raw[second]), "a search stays where it ended"
    assert torch.equal(trail.images[-1][~second], quick.raw[~second])


@pytest.mark.parametrize("share", [pytest.param(1e-5, marks=pytest.mark.slow), 1e-4])
def test_the_weight_of_the_prior_is_chosen_by_the_noise(share: float) -> None:
    victims, x, _ = cases.victims(6)
    size = float(sum(d.square().sum() for d in victims.descents.values()) / 6) ** 0.5
    hidden, known = cases.noisy(victims, share * size), Knowledge(sigma=share * size)
    found = reconstruct(QUICK, hidden, known, seed=0)
    fixed = [adaptive(QUICK, nats).run(hidden, known, seed=0) for nats in WEIGHTS]
    each = [float(cases.errors(one.images, x).mean()) for one in fixed]
    assert float(cases.errors(found.images, x).mean()) < 1.2 * min(each)
    assert bool((found.evaluations <= 2 * QUICK.evaluations).all())


def test_a_search_begins_where_another_ended() -> None:
    victims, _, _ = cases.victims(2)
    short = QUICK.model_copy(update={"evaluations": 40})
    first = short.run(victims, seed=0)
    second = short.run(victims, seed=0, begin=first)
    assert torch.allclose(second.trajectory.values[len(first.trajectory.values)], first.values)
    assert bool((second.values < first.values).all())
    assert second.trajectory.evaluations[-1] == 80 and second.evaluations.tolist() == [80, 80]


def test_only_a_search_that_left_more_than_noise_has_an_excess() -> None:
    victims, x, _ = cases.victims(4)
    size = float(sum(d.square().sum() for d in victims.descents.values()) / 4) ** 0.5
    hidden, known = cases.noisy(victims, 1e-4 * size), Knowledge(sigma=1e-4 * size)
    heavy, plain = adaptive(QUICK, 1000.0), adaptive(QUICK, 0.0)
    found = heavy.run(hidden, known, seed=0)
    assert bool((excess(heavy, hidden, known, found) > 3).all())
    true = replace(found, raw=x, values=objective_at(plain, hidden, known, x, found.targets))
    assert bool((excess(plain, hidden, known, true).abs() < 4).all())


def test_what_was_found_is_judged_by_its_own_labels() -> None:
    victims, _, _ = cases.victims(2)
    known = Knowledge(sigma=0.01)
    found = QUICK.model_copy(update={"evaluations": 60}).run(victims, known, seed=0)
    wrong = replace(found, targets=found.targets.roll(1, 2))
    assert bool((unexplained(QUICK, victims, known, wrong) > unexplained(QUICK, victims, known, found)).all())


def test_without_a_defence_adaptive_is_naive() -> None:
    victims, _, _ = cases.victims(2)
    short = QUICK.model_copy(update={"evaluations": 40})
    assert torch.equal(reconstruct(short, victims, Knowledge(), seed=0).images, short.run(victims, seed=0).images)


# ---- several rounds ------------------------------------------------------------------------------------------------


def over_rounds(rounds: int) -> tuple[Victims, Tensor, float]:
    """Return victims under noise, seen in several rounds with other parameters in each, their images and sigma."""
    net = cases.network()
    x, y = cases.images(3)
    each = [cases.parameters(net, 3, seed=r) for r in range(rounds)]
    sent = [cases.sent(net, params, x, y) for params in each]
    size = float(sum(d.square().sum() for d in sent[0].values()) / 3) ** 0.5
    sigma = 3e-3 * size
    noise = torch_rng(0, "noise")
    noisy = [{n: d + sigma * torch.randn(d.shape, generator=noise).double() for n, d in s.items()} for s in sent]
    stacked = [{n: torch.stack([p[n] for p in parts], 1) for n in parts[0]} for parts in (each, noisy)]
    known = {"shape": cases.SHAPE, "classes": cases.CLASSES, "shared": False}
    return Victims(model=net, params=stacked[0], descents=stacked[1], rounds=rounds, **known), x, sigma  # type: ignore[arg-type]


def test_more_rounds_under_noise_show_more() -> None:
    victims, x, sigma = over_rounds(6)
    attack = QUICK.model_copy(update={"nats": 2.0, "box": 1.0, "evaluations": 150})
    one = attack.run(victims.one_round(), Knowledge(sigma=sigma), seed=0)
    all_ = attack.run(victims, Knowledge(sigma=sigma), seed=0)
    assert float(cases.errors(all_.images, x).mean()) < 0.75 * float(cases.errors(one.images, x).mean())


def test_one_round_is_the_same_with_and_without_its_axis() -> None:
    victims, _, sigma = over_rounds(1)
    flat = replace(
        victims,
        params={n: p[:, 0] for n, p in victims.params.items()},
        descents={n: d[:, 0] for n, d in victims.descents.items()},
    )
    twice = replace(
        flat,
        params={n: torch.stack([p, p], 1) for n, p in flat.params.items()},
        descents={n: torch.stack([d, d], 1) for n, d in flat.descents.items()},
        rounds=2,
    )
    short = QUICK.model_copy(update={"evaluations": 30})
    a, b = (short.run(v, Knowledge(sigma=sigma), seed=0) for v in (flat, twice))
    assert torch.allclose(a.images, b.images, atol=1e-6)
    assert torch.equal(twice.one_round(1).descents["conv1.weight"], flat.descents["conv1.weight"])


def test_a_model_without_convolutions_has_features_too() -> None:
    net = build_network(FullyConnected(hidden=8, activation="sigmoid"), cases.SHAPE, cases.CLASSES, False).double()
    net.reset(torch_rng(0))
    params = {name: p.detach() for name, p in net.named_parameters()}
    x, y = (part[0] for part in cases.images(1, 1))
    push = torch.ones(1, 8).double()
    found = simulation(net)(params, x, functional.one_hot(y, cases.CLASSES).double(), push)
    assert found["fc1.weight"].shape == (8, 64)
