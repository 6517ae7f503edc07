from __future__ import annotations

from dataclasses import replace

import attack_cases as cases
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp
from scipy.stats import kstest
from sklearn.linear_model import Ridge as ScikitRidge
from sklearn.metrics import average_precision_score

from fedprint.attacks.features import TRANSFORMS, Block, Transform, matrix
from fedprint.attacks.problem import Criterion, Problem, of_some_users
from fedprint.attacks.reidentification import large, ridge
from fedprint.attacks.reidentification.mlp_tuned import MlpTuned, kernel_coordinates
from fedprint.attacks.reidentification.presets import Chance, Knn, Mlp, Svm, SvmHard
from fedprint.attacks.reidentification.reidentify import (
    TIE,
    Tuned,
    answer,
    best_temperature,
    exchanged_scores,
    pool,
    tune,
)
from fedprint.attacks.reidentification.ridge import (
    PENALTIES,
    Ridge,
    candidate_blocks,
    choose_kernel,
    combined,
    ridge_scores,
)
from fedprint.attacks.reidentification.workspace import Attack, Workspace
from fedprint.evaluation.shuffled import PermutationTest, judge_jointly, permutation_test
from fedprint.rng import torch_rng


def _answer(attack: Attack, problem: Problem, signal: float = 1.0, seed: int = 0) -> np.ndarray:
    work = Workspace()
    tuned = tune(attack, cases.validation(signal), work, torch_rng(seed, "tune"))
    return answer(attack, problem, tuned, work, torch_rng(seed, "answer")).scores


def _top1(scores: np.ndarray) -> float:
    return float((scores.argmax(1) == cases.truth(len(scores), scores.shape[1])).mean())


# Signal and no signal -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", cases.LEARNED, ids=cases.names(cases.LEARNED))
def test_planted_signal_is_found(attack: Attack) -> None:
    scores = _answer(attack, cases.problem(cases.planted(2.0)), signal=2.0)
    assert _top1(scores) > 0.9
    np.testing.assert_allclose(logsumexp(scores, axis=1), 0, atol=2 * TIE)


def test_chance_does_not_find_the_planted_signal() -> None:
    assert _top1(_answer(Chance(), cases.problem(cases.planted(1.0)))) < 0.35


def _shuffled_check(attack: Attack, seed: int) -> PermutationTest:
    """Exchange the known users at random, as the pipeline does; the signal itself is as strong as can be."""
    real = cases.problem(cases.planted(1.0, seed))
    permutation = np.random.default_rng([seed, 1]).permutation(cases.USERS)
    scores = _answer(attack, replace(real, labels=permutation[real.labels]), seed=seed)
    return permutation_test(scores, real.labels, np.random.default_rng([seed, 2]), 1999)


def test_shuffled_labels_give_chance_for_every_attack() -> None:
    checks = {f"{attack.name}/{seed}": _shuffled_check(attack, seed) for attack in cases.ALL for seed in (1, 2)}
    verdict = judge_jointly(checks)
    assert verdict.passed, verdict.text
    assert verdict.powerless == ()


@pytest.mark.slow
@pytest.mark.parametrize("attack", [Ridge(most_blocks=1), MlpTuned(hidden=64)], ids=["ridge", "mlp-tuned"])
def test_shuffled_p_values_are_uniform(attack: Attack) -> None:
    """Not only no small ones: the check itself is calibrated, in both directions."""
    p_values = [_shuffled_check(attack, seed).p_high for seed in range(60)]
    assert kstest(p_values, "uniform").pvalue > 0.001


def test_the_shuffled_check_would_see_a_link() -> None:
    real = cases.problem(cases.planted(1.0))
    found = permutation_test(_answer(Knn(k=5), real), real.labels, np.random.default_rng(0), 1999)
    assert not judge_jointly({f"check {i}": found for i in range(12)}).passed


