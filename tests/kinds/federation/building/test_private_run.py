"""A run with a privacy budget from end to end: it stops in time, says what it spent, and refuses what voids it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_project import CHECKOUT, TINY, Project, resolved, run_stages
from typer.testing import CliRunner

from fedprint.accounting import accountants
from fedprint.accounting.accountants import OpacusRdp, accountant_named, epsilon_of
from fedprint.accounting.events import Composition, PoissonGaussian, repeated
from fedprint.accounting.moments import Moments
from fedprint.cli.main import app
from fedprint.data.dataset import Meta
from fedprint.data.formats.files import read_json
from fedprint.defences.on_update import DpFedAvg
from fedprint.defences.points import ROLES
from fedprint.defences.schedules import Constant
from fedprint.federation.cohorts import FederationPlan
from fedprint.federation.ledger import Entry, read_ledger
from fedprint.federation.privacy import (
    DIVERSITY,
    LOSS,
    OTHER_RUNS,
    SECOND_DEVICE,
    SECOND_UNPRICED,
    UTILITY,
    not_covered,
    planned_events,
)
from fedprint.kinds.federation.building.federation import make_plan, store_identity
from fedprint.kinds.federation.config import check_experiment
from fedprint.kinds.federation.stages import federate
from fedprint.lab.graph import Task
from fedprint.store.reader import UpdateStore
from fedprint.types import FedprintError, LocalTraining

BUDGET = {"epsilon": 8, "delta": 1e-3, "accountant": "moments"}
PRIVATE: dict[str, Any] = {
    **TINY,
    "federation": {**TINY["federation"], "rounds": 30, "fraction": 0.25, "sampling": "poisson", "momentum": 0.5,
                   "lr": 0.001, "central_epochs": 0, "evaluate_every": 100},
    "defences": [{"name": "dp-fedavg", "clip": 0.01, "z": 1.0, "budget": BUDGET}],
}  # fmt: skip


def private(**changes: Any) -> dict[str, Any]:
    return {**PRIVATE, "defences": [{**PRIVATE["defences"][0], **changes}]}


def run(project: Project, values: dict[str, Any]) -> Task:
    project.write("private", values)
    job = project.task("private")
    run_stages(job, until="federate")
    return job


def test_training_ends_with_the_budget_and_says_what_it_spent(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    job = run(project, PRIVATE)
    found = read_json(job.at("utility") / "privacy.json")
    rounds = UpdateStore.open(job.at("observed")).rounds
    assert f"random-0: the budget allows {rounds} of 30 rounds" in capsys.readouterr().err
    moments = accountant_named("moments")
    costs = [epsilon_of(moments, repeated(PoissonGaussian(q=0.25, sigma=1.0), t), 1e-3) for t in (rounds, rounds + 1)]
    assert costs[0] <= 8 < costs[1]
    assert (found["rounds"], found["cost"], found["stopped_by_budget"]) == (rounds, 4 * rounds, True)
    first, *others = found["epsilons"]
    assert first == {
        "accountant": "moments", "value": costs[0], "delta": 1e-3, "sampling": "poisson", "adjacency": "add-remove",
        "rounds": rounds, "protects": "device", "not_covered": [
            "the logged training loss", "the logged test utility, where test examples are the clients' own",
            "a user's second device (a user with both has an epsilon of their own)",
            "other runs on the same clients (seeds, priors, strengths)", "the choice of the settings",
        ],
    }  # fmt: skip
    *others, user = others
    assert {"prv", "rdp"} <= {epsilon["accountant"] for epsilon in others}
    assert all(epsilon["value"] < costs[0] for epsilon in others)
    assert {key: user[key] for key in ("protects", "accountant", "delta", "sampling", "rounds")} == {
        "protects": "user", "accountant": "pld", "delta": 1e-3, "sampling": "poisson", "rounds": rounds,
    }  # fmt: skip
    assert user["value"] > 2 * min(epsilon["value"] for epsilon in others)
    assert user["not_covered"] == [what for what in first["not_covered"] if "second device" not in what]
    history = read_json(job.at("utility") / "history.json")["rounds"]
    assert [("utility" in entry) for entry in history] == [False] * (rounds - 1) + [True]
    lines = (job.at("public") / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(line)["body"]["round"] for line in lines] == list(range(rounds))


@pytest.mark.parametrize(
    ("name", "devices", "rounds"),
    [("client-dp-100", 100, 11),
     *(pytest.param(*other, marks=pytest.mark.slow) for other in (
         ("client-dp-1000", 1000, 54), ("client-dp-10000", 10_000, 412), ("client-dp-writers", 1160, 54)))],
)  # fmt: skip
def test_the_budget_ends_shipped_experiments_after_the_published_rounds(name: str, devices: int, rounds: int) -> None:
    config = resolved(CHECKOUT, name)
    plan = make_plan(config, devices, 0)
    assert plan.rounds == rounds < plan.planned
    assert {config.federation.growth, config.federation.lr_schedule, config.defences[0].z_schedule} == {Constant()}, (
        "schedules stretch over the planned rounds: others would move with their number"
    )


@pytest.mark.parametrize(
    ("name", "devices", "epsilon", "delta", "rounds"),
    [("client-dp-100-strict", 100, 1, 1e-3, 4),
     ("client-dp-1000-strict", 1000, 0.25, 1e-5, 8),
     ("client-dp-10000-strict", 10_000, 0.1, 1e-6, 8)],
)  # fmt: skip
def test_strict_experiments_spend_their_budget_and_no_more(
    name: str, devices: int, epsilon: float, delta: float, rounds: int
) -> None:
    config = resolved(CHECKOUT, name)
    plan, (defence,) = make_plan(config, devices, 0), config.defences
    events = planned_events(defence, plan, devices, ROLES)
    assert plan.rounds == plan.planned == rounds
    spent = epsilon_of(accountant_named("pld"), Composition(events=events), delta)
    assert 0.999 * epsilon < spent <= epsilon
    assert config.data.held_out == 0


def test_the_median_is_named_as_not_covered_and_a_bit_is_paid_for(project: Project) -> None:
    for rule in ({"name": "median"}, {"name": "quantile", "start": 0.01, "count_noise": 0.5}):
        job = run(project, private(clip=rule))
        found = read_json(job.at("utility") / "privacy.json")
        silent = found["epsilons"][0]["not_covered"]
        assert ("the median of the norms" in silent) == (rule["name"] == "median")
        lines = (job.at("public") / "ledger.jsonl").read_text().splitlines()
        bodies = [json.loads(line)["body"] for line in lines]
        assert {body["rule"] for body in bodies} == {rule["name"]}
        assert all((body["sigma"] < 1) == (rule["name"] == "quantile") for body in bodies)


def test_what_a_run_logs_of_raw_updates_is_named_as_not_covered() -> None:
    defence, plan = DpFedAvg(z=1.0), FederationPlan(
        rounds=1, cohort=1, training=LocalTraining(epochs=1, batch_size=1, lr=1.0), seed=0
    )  # fmt: skip
    assert not_covered(defence) == ()
    assert not_covered(defence, plan) == (LOSS, UTILITY, SECOND_UNPRICED, OTHER_RUNS)
    assert not_covered(defence, replace(plan, diagnostics=True, sampling="poisson")) == (
        LOSS, UTILITY, DIVERSITY, SECOND_DEVICE, OTHER_RUNS,
    )  # fmt: skip


def test_a_run_costs_what_was_asked_before_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cohort growth, a schedule of the noise and the private quantile's share: all of what the run does is priced."""
    quick = {accountant.name: accountant for accountant in (OpacusRdp(), Moments())}
    monkeypatch.setattr(accountants, "ACCOUNTANTS", quick)  # tight ones take seconds for every different round
    changes = {
        "clip": {"name": "quantile", "start": 0.01, "count_noise": 0.5},
        "z_schedule": {"name": "linear", "to": 1.5, "levels": 3},
    }
    values = private(**changes)
    values["federation"] = {**values["federation"], "growth": {"name": "linear", "to": 2, "levels": 2}}
    job = run(project, values)
    spent = read_json(job.at("utility") / "privacy.json")
    done = CliRunner().invoke(app, ["budget", "private", "--json"])
    assert done.exit_code == 0, done.exception
    found = json.loads(done.stdout)
    lines = (job.at("public") / "ledger.jsonl").read_text().splitlines()
    entries = [Entry(**json.loads(line)["body"]) for line in lines]
    of_user = spent["epsilons"].pop()
    assert found["epsilon"] == {epsilon["accountant"]: epsilon["value"] for epsilon in spent["epsilons"]}
    assert found["epsilon_user"] == of_user["value"] > found["epsilon"]["rdp"] and of_user["protects"] == "user"
    whole = Composition(events=tuple(entry.event for entry in entries))
    assert found["epsilon"]["moments"] == epsilon_of(accountant_named("moments"), whole, 1e-3) <= 8
    assert found["sigma"] == [entry.sigma for entry in entries] and len(set(found["sigma"])) > 2
    assert (found["clients"], set(found["cohort"])) == (16, {4, 8})
    assert (found["rounds"], found["planned_rounds"]) == (len(entries), 30)
    assert found["rounds_for_sigma"]["moments"] == len(entries) < found["rounds_for_sigma"]["rdp"]
    assert "other runs on the same clients (seeds, priors, strengths)" in found["not_covered"]
    shorter = CliRunner().invoke(
        app, ["budget", "private", "--set", "federation.rounds=3", "--set", "defences.0.budget.epsilon=100"],
        env={"COLUMNS": "250"},
    )  # fmt: skip
    for words in ("4 to 8 of 16 clients in each of 3 rounds", "rounds for epsilon 100, of 3 planned", "moments",
                  "delta 0.001, poisson sampling, add-remove", "not covered: the"):  # fmt: skip
        assert words in " ".join(shorter.output.split()), shorter.output
    for words, fault in (("defences.0.z=0", "has no dp-fedavg with noise"), ("defences.0.budget=null", "no delta"),
                         ("threat.defended=anonymous", "infinite")):  # fmt: skip
        refused = CliRunner().invoke(app, ["budget", "private", "--set", words])
        assert isinstance(refused.exception, FedprintError) and fault in str(refused.exception)


