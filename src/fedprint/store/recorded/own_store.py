"""A store that fedprint itself recorded, as a recorded folder: its index and its truth in the same words."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedprint.store.reader import UpdateStore
from fedprint.store.recorded.index import Line


def store_lines(store: UpdateStore, name: str) -> list[Line]:
    """Return the lines of a store's index; a device that cannot be linked is one observation."""
    index = store.index
    columns = zip(_devices(index), index["round"], index["num_examples"], index["user_id"], strict=True)
    return [
        Line(
            at=(name, row + 1),
            file=None,
            row=row,
            round=int(number),
            device=device,
            num_examples=int(examples),
            user=None if pd.isna(user) else str(user),
        )
        for row, (device, number, examples, user) in enumerate(columns)
    ]


def owners_of(observed: Path, truth: pd.DataFrame) -> dict[str, str]:
    """Return the user of each anonymous device of a store, given the table of its folder ``truth/``."""
    index = UpdateStore.open(observed, verify=False).index
    users = dict(zip(truth["obs_id"], truth["user_id"], strict=True))
    rows = zip(_devices(index), index["obs_id"], index["user_id"].isna(), strict=True)
    return {device: str(users[obs_id]) for device, obs_id, anonymous in rows if anonymous and obs_id in users}


def _devices(index: pd.DataFrame) -> list[str]:
    names = zip(index["pseudonym"], index["obs_id"], strict=True)
    return [str(obs_id) if pd.isna(name) else str(name) for name, obs_id in names]