def test_without_a_signal_every_attack_is_at_chance() -> None:
    problem = cases.problem(cases.planted(0.0, seed=3))
    checks = {
        attack.name: permutation_test(
            _answer(attack, problem, signal=0.0), problem.labels, np.random.default_rng(0), 1999
        )
        for attack in cases.ALL
    }
    verdict = judge_jointly(checks)
    assert verdict.passed, verdict.text


@pytest.mark.parametrize("attack", cases.ALL, ids=cases.names(cases.ALL))
def test_same_seed_gives_the_same_scores(attack: Attack) -> None:
    problem = cases.problem(cases.planted(0.5))
    np.testing.assert_array_equal(_answer(attack, problem), _answer(attack, problem))


def test_another_seed_gives_other_random_scores() -> None:
    problem = cases.problem(cases.planted(0.5))
    assert not np.array_equal(_answer(Chance(), problem, seed=0), _answer(Chance(), problem, seed=1))


# The attacks one by one -----------------------------------------------------------------------------------------------


def test_knn_shares_are_votes_of_the_nearest_normalised_updates() -> None:
    problem = cases.problem(cases.planted(0.3))
    x = matrix(problem.updates, None).astype(np.float64)
    shares = Knn(k=5).scores(problem, {}, Workspace(), torch_rng(0))
    for row in (0, 17, 60):
        distance = np.linalg.norm(x[problem.fit] - x[problem.ask[row]], axis=1)
        votes = np.bincount(problem.labels[np.argsort(distance)[:5]], minlength=cases.USERS)
        np.testing.assert_allclose(shares[row], votes / 5)


def test_svm_gives_an_option_without_prior_updates_the_least_margin() -> None:
    real = cases.problem(cases.planted(1.0))
    kept = real.labels != 4
    scores = Svm().scores(replace(real, fit=real.fit[kept], labels=real.labels[kept]), {}, Workspace(), torch_rng(0))
    assert (scores[:, 4] < np.delete(scores, 4, axis=1).min(axis=1)).all()


def test_svm_with_two_users_has_two_columns() -> None:
    updates = cases.planted(1.0, users=2)
    scores = Svm().scores(cases.problem(updates, users=2), {}, Workspace(), torch_rng(0))
    assert _top1(scores) > 0.9


def test_hard_svm_scores_one_for_the_best_margin_only() -> None:
    problem = cases.problem(cases.planted(0.5))
    soft = Svm().scores(problem, {}, Workspace(), torch_rng(0))
    hard = SvmHard().scores(problem, {}, Workspace(), torch_rng(0))
    np.testing.assert_array_equal(hard.sum(1), 1)
    np.testing.assert_array_equal(hard.argmax(1), soft.argmax(1))


def test_a_standardised_preset_equals_the_plain_one_on_standardised_updates() -> None:
    problem = cases.problem(cases.planted(0.5))
    x = matrix(problem.updates, None).astype(np.float64)
    mean, spread = x[problem.fit].mean(0), x[problem.fit].std(0)
    by_hand = replace(problem, updates=replace(problem.updates, values=((x - mean) / spread).astype(np.float32)))  # type: ignore[type-var]
    for plain, standardised in ((Svm(), Svm(name="svm-std")), (Knn(k=5), Knn(name="knn-std", k=5))):
        expected = plain.scores(by_hand, {}, Workspace(), torch_rng(0))
        found = standardised.scores(problem, {}, Workspace(), torch_rng(0))
        np.testing.assert_allclose(found, expected, atol=0.02)
        assert not np.allclose(found, plain.scores(problem, {}, Workspace(), torch_rng(0)), atol=0.02)


