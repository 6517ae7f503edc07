"""Numbers of README and docs: as `make results` writes them, and in README nowhere else."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from fedprint.errors import FedprintError
from fedprint.reports.claims.comparison import Comparison
from fedprint.reports.claims.plane import leaves_less
from fedprint.reports.claims.verdict import CLAIMS, Claim, Finding, Judged, decide, verdict_csv
from fedprint.reports.numbers.plane import NO_DEFENCE
from fedprint.reports.results.blocks import KINDS, documents, rendered
from fedprint.reports.results.costs import COSTS_OF, PLANES, plane_costs
from fedprint.reports.results.picture import PICTURE, recognition
from fedprint.reports.results.published import find_published
from fedprint.reports.wording import MISSING

ROOT = Path(__file__).parents[1]
RESULT = re.compile(
    r"\d[\d.,]*\s*(?:%|×|times\b|points?\b|min(?:utes?)?\b|s\b|seconds?\b|h(?:ours?)?\b|[GM]i?B\b)"
    r"|\b(?:AP|AUC|CAP|epsilon|accuracy|utility)(?: \w+)? (?:is |of )?\.?\d"
    r"|\[\s*-?\.?\d[\d.]*,\s*-?\.?\d[\d.]*\s*\]"
)
"""A number with the unit or the name of a result, or an interval."""
ALLOWED = {"100 %": "the definition of AP, measured by nobody"}


def full_history() -> bool:
    """Return whether git can say when an experiment was committed; a shallow clone and an archive cannot."""
    asked = subprocess.run(
        ["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() == "false"


needs_history = pytest.mark.skipif(not full_history(), reason="the day of a commit needs a clone with its history")


@needs_history
@pytest.mark.parametrize("path", documents(ROOT), ids=lambda path: path.name)
def test_blocks_are_as_the_command_writes_them(path: Path) -> None:
    assert rendered(ROOT, path) == path.read_text(encoding="utf-8"), "run `make results`"


@needs_history
def test_picture_is_as_the_command_draws_it() -> None:
    quickstart = find_published(ROOT, "quickstart")
    assert quickstart is not None
    drawn = recognition(quickstart)
    assert drawn == recognition(quickstart)
    new, old = (np.asarray(Image.open(source).convert("L"), dtype=float) for source in (BytesIO(drawn), ROOT / PICTURE))
    assert new.shape == old.shape and np.abs(new - old).mean() < 1, "run `make results`"


@needs_history
def test_costs_of_planes_are_as_the_command_writes_them() -> None:
    planes = [one for name in COSTS_OF if (one := find_published(ROOT, name)) is not None]
    text = (ROOT / PLANES).read_text(encoding="utf-8")
    assert plane_costs(planes) == text, "run `make results`"
    assert {line.split(",")[0] for line in text.splitlines()[1:]} == set(COSTS_OF)


def unexplained(text: str) -> list[str]:
    """Return what looks like a result outside generated blocks, code and names of files."""
    plain = re.sub(r"<!-- results:.*?<!-- end -->|```.*?```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.DOTALL)
    return [found for found in RESULT.findall(plain) if found not in ALLOWED]


def test_no_result_stands_in_readme_outside_a_block() -> None:
    assert unexplained((ROOT / "README.md").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "recognised with AP 74 here",
        "90 % of it",
        "takes 5 minutes",
        "AP of 0.7",
        "15 times chance",
        "the interval [60.3, 64.7]",
    ],
)
def test_a_result_outside_a_block_is_seen(text: str) -> None:
    assert unexplained(text)
    assert not unexplained(f"<!-- results: lines quickstart -->\n{text}\n<!-- end -->")


def row(seed: int, adversary: str, strategy: str, strength: float | None, **numbers: object) -> dict[str, object]:
    value = float(str(numbers["value"]))
    keys = {"prior": "random", "world": "closed", "training": "federated", "unit": "fraction", "attack": None}
    numbers = {"lo": value - 0.1, "hi": value + 0.1, "chance": 0.02, "n_questions": 300, "n_users": 10, **numbers}
    return {**keys, **numbers, "seed": seed, "adversary": adversary, "strategy": strategy, "strength": strength}


def plane_rows() -> list[dict[str, object]]:
    rows = []
    for seed, (naive, adaptive) in enumerate([(0.5, 0.6), (0.4, 0.3)]):
        for strategy, strength, less in [("no defence", None, 0.0), ("noise", 0.01, 0.2)]:
            place = (strategy, strength)
            rows += [row(seed, "naive", *place, metric="accuracy", value=0.9, chance=0.1)]
            rows += [row(seed, "naive", *place, metric="normalised_utility", value=1 - less, unit="ratio")]
            for adversary, ap in [("naive", naive), ("adaptive", adaptive)]:
                for linkage, n in [("update", 300), ("device", 10)]:
                    attack = {"metric": "ap", "linkage": linkage, "selected": True, "attack": "ridge", "n_questions": n}
                    rows.append(row(seed, adversary, *place, value=ap - less + 0.1 * (linkage == "device"), **attack))
            effort = {"metric": "ap_difference", "selected": True, "analysis": "effort"}
            for linkage, gain in [("update", 0.002), ("device", 0.01 + 0.01 * seed)]:
                rows.append(row(seed, "adaptive", *place, value=gain, linkage=linkage, **effort))
    return rows


def inversion_rows() -> list[dict[str, object]]:
    """The rows of one mechanism that a table of inversions reads, and some that it must not read."""
    numbers = {"unit": "fraction", "lo": 0.0, "hi": 1.0, "n_questions": 16, "n_users": 16, "chance": 0.1, "seed": 0}
    setting = {**numbers, "defence": "dp", "variant": "main", "strength": 0.1}
    matched = {"attack": "gradient-matching", "attack_variant": "main", "attack_batch": 1, "network": "dlnet"}
    cut = {"matching": "assignment", "pixels": "clipped", "metric": "reconstruction_success"}
    shadows = {"metric": "example_membership_tpr", "attack_batch": 8, "attack_variant": "main", "network": "dlnet"}
    rows: list[dict[str, object]] = [
        {**setting, "metric": "accuracy", "network": network, "value": value, "runs": 3, "n_questions": 2000}
        for network, value in (("dlnet", 0.91), ("mlp", 0.95))
    ]
    for adversary, more in (("naive", 0.0), ("adaptive", 0.3)):
        known = {**setting, "adversary": adversary}
        rows += [{**known, **matched, **cut, "threshold": t, "value": t + more} for t in (0.1, 0.2)]
        labels = {"metric": "label_accuracy", "matching": "assignment", "labels": "gradient"}
        rows += [{**known, **matched, **labels, "value": 0.4 + more}]
        traced = {"metric": "tracing_accuracy", "level": "image", "attack": "closed-form", "attack_variant": "thousand"}
        rows += [{**known, **traced, "network": "mlp", "n_questions": 1000, "value": 0.05 + more}]
        rows += [
            {**known, **shadows, "attack": attack, "value": value + more, **pairs}
            for attack, value, pairs in (
                ("lira", 0.01, {"pairs": "drawn"}),
                ("alignment", 0.02, {"pairs": "drawn"}),
                ("alignment", 0.03, {}),
            )
        ]
    return rows


def test_a_table_of_inversions_has_what_was_found_under_each_mechanism(tmp_path: Path) -> None:
    made = find_published(publishing(tmp_path, "tiny-inversion", inversion_rows()), "tiny-inversion")
    assert made is not None
    told, *table = KINDS["inversions"]([made]).replace("\N{NO-BREAK SPACE}", " ").splitlines()
    assert "accuracy over 2,000 test images and 3 federations" in told
    assert "traced among a thousand: 1,000 in 16 gradients, chance 10.0 %" in told
    (line,) = (one for one in table if one.startswith("| dp |"))
    values = [cell.split(" [")[0] for cell in line.strip("| ").split(" | ")]
    assert values == ["dp", "0.1", "91.0 %", "20.0 %", "50.0 %", "70.0 %", "35.0 %", "32.0 %", "31.0 %"]


def test_a_table_of_members_has_what_each_epsilon_leaves(tmp_path: Path) -> None:
    auc = {"metric": "membership_auc", "analysis": "membership", "linkage": "update", "chance": 0.5, "n_users": 80}
    rows = []
    for point, more, spent in (
        ((NO_DEFENCE, None), 0.0, {}),
        (("dp-fedavg", 0.69), -0.3, {"epsilon": 15.86, "delta": 1e-3}),
    ):
        rows.append(row(0, "naive", *point, metric="accuracy", value=0.9, **spent))
        rows.append(row(0, "naive", *point, metric="normalised_utility", value=1 + more, unit="ratio"))
        for view, attack, value in (("central", "known-data", 0.9), ("central", "loss", 0.5), ("local", "ridge", 0.95)):
            rows.append(row(0, "adaptive", *point, **auc, view=view, value=value + more) | {"attack": attack})
    text = written(publishing(tmp_path, "tiny-plane", rows), "members tiny-plane").replace("\N{NO-BREAK SPACE}", " ")
    assert "AUC of who took part, of 80 users, chance 50.0 %" in text
    lines = [one.strip("| ").split(" | ") for one in text.splitlines() if one.startswith(("| no def", "| dp-fed"))]
    values = [[cell.split(" [")[0] for cell in line] for line in lines]
    assert values == [
        [NO_DEFENCE, "", MISSING, MISSING, "1.00×", "90.0 %", MISSING, MISSING, "95.0 %"],
        ["dp-fedavg", "0.69", "15.86", MISSING, "0.70×", "60.0 %", MISSING, MISSING, "65.0 %"],
    ]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository that published a plane."""
    return publishing(tmp_path, "tiny-plane", plane_rows())


