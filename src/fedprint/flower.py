"""Flower (flwr 1.41): record what a server receives, for ``fedprint audit``, and protect clients (docs/flower.md).

Three lines record a federation::

    from fedprint.flower import recording
    from fedprint.record import Recorder
    strategy = recording(FedAvg(), Recorder("recorded"))

Both APIs work: strategies on messages (``flwr.serverapp.strategy``) and classic ones (``flwr.server.strategy``). This
module imports flwr, numpy and the recorder, no torch.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.common import parameters_to_ndarrays
from numpy.typing import NDArray

from fedprint.errors import FedprintError
from fedprint.record import Recorder

Strategy = TypeVar("Strategy")
Update = dict[str, NDArray[Any]]
Examples = TypeVar("Examples")
CallNext = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, CallNext], Message]

SENDER = "fedprint.sender"
"""The record, or the entry of the classic metrics, in which :func:`telling` names a simulated sender."""

_FITRES_METRICS = "fitres.metrics"
"""Where the classic API keeps a reply's metrics in its message."""

SEED = "fedprint.seed"
"""The record of a client's state that holds its secret seed."""

_DATA: ContextVar[tuple[Sequence[Callable[..., Any]], int]] = ContextVar("fedprint.data")


def recording(strategy: Strategy, recorder: Recorder, *, layers: Sequence[str] | None = None) -> Strategy:
    """Return the strategy itself, which from now on records each update as the server receives it.

    An update is local minus global: what a client returned less what it was sent. Rounds are Flower's, devices its node
    ids. Arrays that are not of real numbers, such as counts of batches, are left out. Of strategies that wrap others,
    such as those with differential privacy on the server, give the outermost one. ``layers`` names the arrays of a
    classic strategy, which have no names. Raises FedprintError for what is no strategy of Flower.
    """
    for prepare, (sends, receives) in _APIS.items():
        if hasattr(strategy, sends) and hasattr(strategy, receives):
            prepare(strategy, recorder, layers)
            return strategy
    kind = type(strategy).__name__
    raise FedprintError(f"{kind} is no strategy of Flower: it has no method configure_train, nor configure_fit")


def telling(sender: Callable[[Context], tuple[str, bool]]) -> Mod:
    """Return a client mod for simulations, which tells the recorder who sent an update.

    ``sender`` gives the user of a simulated client and whether the auditor knows it (such updates are the prior). All
    other users go to the truth, which only the evaluation reads. The wrapped strategy never sees either.
    """

    def mod(message: Message, context: Context, call_next: CallNext) -> Message:
        reply = call_next(message, context)
        if _trains(message) and not reply.has_error():
            user, known = sender(context)
            named = {"user": str(user), "known": bool(known)}
            if _FITRES_METRICS in reply.content:
                for name, value in named.items():
                    reply.content[_FITRES_METRICS][f"{SENDER}.{name}"] = value
            else:
                reply.content[SENDER] = ConfigRecord(named)
        return reply

    return mod


def protecting(*, update: Sequence[Callable[..., Any]] = (), data: Sequence[Callable[..., Any]] = ()) -> Mod:
    """Return a client mod that runs defences (``fedprint.protect``) on a client's updates and data.

    ``update`` holds functions ``(update, seed=...) -> update`` of name -> array, which run in this order on local minus
    global; the client then sends global plus the result. ``data`` holds functions ``(examples, seed=...) -> examples``.
    They run on what the client gives to :func:`protected`. Noise on updates is fresh in every round; defences of data
    draw from a secret seed, which a client draws once and keeps in its state. Raises FedprintError for a reply with
    weights that the client was not sent: these would leave it unprotected.
    """

    def mod(message: Message, context: Context, call_next: CallNext) -> Message:
        if not _trains(message):
            return call_next(message, context)
        with _data_defences(data, _secret_seed(context)):
            reply = call_next(message, context)
        if update and not reply.has_error():
            _protect(message.content, reply.content, update)
        return reply

    return mod


def protected(examples: Examples) -> Examples:
    """Return a client's examples as it trains on them: after the data defences of :func:`protecting`, if it has any.

    They draw from the client's own seed, so that it trains on the same examples in every round. Examples are a mapping
    with ``x`` (n, ...) and ``y`` (n, ...). Outside of training, and without the mod, they come back as they are.
    """
    functions, seed = _DATA.get(((), 0))
    for position, defend in enumerate(functions):
        examples = defend(examples, seed=seed + position)
    return examples


