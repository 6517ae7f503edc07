from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedprint.data.prepared import load_users, save_users
from fedprint.data.text_columns import CAPTION, decode_captions, encode_captions
from fedprint.types import FedprintError, User

TEXTS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=5)


@given(TEXTS)
def test_texts_survive_the_column(texts: list[str]) -> None:
    column = encode_captions(texts)
    assert column.dtype == torch.uint8
    assert decode_captions(column) == tuple(texts)


def test_the_width_is_in_bytes_and_padding_is_zero() -> None:
    column = encode_captions(["é", "abc"], 4)
    assert column.tolist() == [[0xC3, 0xA9, 0, 0], [97, 98, 99, 0]]
    assert encode_captions(["é", "abc"]).shape == (2, 3)


@pytest.mark.parametrize(("text", "says"), [("abcde", "has 5 bytes"), ("a\0b", "1 of them NUL")])
def test_a_text_that_cannot_come_back_is_refused(text: str, says: str) -> None:
    with pytest.raises(FedprintError, match=f"caption 1 .*{says}"):
        encode_captions(["a", text], 4)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(FedprintError, match="not UTF-8"):
        decode_captions(torch.tensor([[0xFF, 0xFE]], dtype=torch.uint8))


def test_captions_are_written_and_read_with_their_users(tmp_path: Path) -> None:
    texts = {3: ["a dog", "two cats"], 5: ["the sea"]}
    users = [
        User(user_id=user, examples={"y": torch.arange(len(said)), CAPTION: encode_captions(said, 20)})
        for user, said in texts.items()
    ]
    save_users(tmp_path, users)
    assert {u.user_id: list(decode_captions(u.examples[CAPTION])) for u in load_users(tmp_path)} == texts
