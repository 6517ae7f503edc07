"""The networks of the spn paper that need a GPU, AlexNet and VGG16 with group norm: FedAvg of 8 clients on CIFAR-10.

As in the paper: momentum, learning rate .01, batches of 64, an epoch a round. Fewer rounds than its 300, whose rate is
halved at 100 and 200. The images are those of experiment spn-clients. Products are rounded to TF32, as cuDNN does
unless told otherwise.

Example:
  FEDPRINT_DATA=~/data make bench ARGS="--only networks"
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from benchmarks.measuring import Cell, Section, say
from benchmarks.precision import mean
from fedprint.data.formats.locate import data_root
from fedprint.kinds.clients.config import SweepSettings
from fedprint.kinds.clients.training import chosen_executor, trained
from fedprint.lab.gpus import best_device

CLIENTS, ROUNDS, SAID = 8, 60, 10
METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {"name": "fedavg"},
    "secret head, .1": {"name": "spn", "defence": "spn", "defences": [{"name": "spn", "alpha2": 0.1}]},
}


def measure(quick: bool) -> Section:
    """Train every network by every method."""
    root = data_root(None)
    if best_device() == "cpu" or root is None or not (root / "cifar10").exists():
        return Section(notes=("It needs a GPU, and CIFAR-10 in the folder that FEDPRINT_DATA names.",))
    rounds = 2 if quick else ROUNDS
    asked = [(network, title, rounds) for network in ("alexnet", "vgg16") for title in METHODS]
    # Launches of one process leave the GPU idle, so that all train at a time.
    with ProcessPoolExecutor(len(asked), mp_context=get_context("spawn")) as pool:
        cells = [cell for found in pool.map(trained_one, *zip(*asked, strict=True)) for cell in found]
    note = f"{CLIENTS} clients, 10,000 images, {rounds} rounds, TF32; 2,000 test images, bootstrap over them; one seed."
    return Section(cells=tuple(cells), notes=(note,))


def trained_one(network: str, title: str, rounds: int) -> list[Cell]:
    """Return a network's accuracy on test images after training by a method, and what that took beside the others."""
    settings = SweepSettings.model_validate(
        {
            "data": {"name": "cifar10", "train": 10000, "test": 2000},
            "data_seed": 0,
            "partition": {"name": "iid"},
            "clients": CLIENTS,
            "network": {"name": network},
            "training": {"rounds": rounds, "batch_size": 64, "lr": 0.01, "optimiser": "momentum", "precision": "tf32"},
            "method": METHODS[title],
            "seed": 0,
        }
    )
    images = settings.data.load(data_root(None), settings.data_seed)
    executor, began = chosen_executor(settings, images, best_device()), time.perf_counter()
    row = f"{network}, {title}"

    def on_round(t: int, loss: float) -> None:
        if t % SAID == 0:
            say(f"{row}: round {t}, {time.perf_counter() - began:.0f} s by {executor}, loss {loss:.2f}")

    hits, _ = trained(settings, images, executor, on_round, device=best_device())
    took = time.perf_counter() - began
    say(f"{row}: {hits.mean():.3f} of the images, {took:.0f} s by {executor}")
    return [
        mean(row, "accuracy", hits),
        Cell(row=row, column="s, beside the others", value=took),
    ]
