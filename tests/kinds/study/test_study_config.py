"""Studies: the file, its checks and what it resolves to."""

from __future__ import annotations

from typing import Any

import pytest
from fake_lab import FakeLab, refuse
from tiny_project import CHECKOUT, Project
from tiny_study import STUDY, study_of, write_study
from typer.testing import CliRunner

from fedprint.cli.main import app
from fedprint.kinds import versioned
from fedprint.kinds.base import Request
from fedprint.kinds.federation.kind import FederationKind
from fedprint.kinds.requests import is_unchanged
from fedprint.kinds.study.config import load_study
from fedprint.kinds.study.kind import StudyKind
from fedprint.kinds.study.search import make_plans
from fedprint.kinds.versioned import fingerprint
from fedprint.tuning.worker import StudyPlan
from fedprint.types import FedprintError


def test_assignments_change_the_study_or_its_experiment(home: Project) -> None:
    words = ["trials=7", "ceiling={ap: 0.2, updates: 1}", "strategies.0.space.sigma.high=2", "federation.lr=0.2"]
    study = study_of(home.root, fast=True, assignments=words)
    assert (study.settings.trials, study.settings.ceiling.of(0.01)) == (7, 0.2)
    assert study.settings.strategies[0].space["sigma"].high == 2
    assert (study.config.federation.lr, study.config.federation.rounds, study.config.fast) == (0.2, 2, True)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"ceiling": {"updates": 7, "ap": 0.1}}, r"ceiling: .*7 linked updates is not measured; choose of \(1, 3"),
        ({"ceiling": {}}, "ceiling: .*either ap or times_chance"),
        ({"ceiling": {"ap": 0.1, "times_chance": 3}}, "either ap or times_chance"),
        ({"fresh_seeds": [1, 10]}, r"fresh_seeds: \[1\] are not above 1, which is searched on"),
        ({"strategies": [STUDY["strategies"][0]] * 2}, "names must differ"),
        ({"strategies": [{**STUDY["strategies"][0], "space": {"sgma": {"low": 0, "high": 1}}}]},
         r"defences use \['sigma'\], space has \['sgma'\]"),
        ({"strategies": [{**STUDY["strategies"][0], "space": {"sigma": {"low": 2, "high": 1}}}]},
         "must be below high=1"),
        ({"strategies": [{**STUDY["strategies"][0], "space": {"sigma": {"low": -1, "high": 1}}}]},
         r"demo: noise at .*-1.*defences.0.sigma"),
        ({"experiment": "nosuch"}, "unknown experiment 'nosuch'"),
        ({"trails": 3}, "trails: .*allowed keys: report, experiment, with"),
    ],
)  # fmt: skip
def test_a_bad_study_is_refused_in_one_line(home: Project, changed: dict[str, Any], words: str) -> None:
    write_study(home, "demo", {**STUDY, **changed})
    with pytest.raises(FedprintError, match=words) as caught:
        study_of(home.root)
    assert "\n" not in str(caught.value)


def test_an_unknown_study_is_told_what_there_is(home: Project) -> None:
    with pytest.raises(FedprintError, match=r"unknown study 'x'; choose one of .*demo"):
        study_of(home.root, "x")


def test_one_strategy_is_searched_by_the_same_trials_as_among_others(home: Project) -> None:
    noise = STUDY["strategies"][0]
    write_study(home, "demo", {**STUDY, "strategies": [noise, {**noise, "name": "other"}]})

    def plans(*only: str) -> dict[str, StudyPlan]:
        study = study_of(home.root, strategies=only)
        return {p.strategy.name: p for p in make_plans(FakeLab(home.root, refuse), study)}

    assert list(plans()) == [noise["name"], "other"]
    assert plans("other") == {"other": plans()["other"]}
    part, whole = (study_of(home.root, strategies=only).name for only in (["other"], []))
    assert (part, whole) == ("study-demo-other", "study-demo"), "the report of all strategies stays"
    assert study_of(home.root, fast=True).name == "study-demo-fast", "and that of the full run"
    with pytest.raises(FedprintError, match=f"unknown strategy 'x'; choose among {noise['name']}, other"):
        plans("x")