def test_standardisation_reads_prior_rows_only() -> None:
    """Other anonymous updates change nothing in what is made of one."""
    problem = cases.problem(cases.planted(0.5))
    values = problem.updates.values.copy()  # type: ignore[attr-defined]
    values[problem.ask[1:]] *= -5
    other = replace(problem, updates=replace(problem.updates, values=values))  # type: ignore[type-var]
    for attack in (Knn(name="knn-std", k=5), Svm(name="svm-std"), Mlp(name="mlp-std", epochs=3)):
        here, there = (attack.scores(p, {}, Workspace(), torch_rng(0)) for p in (problem, other))
        np.testing.assert_allclose(here[0], there[0], atol=1e-6)


def test_ties_are_broken_at_random_and_nothing_else_changes() -> None:
    """Ten votes among twelve users leave many ties; they must not fall to the users with small numbers."""
    problem = cases.problem(cases.planted(0.0))
    tuned = Tuned(settings={}, temperature=10.0, log_loss=0.0)
    votes = Knn(k=2).scores(problem, {}, Workspace(), torch_rng(0))
    ranked = answer(Knn(k=2), problem, tuned, Workspace(), torch_rng(0)).scores
    assert all(len(np.unique(column)) == len(ranked) for column in ranked.T)
    assert (votes[np.arange(len(votes)), ranked.argmax(1)] == votes.max(1)).all()
    last = np.bincount(ranked.argmin(1), minlength=cases.USERS)
    assert last.max() < 0.3 * len(ranked)


def test_an_attack_reads_only_its_layers() -> None:
    updates = cases.planted(1.0)
    noise = np.random.default_rng(5).normal(size=(len(updates.values), 36)).astype(np.float32)
    hidden = replace(updates, values=np.concatenate([noise, updates.values[:, 36:]], axis=1))
    here = Knn(layers=("head",)).scores(cases.problem(updates), {}, Workspace(), torch_rng(0))
    there = Knn(layers=("head",)).scores(cases.problem(hidden), {}, Workspace(), torch_rng(0))
    np.testing.assert_array_equal(here, there)
    assert not np.array_equal(here, Knn(layers=("body",)).scores(cases.problem(hidden), {}, Workspace(), torch_rng(0)))


# Ridge ----------------------------------------------------------------------------------------------------------------


def test_ridge_in_the_dual_equals_ridge_on_the_parameters() -> None:
    problem = cases.problem(cases.planted(0.3))
    x = matrix(problem.updates, None).astype(np.float64)
    targets = np.eye(cases.USERS)[problem.labels]
    primal = ScikitRidge(alpha=0.3, fit_intercept=False).fit(x[problem.fit], targets - targets.mean(0))
    dual = ridge_scores(x @ x[problem.fit].T, problem, 0.3)
    np.testing.assert_allclose(dual, primal.predict(x[problem.ask]), atol=1e-9)


def test_validation_chooses_the_layer_with_the_signal() -> None:
    """Only the head is personal; the body is noise."""
    folds = [
        replace(v, problem=replace(v.problem, updates=_noisy_body(v.problem.updates))) for v in cases.validation(1.0)
    ]
    candidates = candidate_blocks(folds[0].problem.updates, None, TRANSFORMS)
    blocks, _ = choose_kernel(folds, Workspace(), candidates, most=1)
    assert [layers for layers, _ in blocks] == [(("head.weight",),)]


@pytest.mark.parametrize(("by", "more"), [("log-loss", ()), ("ap", (3.0, 10.0, 30.0))])
def test_settings_are_the_best_of_all_by_their_criterion(by: Criterion, more: tuple[float, ...]) -> None:
    folds, work = tuple(replace(fold, by=by) for fold in cases.validation(0.3)), Workspace()
    candidates = candidate_blocks(folds[0].problem.updates, None, TRANSFORMS)

    def cost(block: Block, penalty: float) -> float:
        scored = [ridge_scores(combined(fold.problem, (block,), work), fold.problem, penalty) for fold in folds]
        if by == "log-loss":
            return best_temperature(np.concatenate(scored), np.concatenate([fold.answers for fold in folds]))[0]
        right = [np.eye(scores.shape[1])[fold.answers] for scores, fold in zip(scored, folds, strict=True)]
        return -float(np.mean([average_precision_score(y, scores) for y, scores in zip(right, scored, strict=True)]))

    (block,), penalty = choose_kernel(folds, work, candidates, most=1)
    least = min(cost(one, other) for one in candidates for other in (*PENALTIES, *more))
    assert cost(block, penalty) == pytest.approx(least, abs=1e-12)
    assert not more or penalty in more, "else nothing shows that larger penalties are tried"


