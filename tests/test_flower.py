"""Recording and protecting in Flower, on messages made by hand; runs where flwr is installed.

flwr needs older packages than ours: test_flower_simulation.py runs this file in Flower's own environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not in this environment; test_flower_simulation.py uses one that has it")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common.recorddict_compat import fitres_to_recorddict, recorddict_to_fitres
from flwr.server.strategy import FedAvg as ClassicFedAvg
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from fedprint.errors import FedprintError
from fedprint.flower import protected, protecting, recording, telling
from fedprint.protect import noise, rand_aug, sparse
from fedprint.record import Recorder

WEIGHTS = {"fc.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "fc.bias": np.ones(2, np.float32)}
STEP = 0.25

TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # else flwr makes no messages


def record_of(arrays: dict[str, np.ndarray]) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def weights_of(message: Message) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in message.content["arrays"].items()}


def order(node: int, kind: str = "train", batches: int = 0) -> Message:
    arrays = {**WEIGHTS, "bn.batches": np.array(batches)}
    content = RecordDict({"arrays": record_of(arrays), "config": ConfigRecord({})})
    return Message(content=content, dst_node_id=node, message_type=kind)


def context(node: int = 0) -> Context:
    return Context(run_id=1, node_id=node, node_config={"partition-id": node}, state=RecordDict(), run_config={})


def trained(message: Message, of: Context) -> Message:
    """A client that moves every weight by STEP times its number plus one."""
    moved = {name: array + STEP * (of.node_id + 1) for name, array in weights_of(message).items() if "bn" not in name}
    arrays = record_of({**moved, "bn.batches": np.array(7)})
    metrics = MetricRecord({"num-examples": 10 * (of.node_id + 1), "loss": 0.5})
    return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def through(mods: Sequence[Any], client: Callable[[Message, Context], Message] = trained) -> Callable[..., Message]:
    for mod in reversed(mods):
        client = partial(mod, call_next=client)
    return client


class Grid:
    """Three nodes."""

    def get_node_ids(self) -> list[int]:
        return [0, 1, 2]


def one_round(strategy: FedAvg, mods: Sequence[Any], server_round: int = 1, failing: int = -1) -> Any:
    orders = strategy.configure_train(server_round, order(0).content["arrays"], ConfigRecord({}), Grid())
    replies = []
    for message in orders:
        TaskIdentity.node_id = node = message.metadata.dst_node_id
        if node == failing:
            replies.append(Message(Error(code=1, reason="it broke"), reply_to=message))
        else:
            replies.append(through(mods)(message, context(node)))
    return strategy.aggregate_train(server_round, replies)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "index").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def arrays_of(folder: Path, line: dict[str, Any]) -> dict[str, np.ndarray]:
    with np.load(folder / "updates" / line["file"]) as archive:
        return dict(archive)


def test_a_recorded_update_is_local_minus_global(tmp_path: Path) -> None:
    strategy = recording(FedAvg(fraction_evaluate=0.0), Recorder(tmp_path))
    arrays, metrics = one_round(strategy, [])
    lines = lines_of(tmp_path)
    assert sorted((line["round"], line["device"], line["num_examples"]) for line in lines) == [
        (1, "0", 10), (1, "1", 20), (1, "2", 30)
    ]  # fmt: skip
    for line in lines:
        update = arrays_of(tmp_path, line)
        assert set(update) == set(WEIGHTS)  # the count of batches is no update
        assert all((array == STEP * (int(line["device"]) + 1)).all() for array in update.values())
    plain = one_round(FedAvg(fraction_evaluate=0.0), [])
    for name in WEIGHTS:  # the strategy sees what it would see
        np.testing.assert_allclose(arrays[name].numpy(), plain[0][name].numpy(), rtol=1e-6)  # in any order
    assert dict(metrics) == pytest.approx(dict(plain[1]))


def test_rounds_are_whole_without_closing_the_recorder(tmp_path: Path) -> None:
    strategy = recording(FedAvg(fraction_evaluate=0.0), Recorder(tmp_path))
    for server_round in (1, 2):
        one_round(strategy, [], server_round)
        assert {line["round"] for line in lines_of(tmp_path)} == set(range(1, server_round + 1))


def test_a_client_that_failed_is_not_recorded(tmp_path: Path) -> None:
    one_round(recording(FedAvg(fraction_evaluate=0.0), Recorder(tmp_path)), [], failing=1)
    assert {line["device"] for line in lines_of(tmp_path)} == {"0", "2"}


def test_a_simulation_tells_prior_and_truth_apart(tmp_path: Path) -> None:
    mods = [telling(lambda of: (f"user-{of.node_id // 2}", of.node_id % 2 == 0))]
    _, metrics = one_round(recording(FedAvg(fraction_evaluate=0.0), Recorder(tmp_path)), mods)
    assert {line["device"]: line["user"] for line in lines_of(tmp_path)} == {"0": "user-0", "1": "", "2": "user-1"}
    assert (tmp_path / "truth.csv").read_text().split() == ["device,user", "1,user-0"]
    assert dict(metrics) == pytest.approx(dict(one_round(FedAvg(fraction_evaluate=0.0), [])[1]))


class Proxy:
    """All that a strategy reads of a client of the classic API."""

    def __init__(self, cid: str) -> None:
        self.cid = cid


def classic_round(strategy: ClassicFedAvg) -> Any:
    class Manager:
        def num_available(self) -> int:
            return 3

        def sample(self, num_clients: int, min_num_clients: int) -> list[Proxy]:
            return [Proxy(str(node)) for node in range(num_clients)]

    instructions = strategy.configure_fit(1, ndarrays_to_parameters([*WEIGHTS.values()]), Manager())
    results = []
    for client, instruction in instructions:
        moved = [a + STEP * (int(client.cid) + 1) for a in parameters_to_ndarrays(instruction.parameters)]
        told = {"fedprint.sender.user": "ann", "fedprint.sender.known": client.cid == "0"}
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(moved), 10, {"loss": 0.5, **told})
        results.append((client, result))
    averaged, _ = strategy.aggregate_fit(1, results, [])
    assert all(set(result.metrics) == {"loss"} for _, result in results)
    return averaged


@pytest.mark.parametrize(("layers", "names"), [(None, {"000", "001"}), (tuple(WEIGHTS), set(WEIGHTS))])
def test_a_classic_strategy_is_recorded(tmp_path: Path, layers: tuple[str, ...] | None, names: set[str]) -> None:
    classic_round(recording(ClassicFedAvg(), Recorder(tmp_path), layers=layers))
    lines = lines_of(tmp_path)
    assert {line["device"]: line["user"] for line in lines} == {"0": "ann", "1": "", "2": ""}
    for line in lines:
        update = arrays_of(tmp_path, line)
        assert set(update) == names
        assert all((array == STEP * (int(line["device"]) + 1)).all() for array in update.values())


def test_a_classic_client_tells_its_sender_in_its_metrics() -> None:
    def client(message: Message, of: Context) -> Message:
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([*WEIGHTS.values()]), 10, {"loss": 0.5})
        return Message(content=fitres_to_recorddict(result, keep_input=True), reply_to=message)

    reply = through([telling(lambda of: ("ann", True))], client)(order(0), context())
    metrics = recorddict_to_fitres(reply.content, keep_input=True).metrics
    assert metrics == {"loss": 0.5, "fedprint.sender.user": "ann", "fedprint.sender.known": True}


def test_what_cannot_be_recorded_is_named(tmp_path: Path) -> None:
    with pytest.raises(FedprintError, match="str is no strategy of Flower"):
        recording("FedAvg", Recorder(tmp_path / "a"))
    with pytest.raises(FedprintError, match="3 names for 2 arrays"):
        classic_round(recording(ClassicFedAvg(), Recorder(tmp_path / "b"), layers=("x", "y", "z")))

    def other(message: Message, of: Context) -> Message:
        reply = trained(message, of)
        reply.content["arrays"] = record_of({"elsewhere": np.ones(2, np.float32)})
        return reply

    strategy = recording(FedAvg(fraction_evaluate=0.0), Recorder(tmp_path / "c"))
    (message, *_) = strategy.configure_train(1, order(0).content["arrays"], ConfigRecord({}), Grid())
    TaskIdentity.node_id = message.metadata.dst_node_id
    with pytest.raises(FedprintError, match="returned none of the arrays"):
        strategy.aggregate_train(1, [other(message, context(message.metadata.dst_node_id))])
    with pytest.raises(FedprintError, match="client 9 answers in round 1"):
        TaskIdentity.node_id = 9
        strategy.aggregate_train(1, [trained(order(9), context(9))])


def test_a_client_sends_global_plus_the_defended_update() -> None:
    mod = protecting(update=[partial(sparse, share=1 / 8)])
    sent = weights_of(through([mod])(order(0), context()))
    changed = sum(int((sent[name] != WEIGHTS[name]).sum()) for name in WEIGHTS)
    assert changed == 1 and sent["bn.batches"] == 7
    doubled = protecting(update=[lambda update, seed: {name: 2 * array for name, array in update.items()}])
    sent = weights_of(through([doubled])(order(0), context()))
    for name, weights in WEIGHTS.items():
        np.testing.assert_array_equal(sent[name], weights + 2 * STEP)
        assert sent[name].dtype == weights.dtype


def test_noise_is_fresh_in_every_round_and_only_in_training() -> None:
    app, of = through([protecting(update=[partial(noise, sigma=1.0)])]), context()
    first, second = weights_of(app(order(0), of)), weights_of(app(order(0), of))
    assert all((first[name] != second[name]).all() for name in WEIGHTS)
    evaluated = weights_of(app(order(0, "evaluate"), of))
    assert all((evaluated[name] == WEIGHTS[name] + STEP).all() for name in WEIGHTS)


def test_weights_that_a_client_was_not_sent_do_not_leave_it_unprotected() -> None:
    def more(message: Message, of: Context) -> Message:
        reply = trained(message, of)
        reply.content["arrays"]["secret"] = Array(np.ones(2, np.float32))
        return reply

    with pytest.raises(FedprintError, match="secret"):
        through([protecting(update=[partial(noise, sigma=1.0)])], more)(order(0), context())


def test_a_client_keeps_its_augmented_examples_over_the_rounds() -> None:
    own = {"x": np.zeros((4, 1, 2, 2), np.float32), "y": np.zeros(4, np.int64)}
    public = {"x": np.ones((90, 1, 2, 2), np.float32), "y": np.arange(1, 91)}
    seen: list[list[int]] = []

    def client(message: Message, of: Context) -> Message:
        seen.append(protected(own)["y"].tolist())
        return trained(message, of)

    app = through([protecting(data=[partial(rand_aug, background=public, alpha=2)])], client)
    first, second = context(0), context(1)
    for of, kind in ((first, "train"), (first, "train.again"), (second, "train"), (first, "evaluate")):
        app(order(0, kind), of)
    assert len(seen[0]) == 12 and seen[0] == seen[1] != seen[2] and seen[3] == own["y"].tolist()
    assert protected(own) is own


def test_importing_it_imports_the_recorder_and_no_more_of_fedprint() -> None:
    code = (
        "import sys, fedprint.flower; "
        "print(*[name for name in sys.modules if name.startswith('fedprint')], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = {
        "fedprint",
        "fedprint._torchvision_repair",
        "fedprint.errors",
        "fedprint.flower",
        "fedprint.record",
        "False",
    }
    assert set(done.stdout.split()) == expected
