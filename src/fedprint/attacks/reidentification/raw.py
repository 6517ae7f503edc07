"""Re-identification from raw examples: the data-space comparison (gradient-leaks v2, 6.1.6; papers.md 2.3).

Not a threat of federated learning, where no raw example leaves a device, but a comparison: how much more or less an
update reveals.
Letters: n examples of the prior, a exposed examples, q sets of them, m users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax
from torch import Tensor, nn
from torch.nn import functional

from fedprint.attacks.learner import Learner, train
from fedprint.attacks.reidentification.reidentify import log_loss
from fedprint.data.dataset import START
from fedprint.models.base import initialise
from fedprint.models.batches import ShuffledBatches
from fedprint.models.components import SmallCnn
from fedprint.models.convnets import ConvClassifier
from fedprint.types import Doubles, Examples, Ints, Scores

ByExample = Callable[[Tensor, Ints, Tensor, int], Scores]
"""Fit on examples (n, ...) of users (n,) < m, and return scores (a, m) of other examples."""

_MOST = 4000
"""Most examples of a kernel: the cost of its solution grows with the cube of their number."""
_TEMPERATURES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class UserNetwork(Learner):
    """An attacker like that of the papers: a network that names the user of one example (an image or token ids).

    The papers use MobileNet. This one has two convolutions, or the mean of word vectors, and a layer of 128.
    """

    def __init__(self, x: Tensor, users: int, rng: torch.Generator) -> None:
        super().__init__()
        self.trunk: nn.Module
        if x.is_floating_point():
            channels, height, width = x.shape[1:]
            network = ConvClassifier((channels, height, width), users, False, SmallCnn(hidden=128, centred=True))
            self.gain, self.trunk, self.head = network.initial_gain, _Images(network), network.head
        else:
            self.gain, self.trunk, self.head = 1.0, _Words(int(x.max()) + 1), nn.Linear(128, users)
        initialise(self, rng, self.gain)

    def features(self, x: Tensor) -> Tensor:
        """Return features (b, 128) of examples."""
        features: Tensor = self.trunk(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Return user scores (b, m) of examples."""
        scores: Tensor = self.head(self.features(x))
        return scores

    def loss(self, batch: Examples) -> Tensor:
        """Cross-entropy."""
        return functional.cross_entropy(self(batch["x"]), batch["y"])

    def configure_optimizers(self) -> Any:
        """AdamW 1e-3."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class _Images(nn.Module):
    def __init__(self, network: ConvClassifier) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network.features(x)


class _Words(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 64)
        self.hidden = nn.Linear(64, 128)

    def forward(self, x: Tensor) -> Tensor:
        known = (x > START).unsqueeze(-1)
        within = x.clamp_max(self.embedding.num_embeddings - 1)
        mean = (self.embedding(within) * known).sum(1) / known.sum(1).clamp_min(1)
        return functional.relu(self.hidden(mean))


def fit_network(x: Tensor, users: Ints, options: int, epochs: int, rng: torch.Generator) -> UserNetwork:
    """Train on examples (n, ...) of ``users`` (n,); a tenth is held out to stop early."""
    module = UserNetwork(x, options, rng)
    order = torch.randperm(len(users), generator=rng)
    held, kept = order[: max(1, len(users) // 10)], order[max(1, len(users) // 10) :]
    y = torch.from_numpy(users)
    return train(
        module,
        ShuffledBatches({"x": x[kept], "y": y[kept]}, 32, rng),
        ShuffledBatches({"x": x[held], "y": y[held]}, 512, rng),
        epochs=epochs,
        patience=3,
    )


def network_set_scores(module: UserNetwork, x: Tensor, members: Ints) -> Scores:
    """Return log-probabilities (q, m) from the mean features of sets, ``members`` (q, k) of ``x`` (a, ...) or -1."""
    with torch.no_grad():
        features = torch.cat([module.features(part) for part in torch.split(x, 512)]).double().numpy()
        means = torch.from_numpy(sums_over_sets(features, members) / (members >= 0).sum(1, keepdims=True))
        scores: Scores = module.head(means.float()).double().log_softmax(1).numpy()
    return scores


def sums_over_sets(values: Doubles, members: Ints) -> Doubles:
    """Return the sums (q, c) of the rows of ``values`` (a, c) that are ``members`` (q, k) of a set, -1 = none."""
    total = np.zeros((len(members), values.shape[1]))
    for column in members.T:
        total += np.where((column >= 0)[:, None], values[column], 0.0)
    return total


def likelihood_scores(x: Tensor, users: Ints, ask: Tensor, options: int, rng: torch.Generator) -> Scores:
    """Return calibrated log-probabilities (a, m) of single examples by the best of several classifiers.

    Classifier and temperature are chosen by log-loss: learn from one half of the prior examples and test on the other.
    Their sum over a set is its log-likelihood, if a user's examples are independent.
    """
    half = torch.randperm(len(users), generator=rng).numpy() % 2 == 0
    learned, asked = (torch.from_numpy(np.flatnonzero(rows)) for rows in (half, ~half))
    tried = []
    for i, candidate in enumerate(IMAGES if x.is_floating_point() else WORDS):
        scores = candidate(x[learned], users[half], x[asked], options)
        tried += [(log_loss(t * scores, users[~half]), t, i) for t in _TEMPERATURES]
    _, temperature, best = min(tried)
    chosen = (IMAGES if x.is_floating_point() else WORDS)[best]
    calibrated: Scores = log_softmax(temperature * chosen(x, users, ask, options), axis=1)
    return calibrated


def discriminant(x: Tensor, users: Ints, ask: Tensor, options: int) -> Scores:
    """Linear discriminant analysis with shrinkage on principal components of the pixels."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    fit, other = _components(x, ask)
    machine = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(fit, users)
    return _with_all(machine.predict_log_proba(other), machine.classes_, options)


