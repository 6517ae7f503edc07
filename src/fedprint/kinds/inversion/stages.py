"""The stages of an inversion experiment: each opens its inputs, calls one function, and writes its outputs."""

from __future__ import annotations

import torch

from fedprint.kinds.images import draw_images, is_small, read_images, write_hits, write_model
from fedprint.kinds.inversion import attack, utility, victims
from fedprint.kinds.inversion.results import judge as judging
from fedprint.kinds.inversion.results import outcome
from fedprint.lab.graph import Task
from fedprint.rng import seed_for


def draw(task: Task) -> None:
    """Write the images of the experiment."""
    draw_images(task, task.config.data, seed_for(task.config.seed, "data"))


def train(task: Task) -> None:
    """Train the federation; write which test images its model gets right, and the model."""
    torch.set_num_threads(1)  # the order of additions, and so the bits, must not depend on the machine's cores
    images = read_images(task.at("images"))
    losses: dict[int, float] = {}
    params = utility.train(task.config, images, losses.__setitem__, task.device)
    write_hits(task.at("hits"), utility.model_hits(task.config, params, images), losses)
    kept = params if not task.config.defences or is_small(params) else None
    write_model(task.at("model"), kept, {"config": task.config.model_dump(mode="json")})


def expose(task: Task) -> None:
    """Write the messages of the victims, and apart from them the truth and the images that the adversary has."""
    torch.set_num_threads(1)
    victims.expose(task.config, read_images(task.at("images")), task.paths)


def invert(task: Task) -> None:
    """Reconstruct images from what was observed."""
    torch.set_num_threads(1)
    seed = seed_for(task.config.seed, "attack")
    attack.reconstruct(
        task.config.attack, task.at("observed"), task.paths.get("public"), task.at("reconstructed"), seed, task.device
    )


def seek(task: Task) -> None:
    """Score how likely each candidate image is in each gradient."""
    torch.set_num_threads(1)
    attack.seek(
        task.at("observed"),
        task.paths.get("public"),
        task.at("candidates"),
        task.config.candidates.shadows,
        task.at("scores"),
        seed_for(task.config.seed, "attack"),
        task.device,
    )


def trace(task: Task) -> None:
    """Find the reconstruction that is nearest to each query image."""
    torch.set_num_threads(1)
    attack.trace(task.at("reconstructed"), task.at("queries"), task.at("traced"))


def judge(task: Task) -> None:
    """Compare the results of the adversary with the truth, and keep what reports are made from."""
    torch.set_num_threads(1)
    judged = judging.judge(task.paths, task.config.participants)
    outcome.write_outcome(task.at("outcome"), judged, task.at("truth"), task.at("reconstructed"))
