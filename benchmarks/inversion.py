"""Gradient matching on CIFAR-10 images: how many are recovered, and in what time.

Run: ``OMP_NUM_THREADS=1 FEDPRINT_DATA=... python -m benchmarks.inversion [OPTIONS] [KEY=VALUE ...]``, for example
``python -m benchmarks.inversion --victims 64 evaluations=800``. KEY is a setting of the attack. Every victim has its
own random DLNet. On a GPU, use a ``block`` as large as the number of victims. Relative error = |x* - x| / |x|,
under the best assignment where a victim has several images; intervals are Clopper and Pearson's.
``--serial 4`` reconstructs the first images one by one too, by the reference of tests/attacks; ``--labels`` counts
labels by the rules on the last layer only.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

import numpy as np
import torch
import yaml
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.func import vmap
from torch.nn import functional

from benchmarks.measuring import ROOT, Cell, Section, median, one_core, say, seconds
from fedprint.attacks.inversion.adaptive import reconstruct
from fedprint.attacks.inversion.labels import labels_from
from fedprint.attacks.inversion.matching import GradientMatching, Reconstruction
from fedprint.attacks.inversion.objectives import Knowledge
from fedprint.attacks.inversion.shadows import with_secret_head
from fedprint.attacks.inversion.simulate import simulation
from fedprint.attacks.inversion.victims import Victims
from fedprint.data.formats.locate import data_root
from fedprint.evaluation.intervals import proportion_interval
from fedprint.lab.gpus import best_device
from fedprint.models.components import DlNet
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng

SHAPE, CLASSES = (3, 32, 32), 10


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victims", type=int, default=64)
    parser.add_argument("--images", type=int, default=1, help="of each victim")
    parser.add_argument("--sigma", type=float, default=0.0, help="Gaussian noise on every entry")
    parser.add_argument("--share", type=float, default=1.0, help="of the entries of every layer that are sent")
    parser.add_argument("--alpha2", type=float, default=0.0, help="a secret head of 64 bits behind every victim")
    parser.add_argument("--adaptive", action="store_true", help="the adversary knows noise, mask and secret head")
    parser.add_argument("--serial", type=int, default=0, help="images that the serial reference reconstructs as well")
    parser.add_argument("--labels", action="store_true", help="labels alone")
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
    net = build_network(DlNet(), SHAPE, CLASSES, False)
    drawn = []
    for victim in range(number):
        net.reset(torch_rng(0, "net", victim))
        drawn.append({name: p.detach().clone() for name, p in net.named_parameters()})
    params = {name: torch.stack([one[name] for one in drawn]).to(device) for name in drawn[0]}
    net, x, y = net.to(device), x.to(device), y.to(device)
    descents = vmap(simulation(net), chunk_size=64)(params, x, functional.one_hot(y, CLASSES).float())
    victims = Victims(
        model=net, params=params, descents=descents, shape=SHAPE, classes=CLASSES, images=images, shared=False, labels=y
    )
    return victims, x, y


def with_heads(of: Victims, x: Tensor, y: Tensor, alpha2: float) -> Victims:
    """Return the victims with a secret head each."""
    client, sent = with_secret_head(of, bits=64, alpha2=alpha2), []
    for victim in range(len(of)):
        one = of.of_one_model(victim)
        sent.append(client(one.params, x[victim][None], y[victim][None], [torch_rng(0, "head", victim)]))
    return replace(of, descents={name: torch.cat([d[name] for d in sent]) for name in sent[0]})


def defended(of: Victims, sigma: float, share: float) -> Victims:
    """Return the victims after noise and the choice of the largest ``share`` of every layer."""
    sent = {}
    for name, clean in of.descents.items():
        noise = torch.randn(clean.shape, generator=torch_rng(0, "noise", name)).to(clean)
        d = clean + sigma * noise
        least = d.flatten(1).abs().quantile(1 - share, dim=1).reshape(-1, *[1] * (d.dim() - 1))
        sent[name] = d * (d.abs() >= least)
    return replace(of, descents=sent)


def relative_errors(images: Tensor, truth: Tensor) -> Tensor:
    """Return errors (v, b) of images (v, b, ...) under the assignment with the smallest sum."""
    out = []
    for reconstructed, true in zip(images.flatten(2).cpu(), truth.flatten(2).cpu(), strict=True):
        cost = torch.cdist(reconstructed, true) / true.norm(dim=1)
        out.append(cost[linear_sum_assignment(cost.numpy())])
    return torch.stack(out)


def attacked(given: argparse.Namespace, attack: GradientMatching, of: Victims) -> Reconstruction:
    """Return the adversary's reconstructions of the victims."""
    if not given.adaptive:
        return attack.run(of, seed=0)
    knowledge = Knowledge(sigma=given.sigma, masked=given.share < 1, secret_head=given.alpha2 > 0)
    return reconstruct(attack, of, knowledge, seed=0)


def print_rates(errors: Tensor) -> None:
    """Print the success rates of errors (v, b)."""
    number = errors.numel()
    for threshold in (0.1, 0.2):
        hits = int((errors < threshold).sum())
        interval = proportion_interval(hits, number)
        print(f"error < {threshold}: {hits} of {number}, {hits / number:.3f} [{interval.lo:.3f}, {interval.hi:.3f}]")
    print(f"mean error {float(errors.mean()):.4f}, worst {float(errors.max()):.3f}", flush=True)


