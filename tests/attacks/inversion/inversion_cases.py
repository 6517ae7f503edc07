"""Small victims for gradient inversion: smooth random images, and what clients would have sent for them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor
from torch.func import vmap
from torch.nn import functional

from fedprint.attacks.inversion.shadows import Client
from fedprint.attacks.inversion.simulate import LocalSteps, simulation
from fedprint.attacks.inversion.victims import Victims
from fedprint.models.base import FedModule
from fedprint.models.components import DlNet
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng
from fedprint.types import Params

SIDE, CLASSES = 8, 4
SHAPE = (1, SIDE, SIDE)


def network(dtype: torch.dtype = torch.float64, activation: str = "sigmoid") -> FedModule:
    config = DlNet.model_validate({"channels": 6, "activation": activation, "bound": 0.5})
    return build_network(config, SHAPE, CLASSES, False).to(dtype)


def images(victims: int, count: int = 1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return images (v, b, 1, 8, 8) without fine structure, and labels (v, b)."""
    rng = torch_rng(seed, "images")
    coarse = torch.rand(victims * count, 1, 3, 3, generator=rng).double()
    x = functional.interpolate(coarse, size=SIDE, mode="bilinear", align_corners=True)
    return x.reshape(victims, count, *SHAPE), torch.randint(CLASSES, (victims, count), generator=rng)


def parameters(net: FedModule, victims: int, seed: int = 0) -> dict[str, Tensor]:
    """Return random parameters (v, ...), of each victim its own."""
    found: list[dict[str, Tensor]] = []
    for victim in range(victims):
        net.reset(torch_rng(seed, "net", victim))
        found.append({name: p.detach().clone() for name, p in net.named_parameters()})
    return {name: torch.stack([params[name] for params in found]) for name in found[0]}


def sent(net: FedModule, params: Params, x: Tensor, y: Tensor, steps: LocalSteps | None = None) -> dict[str, Tensor]:
    """Return the descents (v, ...) of images (v, b, ...) with labels (v, b)."""
    targets = functional.one_hot(y, CLASSES).to(x)
    return vmap(simulation(net, steps=steps))(params, x, targets)


def victims(
    number: int = 3,
    count: int = 1,
    *,
    steps: LocalSteps | None = None,
    activation: str = "sigmoid",
    seed: int = 0,
) -> tuple[Victims, Tensor, Tensor]:
    """Return victims whose labels the adversary does not know, their images (v, b, ...) and labels (v, b)."""
    net = network(activation=activation)
    (x, y), params = images(number, count, seed), parameters(net, number, seed)
    found = Victims(
        model=net,
        params=params,
        descents=sent(net, params, x, y, steps),
        shape=SHAPE,
        classes=CLASSES,
        images=count,
        shared=False,
        steps=steps,
    )
    return found, x, y


def noisy(of: Victims, sigma: float, seed: int = 0) -> Victims:
    rng = torch_rng(seed, "noise")
    noise = {name: sigma * torch.randn(d.shape, generator=rng).to(d) for name, d in of.descents.items()}
    return replace(of, descents={name: d + noise[name] for name, d in of.descents.items()})


def top_share(of: Victims, share: float) -> Victims:
    """Keep the largest ``share`` of the entries of every layer and victim."""
    kept = {}
    for name, d in of.descents.items():
        least = d.flatten(1).abs().quantile(1 - share, dim=1)
        kept[name] = d * (d.abs() >= least.reshape(-1, *[1] * (d.dim() - 1)))
    return replace(of, descents=kept)


def errors(found: Tensor, truth: Tensor) -> Tensor:
    """Return ``|x* - x| / |x|`` (v, b) in index order."""
    return (found - truth).flatten(2).norm(dim=2) / truth.flatten(2).norm(dim=2)


def one_client(client: Client, params: Params, x: Tensor, y: Tensor, rng: Generator) -> Params:
    """Return what one client sends for images (b, c, h, w)."""
    return {name: rows[0] for name, rows in client(params, x[None], y[None], [rng]).items()}
