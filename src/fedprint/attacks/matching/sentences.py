"""A user's texts as a vector: the mean of sentence features (gradient-leaks v3, 6.1.1: phi_u)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from fedprint.data.text_columns import CAPTION, decode_captions
from fedprint.types import Doubles, FedprintError, Floats, User

Encoder = Literal["tfidf", "sentence-transformers"]
Encode = Callable[[Sequence[str]], Doubles]
_NO_CAPTIONS = "cross-modal: user {} has no captions; use data with a column 'caption' or drop this analysis"


def captions_of(users: Sequence[User]) -> dict[int, tuple[str, ...]]:
    """Return each user's captions. Raises FedprintError for a user without any."""
    captions = {}
    for user in users:
        if CAPTION not in user.examples:
            raise FedprintError(_NO_CAPTIONS.format(user.user_id))
        captions[user.user_id] = decode_captions(user.examples[CAPTION])
    return captions


def tfidf(texts: Sequence[str], dimensions: int) -> Encode:
    """Fit TF-IDF of words and pairs of words and its leading singular vectors on all texts that the adversary has.

    Needs no model and no network. Returns a function from n texts to features (n, <= dimensions) of unit length.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    try:
        counts = words.fit_transform(texts)
    except ValueError as error:
        raise FedprintError(f"cross-modal: the captions hold no words ({error}); look at the data's captions") from None
    size = min(dimensions, counts.shape[1] - 1, counts.shape[0] - 1)
    if size < 1:
        raise FedprintError(f"cross-modal: {counts.shape[1]} words in {len(texts)} captions are too few; add captions")
    svd = TruncatedSVD(size, random_state=0).fit(counts)
    return lambda some: _unit(svd.transform(words.transform(some)))


def sentence_transformer(model: Path | None) -> Encode:
    """Return the encoder in a local folder ``model``. Raises FedprintError without the package or the folder."""
    try:
        from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found]
    except ImportError:
        raise FedprintError(
            "cross-modal: encoder sentence-transformers is not installed; install that package or use encoder: tfidf"
        ) from None
    if model is None or not model.is_dir():
        raise FedprintError(
            f"cross-modal: encoder_model {model} is no folder; save a model there or use encoder: tfidf"
        )
    encoder = SentenceTransformer(str(model), device="cpu")
    return lambda some: _unit(np.asarray(encoder.encode(list(some), show_progress_bar=False), dtype=np.float64))


def user_features(captions: Mapping[int, Sequence[str]], encode: Encode) -> Floats:
    """Return phi (U, D): the mean feature of each user's sentences, in the mapping's order."""
    return np.stack([encode(texts).mean(0) for texts in captions.values()]).astype(np.float32)


def _unit(x: Doubles) -> Doubles:
    scaled: Doubles = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return scaled