def test_a_search_that_is_cut_short_shares_trials_and_has_a_report_of_its_own(
    home: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Request] = []
    monkeypatch.setattr("fedprint.cli.run.run_request", lambda request, **options: given.append(request))
    for words in ([], ["--timeout", "30"], ["--timeout", "0.5", "--trials", "1000000"]):
        done = CliRunner().invoke(app, ["tune", "demo", *words])
        assert done.exit_code == 0, done.output
    assert [asked.name for asked in given] == [
        "study-demo", "study-demo-timeout_minutes=30", "study-demo-trials=1000000-timeout_minutes=0.5",
    ]  # fmt: skip
    assert [is_unchanged(asked) for asked in given] == [True, False, False]
    whole, cut = (load_study(asked) for asked in given[:2])
    assert (whole.settings.timeout_minutes, cut.settings.timeout_minutes) == (None, 30)
    lab = FakeLab(home.root, refuse)
    assert make_plans(lab, whole) == make_plans(lab, cut)


@pytest.mark.parametrize("words", ["defences=[{name: noise, sigma: 1}]", "defences.0.sigma=2", "analyses=[]"])
def test_what_would_be_left_out_without_a_word_is_refused(home: Project, words: str) -> None:
    with pytest.raises(FedprintError, match=f"demo: {words.partition('=')[0]}: (strategies defend|a study has none)"):
        study_of(home.root, assignments=[words])
    key = words.partition("=")[0].split(".")[0]
    write_study(home, "changed", {**STUDY, "with": {key: []}})
    with pytest.raises(FedprintError, match=f"changed: {key}: "):
        study_of(home.root, "changed")


def test_a_study_whose_search_has_other_code_is_not_the_published_one(
    home: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(home.root)
    before, plain, hashed = (
        fingerprint(StudyKind(), [], study),
        fingerprint(FederationKind(), [], study.config),
        versioned.source_digest,
    )
    monkeypatch.setattr(versioned, "source_digest", lambda code: "other" if "tuning" in code else hashed(code))
    assert fingerprint(StudyKind(), [], study) != before
    assert fingerprint(FederationKind(), [], study.config) == plain, "an experiment is searched by nobody"


def test_the_page_of_a_study_does_not_hold_the_password_of_its_storage(home: Project) -> None:
    write_study(home, "demo", {**STUDY, "storage": "postgresql://u:secret@host/x"})
    study = study_of(home.root)
    assert "storage: postgresql://u:***@host/x" in study.text()
    assert "secret" not in study.text()
    plan = make_plans(FakeLab(home.root, refuse), study)[0]
    assert plan.url == "postgresql://u:secret@host/x", "workers still need it"


def test_against_no_defence_the_adversary_learns_off_line_unless_told_otherwise(home: Project) -> None:
    assert study_of(home.root).config.threat.learn_from == "offline"
    asked = study_of(home.root, assignments=["threat.learn_from=records"])
    assert asked.config.threat.learn_from == "records"


def test_every_shipped_study_resolves() -> None:
    names = sorted(path.stem for path in (CHECKOUT / "configs" / "studies").glob("*.yaml"))
    assert {"albums", "blog", "mnist-writers"} <= set(names)
    for name in names:
        for fast in (False, True):
            assert study_of(CHECKOUT, name, fast=fast).settings.strategies


def test_the_study_under_a_budget_never_chooses_by_the_test_set() -> None:
    study = study_of(CHECKOUT, "client-dp-100")
    assert [c.data.held_out for c in (study.searched, study.config)] == [0.1, 0.0]  # type: ignore[union-attr]


def test_a_ceiling_on_what_is_not_measured_is_refused(home: Project) -> None:
    words = ["ceiling.updates=3", "selection.linkages=[update]"]
    with pytest.raises(FedprintError, match=r"demo: ceiling.updates: 3 .*'device' in .*\['update'\]"):
        study_of(home.root, assignments=words)
    with pytest.raises(FedprintError, match=r"demo: ceiling.updates: .* at most 4 updates .* is on 30"):
        study_of(home.root, assignments=["ceiling.updates=30"])


def test_confirmation_users_come_after_those_for_development(home: Project) -> None:
    assert study_of(home.root).confirmation is None, "none are declared"
    path = home.root / "configs" / "users.yaml"
    path.write_text("albums: 50\n")
    study = study_of(home.root)
    assert study.confirmation is not None
    users = study.config.data.users  # type: ignore[union-attr]
    assert [(c.data.skip, c.data.users) for c in (study.config, study.confirmation)] == [(0, users), (50, users)]  # type: ignore[union-attr]
    path.write_text("albums: 2\n")
    with pytest.raises(FedprintError, match=r"demo: data: a study chooses on development users, the first 2 \("):
        study_of(home.root)
    path.write_text("albums: some\n")
    with pytest.raises(FedprintError, match="albums: 'some' is no number of users"):
        study_of(home.root)
