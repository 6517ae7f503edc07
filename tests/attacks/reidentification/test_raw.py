from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from fedprint.attacks.reidentification.raw import (
    IMAGES,
    WORDS,
    ByExample,
    fit_network,
    likelihood_scores,
    naive_bayes,
    network_set_scores,
    sums_over_sets,
)
from fedprint.rng import torch_rng

USERS, EACH, WORD_COUNT = 6, 24, 40


def _images(seed: int, personal: float = 0.25) -> tuple[torch.Tensor, np.ndarray]:
    """Return images (n, 1, 8, 8): each user has a pattern of its own under noise."""
    patterns = np.random.default_rng(0).normal(size=(USERS, 1, 8, 8))
    users = np.repeat(np.arange(USERS), EACH)
    noise = np.random.default_rng(seed).normal(size=(len(users), 1, 8, 8))
    x = np.clip(0.5 + personal * patterns[users] + 0.2 * noise, 0, 1)
    return torch.from_numpy(x.astype(np.float32)), users


def _texts(seed: int) -> tuple[torch.Tensor, np.ndarray]:
    """Return token ids (n, 10): each user has words of its own liking."""
    likes = np.random.default_rng(0).dirichlet(np.full(WORD_COUNT, 0.2), size=USERS)
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(USERS), EACH)
    words = np.stack([3 + rng.choice(WORD_COUNT, 10, p=likes[user]) for user in users])
    words[:, 8:] = 0
    return torch.from_numpy(words), users


MAKERS = {"images": _images, "texts": _texts}
CLASSIFIERS = [("images", c) for c in IMAGES] + [("texts", c) for c in WORDS]


@pytest.mark.parametrize(("kind", "classifier"), CLASSIFIERS, ids=lambda value: getattr(value, "__name__", value))
def test_every_classifier_names_the_user_of_other_examples(kind: str, classifier: ByExample) -> None:
    (x, users), (ask, truth) = MAKERS[kind](1), MAKERS[kind](2)
    scores = classifier(x, users, ask, USERS)
    assert scores.shape == (len(truth), USERS)
    assert (scores.argmax(1) == truth).mean() > 0.8


@pytest.mark.parametrize(("kind", "classifier"), CLASSIFIERS, ids=lambda value: getattr(value, "__name__", value))
def test_shuffled_users_leave_nothing_to_learn(kind: str, classifier: ByExample) -> None:
    (x, users), (ask, truth) = MAKERS[kind](1), MAKERS[kind](2)
    shuffled = np.random.default_rng(3).permutation(users)
    assert (classifier(x, shuffled, ask, USERS).argmax(1) == truth).mean() < 0.45


@pytest.mark.parametrize("kind", MAKERS)
def test_networks_name_the_user_of_a_set(kind: str) -> None:
    (x, users), (ask, truth) = MAKERS[kind](1), MAKERS[kind](2)
    module = fit_network(x, users, USERS, 25, torch_rng(0))
    members = np.arange(len(truth)).reshape(-1, 4)
    scores = network_set_scores(module, ask, members)
    assert (scores.argmax(1) == truth[::4]).mean() > 0.85
    np.testing.assert_allclose(logsumexp(scores, axis=1), 0, atol=1e-6)


def test_a_set_of_one_is_scored_as_its_example() -> None:
    (x, users), (ask, _) = _images(1), _images(2)
    module = fit_network(x, users, USERS, 2, torch_rng(0))
    with torch.no_grad():
        alone = module(ask).double().log_softmax(1).numpy()
    members = np.full((len(ask), 3), -1)
    members[:, 0] = np.arange(len(ask))
    np.testing.assert_allclose(network_set_scores(module, ask, members), alone, atol=1e-5)


def test_sums_leave_out_what_is_no_member() -> None:
    values = np.arange(8.0).reshape(4, 2)
    found = sums_over_sets(values, np.array([[0, 3, -1], [1, -1, -1]]))
    np.testing.assert_array_equal(found, [[6, 8], [2, 3]])


@pytest.mark.parametrize("kind", MAKERS)
def test_likelihoods_are_calibrated(kind: str) -> None:
    """A summed likelihood of an overconfident classifier would be sure of the wrong user."""
    (x, users), (ask, truth) = MAKERS[kind](1), MAKERS[kind](2)
    single = likelihood_scores(x, users, ask, USERS, torch_rng(0))
    np.testing.assert_allclose(logsumexp(single, axis=1), 0, atol=1e-9)
    right = single.argmax(1) == truth
    assert abs(np.exp(single.max(1)).mean() - right.mean()) < 0.15
    sets = sums_over_sets(single, np.arange(len(truth)).reshape(-1, 4))
    assert (sets.argmax(1) == truth[::4]).mean() >= right.mean()


def test_naive_bayes_ignores_words_of_no_meaning() -> None:
    """Padding, unknown words and the start of a text say nothing."""
    x, users = _texts(1)
    ask = x[:5].clone()
    ask[:, 8:] = torch.tensor([1, 2])
    np.testing.assert_array_equal(naive_bayes(x, users, x[:5], USERS), naive_bayes(x, users, ask, USERS))