def publishing(tmp_path: Path, name: str, rows: list[dict[str, object]]) -> Path:
    """Make a repository that published an experiment with these measurements."""
    folder = tmp_path / "experiments" / name
    folder.mkdir(parents=True)
    measured = "".join(json.dumps(one) + "\n" for one in rows)
    (folder / "measurements.jsonl").write_text(measured)
    md5 = hashlib.md5(measured.encode()).hexdigest()
    out = {"path": f"experiments/{name}/measurements.jsonl", "hash": "md5", "md5": md5}
    lock = {"stages": {"run": {"cmd": f"fedprint run {name}", "outs": [out]}}}
    (folder / "dvc.lock").write_text(yaml.safe_dump(lock))
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "plane"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, env={"GIT_AUTHOR_DATE": "2026-01-02T00:00:00Z"})
    return tmp_path


def written(project: Path, block: str) -> str:
    path = project / "page.md"
    path.write_text(f"before\n<!-- results: {block} -->\nold\n<!-- end -->\nafter\n")
    return rendered(project, path)


def test_a_plane_sets_one_update_beside_all_of_a_device(project: Path) -> None:
    text = written(project, "planes tiny-plane not-yet")
    assert text.startswith("before\n") and text.endswith("<!-- end -->\nafter\n") and "old" not in text
    assert "`fedprint run tiny-plane`, 2026-01-02, 600 updates of 10 users, 2 seeds" in text
    assert "AP of all 30 updates of a device" in text
    # the adaptive adversary has .6 and .3, noise takes .2; the better of both in each seed would have .1 more
    line = next(line for line in text.splitlines() if line.startswith("| noise"))
    assert re.findall(r"([\d.]+)\u00a0% \[", line) == ["25.0", "35.0", "40.0", "0.2", "1.5"]
    assert line.count("a lower bound") == 1
    assert "0.80×" in line and "chance 2.0" in line
    assert "Of defences with private data, noise 0.01 leaves least by its estimate: 25.0" in written(
        project, "lines tiny-plane"
    )


