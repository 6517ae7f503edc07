"""A check, made once for every source where its data enter a run, that no user is in the background too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from fedprint.data.dataset import Dataset
from fedprint.data.examples import num_examples
from fedprint.types import FedprintError, User


@dataclass(frozen=True, kw_only=True)
class Background:
    """The background in numbers; ``identical`` counts its examples whose input equals that of an example of a user.

    Short sentences and plain pictures repeat by chance; many identical ones suggest that people are in both parts.
    """

    users: int
    examples: int
    identical: int


def check_background(dataset: Dataset) -> Background:
    """Return the background in numbers. Raises FedprintError when a user's id is in both parts."""
    shared = {user.user_id for user in dataset.users} & {user.user_id for user in dataset.background}
    if shared:
        raise FedprintError(
            f"{dataset.name}: {len(shared)} user(s), such as {min(shared)}, are in the background too; correct the "
            "source or its column 'group'"
        )
    known = set(_inputs(dataset.users)) if dataset.background else set()
    return Background(
        users=len(dataset.background),
        examples=sum(num_examples(user.examples) for user in dataset.background),
        identical=sum(example in known for example in _inputs(dataset.background)),
    )


def _inputs(users: Sequence[User]) -> list[bytes]:
    """Return a digest of each example's input: a fraction of the memory that the inputs take."""
    return [blake2b(x.tobytes(), digest_size=16).digest() for user in users for x in user.examples["x"].numpy()]
