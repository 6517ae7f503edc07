"""The privacy ledger: what each round spends, written to the disk before the round's model is.

One JSON line per round (q, sigma, sampling, adjacency, the rule of the clipping norm and its value), each with the
digest of itself and of the line before. A line is fsynced before the noisy model of its round is written anywhere. So a
crash can leave a line without its model, which overestimates epsilon, but never a model without its line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedprint.accounting.design import sampled_gaussian
from fedprint.accounting.events import Adjacency, SampledGaussian, Sampling
from fedprint.store.files import Journal, digest, read_journal
from fedprint.types import FedprintError

LEDGER = "ledger.jsonl"
_REMEDY = "restore the file; without it the spent budget is unknown, so these clients must not train any further round"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What one round spends. ``sigma`` is the noise multiplier of everything that the round releases together.

    A device's own epsilon is of every ``bands``-th line where the noise of so many rounds is correlated.
    """

    round: int
    q: float
    sigma: float
    sampling: Sampling
    adjacency: Adjacency
    rule: str
    clip: float
    bands: int = 1

    @property
    def event(self) -> SampledGaussian:
        """The event for an accountant."""
        return sampled_gaussian(self.sampling, self.q, self.sigma)


class Ledger:
    """The open ledger of one run; the only way to :meth:`spend`.

    ``identity`` names the run (configuration and data): lines of another run do not continue this chain. ``released``
    is the number of models that exist: fewer lines are damage. ``allowed`` rounds fit the budget; None sets no limit.
    Raises FedprintError for a ledger that was changed, cut short, or is of another run.
    """

    def __init__(self, path: Path, identity: str, *, released: int = 0, allowed: int | None = None) -> None:
        entries = read_ledger(path, identity)
        if len(entries) < released:
            raise FedprintError(f"{path}: {len(entries)} lines for {released} released models; {_REMEDY}")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._entries = list(entries)
        self._journal = Journal(path, _seed(identity))
        self.allowed = allowed

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything spent so far, in order."""
        return tuple(self._entries)

    def allows(self, round: int) -> bool:
        """Return whether the budget has a round left for ``round``."""
        return self.allowed is None or round < self.allowed

    def spend(self, entry: Entry) -> None:
        """Write one round's line; it is on the disk when this returns, and only then may the model be written.

        A round that is repeated after a crash must be the same: with the same noise nothing new is spent.
        Raises FedprintError for a round beyond the budget, out of order, or different from what was first written.
        """
        path = self._journal.path
        if not self.allows(entry.round):
            raise FedprintError(
                f"{path}: round {entry.round} is beyond the budget of {self.allowed} rounds; stop training"
            )
        if entry.round > len(self._entries):
            raise FedprintError(f"{path}: round {entry.round} after {len(self._entries)} lines; spend rounds in order")
        if entry.round < len(self._entries):
            if self._entries[entry.round] != entry:
                raise FedprintError(f"{path}: line {entry.round + 1} is not what round {entry.round} spends; {_REMEDY}")
            return
        self._journal.append(asdict(entry))
        self._entries.append(entry)


def read_ledger(path: Path, identity: str, *, lines: int | None = None) -> tuple[Entry, ...]:
    """Return the complete lines of a ledger; none if there is no file.

    A last line without its end was being written when the process died: its model does not exist. Any other damage,
    and another number of ``lines`` where that is known, raises FedprintError.
    """
    torn = path.exists() and not path.read_bytes().endswith(b"\n")
    try:
        entries = tuple(_entry(line.body) for line in read_journal(path, _seed(identity), torn_ok=torn))
    except (FedprintError, TypeError):
        raise FedprintError(f"{path}: a line was changed, is missing, or belongs to another run; {_REMEDY}") from None
    if [entry.round for entry in entries] != list(range(len(entries))) or lines not in (None, len(entries)):
        raise FedprintError(f"{path}: {len(entries)} lines, not one for each of {lines} rounds; {_REMEDY}")
    return entries


def public_norms(path: Path) -> tuple[float, ...]:
    """Return the clipping norm of every round from the ledger of a finished run; none without a ledger."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else ()
    return tuple(float(json.loads(line)["body"]["clip"]) for line in lines)


def _entry(body: Mapping[str, Any]) -> Entry:
    return Entry(**body)


def _seed(identity: str) -> str:
    return digest([b"privacy ledger", identity.encode()])