def _noisy_body(updates: object) -> cases.MemoryUpdates:
    assert isinstance(updates, cases.MemoryUpdates)
    values = updates.values.copy()
    values[:, :36] = 3e-3 * np.random.default_rng(9).normal(size=(len(values), 36))
    return replace(updates, values=values)


def test_forward_selection_keeps_to_the_wanted_number_of_blocks() -> None:
    folds = cases.validation(0.3)
    for most in (1, 2):
        settings = Ridge(most_blocks=most).settings(folds, Workspace())
        assert 1 <= len(settings["blocks"]) <= most


def test_of_many_users_some_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    folds = cases.validation(0.3)
    monkeypatch.setattr(ridge, "CHOOSERS", 5)
    chosen = Ridge().settings(folds, Workspace())
    monkeypatch.undo()
    assert chosen == Ridge().settings([of_some_users(fold, 5) for fold in folds], Workspace())


def test_some_users_of_a_validation_problem_keep_their_rows_and_answers() -> None:
    (fold, _) = cases.validation(0.3)
    few = of_some_users(fold, 5)
    users = np.linspace(0, cases.USERS - 1, 5).round()
    assert few.problem.options == 5
    np.testing.assert_array_equal(few.problem.fit, fold.problem.fit[np.isin(fold.problem.labels, users)])
    np.testing.assert_array_equal(users[few.problem.labels], fold.problem.labels[np.isin(fold.problem.labels, users)])
    np.testing.assert_array_equal(users[few.answers], fold.answers[np.isin(fold.answers, users)])
    assert of_some_users(fold, cases.USERS) is fold


@pytest.mark.parametrize("attack", [Knn(k=5), Svm(), SvmHard(), Ridge()], ids=["knn", "svm", "svm-hard", "ridge"])
def test_a_symmetric_attack_exchanges_its_columns_with_the_labels(attack: Attack) -> None:
    problem, work, rng = cases.problem(cases.planted(0.5)), Workspace(), torch_rng(0, "unused")
    tuned = tune(attack, cases.validation(0.5), work, rng)
    exchanged = np.random.default_rng(0).permutation(cases.USERS)
    scores = attack.scores(problem, tuned.settings, work, rng)
    again = attack.scores(replace(problem, labels=exchanged[problem.labels]), tuned.settings, work, rng)
    quick = exchanged_scores(attack, problem, tuned, scores, exchanged, work, rng)
    np.testing.assert_allclose(quick, again, atol=1e-5)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_scores_by_parameters_are_those_of_the_kernel(transform: Transform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "_CELLS", 1000)
    problem = cases.problem(cases.planted(0.5))
    problem = replace(problem, fit=problem.fit[::-1].copy(), labels=problem.labels[::-1].copy())
    blocks: list[Block] = [((("body.weight", "body.bias"), ("head.weight",)), transform), ((("head.weight",),), "l2")]
    settings = {"blocks": blocks, "penalty": 0.3}
    exact = Ridge().scores(problem, settings, Workspace(), torch_rng(0, "unused"))
    monkeypatch.setattr(ridge, "MANY", 0)
    np.testing.assert_allclose(Ridge().scores(problem, settings, Workspace(), torch_rng(0, "unused")), exact, atol=2e-5)