def test_a_plane_says_what_private_data_add_where_that_was_measured(tmp_path: Path) -> None:
    gains = [row(0, "naive", "no defence", None, metric="private_gain", value=0.4)]
    gains += [row(0, "naive", "noise", 0.01, metric="private_gain", value=0.4)]
    kept = [
        row(0, "naive", *point, metric="private_share", value=value, unit="ratio")
        for point, value in ((("no defence", None), 1.0), (("noise", 0.01), 0.3))
    ]
    text = written(publishing(tmp_path / "a", "tiny-plane", [*plane_rows(), *gains, *kept]), "planes tiny-plane")
    assert "private data add 40.0" in text and "| share of what private data add |" in text
    assert "0.30×" in next(line for line in text.splitlines() if line.startswith("| noise"))
    unsure = written(publishing(tmp_path / "b", "tiny-plane", [*plane_rows(), *gains]), "planes tiny-plane")
    assert "private data add 40.0" in unsure and "share of what" not in unsure


def test_a_plane_on_confirmation_users_stands_beside_that_on_development_users(project: Path) -> None:
    others = [{**one, "value": one["value"] - 0.05} for one in plane_rows()]  # type: ignore[operator]
    assert "Not published yet" in written(project, "confirmed tiny-plane other-plane")
    publishing(project, "other-plane", others)
    text = written(project, "confirmed tiny-plane other-plane")
    assert "`fedprint run tiny-plane`" in text and "`fedprint run other-plane`" in text
    line = next(line for line in text.splitlines() if line.startswith("| noise | 0.01"))
    assert re.findall(r"([-+\d.]+)(?:\u00a0%)? \[", line) == ["25.0", "20.0", "+5.0", "35.0", "30.0", "+5.0"]


