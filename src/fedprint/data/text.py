"""Posts to token ids: sentences, words, vocabulary, and the inputs and targets of a next-word model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fedprint.data.dataset import IGNORED, PAD, START, UNKNOWN

SPECIAL = ("<pad>", "<unknown>", "<start>")
"""Names of the ids below 3."""

MIN_TOKENS = 3
"""Sentences with fewer tokens are dropped."""

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\s*\n+\s*")
_TOKEN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a post: cut after ``.``, ``!`` or ``?`` before white space, and at line breaks."""
    return [sentence for sentence in _SENTENCE_END.split(text.strip()) if sentence]


def tokenise(text: str) -> list[str]:
    """Return lower-case words (inner apostrophes kept) and single punctuation marks."""
    return _TOKEN.findall(text.lower())


def build_vocabulary(texts: Iterable[str], size: int) -> tuple[str, ...]:
    """Return at most ``size`` names, index = token id: the three special ones, then words by frequency.

    Words of equal frequency come in alphabetical order, so equal texts in any order give the same vocabulary.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(tokenise(text))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return SPECIAL + tuple(ranked[: max(0, size - len(SPECIAL))])


def token_ids(vocabulary: Sequence[str]) -> dict[str, int]:
    """Return word -> id for the words of a vocabulary; ids below 3 stand for no word."""
    return {word: index for index, word in enumerate(vocabulary) if index >= len(SPECIAL)}


def encode_sentences(
    texts: Sequence[str], ids: dict[str, int], length: int = 16
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``x`` (n, length) and ``y`` (n, length) int64 token ids, and ``source`` (n,) the index of each's text.

    A sentence w1..wk (cut at ``length`` tokens) gives x = START w1..w(k-1) and y = w1..wk; x is padded with PAD.
    Targets that are padding or not in ``ids`` (word -> id) are IGNORED. Dropped: sentences of fewer than 3 tokens, and
    those without any target.
    """
    kept = list(_encoded(texts, ids, length))
    words = np.full((len(kept), length), PAD, dtype=np.int64)
    for row, (_, sentence) in enumerate(kept):
        words[row, : len(sentence)] = sentence
    x = np.concatenate([np.full((len(kept), 1), START, dtype=np.int64), words[:, :-1]], axis=1)
    # The last word is a target only; where a sentence ends early its input would say nothing new.
    lengths = np.array([len(sentence) for _, sentence in kept], dtype=np.int64)
    x[np.arange(length) >= lengths[:, None]] = PAD
    y = np.where(words <= UNKNOWN, IGNORED, words)
    return x, y, np.array([source for source, _ in kept], dtype=np.int64)


def encode_texts(texts: Sequence[str], ids: dict[str, int], length: int = 64) -> np.ndarray:
    """Return whole texts as int64 (n, length) token ids: START, then the words, padded with PAD at the end.

    A longer text keeps its first ``length`` - 1 words; words not in ``ids`` (word -> id) are UNKNOWN. START gives even
    a text without any word a last token.
    """
    out = np.full((len(texts), length), PAD, dtype=np.int64)
    out[:, 0] = START
    for row, text in enumerate(texts):
        words = [ids.get(token, UNKNOWN) for token in tokenise(text)[: length - 1]]
        out[row, 1 : len(words) + 1] = words
    return out


def decode(y: np.ndarray, vocabulary: Sequence[str]) -> str:
    """Return the known words of one row of targets (length,), unknown ones as an ellipsis."""
    ids = np.trim_zeros(np.where(y == IGNORED, 0, y), "b")
    return " ".join(vocabulary[index] if index else "…" for index in ids)


def _encoded(texts: Sequence[str], ids: dict[str, int], length: int) -> Iterator[tuple[int, list[int]]]:
    for source, text in enumerate(texts):
        for sentence in split_sentences(text):
            tokens = tokenise(sentence)
            if len(tokens) >= MIN_TOKENS:
                encoded = [ids.get(token, UNKNOWN) for token in tokens[:length]]
                if max(encoded) > UNKNOWN:
                    yield source, encoded
