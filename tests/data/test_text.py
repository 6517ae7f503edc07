from __future__ import annotations

import numpy as np

from fedprint.data.dataset import IGNORED, PAD, START, UNKNOWN
from fedprint.data.text import (
    SPECIAL,
    build_vocabulary,
    decode,
    encode_sentences,
    encode_texts,
    split_sentences,
    token_ids,
    tokenise,
)

WORDS = (*SPECIAL, ".", "sea", "the", "was", "warm")


def test_sentences_end_at_marks_and_line_breaks() -> None:
    assert split_sentences("A b. C d! E f?\ng 3.5 h") == ["A b.", "C d!", "E f?", "g 3.5 h"]
    assert split_sentences("  \n ") == []


def test_tokens_are_lower_case_words_and_marks() -> None:
    assert tokenise("Don't PANIC, it's 42!") == ["don't", "panic", ",", "it's", "42", "!"]


def test_vocabulary_is_by_frequency_then_alphabet_and_cut() -> None:
    texts = ["b b a a c d", "d d"]
    assert build_vocabulary(texts, 100) == (*SPECIAL, "d", "a", "b", "c")
    assert build_vocabulary(texts[::-1], 100) == build_vocabulary(texts, 100)
    assert build_vocabulary(texts, 5) == (*SPECIAL, "d", "a")


def test_special_names_in_a_text_are_no_words() -> None:
    assert build_vocabulary(["<pad> <pad>"], 10) == (*SPECIAL, "<", ">", "pad")
    assert not set(token_ids(WORDS).values()) & {PAD, UNKNOWN, START}


def test_input_is_the_target_one_step_later() -> None:
    x, y, source = encode_sentences(["x", "The sea was cold."], token_ids(WORDS), length=8)
    assert x.tolist() == [[START, 5, 4, 6, UNKNOWN, PAD, PAD, PAD]]
    assert y.tolist() == [[5, 4, 6, IGNORED, 3, IGNORED, IGNORED, IGNORED]]
    assert source.tolist() == [1]
    assert decode(y[0], WORDS) == "the sea was … ."


def test_long_sentences_are_cut_and_short_or_unknown_ones_dropped() -> None:
    ids = token_ids(WORDS)
    x, y, _ = encode_sentences(["the sea was warm ."], ids, length=3)
    assert (x.tolist(), y.tolist()) == ([[START, 5, 4]], [[5, 4, 6]])
    assert (
        len(encode_sentences(["the sea", "what is this", "none of the first words is known here : warm"], ids, 3)[0])
        == 1
    )
    empty_x, empty_y, empty_source = encode_sentences([], ids, 4)
    assert (empty_x.shape, empty_y.shape, empty_source.shape) == ((0, 4), (0, 4), (0,))


def test_encoding_matches_a_plain_loop() -> None:
    texts = ["The sea. The warm sea was the sea! sea warm", "was the cold sea ?\nno no warm"]
    ids = token_ids(WORDS)
    expected = []
    for text in texts:
        for sentence in split_sentences(text):
            tokens = tokenise(sentence)[:6]
            targets = [ids.get(t, IGNORED) for t in tokens]
            if len(tokenise(sentence)) >= 3 and any(t != IGNORED for t in targets):
                inputs = [START] + [UNKNOWN if t == IGNORED else t for t in targets[:-1]]
                pad = 6 - len(tokens)
                expected.append((inputs + [PAD] * pad, targets + [IGNORED] * pad))
    x, y, _ = encode_sentences(texts, ids, 6)
    assert [*zip(x.tolist(), y.tolist(), strict=True)] == expected
    assert x.dtype == y.dtype == np.int64


def test_whole_texts_start_with_start_and_end_in_padding() -> None:
    x = encode_texts(["The sea. Was cold!", "", "warm warm warm warm warm the"], token_ids(WORDS), length=6)
    assert x.tolist() == [[START, 5, 4, 3, 6, UNKNOWN], [START] + 5 * [PAD], [START] + 5 * [7]]
    assert x.dtype == np.int64
    assert encode_texts([], token_ids(WORDS), 4).shape == (0, 4)
