"""Tracing and example-level membership find what was planted, and nothing where there is nothing."""

from __future__ import annotations

from dataclasses import replace

import inversion_cases as cases
import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from fedprint.attacks.inversion.alignment import Aligner, Whitened, alignment
from fedprint.attacks.inversion.membership import Beliefs, Membership
from fedprint.attacks.inversion.objectives import Knowledge
from fedprint.attacks.inversion.shadows import Client, Shadows, behind, plain, with_secret_head
from fedprint.attacks.inversion.simulate import LocalSteps
from fedprint.attacks.inversion.victims import Labelled, Victims
from fedprint.defences.on_update import TopK
from fedprint.rng import torch_rng
from fedprint.types import FedprintError, Params

# ---- tracing -------------------------------------------------------------------------------------------------------


def test_what_gradients_have_in_common_is_no_evidence() -> None:
    """Whitened by public images, an image's own update stands out; the raw cosine is about its class."""
    victims, candidates, truth = planted()
    raw, own = alignment(victims, candidates), alignment(victims, candidates, public=public())
    assert auc(own, truth) > auc(raw, truth) + 0.05
    strangers = ~torch.from_numpy(truth)
    assert float(own[strangers].std()) < 0.5 * float(raw[strangers].std())


def test_among_few_sent_entries_what_is_common_is_taken_out_too() -> None:
    victims, candidates, truth = planted()
    hidden = cases.top_share(victims, 0.15)
    known = Knowledge(masked=True)
    plain_score, naive, own = (
        auc(alignment(hidden, candidates, *how), truth)
        for how in ((known,), (Knowledge(), public()), (known, public()))
    )
    assert own > plain_score + 0.05 and own > naive + 0.05


def test_whitening_is_that_of_the_full_matrix() -> None:
    rng = torch_rng(0)
    rows, a, b = (torch.randn(n, 12, generator=rng).double() for n in (7, 3, 4))
    moment = rows.mT @ rows / 7
    floor = 0.3 + float(torch.linalg.eigvalsh(rows @ rows.mT / 7).median())
    inverse = torch.linalg.inv(moment + floor * torch.eye(12).double())
    squares = torch.einsum("ni,ij,nj->n", a, inverse, a), torch.einsum("ni,ij,nj->n", b, inverse, b)
    expected = a @ inverse @ b.mT / (squares[0][:, None] * squares[1]).sqrt()
    assert torch.allclose(Whitened(rows, 0.3).cosines(a, b), expected)


def test_alignment_is_the_cosine_of_whole_gradients_and_knows_masks_and_heads() -> None:
    victims, x, y = cases.victims(2)
    candidates = Labelled(x=x[:, 0], y=y[:, 0])
    hidden = cases.top_share(victims, 0.3)
    known = alignment(hidden, candidates, Knowledge(masked=True))
    assert torch.allclose(known.diagonal(), torch.ones(2, dtype=torch.float64), atol=1e-6)
    assert float(alignment(hidden, candidates).diagonal().max()) < 0.999
    mixed = {n: d if n.startswith("head.") else -d for n, d in victims.descents.items()}
    assert torch.allclose(
        alignment(replace(victims, descents=mixed), candidates, Knowledge(secret_head=True)).diagonal(),
        torch.zeros(2, dtype=torch.float64),
        atol=1e-6,
    ), "the head and the rest count the same"


# ---- membership ----------------------------------------------------------------------------------------------------


def planted(count: int = 2, number: int = 12, steps: LocalSteps | None = None) -> tuple[Victims, Labelled, np.ndarray]:
    """Return victims of one model, candidates of whom the first half are in, and the truth (q, v)."""
    net = cases.network()
    params = {name: p[0] for name, p in cases.parameters(net, 1).items()}
    x, y = cases.images(number, count)
    copies = {name: torch.stack([p] * number) for name, p in params.items()}
    victims = Victims(
        model=net,
        params=params,
        descents=cases.sent(net, copies, x, y, steps),
        shape=cases.SHAPE,
        classes=cases.CLASSES,
        images=count,
        steps=steps,
    )
    strangers, labels = cases.images(number, seed=5)
    candidates = Labelled(x=torch.cat([x[:, 0], strangers[:, 0]]), y=torch.cat([y[:, 0], labels[:, 0]]))
    return victims, candidates, np.vstack([np.eye(number, dtype=bool), np.zeros((number, number), dtype=bool)])


def public() -> Labelled:
    x, y = cases.images(40, seed=9)
    return Labelled(x=x[:, 0], y=y[:, 0])


def auc(scores: Tensor, truth: np.ndarray) -> float:
    return float(roc_auc_score(truth.ravel(), scores.numpy().ravel()))


@pytest.mark.parametrize(("score", "least"), [("loss", 0.75), ("alignment", 0.95), ("lira", 0.95)])
def test_members_of_pairs_are_found(score: str, least: float) -> None:
    victims, candidates, truth = planted()
    attack = Membership.model_validate({"score": score, "shadows": 6})
    scores = attack.run(victims, candidates, Beliefs(public=public()), seed=0)
    assert scores.shape == truth.shape
    assert auc(scores, truth) > least
    turned = scores.roll(1, 1)
    assert 0.3 < auc(turned, truth) < 0.7, "beside the wrong updates there is nothing to find"


