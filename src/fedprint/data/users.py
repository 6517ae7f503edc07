"""From a table to users: the rows of each user, their order, and the user's attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from fedprint.data.dataset import Dataset, Task
from fedprint.data.examples import PooledExamples, take
from fedprint.data.formats.table import Table, album_column, has_groups, label_column, role, time_columns
from fedprint.data.text import encode_sentences, encode_texts
from fedprint.data.text_columns import CAPTION, encode_captions
from fedprint.types import FedprintError, User

Rows = Mapping[int, np.ndarray]
"""User id -> rows of the table (n,), ascending in time."""


def rows_by_user(table: Table) -> Rows:
    """Return each user's rows, users by id, rows by time (then order, then file). Raises FedprintError for no users."""
    if "user" not in table.columns:
        raise FedprintError(f"{table.file}: no column 'user'; only data with users can be split among devices")
    users = table.columns["user"].astype(np.int64)
    keys = [timestamps(table, name) for name in reversed(time_columns(table.columns))]
    order = np.lexsort([*keys, users])
    ids, starts = np.unique(users[order], return_index=True)
    return dict(zip(ids.tolist(), np.split(order, starts[1:]), strict=True))


def timestamps(table: Table, name: str) -> np.ndarray:
    """Return a time column as int64 (n,): numbers as they are, ISO dates as seconds since 1970."""
    values = table.columns[name]
    if values.dtype.kind in "iu":
        return values.astype(np.int64)
    try:
        return np.array(values.tolist(), dtype="datetime64[s]").astype(np.int64)
    except (ValueError, TypeError) as error:
        raise FedprintError(
            f"{table.file}: '{name}' cannot be read as a time ({error}); use integers or ISO dates"
        ) from error


def in_group(table: Table, rows: Rows, group: str) -> list[int]:
    """Return the users of ``group``; without a text column ``group`` everyone is federated."""
    if not has_groups(table.columns):
        return list(rows) if group == "federated" else []
    return [user for user, index in rows.items() if table.columns["group"][index[0]] == group]


def most_first(rows: Rows, users: Iterable[int]) -> list[int]:
    """Return the users by number of rows, most first, equal numbers by id."""
    return sorted(users, key=lambda user: (-len(rows[user]), user))


def image_users(
    table: Table, rows: Rows, chosen: Sequence[int], attributes: Mapping[str, np.ndarray] | None = None
) -> tuple[User, ...]:
    """Return users with ``x`` uint8 (n, channels, h, w) and ``y`` from the labels, int64 (n,) or float32 (n, classes).

    ``attributes`` maps a name to one class per row (n,); a user takes that of the first row. Without a time column
    ``t`` counts from 0; without albums every example is an album of its own. A column ``text`` becomes ``caption``.
    """
    label = label_column(table.columns)
    if label is None:
        raise FedprintError(f"{table.file}: images need a column 'labels'; add (n,) classes or (n, classes) of 0 and 1")
    stamps, events, captions = _stamps(table), _events(table), _captions(table)
    return tuple(
        User(
            user_id=user,
            examples={
                "x": _pixels(table.columns["images"][rows[user]]),
                "y": _targets(table.columns[label][rows[user]]),
                **_when(rows[user], stamps, events),
                **take(captions, torch.from_numpy(rows[user])),
            },
            attributes={name: int(values[rows[user][0]]) for name, values in (attributes or {}).items()},
        )
        for user in chosen
    )


def pooled_image_users(table: Table, rows: Rows, chosen: Sequence[int]) -> tuple[User, ...]:
    """Return users as :func:`image_users` does, for data without times, albums or captions; images are held once."""
    pool = {
        "x": _pixels(table.columns["images"]),
        "y": _targets(table.columns["labels"]),
        "album": torch.from_numpy(_events(table)),
    }
    return tuple(
        User(
            user_id=user,
            examples=PooledExamples(pool, torch.from_numpy(rows[user]), {"t": torch.arange(len(rows[user]))}),
        )
        for user in chosen
    )


