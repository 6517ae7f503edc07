"""The stages of a sweep over the number of clients: draw, choose -> train. Without an attack no truth is hidden."""

from __future__ import annotations

from fedprint.kinds.clients.config import SweepSettings
from fedprint.kinds.images import draw_stage
from fedprint.lab.graph import Graph, Stage, Work

_STAGES = "fedprint.kinds.clients.stages"
_HERE = "kinds/clients/"

CHOOSE = Stage(
    name="choose",
    run=f"{_STAGES}:choose",
    outputs=("executor",),
    settings=("data", "data_seed", "network", "training"),
    code=(f"{_HERE}stages.py", "federation/backends.py", "federation/vectorised.py"),
    data=True,
    settled=True,
)
TRAIN = Stage(
    name="train",
    run=f"{_STAGES}:train",
    inputs=("images", "executor"),
    outputs=("hits", "model"),
    settings=(
        "partition",
        "clients",
        "network",
        "training.rounds",
        "training.epochs",
        "training.batch_size",
        "training.lr",
        "training.lr_schedule",
        "training.optimiser",
        "training.aggregation",
        "method.alone",
        "method.defences",
        "seed",
    ),
    code=(
        f"{_HERE}config.py",
        f"{_HERE}stages.py",
        f"{_HERE}training.py",
        "kinds/images.py",
        "kinds/federation/building/federation.py",
        "rng.py",
        "params.py",
        "data/sources/labelled_images.py",
        "data/partition.py",
        "data/examples.py",
        "accounting",
        "defences",
        "models",
        "store",
        "federation",
    ),
    connects=f"{_STAGES}:connect",
)
CLIENTS = Graph((draw_stage(f"{_STAGES}:draw", ("data", "data_seed"), (f"{_HERE}stages.py",)), CHOOSE, TRAIN))


CLIENTS_WORK = Work(path=f"{__name__}:CLIENTS_WORK", graph=CLIENTS, parse=SweepSettings.model_validate)