def serially(of: Victims, x: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Reconstruct the first ``number`` images one by one, as published: CPU seconds (n,) and errors (n, 1).

    The reference takes L-BFGS steps without a line search. Where they diverge it stops early, and its time says nothing
    about the speed of a reconstruction: compare times over the images that it recovered.
    """
    sys.path.insert(0, str(ROOT / "tests" / "attacks" / "inversion"))
    from dlg_reference import deep_leakage

    spent, images = [], []
    for victim in range(number):
        one = of.of_one_model(victim)
        for name, parameter in one.model.named_parameters():
            parameter.data.copy_(one.params[name])
        observed = [d[0] for d in one.descents.values()]
        began = time.process_time()
        images.append(deep_leakage(one.model, observed, SHAPE, CLASSES, torch_rng(0, "serial", victim))[0])
        spent.append(time.process_time() - began)
    return torch.tensor(spent), relative_errors(torch.stack(images), x[:number])


def run_serially(of: Victims, x: Tensor, number: int, cpu: float) -> None:
    """Reconstruct the first images one by one too, and print the ratio of its times to ``cpu`` s per image."""
    times, errors = serially(of, x, number)
    for which, kept in (("first", errors[:, 0] < torch.inf), ("recovered", errors[:, 0] < 0.1)):
        if kept.any():
            each = float(times[kept].mean())
            print(f"serial, the {int(kept.sum())} {which}: {each:.1f} CPU s per image, {each / cpu:.1f} times as many")
    print(
        f"serial CPU s {[round(t, 1) for t in times.tolist()]}, errors {[round(e, 3) for e in errors[:, 0].tolist()]}"
    )
    print_rates(errors)


def count_labels(of: Victims, y: Tensor) -> None:
    """Print how many labels the rules find."""
    for rule in ("row-sum", "sign", "bias"):
        if rule == "sign" and of.images > 1:
            continue
        labels = labels_from(rule, of.descents, of.images)
        right = int((labels == y.sort(1).values).sum())
        interval = proportion_interval(right, y.numel())
        print(f"labels, {rule}: {right} of {y.numel()}, {interval.value:.4f} [{interval.lo:.4f}, {interval.hi:.4f}]")


def measure(quick: bool) -> Section:
    """Reconstruct many images at once, and the first of them by the serial reference; wanted: 8 times as fast."""
    root = data_root(None)
    if root is None or not (root / "cifar10" / "cifar10.npz").exists():
        return Section(notes=("CIFAR-10 is missing: FEDPRINT_DATA does not name a folder that has it.",))
    one_core()
    number, compared = (8, 2) if quick else (64, 8)
    device = best_device()
    of, x, _ = victims(number, 1, device)
    attack = GradientMatching(evaluations=600, block=number)
    made: list[Tensor] = []
    began = time.perf_counter()
    each = seconds(lambda: made.append(attack.run(of, seed=0).images), time.process_time) / number
    clock = time.perf_counter() - began
    times, serial = serially(of, x, compared)
    ours = relative_errors(made[0], x)[:, 0]
    kept = serial[:, 0] < 0.1
    cells = [
        Cell(row="batched", column="images a minute", value=60 * number / clock),
        Cell(row="batched", column="CPU s an image", value=each),
        *recovered("batched", ours),
        *recovered(f"batched, the first {compared}", ours[:compared]),
        *recovered("serial reference", serial[:, 0]),
    ]
    if kept.any():
        cells += [
            median("serial reference", "CPU s an image", times[kept].tolist()),
            median("batched", "times as fast as serial", (times[kept] / each).tolist()),
        ]
    say(f"  {cells[-1].column}: {cells[-1].text()}")
    note = (
        f"{number} CIFAR-10 images, a random DLNet each, batch 1, labels from the row sums, 600 evaluations, on "
        f"{device}; serial times over the images that the reference recovers."
    )
    return Section(cells=tuple(cells), notes=(note,))


def recovered(row: str, errors: Tensor) -> list[Cell]:
    """Return the share of errors (n,) below .1, and their mean."""
    share = proportion_interval(int((errors < 0.1).sum()), len(errors))
    return [
        Cell(row=row, column="error below .1", value=share.value, lo=share.lo, hi=share.hi),
        Cell(row=row, column="mean error", value=float(errors.mean())),
    ]


def main() -> None:
    given = options()
    torch.set_num_threads(1)
    device = best_device()
    settings = {key: yaml.safe_load(value) for key, _, value in (s.partition("=") for s in given.settings)}
    attack = GradientMatching.model_validate(settings)
    of, x, y = victims(given.victims, given.images, device)
    of = with_heads(of, x, y, given.alpha2) if given.alpha2 else of
    of = defended(of, given.sigma, given.share) if given.sigma or given.share < 1 else of
    if given.labels:
        count_labels(of, y)
        return
    began, busy = time.perf_counter(), time.process_time()
    reconstruction = attacked(given, attack, of)
    errors = relative_errors(reconstruction.images, x)
    wall, cpu, number = time.perf_counter() - began, time.process_time() - busy, errors.numel()
    print_rates(errors)
    labels = float((reconstruction.targets.argmax(-1).sort(1).values == y.sort(1).values).float().mean())
    speed = f"{cpu / number:.2f} CPU s and {wall / number:.3f} s per image, {60 * number / wall:.0f} images a minute"
    print(f"labels {labels:.3f}; {speed} ({device})")
    print(f"{float(reconstruction.evaluations.float().mean()):.0f} evaluations per victim")
    print(f"{vars(given)} {attack.model_dump(exclude_defaults=True)}", flush=True)
    if given.serial:
        print_rates(errors[: given.serial])
        run_serially(of, x, given.serial, cpu / number)


if __name__ == "__main__":
    main()
