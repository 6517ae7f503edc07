"""A whole Flower simulation that is recorded for ``fedprint audit``, with or without a defence of its clients.

Run it in Flower's own environment (``make flower``)::

    .venv-flower/bin/python examples/flower/simulate.py --out recorded                       # invented users
    .venv-flower/bin/python examples/flower/simulate.py --out recorded --data-dir ~/data     # real writers of digits
    .venv-flower/bin/python examples/flower/simulate.py --out protected --protect augmentation

Then ``fedprint audit recorded``. The lines that are fedprint's are marked with ``# fedprint``.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path

import torch
from digits import ROUNDS, USERS, Data, accuracy, background, load_people, network, train
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from fedprint.flower import Mod, protected, protecting, recording, telling  # fedprint
from fedprint.protect import mm_aug, noise, quantised, rand_aug, sparse  # fedprint
from fedprint.record import Recorder  # fedprint


def client_app(data_dir: Path | None, mods: list[Mod]) -> ClientApp:
    """Return the client: it trains on its own examples and returns its weights."""
    app = ClientApp(mods=mods)

    @app.train()
    def fit(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        model = network()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        client, at = int(context.node_config["partition-id"]), int(message.content["config"]["server-round"])
        data = load_people(data_dir).clients[client]
        seed = 2 * USERS * at + client  # the same numbers in every run, whichever worker trains
        train(model, protected(data), seed)  # fedprint: the examples after the data defences, if there are any
        content = {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(data["y"])}),
        }
        return Message(content=RecordDict(content), reply_to=message)

    return app


def server_app(data_dir: Path | None, out: Path) -> ServerApp:
    """Return the server: FedAvg, recorded into ``out``."""
    app = ServerApp()

    @app.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=2 * USERS)
        with Recorder(out) as recorder:  # fedprint
            strategy = recording(strategy, recorder)  # fedprint
            result = strategy.start(grid, ArrayRecord(network().state_dict()), num_rounds=ROUNDS)
        if not result.arrays:
            raise SystemExit("no client answered: Flower's log above says why")
        model = network()
        model.load_state_dict(result.arrays.to_torch_state_dict())
        print(f"accuracy {accuracy(model, load_people(data_dir).test):.3f}; recorded in {out}", flush=True)

    return app


def defence(name: str | None, data_dir: Path | None) -> list[Mod]:
    """Return the mods of a defence: of the client's data, or of its update."""

    # Flower sends the mods to its workers with every message: so they hold functions, and not the background itself.
    def augmentation(examples: Data, seed: int) -> Data:
        return rand_aug(examples, background(data_dir), alpha=4, seed=seed)

    def mode_mixing(examples: Data, seed: int) -> Data:
        return mm_aug(examples, background(data_dir), alpha=4, seed=seed)

    mods = {
        "augmentation": protecting(data=[augmentation]),
        "mode-mixing": protecting(data=[mode_mixing]),
        "noise": protecting(update=[partial(noise, sigma=0.02)]),
        "one-bit": protecting(update=[partial(quantised, bits=1)]),
        "sparse": protecting(update=[partial(sparse, share=0.01)]),
    }
    return [] if name is None else [mods[name]]


def sender(context: Context) -> tuple[str, bool]:
    """Return the user of a simulated client, and whether the auditor knows it: even clients are known."""
    user, private = divmod(int(context.node_config["partition-id"]), 2)
    return f"user-{user}", not private


def main() -> None:
    """Run the federation and record it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a new folder for the recorded updates")
    named = os.environ.get("FEDPRINT_DATA")
    parser.add_argument("--data-dir", type=Path, default=named, help="holds mnist_writers; else users are invented")
    parser.add_argument("--protect", choices=("augmentation", "mode-mixing", "noise", "one-bit", "sparse"))
    given = parser.parse_args()
    mods = [telling(sender), *defence(given.protect, given.data_dir)]  # fedprint
    run_simulation(
        server_app=server_app(given.data_dir, given.out.resolve()),
        client_app=client_app(given.data_dir, mods),
        num_supernodes=2 * USERS,
        backend_config={
            "init_args": {"address": "local", "num_cpus": 2},  # a Ray of its own, whatever cluster others have left
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    main()