def test_scores_of_many_updates_are_computed_once_for_a_problem_and_its_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge, "MANY", 0)
    problem, work, rng = cases.problem(cases.planted(0.5)), Workspace(), torch_rng(0, "unused")
    settings = {"blocks": [((("head.weight",),), "l2")], "penalty": 0.3}
    exchanged = replace(problem, labels=problem.labels[::-1].copy())
    first, other = (Ridge().scores(each, settings, work, rng) for each in (problem, exchanged))
    assert np.abs(first - other).max() > 0.01
    monkeypatch.setattr(ridge, "known_kernel", None)
    np.testing.assert_array_equal(Ridge().scores(problem, settings, work, rng), first)
    np.testing.assert_array_equal(Ridge().scores(exchanged, settings, work, rng), other)
    with pytest.raises(TypeError):
        Ridge().scores(problem, {**settings, "penalty": 1.0}, work, rng)


def test_combined_is_the_mean_of_the_blocks() -> None:
    problem, work = cases.problem(cases.planted(0.5)), Workspace()
    first, second = ((("head.weight",),), "l2"), ((("body.weight", "body.bias"),), "sign")
    mean = (work.kernel(problem, first).astype(np.float64) + work.kernel(problem, second)) / 2  # type: ignore[arg-type]
    np.testing.assert_allclose(combined(problem, [first, second], work), mean)  # type: ignore[list-item]


def test_kernel_coordinates_reproduce_the_kernel() -> None:
    problem = cases.problem(cases.planted(0.5))
    kernel = combined(problem, [((("head.weight",),), "sqrt")], Workspace())
    x = kernel_coordinates(kernel, problem.fit, dimensions=len(problem.fit)).astype(np.float64)
    inner = x @ x[problem.fit].T
    np.testing.assert_allclose(inner / inner[0, 0], kernel / kernel[0, 0], atol=1e-3)
    assert np.mean(x[problem.fit] ** 2) == pytest.approx(1, abs=1e-4)
    assert kernel_coordinates(kernel, problem.fit, dimensions=3).shape == (len(kernel), 3)


# Pooling and temperature ----------------------------------------------------------------------------------------------


def test_pool_equals_the_mean_by_hand() -> None:
    scores = log_softmax(np.random.default_rng(0).normal(size=(5, 3)), axis=1)
    pooled, names = pool(scores, ["b", "a", "b", "b", "a"])
    assert names == ["a", "b"]
    for row, members in zip(pooled, ([1, 4], [0, 2, 3]), strict=True):
        mean = np.exp(scores[members].mean(0))
        np.testing.assert_allclose(np.exp(row), mean / mean.sum())


def test_pool_does_not_favour_devices_with_many_updates() -> None:
    """A device seen ten times with the same evidence as one seen once ranks the same."""
    evidence = log_softmax(np.array([[2.0, 0.0, -1.0]]), axis=1)
    pooled, _ = pool(np.repeat(evidence, 11, axis=0), ["often"] * 10 + ["once"])
    np.testing.assert_allclose(pooled[0], pooled[1])


def test_pooling_beats_single_updates_where_the_signal_is_weak() -> None:
    scores = _answer(Ridge(), cases.problem(cases.planted(0.25)), signal=0.25)
    pooled, _ = pool(scores, [f"{i:03d}" for i in cases.truth(len(scores))])
    assert _top1(pooled) > _top1(scores) + 0.05


def test_best_temperature_minimises_the_log_loss() -> None:
    answers = np.repeat(np.arange(4), 5)
    scores = np.eye(4)[answers]
    loss, temperature = best_temperature(scores, answers)
    assert temperature > 20
    assert loss < 1e-6
    wrong = np.roll(scores, 1, axis=1)
    assert best_temperature(wrong, answers)[1] == 1


def test_log_loss_of_an_ignorant_attack_is_about_that_of_guessing() -> None:
    tuned = tune(Chance(), cases.validation(1.0), Workspace(), torch_rng(0))
    assert tuned.log_loss == pytest.approx(np.log(cases.USERS), rel=0.05)
