"""The rounds of Flower 1.41: one client at a time, in Ray's one actor."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.beside import Beside
from benchmarks.workloads import WORKLOADS, Client, PlainLoop, Workload


@cache
def _loop(name: str) -> PlainLoop:
    return PlainLoop(WORKLOADS[name])


@cache
def _client(name: str, number: int) -> Client:
    return WORKLOADS[name].client(number)


def client_app(name: str) -> ClientApp:
    """Return the client: it trains as the plain loop's does and returns its weights."""
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        loop, number = _loop(name), int(context.node_config["partition-id"])
        loop.network.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = _client(name, number)
        loop.train(loop.weights(), (x, y), number)
        arrays = ArrayRecord(loop.network.state_dict())
        return Message(
            content=RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": len(x)})}), reply_to=message
        )

    return app


class Timed(FedAvg):  # type: ignore[misc]
    """FedAvg that tells a :class:`Beside` where a round ends."""

    beside: Beside

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """Average, then note the end of the round."""
        averaged = super().aggregate_train(server_round, replies)
        if averaged[0] is None:
            raise SystemExit("no client of the round answered")
        self.beside.ended()
        return averaged


def run(work: Workload, rounds: int) -> None:
    """Run the rounds and print their times."""
    name = next(name for name, known in WORKLOADS.items() if known is work)
    beside = Beside(work)
    server = ServerApp()

    @server.main()  # type: ignore[untyped-decorator]
    def serve(grid: Grid, context: Context) -> None:
        strategy = Timed(
            fraction_train=work.cohort / work.clients,
            fraction_evaluate=0.0,
            min_train_nodes=work.cohort,
            min_available_nodes=work.clients,
        )
        strategy.beside = beside
        strategy.start(grid=grid, initial_arrays=ArrayRecord(work.network().state_dict()), num_rounds=rounds)
        beside.print()

    run_simulation(
        server_app=server,
        client_app=client_app(name),
        num_supernodes=work.clients,
        backend_config={"init_args": {"num_cpus": 1}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
