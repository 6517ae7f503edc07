"""Gradient matching on CIFAR-10 images: how many are recovered, and in what time.

Run: ``OMP_NUM_THREADS=1 FEDPRINT_DATA=... python benchmarks/inversion.py [OPTIONS] [KEY=VALUE ...]``, for example
``python benchmarks/inversion.py --victims 64 evaluations=800``. KEY is a setting of the attack. Every victim has a
random DLNet of its own. On a GPU, use a ``block`` as large as the number of victims. Relative error = |x* - x| / |x|,
under the best assignment where a victim has several images; intervals are Clopper and Pearson's.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import torch
import yaml
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.func import vmap
from torch.nn import functional

from fedprint.attacks.inversion.matching import GradientMatching
from fedprint.attacks.inversion.objectives import Knowledge
from fedprint.attacks.inversion.presets import adaptive
from fedprint.attacks.inversion.simulate import simulation
from fedprint.attacks.inversion.victims import Victims
from fedprint.data.locate import data_root
from fedprint.evaluation.intervals import proportion_interval
from fedprint.models.components import DlNet
from fedprint.rng import torch_rng

SHAPE, CLASSES = (3, 32, 32), 10


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victims", type=int, default=64)
    parser.add_argument("--images", type=int, default=1, help="of each victim")
    parser.add_argument("--sigma", type=float, default=0.0, help="Gaussian noise on every entry")
    parser.add_argument("--share", type=float, default=1.0, help="of the entries of every layer that are sent")
    parser.add_argument("--adaptive", action="store_true", help="the adversary knows the noise and the mask")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    return parser.parse_args()


def victims(number: int, images: int, device: str) -> tuple[Victims, Tensor, Tensor]:
    """Return the victims, their images (v, b, 3, 32, 32) and labels (v, b)."""
    root = data_root(None)
    if root is None:
        raise SystemExit("FEDPRINT_DATA does not name the folder of data sets; export it")
    arrays = np.load(root / "cifar10" / "cifar10.npz")
    training = np.flatnonzero(arrays["split"] == 0)
    chosen = training[torch.randperm(len(training), generator=torch_rng(0, "images"))[: number * images].numpy()]
    x = torch.from_numpy(arrays["images"][chosen]).permute(0, 3, 1, 2).float().reshape(number, images, *SHAPE) / 255
    y = torch.from_numpy(arrays["labels"][chosen].astype(np.int64)).reshape(number, images)
    net = DlNet().build(SHAPE, CLASSES, False)
    drawn = []
    for victim in range(number):
        net.reset(torch_rng(0, "net", victim))
        drawn.append({name: p.detach().clone() for name, p in net.named_parameters()})
    params = {name: torch.stack([one[name] for one in drawn]).to(device) for name in drawn[0]}
    net, x, y = net.to(device), x.to(device), y.to(device)
    descents = vmap(simulation(net), chunk_size=64)(params, x, functional.one_hot(y, CLASSES).float())
    known = {"shape": SHAPE, "classes": CLASSES, "images": images, "shared": False, "labels": y}
    return Victims(model=net, params=params, descents=descents, **known), x, y


def defended(of: Victims, sigma: float, share: float) -> Victims:
    """Return the victims after noise and the choice of the largest ``share`` of every layer."""
    sent = {}
    for name, clean in of.descents.items():
        noise = torch.randn(clean.shape, generator=torch_rng(0, "noise", name)).to(clean)
        d = clean + sigma * noise
        least = d.flatten(1).abs().quantile(1 - share, dim=1).reshape(-1, *[1] * (d.dim() - 1))
        sent[name] = d * (d.abs() >= least)
    return replace(of, descents=sent)


def relative_errors(found: Tensor, truth: Tensor) -> Tensor:
    """Return errors (v, b) of images (v, b, ...) under the assignment with the smallest sum."""
    out = []
    for mine, theirs in zip(found.flatten(2).cpu(), truth.flatten(2).cpu(), strict=True):
        cost = torch.cdist(mine, theirs) / theirs.norm(dim=1)
        out.append(cost[linear_sum_assignment(cost.numpy())])
    return torch.stack(out)


def main() -> None:
    given = options()
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    settings = {key: yaml.safe_load(value) for key, _, value in (s.partition("=") for s in given.settings)}
    attack = GradientMatching.model_validate(settings)
    knowledge = Knowledge()
    if given.adaptive:
        attack, knowledge = adaptive(attack), Knowledge(sigma=given.sigma, masked=given.share < 1)
    of, x, y = victims(given.victims, given.images, device)
    of = defended(of, given.sigma, given.share)
    began, busy = time.perf_counter(), time.process_time()
    found = attack.run(of, knowledge, seed=0)
    errors = relative_errors(found.images, x)
    wall, cpu, number = time.perf_counter() - began, time.process_time() - busy, errors.numel()
    for threshold in (0.1, 0.2):
        hits = int((errors < threshold).sum())
        interval = proportion_interval(hits, number)
        print(f"error < {threshold}: {hits} of {number}, {hits / number:.3f} [{interval.lo:.3f}, {interval.hi:.3f}]")
    labels = float((found.targets.argmax(-1).sort(1).values == y.sort(1).values).float().mean())
    print(f"mean error {float(errors.mean()):.4f}, worst {float(errors.max()):.3f}, labels {labels:.3f}")
    speed = f"{cpu / number:.2f} CPU s and {wall / number:.3f} s per image, {60 * number / wall:.0f} images a minute"
    print(f"{speed} ({device}); {float(found.evaluations.float().mean()):.0f} evaluations per victim")
    print(f"{vars(given)} {attack.model_dump(exclude_defaults=True)}")


if __name__ == "__main__":
    main()
