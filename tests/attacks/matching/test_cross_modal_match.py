from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import attack_cases as cases
import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from fedprint.attacks.features import matrix
from fedprint.attacks.matching.cross_modal import (
    BridgeSettings,
    CrossProblem,
    bridge,
    bridges,
    choose_bridges,
    predict_texts,
    two_towers,
)
from fedprint.attacks.matching.metric import Gram, grams
from fedprint.attacks.matching.open_set import folds_of
from fedprint.attacks.matching.pairs import balanced_pairs
from fedprint.attacks.matching.sentences import captions_of, sentence_transformer, tfidf, user_features
from fedprint.attacks.problem import Validation
from fedprint.attacks.updates import MemoryUpdates
from fedprint.data.text_columns import encode_captions
from fedprint.rng import torch_rng
from fedprint.types import FedprintError, User

USERS, PER = 40, 4
KNOWN = np.arange(28)
BLOCK = ((("body.weight", "body.bias"), ("head.weight",)), "l2")


def _world(signal: float, seed: int = 0) -> tuple[CrossProblem, np.ndarray]:
    """Four traits of a person show in the updates and in the texts; asked are users without a known update."""
    rng = np.random.default_rng(seed)
    traits = rng.normal(size=(USERS, 4))
    texts = (traits @ rng.normal(size=(4, 12)) + 0.1 * rng.normal(size=(USERS, 12))).astype(np.float32)
    owners = np.repeat(np.arange(USERS), 2 * PER)
    d = sum(cases.SIZES.values())
    noise = rng.normal(size=(len(owners), d))
    values = signal * (traits @ rng.normal(size=(4, d)))[owners] + noise
    updates = MemoryUpdates(sizes=cases.SIZES, values=values.astype(np.float32))
    first = np.tile(np.arange(2 * PER) < PER, USERS)
    fit, asked = np.flatnonzero(first & (owners < 28)), np.flatnonzero(~first & (owners >= 28))
    strangers = np.arange(28, USERS)
    pairs, same = balanced_pairs(strangers, owners[asked], 2000, rng)
    rows = np.stack([strangers[pairs[:, 0]], asked[pairs[:, 1]]], axis=1)
    return CrossProblem(updates=updates, texts=texts, fit=fit, labels=owners[fit], pairs=rows), same


def _folds(problem: CrossProblem) -> tuple[Validation, ...]:
    from fedprint.attacks.problem import Problem

    other = problem.fit + PER  # the second device of the known users
    found = []
    for fit, ask in ((problem.fit, other), (other, problem.fit)):
        made = Problem(updates=problem.updates, fit=fit, labels=problem.labels, ask=ask, options=USERS)
        found.append(Validation(problem=made, answers=problem.labels))
    return folds_of(found, KNOWN)


def _gram(problem: CrossProblem) -> Gram:
    return next(grams(problem.updates, problem.fit, [BLOCK]))[1]


# Texts ----------------------------------------------------------------------------------------------------------------


def _user(user_id: int, *texts: str) -> User:
    return User(user_id=user_id, examples={"y": torch.zeros(len(texts)), "caption": encode_captions(texts)})


def test_users_who_write_alike_have_like_features() -> None:
    users = [
        _user(3, "a red cat", "a red dog"),
        _user(5, "the red cat", "a dog"),
        _user(9, "blue sky", "sky, blue sea"),
    ]
    captions = captions_of(users)
    assert list(captions) == [3, 5, 9]
    phi = user_features(captions, tfidf([t for texts in captions.values() for t in texts], 4))
    assert phi.shape == (3, 4)
    assert phi[0] @ phi[1] > phi[0] @ phi[2] + 0.1


def test_users_without_captions_are_refused() -> None:
    with pytest.raises(FedprintError, match="user 7 has no captions"):
        captions_of([User(user_id=7, examples={"y": torch.zeros(2)})])


def test_wordless_captions_are_refused() -> None:
    with pytest.raises(FedprintError, match="hold no words"):
        tfidf(["...", "!"], 4)


def test_an_encoder_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(FedprintError, match="not installed"):
        sentence_transformer(tmp_path)


# Matchers -------------------------------------------------------------------------------------------------------------


def test_the_towers_match_people_they_never_saw() -> None:
    problem, same = _world(2.0)
    assert average_precision_score(same, two_towers(problem, torch_rng(0), pairs=3000)) > 0.6


def test_the_bridge_matches_people_it_never_saw() -> None:
    problem, same = _world(2.0)
    chosen = choose_bridges(_folds(problem), problem.texts, np.random.default_rng(0))
    assert chosen[0].ap > 0.8
    assert [settings.ap for settings in chosen] == sorted((settings.ap for settings in chosen), reverse=True)
    assert average_precision_score(same, bridges(problem, chosen)) > 0.8


def test_one_bridge_alone_is_its_own_ensemble() -> None:
    problem, _ = _world(1.0)
    alone = bridges(problem, [BridgeSettings(block=BLOCK, penalty=0.3, dimensions=8, ap=0.5)])
    assert np.corrcoef(alone, bridge(_gram(problem), problem, 0.3, 8))[0, 1] > 1 - 1e-9


def test_texts_of_others_give_chance() -> None:
    problem, same = _world(2.0)
    mixed = replace(problem, texts=np.random.default_rng(1).permutation(problem.texts))
    for scores in (two_towers(mixed, torch_rng(0), pairs=3000), bridge(_gram(mixed), mixed, 0.03, 8)):
        assert 0.35 < average_precision_score(same, scores) < 0.65


def test_prediction_equals_plain_ridge() -> None:
    problem, _ = _world(1.0)
    targets = np.random.default_rng(0).normal(size=(len(problem.fit), 3))
    found = predict_texts(_gram(problem), problem.fit, targets, 0.1)
    x = matrix(problem.updates, None).astype(np.float64)
    x -= x[problem.fit].mean(0)
    fit = x[problem.fit]
    penalty = 0.1 * np.square(fit).sum() / len(fit)
    weights = np.linalg.solve(fit.T @ fit + penalty * np.eye(x.shape[1]), fit.T @ (targets - targets.mean(0)))
    np.testing.assert_allclose(found, x @ weights, atol=1e-3)


def test_updates_of_people_known_by_text_only_are_never_learned_from() -> None:
    """Their prior rows are changed beyond recognition; every score stays."""
    problem, _ = _world(1.0)
    values = problem.updates.values.copy()  # type: ignore[attr-defined]
    used = np.union1d(problem.fit, problem.pairs[:, 1])
    rest = np.setdiff1d(np.arange(len(values)), used)
    assert len(rest) > 0
    values[rest] = 100.0
    other = replace(problem, updates=MemoryUpdates(sizes=cases.SIZES, values=values))
    np.testing.assert_allclose(bridge(_gram(problem), problem, 0.1, 8), bridge(_gram(other), other, 0.1, 8), atol=1e-6)
    both = [two_towers(p, torch_rng(0), pairs=500) for p in (problem, other)]
    np.testing.assert_allclose(both[0], both[1], atol=1e-6)


def test_few_users_are_refused() -> None:
    problem, _ = _world(1.0)
    few = problem.labels < 3
    with pytest.raises(FedprintError, match="3 users are too few"):
        two_towers(replace(problem, fit=problem.fit[few], labels=problem.labels[few]), torch_rng(0))