class _Round:
    """Writes the updates of the clients of one round after another; ``sent`` are the weights that each client got."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.sent: dict[str, Update] = {}
        self.truth: dict[str, str] = {}

    def add(self, server_round: int, client: str, weights: Update, examples: int, named: Mapping[str, Any]) -> None:
        """Record local minus global; ``named`` is what :func:`telling` told, empty where there is none."""
        if client not in self.sent:
            raise FedprintError(f"client {client} answers in round {server_round}, but was sent no weights in it")
        update, others = _difference(weights, self.sent[client], f"client {client}")
        if others:
            warnings.warn(f"not recorded, because clients were not sent them: {', '.join(others)}", stacklevel=2)
        user, known = named.get("user"), named.get("known")
        self.recorder.record(server_round, client, update, examples, user if known else None)
        if user is not None and not known:
            self.truth[client] = user

    def end(self) -> None:
        """Make the round part of the recording."""
        self.recorder.end_round()
        if self.truth:
            self.recorder.write_truth(self.truth)


def _record_messages(strategy: Any, recorder: Recorder, layers: Sequence[str] | None) -> None:
    configure, aggregate, current = strategy.configure_train, strategy.aggregate_train, _Round(recorder)
    weighted_by = getattr(strategy, "weighted_by_key", "num-examples")

    def configure_train(server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> list[Message]:
        messages = list(configure(server_round, arrays, config, grid))
        contents = {id(message.content): message.content for message in messages}  # most often one for all
        weights = {key: _arrays(content) for key, content in contents.items()}
        current.sent = {str(message.metadata.dst_node_id): weights[id(message.content)] for message in messages}
        return messages

    def aggregate_train(server_round: int, replies: Iterable[Message]) -> Any:
        answered = list(replies)
        for reply in answered:
            if not reply.has_error():
                named = reply.content.pop(SENDER, {})
                examples = _examples(reply.content, weighted_by)
                current.add(server_round, str(reply.metadata.src_node_id), _arrays(reply.content), examples, named)
        current.end()
        return aggregate(server_round, answered)

    strategy.configure_train, strategy.aggregate_train = configure_train, aggregate_train


def _record_classic(strategy: Any, recorder: Recorder, layers: Sequence[str] | None) -> None:
    configure, aggregate, current = strategy.configure_fit, strategy.aggregate_fit, _Round(recorder)

    def weights(parameters: Any) -> Update:
        arrays = parameters_to_ndarrays(parameters)
        names = layers or [f"{i:03d}" for i in range(len(arrays))]
        if len(names) != len(arrays):
            raise FedprintError(f"recording: layers has {len(names)} names for {len(arrays)} arrays; name each of them")
        return _real(dict(zip(names, arrays, strict=True)))

    def configure_fit(server_round: int, parameters: Any, client_manager: Any) -> Any:
        instructions = list(configure(server_round, parameters, client_manager))
        current.sent = {client.cid: weights(instruction.parameters) for client, instruction in instructions}
        return instructions

    def aggregate_fit(server_round: int, results: Any, failures: Any) -> Any:
        for client, result in results:
            named = {name: result.metrics.pop(f"{SENDER}.{name}", None) for name in ("user", "known")}
            current.add(server_round, client.cid, weights(result.parameters), result.num_examples, named)
        current.end()
        return aggregate(server_round, results, failures)

    strategy.configure_fit, strategy.aggregate_fit = configure_fit, aggregate_fit


_APIS = {
    _record_messages: ("configure_train", "aggregate_train"),
    _record_classic: ("configure_fit", "aggregate_fit"),
}


def _arrays(content: RecordDict) -> Update:
    """Return the real arrays of a message by name; names of several records do not mix."""
    records = content.array_records
    return _real(
        {
            name if len(records) == 1 else f"{record}.{name}": array.numpy()
            for record, arrays in records.items()
            for name, array in arrays.items()
        }
    )


def _real(arrays: Update) -> Update:
    return {name: array for name, array in arrays.items() if np.issubdtype(array.dtype, np.floating)}


def _difference(after: Update, before: Update, who: str) -> tuple[Update, list[str]]:
    """Return local minus global, and the names that were not sent. Raises FedprintError where nothing is left."""
    common = [name for name, array in after.items() if name in before and before[name].shape == array.shape]
    if not common:
        raise FedprintError(
            f"{who} returned none of the arrays that it was sent ({', '.join(before) or 'none'}); clients have to "
            "return weights under the names under which they got them"
        )
    update = {name: np.subtract(after[name], before[name], dtype=_at_least_float32(after[name])) for name in common}
    return update, sorted(set(after) - set(common))


def _at_least_float32(array: NDArray[Any]) -> np.dtype[Any]:
    return np.promote_types(array.dtype, np.float32)


def _examples(content: RecordDict, key: str) -> int:
    """Return the number of examples that a reply names, 0 where it names none."""
    named = [metrics[key] for metrics in content.metric_records.values() if key in metrics]
    return int(named[0]) if named and isinstance(named[0], int | float) else 0


def _trains(message: Message) -> bool:
    return str(message.metadata.message_type).partition(".")[0] == "train"


def _secret_seed(context: Context) -> int:
    """Return the client's own seed: drawn once, it stays in the client's state."""
    if SEED not in context.state:
        context.state[SEED] = ConfigRecord({"seed": secrets.randbits(62)})
    return int(context.state[SEED]["seed"])


@contextmanager
def _data_defences(functions: Sequence[Callable[..., Any]], seed: int) -> Iterator[None]:
    token = _DATA.set((functions, seed))
    try:
        yield
    finally:
        _DATA.reset(token)


def _protect(received: RecordDict, reply: RecordDict, defences: Sequence[Callable[..., Any]]) -> None:
    """Put global plus the defended update in place of each record of weights in the reply."""
    before = _arrays(received)
    update, others = _difference(_arrays(reply), before, "the client")
    if others:
        raise FedprintError(
            f"protecting: the client was not sent {', '.join(others)}; send such arrays without the mod"
        )
    for defend in defences:
        update = dict(defend(update, seed=secrets.randbits(62)))  # fresh in every round
    several = len(reply.array_records) > 1
    for record, arrays in reply.array_records.items():
        for name in arrays:
            key = f"{record}.{name}" if several else name
            if key in update:
                arrays[name] = Array((before[key] + update[key]).astype(before[key].dtype))