def test_the_likelihood_ratio_is_above_one_for_members_only_and_depends_on_the_seed_alone() -> None:
    victims, candidates, truth = planted()
    beliefs, attack = Beliefs(public=public()), Membership(shadows=6)
    ratio = attack.run(victims, candidates, beliefs, seed=0)
    members = torch.from_numpy(truth)
    assert float((ratio[members] > 0).double().mean()) > 0.8
    assert float((ratio[~members] < 0).double().mean()) > 0.8
    torch.manual_seed(3)
    assert torch.equal(ratio, attack.run(victims, candidates, beliefs, seed=0))
    assert not torch.equal(ratio, attack.run(victims, candidates, beliefs, seed=1))


def test_shadows_predict_what_is_observed_of_members_and_of_others() -> None:
    """Whitening by images that the shadows hold made them predict more than there is to see."""
    victims, candidates, truth = planted(count=4, number=24)
    found = Membership(shadows=8).evidence(victims, candidates, Beliefs(public=public()), seed=0)
    for holds, predicted in ((truth, found.among), (~truth, found.without)):
        member = torch.from_numpy(holds)
        gap = torch.where(member, found.observed - predicted.mean(1, keepdim=True), torch.nan).nanmean(1)
        gap = gap[gap.isfinite()]
        assert abs(float(gap.mean())) < 3 * float(gap.std()) / len(gap) ** 0.5, "no bias beyond chance"


def test_a_model_of_each_victims_own_gives_what_a_shared_one_gives() -> None:
    victims, candidates, _ = planted(number=3)
    apart = replace(victims, shared=False, params={n: torch.stack([p] * 3) for n, p in victims.params.items()})
    for score in ("loss", "alignment"):
        attack = Membership.model_validate({"score": score})
        a, b = (attack.run(v, candidates, seed=0) for v in (victims, apart))
        assert torch.allclose(a, b, atol=1e-9)
    lira = Membership(shadows=4).run(apart, candidates, Beliefs(public=public()), seed=0)
    assert lira.shape == (6, 3) and bool(lira.isfinite().all())


def test_updates_of_several_steps_tell_their_members() -> None:
    victims, candidates, truth = planted(steps=LocalSteps(batches=((0, 1), (1,), (0,)), lr=0.2))
    for score in ("loss", "lira"):
        attack = Membership.model_validate({"score": score, "shadows": 4})
        assert auc(attack.run(victims, candidates, Beliefs(public=public()), seed=0), truth) > 0.75


def test_lira_needs_public_images() -> None:
    victims, candidates, _ = planted(number=2)
    with pytest.raises(FedprintError, match=r"attack.score: lira needs 4 public images or more, not 0; choose alignm"):
        Membership().run(victims, candidates, seed=0)


@pytest.mark.parametrize("count", [1, 3])
def test_shadows_with_a_candidate_send_what_whole_batches_give(count: int) -> None:
    """Their gradients are put together from those of single images."""
    victims, candidates, _ = planted(count=count)
    own = Aligner(victims, public=public())
    for client in (plain(victims), behind(with_secret_head(victims, bits=8, alpha2=0.5), TopK(share=0.3).on_device)):
        shadows = Shadows(victims=victims, client=client, public=public(), count=4, seed=0)
        stepwise = replace(shadows, victims=replace(victims, steps=LocalSteps(batches=(tuple(range(count)),), lr=0.1)))
        found = list(shadows.with_first(candidates))
        assert sum(len(some) for some, _ in found) == len(candidates)
        for (some, sent), (_, whole) in zip(found, stepwise.with_first(candidates), strict=True):
            for name, rows in sent.items():
                assert torch.allclose(rows, whole[name], atol=1e-6), name
            one_by_one = [own({n: r[i] for n, r in sent.items()}, some[i : i + 1]) for i in range(len(some))]
            assert torch.allclose(own.of_own(sent, some), torch.cat(one_by_one), atol=1e-5)


# ---- clients as imagined -------------------------------------------------------------------------------------------


def test_imagined_clients_send_what_clients_send() -> None:
    victims, x, y = cases.victims(1)
    params = {name: p[0] for name, p in victims.params.items()}

    def sent_by(client: Client, seed: int = 0) -> Params:
        return cases.one_client(client, params, x[0], y[0], torch_rng(seed))

    sent = sent_by(plain(victims))
    assert all(torch.allclose(sent[name], d[0]) for name, d in victims.descents.items())
    cut = sent_by(behind(plain(victims), TopK(share=0.1).on_device))
    assert sum(int((d != 0).sum()) for d in cut.values()) == round(0.1 * sum(d.numel() for d in sent.values()))
    client = with_secret_head(victims, bits=8, alpha2=0.5)
    secret, again, other = (sent_by(client, seed) for seed in (0, 0, 1))
    assert torch.equal(secret["head.weight"], sent["head.weight"])
    assert torch.equal(secret["conv1.weight"], again["conv1.weight"])
    assert not torch.allclose(secret["conv1.weight"], other["conv1.weight"])
    weightless = sent_by(with_secret_head(victims, bits=8, alpha2=0.0))
    assert all(torch.allclose(weightless[name], sent[name]) for name in sent)
    louder = sent_by(with_secret_head(victims, bits=8, alpha1=2.0, alpha2=1.0))
    assert all(torch.allclose(louder[name], 2 * secret[name]) for name in sent), "both terms count twice"
    together = client(params, x[:1].repeat(3, 1, 1, 1, 1), y[:1].repeat(3, 1), [torch_rng(seed) for seed in (0, 0, 1)])
    for name, rows in together.items():
        assert torch.allclose(rows, torch.stack([secret[name], again[name], other[name]])), "as one by one"
