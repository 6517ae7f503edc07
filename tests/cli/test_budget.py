"""``fedprint budget``: the design questions on the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedprint.accounting import accountants
from fedprint.accounting.moments import Moments
from fedprint.cli.main import app
from fedprint.reports.pages import budget
from fedprint.types import FedprintError

PUBLISHED = budget.Question(clients=100, cohort=50, rounds=11, delta=1e-3)
LINE = ["budget", "--clients", "100", "--cohort", "10", "--rounds", "100", "--delta", "1e-5"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the two accountants that answer in milliseconds."""
    found = {a.name: a for a in (accountants.OpacusRdp(), Moments())}
    monkeypatch.setattr(accountants, "ACCOUNTANTS", found)


def test_json_holds_every_accountants_epsilon() -> None:
    done = CliRunner().invoke(app, [*LINE, "--sigma", "1", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["epsilon"]["prv"] == pytest.approx(7.05, abs=0.02)
    assert found["epsilon"]["rdp"] == pytest.approx(7.90, abs=0.005)
    assert found["epsilon"]["moments"] == pytest.approx(8.93, abs=0.005)
    assert set(found["epsilon"]) | set(found["not_installed"]) == set(accountants.ACCOUNTANTS)
    assert "gdp" not in found["epsilon"]
    assert (found["adjacency"], found["sampling"], found["delta"], found["rounds"]) == (
        "add-remove",
        "poisson",
        1e-5,
        100,
    )
    assert found["not_covered"] == ["the choice of the settings"]


def test_the_noise_for_a_budget_and_the_rounds_for_a_noise(quick: None) -> None:
    found = budget.answer(replace(PUBLISHED, epsilon=8.0))
    assert found.sigmas["moments"] == pytest.approx(1.1932, abs=2e-4)
    assert found.sigma == found.sigmas["rdp"] < found.sigmas["moments"]
    assert found.epsilon["rdp"] <= 8 < found.epsilon["moments"]
    assert found.allowed == {}
    both = budget.answer(replace(PUBLISHED, epsilon=8.0, sigma=1.2))
    assert both.allowed["moments"] == 11 < both.allowed["rdp"]
    assert both.sigmas == {} and both.sigma == 1.2


def test_an_accountant_too_loose_for_a_small_epsilon_leaves_a_gap_and_not_an_error(quick: None) -> None:
    strict = ["budget", "--clients", "1000", "--cohort", "1000", "--rounds", "8", "--delta", "1e-5"]
    done = CliRunner().invoke(app, [*strict, "--epsilon", "0.25", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["sigma_for_epsilon"] == {"rdp": pytest.approx(41.2, abs=0.1)}
    none = CliRunner().invoke(app, [*strict, "--epsilon", "0.0001"])
    assert isinstance(none.exception, FedprintError) and "no sigma up to 1000" in str(none.exception)


def test_the_table_says_what_its_numbers_are_numbers_of(quick: None) -> None:
    done = CliRunner().invoke(app, [*LINE, "--sigma", "1", "--epsilon", "8"], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    for words in ("10 of 100 clients in each of 100 rounds", "delta 1e-05", "poisson sampling, add-remove", "moments",
                  "8.928", "rounds for sigma 1", "not covered: the choice of the settings"):  # fmt: skip
        assert words in done.output


def test_a_plot_by_rounds(quick: None, tmp_path: Path) -> None:
    found = budget.answer(replace(PUBLISHED, epsilon=8.0, sigma=1.2))
    for name, start in (("b.png", b"\x89PNG"), ("b.svg", b"<?xml")):
        budget.write_plot(found, tmp_path / "new" / name)
        assert (tmp_path / "new" / name).read_bytes().startswith(start)
    svg = (tmp_path / "new" / "b.svg").read_text()
    assert "moments" in svg and "epsilon at delta 0.001" in svg
    with pytest.raises(FedprintError, match=r"choose \.png or \.svg"):
        budget.write_plot(found, tmp_path / "b.pdf")
    assert "sigma for epsilon" not in svg, "rounds were asked for"


def test_a_plot_shows_the_sigma_of_every_accountant_where_one_is_asked_for(quick: None, tmp_path: Path) -> None:
    found = budget.answer(replace(PUBLISHED, epsilon=8.0))
    svg = budget.draw(found, points=2).svg.decode()
    assert "sigma for epsilon 8" in svg and len(found.sigmas) > 1
    for name, sigma in found.sigmas.items():
        assert f"{sigma:.4f}" in svg and name in svg


def test_the_ending_of_a_plot_is_checked_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "answer", lambda question: pytest.fail("computed"))
    done = CliRunner().invoke(app, [*LINE, "--sigma", "1", "--plot", str(tmp_path / "b.pdf")])
    assert isinstance(done.exception, FedprintError) and "choose .png or .svg" in str(done.exception)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [({}, "give --epsilon"), ({"cohort": 101, "sigma": 1.0}, "--cohort 101 of --clients 100; choose 1 to 100"),
     ({"sigma": 0.0}, "--sigma 0.0 is not possible"), ({"epsilon": -1.0}, "--epsilon -1.0 is not possible"),
     ({"sigma": 1.0, "delta": 1.0}, "--delta 1.0 is no probability"),
     ({"sigma": float("nan")}, "--sigma nan is not possible")],
)  # fmt: skip
def test_questions_that_make_no_sense_are_refused(quick: None, settings: dict[str, float], fault: str) -> None:
    with pytest.raises(FedprintError) as stopped:
        budget.answer(replace(PUBLISHED, **settings))
    assert fault in str(stopped.value) and "\n" not in str(stopped.value)


@pytest.mark.parametrize(
    ("words", "fault"),
    [(["--clients", "100", "--delta", "1e-3"], "give --clients, --cohort, --rounds and --delta, or name an experiment"),
     ([*LINE[1:], "--sigma", "1", "--fast"], "--fast and --set change an experiment"),
     (["client-dp-100", "--cohort", "5", "--epsilon", "8"],
      "'client-dp-100' has numbers of its own; leave out --cohort, --epsilon, or change the experiment with --set"),
     (["client-dp-100", "--plot", "b.png"], "leave out --plot"),
     (["albums-plane"], "'albums-plane' is no single experiment (its kind is plane); name one with dp-fedavg"),
     (["spn-cifar10"], "'spn-cifar10' is no single experiment (its kind is inversion)")],
)  # fmt: skip
def test_numbers_or_an_experiment_but_not_both(words: list[str], fault: str) -> None:
    done = CliRunner().invoke(app, ["budget", *words])
    assert isinstance(done.exception, FedprintError)
    assert fault in str(done.exception) and "\n" not in str(done.exception)


def test_kinds_of_sampling_are_named(quick: None) -> None:
    assert budget.sampling_named("fixed") == "fixed"
    with pytest.raises(FedprintError, match="--sampling random: choose one of poisson, fixed"):
        budget.sampling_named("random")