def _with_all(scores: NDArray[np.floating], classes: Ints, options: int) -> Scores:
    full = np.full((len(scores), options), -30.0)
    full[:, classes] = np.maximum(scores, -30.0)
    return full


def pixel_kernel(x: Tensor, users: Ints, ask: Tensor, options: int) -> Scores:
    """Ridge regression on users with a Gaussian kernel of standardised principal components of unit length."""
    from scipy.linalg import solve

    fit, other = _components(x[:_MOST], ask)
    mean, spread = fit.mean(0), fit.std(0) + 1e-9
    rows, asked = (((z - mean) / spread) for z in (fit, other))
    rows, asked = (z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-9) for z in (rows, asked))
    targets = np.eye(options)[users[: len(rows)]]
    inner = np.exp(2.0 * (rows @ rows.T - 1))
    inner[np.diag_indices_from(inner)] += 0.3
    weights = solve(inner, targets - targets.mean(0), assume_a="pos", overwrite_a=True, check_finite=False)
    scores: Scores = np.exp(2.0 * (asked @ rows.T - 1)) @ weights
    return scores


def _components(x: Tensor, ask: Tensor) -> tuple[Doubles, Doubles]:
    from sklearn.decomposition import PCA

    pixels, others = (z.flatten(1).double().numpy() for z in (x, ask))
    components = min(100, len(pixels) - 1, pixels.shape[1])
    pca = PCA(components, svd_solver="randomized", random_state=0).fit(pixels)
    return pca.transform(pixels), pca.transform(others)


def naive_bayes(x: Tensor, users: Ints, ask: Tensor, options: int) -> Scores:
    """Log-likelihoods of words, each user's frequencies smoothed by 100 words of the population."""
    words = int(max(x.max(), ask.max())) + 1
    counts = np.zeros((options, words))
    np.add.at(counts, (users[:, None], x.numpy()), x.numpy() > START)
    everybody = (counts.sum(0) + 1) / (counts.sum() + words)
    smooth = counts + 100 * everybody
    table = np.log(smooth / smooth.sum(1, keepdims=True)).T
    scores: Scores = np.stack([table[row[row > START]].sum(0) for row in ask.numpy()])
    return scores


def tfidf_ridge(x: Tensor, users: Ints, ask: Tensor, options: int) -> Scores:
    """Ridge regression on users over TF-IDF of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge

    texts, others = ([[str(i) for i in row if i > START] for row in z.tolist()] for z in (x, ask))
    weigh = TfidfVectorizer(analyzer=_as_it_is, sublinear_tf=True)
    fit, asked = weigh.fit_transform(texts), weigh.transform(others)
    machine = Ridge(alpha=1.0, solver="sparse_cg", random_state=0).fit(fit, np.eye(options)[users])
    scores: Scores = np.asarray(machine.predict(asked), dtype=np.float64)
    return scores


def _as_it_is(words: list[str]) -> list[str]:
    return words


IMAGES: tuple[ByExample, ...] = (discriminant, pixel_kernel)
WORDS: tuple[ByExample, ...] = (naive_bayes, tfidf_ridge)
