"""Gradient matching on CIFAR-10 images: how many are recovered, and in what time.

Run: ``OMP_NUM_THREADS=1 FEDPRINT_DATA=... python benchmarks/inversion.py [images] [KEY=VALUE ...]``, for example
``python benchmarks/inversion.py 64 evaluations=800 block=32``. One random DLNet and one image per victim. On a GPU, use
a ``block`` as large as the number of images. Relative error = |x* - x| / |x|; intervals are Clopper and Pearson's.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
import yaml
from torch import Tensor
from torch.func import vmap
from torch.nn import functional

from fedprint.attacks.inversion.matching import GradientMatching, Victims
from fedprint.attacks.inversion.simulate import simulation
from fedprint.data.locate import data_root
from fedprint.evaluation.intervals import proportion_interval
from fedprint.models.components import DlNet
from fedprint.rng import torch_rng

SHAPE, CLASSES = (3, 32, 32), 10


def victims(number: int, device: str) -> tuple[Victims, Tensor, Tensor]:
    root = data_root(None)
    if root is None:
        raise SystemExit("FEDPRINT_DATA does not name the folder of data sets; export it")
    arrays = np.load(root / "cifar10" / "cifar10.npz")
    training = np.flatnonzero(arrays["split"] == 0)
    chosen = training[torch.randperm(len(training), generator=torch_rng(0, "images"))[:number].numpy()]
    x = torch.from_numpy(arrays["images"][chosen]).permute(0, 3, 1, 2).float()[:, None].to(device) / 255
    y = torch.from_numpy(arrays["labels"][chosen].astype(np.int64))[:, None].to(device)
    net = DlNet().build(SHAPE, CLASSES, False)
    drawn = []
    for victim in range(number):
        net.reset(torch_rng(0, "net", victim))
        drawn.append({name: p.detach().clone() for name, p in net.named_parameters()})
    params = {name: torch.stack([one[name] for one in drawn]).to(device) for name in drawn[0]}
    net = net.to(device)
    descents = vmap(simulation(net), chunk_size=64)(params, x, functional.one_hot(y, CLASSES).float())
    found = Victims(model=net, params=params, descents=descents, shape=SHAPE, classes=CLASSES, shared=False, labels=y)
    return found, x, y


def main(number: int, settings: dict[str, object]) -> None:
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    attack = GradientMatching.model_validate(settings)
    of, x, y = victims(number, device)
    began, busy = time.perf_counter(), time.process_time()
    found = attack.run(of, seed=0)
    errors = ((found.images - x).flatten(2).norm(dim=2) / x.flatten(2).norm(dim=2)).cpu()
    wall, cpu = time.perf_counter() - began, time.process_time() - busy
    for threshold in (0.1, 0.2):
        hits = int((errors < threshold).sum())
        interval = proportion_interval(hits, number)
        print(f"error < {threshold}: {hits} of {number}, {hits / number:.3f} [{interval.lo:.3f}, {interval.hi:.3f}]")
    labels = float((found.targets.argmax(-1) == y).float().mean())
    print(f"mean error {float(errors.mean()):.4f}, worst {float(errors.max()):.3f}, labels {labels:.3f}")
    speed = f"{cpu / number:.2f} CPU s and {wall / number:.3f} s per image, {60 * number / wall:.0f} images a minute"
    print(f"{speed} ({device}); {float(found.evaluations.float().mean()):.0f} evaluations per image")
    print(f"settings: {attack.model_dump(exclude_defaults=True)}")


if __name__ == "__main__":
    given = [argument.partition("=") for argument in sys.argv[2:]]
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 64, {key: yaml.safe_load(value) for key, _, value in given})