def test_a_study_says_which_strategy_keeps_below_the_ceiling(project: Path) -> None:
    head = "strategy,parameters,feasible,users,n_users,n_seeds,updates,ap,utility,ap_lo,ap_hi,utility_lo,utility_hi"
    points = project / "experiments" / "tiny-plane" / "plots" / "operating-points.csv"
    points.parent.mkdir()
    points.write_text(
        f"{head},chance,ceiling\n"
        "noise,sigma = 0.1,yes,confirmation,24,5,30,0.3,0.9,0.2,0.38,0.88,0.93,0.15,0.39\n"
        "rand-aug,alpha = 8,no,development,24,5,30,0.35,1.1,0.25,0.45,1.0,1.2,0.15,0.39\n"
        "mm-aug,alpha = 6,no,development,24,5,30,0.6,1.1,0.5,0.7,1.0,1.2,0.15,0.39\n"
    )
    text = written(project, "lines tiny-plane")
    assert (
        "Result: noise (sigma = 0.1) holds with 90 % [88, 93] of the utility, AP 30 % [20, 38] on 24 confirmation "
        "users; rand-aug (alpha = 8) is undecided, AP 35 % [25, 45] on 24 development users; mm-aug (alpha = 6) fails, "
        "AP 60 % [50, 70] on 24 development users. AP is the largest of any adversary's and attack's that was tried. "
        "Of a strategy that does not hold, the strength is shown that came nearest to the ceiling. "
        "(`fedprint run tiny-plane`, 2026-01-02, ceiling 39.0 % over 30 linked updates, chance 15.0 %, 5 fresh seeds"
    ) in text


def test_a_study_without_a_ceiling_says_what_utility_it_keeps(project: Path) -> None:
    points = project / "experiments" / "tiny-plane" / "plots" / "operating-points.csv"
    points.parent.mkdir()
    points.write_text(
        "strategy,parameters,feasible,users,n_users,n_seeds,updates,ap,utility,ap_lo,ap_hi,utility_lo,utility_hi,"
        "chance,ceiling\ndp-fedavg,z = 1.8,yes,,50,5,1,0.03,0.9,0.02,0.04,0.88,0.93,0.02,1.0\n"
    )
    assert (
        "Result: dp-fedavg (z = 1.8) keeps 90 % [88, 93] of the utility, no ceiling on the attack. (`fedprint run "
        "tiny-plane`, 2026-01-02, 50 users, 5 fresh seeds, 95 % intervals over users and seeds.)"
    ) in written(project, "lines tiny-plane")


