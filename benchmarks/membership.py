"""Membership in updates: which images a batch gradient contains, for CIFAR-10 images and one random DLNet.

Run: ``OMP_NUM_THREADS=1 FEDPRINT_DATA=... python -m benchmarks.membership [OPTIONS]``, for example
``python -m benchmarks.membership --images 8 --sigma 0.01``. Candidates are the images of all victims and as many others
as ``--strangers``; every pair of a candidate and an update is a question. The adversary knows the defence. Likelihood
ratios (``--lira``) are computed for the first ``--candidates`` members and strangers, as each needs its own shadows.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedprint.attacks.inversion.membership import Beliefs, Membership
from fedprint.attacks.inversion.objectives import Knowledge
from fedprint.attacks.inversion.shadows import Client, behind, plain, with_secret_head
from fedprint.attacks.inversion.victims import Labelled, Victims
from fedprint.data.formats.locate import data_root
from fedprint.data.sources.labelled_images import LabelledImages
from fedprint.defences.on_update import Noise, TopK
from fedprint.evaluation.inversion.membership import membership_outcome
from fedprint.evaluation.inversion.tracing import tracing_by_participants
from fedprint.models.components import DlNet
from fedprint.models.networks import build_network
from fedprint.rng import numpy_rng, torch_rng

SHAPE, CLASSES, PARTICIPANTS = (3, 32, 32), 10, (2, 5, 10, 25, 50)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victims", type=int, default=50)
    parser.add_argument("--images", type=int, default=8, help="of each victim")
    parser.add_argument("--strangers", type=int, default=600)
    parser.add_argument("--public", type=int, default=400, help="images that the adversary has; 0 is none")
    parser.add_argument("--sigma", type=float, default=0.0, help="Gaussian noise on every entry")
    parser.add_argument("--share", type=float, default=1.0, help="of the entries of every layer that are sent")
    parser.add_argument("--alpha2", type=float, default=0.0, help="a secret head of 64 bits behind every victim")
    parser.add_argument("--lira", action="store_true", help="likelihood ratios over 16 shadows too")
    parser.add_argument("--candidates", type=int, default=40)
    return parser.parse_args()


def client_of(given: argparse.Namespace, victims: Victims) -> Client:
    """Return the descent of every victim, and the one that the adversary assumes."""
    client = with_secret_head(victims, bits=64, alpha2=given.alpha2) if given.alpha2 else plain(victims)
    client = behind(client, Noise(sigma=given.sigma).on_device) if given.sigma else client
    return behind(client, TopK(share=given.share, per_layer=True).on_device) if given.share < 1 else client


def observed(given: argparse.Namespace, images: Labelled) -> tuple[Victims, Client]:
    """Return the victims, image b v + i with victim v."""
    net = build_network(DlNet(), SHAPE, CLASSES, False)
    net.reset(torch_rng(0, "net"))
    params = {name: p.detach().clone() for name, p in net.named_parameters()}
    known = {"model": net, "params": params, "shape": SHAPE, "classes": CLASSES, "images": given.images}
    nobody = Victims(descents={name: p[None] for name, p in params.items()}, **known)
    client, shape = client_of(given, nobody), (given.victims, given.images)
    rngs = [torch_rng(0, "victim", victim) for victim in range(given.victims)]
    theirs = images[: given.victims * given.images]
    return replace(nobody, descents=client(params, theirs.x.view(*shape, *SHAPE), theirs.y.view(shape), rngs)), client


def say(name: str, scores: Tensor, truth: np.ndarray) -> None:
    """Print the outcome over all pairs; those on one update belong together."""
    updates = np.broadcast_to(np.arange(truth.shape[1]), truth.shape)
    outcome = membership_outcome(scores.numpy().ravel(), truth.ravel(), updates.ravel(), numpy_rng(0, "interval"))
    auc, tpr = outcome.auc, outcome.tpr
    print(
        f"{name}: AUC {auc.value:.3f} [{auc.lo:.3f}, {auc.hi:.3f}], TPR at FPR {outcome.fpr:g} {tpr.value:.3f} "
        f"[{tpr.lo:.3f}, {tpr.hi:.3f}] ({outcome.members} members, {outcome.others} others) {outcome.note}",
        flush=True,
    )


def main() -> None:
    given = options()
    torch.set_num_threads(1)
    print(vars(given), flush=True)
    members = given.victims * given.images
    data = LabelledImages(name="cifar10", train=members + given.strangers + given.public).load(data_root(None), 0)
    order = torch.randperm(len(data.y), generator=torch_rng(0, "order"))
    images = Labelled(x=data.x[order], y=data.y[order])
    candidates = images[slice(0, members + given.strangers)]
    public = images[slice(members + given.strangers, None)] if given.public else None
    victims, client = observed(given, images)
    owners = torch.arange(members) // given.images
    truth = functional.one_hot(owners, given.victims).bool().numpy()
    truth = np.vstack([truth, np.zeros((given.strangers, given.victims), dtype=bool)])
    knowledge = Knowledge(sigma=given.sigma, masked=given.share < 1, secret_head=given.alpha2 > 0)
    counts = [n for n in PARTICIPANTS if n <= given.victims]
    began = time.process_time()
    say("loss", Membership(score="loss").run(victims, candidates, seed=0), truth)
    kinds = {"raw alignment": None, "alignment": public}
    for name, known in kinds.items():
        scores = Membership(score="alignment").run(
            victims, candidates, Beliefs(public=known, knowledge=knowledge), seed=0
        )
        say(name, scores, truth)
        traced = scores[:members].argmax(1).numpy()
        for one in tracing_by_participants(traced, owners.numpy(), given.victims, counts, seed=0):
            a = one.accuracy
            print(f"  traced among {one.participants}: {a.value:.3f} [{a.lo:.3f}, {a.hi:.3f}], chance {one.chance:.3f}")
    if given.lira:
        chosen = torch.cat([torch.arange(given.candidates), members + torch.arange(given.candidates)])
        beliefs = Beliefs(public=public, knowledge=knowledge, client=client)
        ratio = Membership().run(victims, candidates[chosen], beliefs, seed=0)
        say("lira", ratio, truth[chosen.numpy()])
        say("alignment, the same candidates", scores[chosen], truth[chosen.numpy()])
    print(f"{time.process_time() - began:.0f} CPU s", flush=True)


if __name__ == "__main__":
    main()