def text_users(
    table: Table, rows: Rows, chosen: Sequence[int], ids: dict[str, int], *, length: int, max_sentences: int
) -> tuple[User, ...]:
    """Return users with ``x`` and ``y`` int64 (n, length) from :func:`~fedprint.data.text.encode_sentences`.

    Of a user with more than ``max_sentences`` (n <= max_sentences) evenly spaced ones are kept, the first and the last
    among them, so that their span of time stays. Users without any sentence are left out.
    """
    stamps, events = _stamps(table), _events(table)
    users = []
    for user in chosen:
        x, y, source = encode_sentences(table.columns["text"][rows[user]].tolist(), ids, length)
        if len(x):
            kept = _evenly(len(x), max_sentences)
            when = _when(rows[user][source[kept]], stamps, events)
            data = {"x": torch.from_numpy(x[kept]), "y": torch.from_numpy(y[kept])}
            users.append(User(user_id=user, examples={**data, **when}))
    return tuple(users)


def rating_users(
    table: Table, rows: Rows, chosen: Sequence[int], ids: dict[str, int], *, length: int, max_texts: int
) -> tuple[User, ...]:
    """Return users with ``x`` int64 (n, length) whole texts and ``y`` float32 (n,) their column ``stars``.

    Of a user with more than ``max_texts`` texts (n <= max_texts) evenly spaced ones are kept, as in :func:`text_users`.
    """
    stamps, events = _stamps(table), _events(table)
    users = []
    for user in chosen:
        index = rows[user]
        kept = index[_evenly(len(index), max_texts)]
        x = encode_texts(table.columns["text"][kept].tolist(), ids, length)
        data = {"x": torch.from_numpy(x), "y": torch.from_numpy(table.columns["stars"][kept].astype(np.float32))}
        users.append(User(user_id=user, examples={**data, **_when(kept, stamps, events)}))
    return tuple(users)


def table_dataset(
    table: Table, task: Task, class_names: tuple[str, ...], users: tuple[User, ...], background: tuple[User, ...]
) -> Dataset:
    """Return the data set of these users under the name, the licence and the digest of the table."""
    return Dataset(
        name=table.name,
        task=task,
        users=users,
        background=background,
        class_names=class_names,
        has_time=bool(time_columns(table.columns)),
        shareable=table.sidecar.shareable,
        licence=table.sidecar.licence,
        sha256=table.sidecar.sha256,
    )


def texts_of(table: Table, rows: Rows, users: Iterable[int]) -> Iterable[str]:
    """Return all texts of the users."""
    return (text for user in users for text in table.columns["text"][rows[user]])


def require(chosen: Sequence[int], wanted: int, table: Table, remedy: str) -> None:
    """Raise FedprintError unless there are at least ``wanted`` chosen users."""
    if len(chosen) < wanted:
        raise FedprintError(f"{table.file}: {len(chosen)} users fit the settings, {wanted} are asked for; {remedy}")


def _evenly(count: int, most: int) -> np.ndarray:
    """Return at most ``most`` of the indices below ``count``, evenly spaced."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


def _stamps(table: Table) -> np.ndarray | None:
    names = time_columns(table.columns)
    return timestamps(table, names[0]) if names else None


def _events(table: Table) -> np.ndarray:
    name = album_column(table.columns)
    if name is None:
        return np.arange(len(table), dtype=np.int64)
    return np.unique(table.columns[name].astype(str), return_inverse=True)[1].astype(np.int64)


def _when(rows: np.ndarray, stamps: np.ndarray | None, events: np.ndarray) -> dict[str, torch.Tensor]:
    t = np.arange(len(rows), dtype=np.int64) if stamps is None else stamps[rows]
    return {"t": torch.from_numpy(t), "album": torch.from_numpy(events[rows])}


def _captions(table: Table) -> dict[str, torch.Tensor]:
    return {CAPTION: encode_captions(table.columns["text"].tolist())} if role(table.columns, "text") else {}


def _pixels(images: np.ndarray) -> torch.Tensor:
    """Return (n, channels, h, w) from (n, h, w) or (n, h, w, channels)."""
    channels = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(channels))


def _targets(labels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(labels.astype(np.float32 if labels.ndim == 2 else np.int64))


def document_rows(table: Table, count: int, first_id: int) -> Rows:
    """Return the rows of at most ``count`` documents, evenly spaced over all, as if each were a user.

    A document is what shares source, doc and user (where there are such columns); ids start at ``first_id``.
    """
    names = [name for name in ("source", "doc", "user") if name in table.columns]
    keys = ["\x1f".join(map(str, key)) for key in zip(*(table.columns[name] for name in names), strict=True)]
    code = np.unique(keys, return_inverse=True)[1] if keys else np.zeros(len(table), dtype=np.int64)
    documents = int(code.max()) + 1
    chosen = np.unique(_evenly(documents, count))
    return {first_id + index: np.flatnonzero(code == document) for index, document in enumerate(chosen.tolist())}