def test_a_suite_shows_its_members_accuracy_by_the_epsilon_that_they_spent(tmp_path: Path) -> None:
    def member(name: str, epsilon: float, seed: int, value: float) -> dict[str, object]:
        one = row(seed, "naive", "", None, metric="accuracy", value=value, chance=0.1, n_users=500)
        return {**one, "member": name, "epsilon": epsilon, "delta": 1e-5}

    rows = [member("loose", 7.998, 0, 0.9), member("loose", 7.998, 1, 0.98), member("strict", 0.0999992, 0, 0.5)]
    random = {"metric": "ap", "linkage": "update", "attack": "chance", "selected": True}
    rows.append({**rows[-1], **random})  # is no attack
    text = written(publishing(tmp_path, "tiny-curve", rows), "epsilons tiny-curve")
    head, _, line = (each.split(" | ") for each in text.splitlines()[2:5])
    assert head == ["| experiment", "epsilon 0.1", "epsilon 8", "chance", "measured by |"]
    assert line[1].startswith("50.0\u00a0%") and line[2].startswith("94.0\u00a0%") and line[3] == "10.0\u00a0%"
    assert line[4].startswith("`fedprint run tiny-curve`, 2026-01-02, 2 seeds") and "500 users" in line[4]
    members = [one.split(" | ") for one in written(tmp_path, "attacks tiny-curve").splitlines()[4:6]]
    assert [one[:2] for one in members] == [["| loose", "random"], ["| strict", "random"]]
    assert "accuracy at epsilon 0.10" in members[1][2] and "50.0\u00a0%" in members[1][2]
    assert members[1][3:6] == [MISSING, "not attacked", "not attacked"]


def test_what_is_not_published_leaves_no_number(project: Path) -> None:
    (project / "experiments" / "draft").mkdir()
    (project / "experiments" / "draft" / "measurements.jsonl").write_text("{}\n")
    assert "\nNot published yet.\n" in written(project, "attacks draft missing")


def test_measurements_other_than_the_locks_are_refused(project: Path) -> None:
    with (project / "experiments" / "tiny-plane" / "measurements.jsonl").open("a") as file:
        file.write("\n")
    with pytest.raises(FedprintError, match="publish 'tiny-plane' again"):
        written(project, "planes tiny-plane")


def test_a_plane_is_shown_by_linked_updates(tmp_path: Path) -> None:
    rows = plane_rows()
    keys = {"analysis": "linked", "metric": "ap", "selected": True, "linkage": "device", "attack": "ridge"}
    for seed in range(2):
        for count, ap in ((1, 0.2), (30, 0.5)):
            rows.append(row(seed, "naive", NO_DEFENCE, None, value=ap, **keys) | {"linked_updates": count})
        rows.append(row(seed, "adaptive", "noise", 0.01, value=0.1, **keys) | {"linked_updates": 30})
    text = written(publishing(tmp_path, "tiny-plane", rows), "curves tiny-plane").replace("\N{NO-BREAK SPACE}", " ")
    lines = [one.strip("| ").split(" | ") for one in text.splitlines() if one.startswith("| ")]
    assert lines[0] == ["defence", "strength", "AP of 1", "AP of 30"]
    values = [[cell.split(" [")[0] for cell in line] for line in lines[2:]]
    assert values == [[NO_DEFENCE, "", "20.0 %", "50.0 %"], ["noise", "0.01", MISSING, "10.0 %"]]


def test_crowds_are_measured_and_predicted(tmp_path: Path) -> None:
    rows = plane_rows()
    for linkage in ("update", "device"):
        at = {"analysis": "crowds", "linkage": linkage, "attack": "ridge", "selected": True, "chance": 2e-6}
        for metric, value in (("ap", 0.8), ("tpr_01", 0.7), ("tpr_1", 0.75)):
            rows.append(row(0, "naive", NO_DEFENCE, None, value=value, **at) | {
                "metric": metric, "number": "measured", "options": 580,
            })  # fmt: skip
        rows.append(row(0, "naive", NO_DEFENCE, None, value=0.1, metric="ap", **at) | {
            "number": "predicted", "options": 1000000,
        })  # fmt: skip
    text = written(publishing(tmp_path, "tiny-plane", rows), "crowds tiny-plane").replace("\N{NO-BREAK SPACE}", " ")
    lines = [one.strip("| ").split(" | ") for one in text.splitlines() if one.startswith("| ")][2:]
    values = [[cell.split(" [")[0] for cell in line] for line in lines]
    assert values[0] == ["580", "measured", *["80.0 %", "70.0 %", "75.0 %"] * 2, "0.0002 % and 0.0002 %"]
    assert values[1][:4] == ["1,000,000", "predicted", "10.0 %", MISSING]


