from __future__ import annotations

import torch

from fedprint.models.base import FedModule, initialise
from fedprint.models.components import NextWordLstm, StarLstm
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng


def _model(config: NextWordLstm | StarLstm) -> FedModule:
    model = build_network(config, (6,), 12, False)
    initialise(model, torch_rng(0, "model"), model.initial_gain)
    return model


def test_a_sentences_features_are_the_mean_state_over_its_words() -> None:
    model = _model(NextWordLstm(embedding=5, hidden=4))
    x = torch.tensor([[2, 7, 9, 0, 0, 0]])
    states = model.lstm(model.embedding(x))  # type: ignore[operator]
    torch.testing.assert_close(model.features(x), states[:, :3].mean(1))  # type: ignore[operator]
    longer = torch.cat([x, torch.zeros(1, 4, dtype=torch.int64)], dim=1)
    torch.testing.assert_close(model.features(longer), model.features(x))  # type: ignore[operator]


def test_a_ratings_features_are_the_state_that_the_rating_is_read_from() -> None:
    model = _model(StarLstm(embedding=5, hidden=4))
    x = torch.tensor([[2, 7, 9, 0, 0, 0], [2, 3, 4, 5, 6, 7]])
    features = model.features(x)  # type: ignore[operator]
    assert features.shape == (2, 4)
    expected = model.centre + model.head(features).squeeze(-1)  # type: ignore[operator]
    torch.testing.assert_close(model.scores(x), expected)
