"""Texts as a column of examples: UTF-8 bytes in a tensor, so that they stay with their rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedprint.types import FedprintError

CAPTION = "caption"
"""The column: uint8 (n, length), a text per example in UTF-8, padded with 0 at the end."""


def encode_captions(texts: Sequence[str], length: int | None = None) -> Tensor:
    """Return uint8 (n, length) from n texts; ``length`` is in bytes and defaults to that of the longest text (or 1).

    Raises FedprintError for a text that does not fit or holds the padding character NUL.
    """
    encoded = [text.encode() for text in texts]
    width = max([1, *map(len, encoded)]) if length is None else length
    for row, text in enumerate(encoded):
        if len(text) > width or b"\0" in text:
            raise FedprintError(
                f"caption {row} has {len(text)} bytes, {text.count(0)} of them NUL; shorten it to {width} without NUL"
            )
    padded = b"".join(text.ljust(width, b"\0") for text in encoded)
    return torch.from_numpy(np.frombuffer(padded, dtype=np.uint8).reshape(len(texts), width).copy())


def decode_captions(column: Tensor) -> tuple[str, ...]:
    """Return the n texts of a column uint8 (n, length). Raises FedprintError when it holds no UTF-8."""
    try:
        return tuple(row.tobytes().rstrip(b"\0").decode() for row in column.cpu().numpy())
    except UnicodeDecodeError as error:
        raise FedprintError(f"caption: not UTF-8 ({error}); make the column with encode_captions") from error