def test_verdicts_are_those_of_the_report(tmp_path: Path) -> None:
    compared = Comparison(value=0.9, lo=0.8, hi=1.0, bound=0.2, above=True, n_users=60, n_seeds=3)
    claims = [Claim(name, f"claim {name}", "2.6", None) for name in ("a", "b")]
    findings = [Finding(test=compared, numbers="90 %"), Finding(test=None, numbers="")]
    made = decide([
        Judged(claim=claim, finding=finding, member="adaptive", dataset="albums")
        for claim, finding in zip(claims, findings, strict=True)
    ])  # fmt: skip
    project = publishing(tmp_path, "tiny-plane", plane_rows())
    (project / "experiments" / "tiny-plane" / CLAIMS).write_text(verdict_csv(made))
    text = written(project, "verdicts tiny-plane")
    assert "1 hold, 0 fail, 0 undecided" in text
    (line,) = [one for one in text.splitlines() if one.startswith("| claim ")][1:]
    assert line.startswith("| claim a | adaptive | holds | 90 % | n 60, 3 seeds, adjusted p ")


def test_claims_stand_beside_one_another_on_every_member(tmp_path: Path) -> None:
    compared = Comparison(value=0.9, lo=0.8, hi=1.0, bound=0.2, above=True, n_users=60, n_seeds=3)
    tested, untested = Finding(test=compared, numbers="90 %"), Finding(test=None, numbers="")
    found = [("a", "blog", tested), ("a", "albums", untested), ("b", "blog", tested), ("b", "albums", tested)]
    found += [("c", "blog", untested), ("c", "albums", untested)]
    made = decide([
        Judged(claim=Claim(name, f"claim {name}", "2.6", None), finding=finding, member=member, dataset=member)
        for name, member, finding in found
    ])  # fmt: skip
    project = publishing(tmp_path, "tiny-plane", plane_rows())
    (project / "experiments" / "tiny-plane" / CLAIMS).write_text(verdict_csv(made))
    text = written(project, "claims tiny-plane")
    assert "3 hold, 0 fail, 0 undecided" in text
    assert [one for one in text.splitlines() if one.startswith("| claim")] == [
        "| claim | in papers.md | blog | albums |",
        f"| claim a | 2.6 | holds | {MISSING} |",
        "| claim b | 2.6 | holds | holds |",
    ]


def test_a_line_sets_a_defence_of_this_project_beside_its_control(tmp_path: Path) -> None:
    rows = []
    for one in plane_rows():
        rows.append(one)
        if one["strategy"] == "noise":
            lower = {key: float(str(one[key])) - 0.05 for key in ("value", "lo", "hi")} if one["metric"] == "ap" else {}
            rows += [one | {"strategy": "rand-aug"}, one | lower | {"strategy": "counter-aug"}]
    project = publishing(tmp_path, "tiny-plane", rows)
    folder = project / "experiments" / "tiny-plane"
    (folder / "published.json").write_text('{"users": "confirmation"}')
    assert "leaves 35.0" in written(project, "lines tiny-plane")  # a plane without a verdict on the two
    claim = Claim(leaves_less("counter-aug", "rand-aug", "device"), "less of all", "this project", None)
    compared = Comparison(value=0.1, lo=-0.1, hi=0.3, bound=0.0, above=True, n_users=60, n_seeds=3)
    finding = Finding(test=compared, numbers="10 % less AP")
    judged = [Judged(claim=claim, finding=finding, member=who, dataset="albums") for who in ("naive", "adaptive")]
    (folder / CLAIMS).write_text(verdict_csv(decide(judged)))
    text = written(project, "lines tiny-plane").replace("\N{NO-BREAK SPACE}", " ")
    assert "600 updates of 10 confirmation users, 2 seeds" in text
    assert "counter-aug 0.01 leaves least by its estimate: 20.0 %" in text
    assert re.search(
        r"Its control at equal cost, rand-aug 0.01, leaves 35.0 % \[[^(]* of all updates\. The claim", text
    )
    assert "The claim “less of all”: undecided (10 % less AP; paired over users)." in text
    assert "twice the effort raised the AP of the fixed adversary by 1.5 %" in text