def test_a_ledger_that_was_cut_stops_the_stage(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("private", PRIVATE)
    job = project.task("private")
    run_stages(job, until="choose")
    monkeypatch.setattr(federate, "write_privacy", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        federate.run(job)
    monkeypatch.undo()
    monkeypatch.setenv("FEDPRINT_ROOT", str(project.root))
    monkeypatch.chdir(project.root)
    ledger = job.scratch / "federation" / "ledger.jsonl"
    whole = ledger.read_bytes()
    ledger.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    with pytest.raises(FedprintError, match="released models; restore the file"):
        federate.run(job)
    ledger.write_bytes(whole.replace(b'"sigma":1.0', b'"sigma":9.0'))
    with pytest.raises(FedprintError, match="a line was changed"):
        federate.run(job)
    ledger.write_bytes(whole)
    federate.run(job)
    assert (job.at("public") / "ledger.jsonl").read_bytes() == whole


def test_two_devices_in_cohorts_of_fixed_size_are_not_priced_and_it_says_so(project: Project) -> None:
    values = private(budget={"delta": 1e-3})
    job = run(project, {**values, "federation": {**PRIVATE["federation"], "sampling": "fixed", "rounds": 2}})
    device, user = read_json(job.at("utility") / "privacy.json")["epsilons"]
    assert (device["protects"], device["adjacency"]) == ("device", "replace-one") and device["value"] > 0
    assert SECOND_UNPRICED in device["not_covered"]
    assert (user["protects"], user["value"], user["accountant"]) == ("user", None, "none")
    assert (
        user["not_covered"][0] == "two devices of one user in samples of fixed size, which no accountant here can price"
    )


def test_without_noise_or_budget_there_is_no_epsilon(project: Project) -> None:
    job = run(project, private(z=0.0, budget=None))
    assert not (job.at("utility") / "privacy.json").exists()
    assert not (job.at("public") / "ledger.jsonl").exists()
    job = run(project, private(budget=None))
    found = read_json(job.at("utility") / "privacy.json")
    assert found["epsilons"] == [] and found["rounds"] == 30
    assert Path(job.at("public") / "ledger.jsonl").is_file()


def test_where_some_are_not_clipped_epsilon_is_infinite(project: Project) -> None:
    values = {**private(budget={"delta": 1e-3}), "threat": {"defended": "anonymous"}}
    job = run(project, {**values, "federation": {**PRIVATE["federation"], "rounds": 3}})
    found = read_json(job.at("utility") / "privacy.json")
    assert {epsilon["value"] for epsilon in found["epsilons"]} == {None}
    lines = (job.at("public") / "ledger.jsonl").read_text().splitlines()
    entries = [Entry(**json.loads(line)["body"]) for line in lines]
    assert [entry.sigma for entry in entries] == [0.0] * 3
    for name in ("prv", "rdp", "moments"):  # whoever reads the ledger alone finds no promise in it
        whole = Composition(events=tuple(entry.event for entry in entries))
        assert epsilon_of(accountant_named(name), whole, 1e-3) == math.inf


def test_runs_of_one_seed_share_no_noise(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the same draw in two runs, the difference of two models would be free of it."""
    plans: list[FederationPlan] = []
    run_rounds = federate.federate
    monkeypatch.setattr(federate, "federate", lambda **a: (plans.append(a["plan"]), run_rounds(**a))[1])
    values = private(budget=None)
    values["federation"] = {**values["federation"], "rounds": 1}
    more = {
        "defences": private(budget=None, z=2.0)["defences"],
        "federation": {**values["federation"], "epochs": 2},
        "model": {**TINY["model"], "hidden": 8},
        "data": {**TINY["data"], "images": 20},
        "split": {"priors": ["iid"]},
        "seeds": [1],
    }
    project.write("private", values)
    job = project.task("private")
    for changed in ({}, *({name: value} for name, value in more.items()), {"attacks": [{"name": "chance"}]}):
        project.write("private", {**values, **changed})
        prior, seed = "iid" if "split" in changed else "random", 1 if "seeds" in changed else 0
        job = project.task("private", prior, seed)
        run_stages(job, until="federate")
    draws = [float(torch.randn((), generator=plan.server_rng("defence", 0, 3))) for plan in plans]
    assert len(set(draws)) == 1 + len(more)
    assert draws[-1] == draws[0], "who attacks is no part of the training"


def test_noise_depends_on_what_the_data_are_and_not_on_their_name_alone(project: Project) -> None:
    project.write("private", PRIVATE)
    config = project.task("private").config
    meta = Meta(
        name="digits",
        task="single_label",
        class_names=("a",),
        has_time=False,
        shareable=True,
        licence="",
        sha256="0" * 64,
    )
    named = [store_identity(config, found) for found in (meta, meta, replace(meta, sha256="1" * 64))]
    assert named[0] == named[1] != named[2]


@pytest.mark.parametrize(
    ("defences", "fault"),
    [([PRIVATE["defences"][0], {"name": "noise", "sigma": 1}], "dp-fedavg goes last"),
     (PRIVATE["defences"] * 2, "one dp-fedavg is enough"),
     ([{**PRIVATE["defences"][0], "clip": {"name": "mean"}}], "clip"),
     ([{**PRIVATE["defences"][0], "budget": {"epsilon": 8}}], "budget.delta"),
     ([{**PRIVATE["defences"][0], "budget": {**BUDGET, "accountant": "gdp"}}], "budget.accountant"),
     ([{**PRIVATE["defences"][0], "z_schedule": {"name": "linear", "to": 0}}], "z_schedule.to")],
)  # fmt: skip
def test_what_would_void_the_guarantee_is_refused_in_one_line(defences: list[Any], fault: str) -> None:
    with pytest.raises(FedprintError) as stopped:
        check_experiment({"name": "p", **PRIVATE, "defences": defences}, "p.yaml")
    assert fault in str(stopped.value) and "\n" not in str(stopped.value)


@pytest.mark.parametrize(
    ("federation", "defence", "fault"),
    [({"sampling": "fixed"}, {}, "needs sampling: poisson"),
     ({"growth": {"name": "linear", "to": 2}}, {}, "the same in all rounds"),
     ({}, {"z_schedule": {"name": "linear", "to": 2}}, "the same in all rounds"),
     ({}, {"clip": {"name": "median"}}, "one norm for all rounds")],
)  # fmt: skip
def test_correlated_noise_is_refused_where_its_price_would_be_wrong(
    federation: dict[str, Any], defence: dict[str, Any], fault: str
) -> None:
    values = private(bands=2, budget=None, **defence)
    values["federation"] = {**values["federation"], "sampling": "poisson", **federation}
    with pytest.raises(FedprintError, match=fault):
        check_experiment({"name": "p", **values}, "p.yaml")


def test_correlated_noise_is_priced_by_the_rounds_of_one_group_and_not_for_two_devices(project: Project) -> None:
    job = run(project, private(bands=2))
    found = read_json(job.at("utility") / "privacy.json")
    assert found["rounds"] < 30
    lines = [json.loads(line)["body"] for line in (job.at("public") / "ledger.jsonl").read_text().splitlines()]
    assert {(line["bands"], line["q"]) for line in lines} == {(2, 0.5)}
    costs = {
        name: epsilon_of(accountant_named(name), repeated(PoissonGaussian(q=0.5, sigma=1.0), -(-len(lines) // 2)), 1e-3)
        for name in ("moments", "prv", "pld")
    }
    assert {each["accountant"]: each["value"] for each in found["epsilons"]}.items() >= costs.items()
    user = found["epsilons"][-1]
    assert (user["protects"], user["accountant"], user["value"]) == ("user", "none", None)
    assert "correlated" in user["not_covered"][0]


@pytest.mark.parametrize("accountant", ["prv", "rdp", "pld", "moments"])
def test_an_accountant_without_a_theorem_for_the_sampling_is_refused_before_any_training(accountant: str) -> None:
    def checked(sampling: str, name: str | None) -> Any:
        values = private(budget={"delta": 1e-3, "accountant": name})
        values["federation"] = {**values["federation"], "sampling": sampling}
        return check_experiment({"name": "p", **values}, "p.yaml")

    with pytest.raises(FedprintError, match=f"accountant {accountant} has no theorem for fixed sampling; use rdp-wor$"):
        checked("fixed", accountant)
    for sampling, name in (("poisson", accountant), ("fixed", "rdp-wor"), ("poisson", "rdp-wor"), ("fixed", None)):
        assert checked(sampling, name).defences[0].budget.accountant == name


def test_identity_of_a_ledger_is_that_of_its_store(project: Project) -> None:
    job = run(project, PRIVATE)
    with pytest.raises(FedprintError, match="belongs to another run"):
        read_ledger(job.at("public") / "ledger.jsonl", "another")
