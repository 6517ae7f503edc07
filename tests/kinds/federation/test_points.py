"""Points: the stages in one process, cached by settings, data and code; safe when killed or wanted twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_project import TINY, Project, project_in

from fedprint.evaluation.tradeoff import UtilityNumber, normalised_utility, relative
from fedprint.kinds.plane import point_keys
from fedprint.kinds.plane import points
from fedprint.kinds.federation.config import Experiment, check_experiment
from fedprint.cli.options import keep_updates
from fedprint.kinds.plane.point_keys import canonical, stage_keys
from fedprint.kinds.plane.points import KEEP_UPDATES, is_finished, read_point, run_point
from fedprint.kinds.federation.stages import federate
from fedprint.types import FedprintError

POINT: dict[str, Any] = {
    **TINY,
    "federation": {**TINY["federation"], "rounds": 6, "central_epochs": 0},
    "analyses": [],
}


def experiment(**changes: Any) -> Experiment:
    return check_experiment({"name": "tiny", **POINT, **changes}, "test")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with project_in(tmp_path_factory.mktemp("points")) as project:
        yield project


def folders(root: Path) -> set[str]:
    return {path.name for path in (root / "work" / "points" / "stages").iterdir()} - {".locks"}


def test_a_point_holds_the_numbers_of_the_evaluation_and_nothing_big_stays(home: Project) -> None:
    point = run_point(experiment(), "random", 0)
    rows = {(row["metric"], row["attack"], row["linkage"], row["training"]): row for row in point.rows}
    assert point.utility.value == rows["mean_ap", None, None, "federated"]["value"]
    (number,) = [number for number in point.attacks if number.selected]
    assert len(point.attacks) == sum(attack.name != "chance" for attack in experiment().attacks)
    row = rows["ap", number.attack, "update", "federated"]
    assert row["selected"] is True
    assert (number.value, number.lo, number.hi, number.chance) == tuple(row[k] for k in ("value", "lo", "hi", "chance"))
    assert sum(number.by_user.values()) / len(number.by_user) == pytest.approx(number.value)
    assert (point.chosen, point.attack("naive"), point.data_factor) == (number, number, 1.0)
    assert point.strongest.value == max(
        row["value"] for key, row in rows.items() if key[0] == "ap" and key[2] == "update"
    )
    assert point.overhead["federation_seconds"] > 0  # type: ignore[operator]
    assert all(name.startswith("prepare-") for name in folders(home.root)), "updates and scores are deleted"
    kept = home.root / "work" / "points" / point.key
    assert {path.name for path in kept.iterdir()} == {"point.json", "rows.jsonl", "details.json", "analysis_rows.jsonl"}
    assert sum(path.stat().st_size for path in kept.iterdir()) < 1e6
    assert not (home.root / "work" / "checkpoints").exists() or not any((home.root / "work" / "checkpoints").iterdir())


def test_a_point_is_computed_once(home: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_point(experiment(), "random", 0)
    monkeypatch.setattr(points, "_compute", lambda *_: pytest.fail("computed again"))
    assert run_point(experiment(report={"title": "Another title"}), "random", 0) == first
    assert is_finished(experiment(seeds=[4, 0]), "random", 0), "which seeds run beside one another does not matter"
    assert not is_finished(experiment(), "random", 1)


def test_the_numbers_are_those_of_the_stages_run_by_dvc(home: Project) -> None:
    job = home.run("plain", POINT)
    lines = (job.paths.evaluation / "rows.jsonl").read_text().splitlines()
    rows = [{**json.loads(line), "experiment": "point"} for line in lines]
    assert list(run_point(experiment(), "random", 0).rows) == rows


def keys_of(config: Experiment) -> dict[str, str]:
    return dict(stage_keys(Path(os.environ["FEDPRINT_ROOT"]), canonical(config, "random", 0), "data"))


def changed(home: Project, config: Experiment) -> list[str]:
    before, after = keys_of(experiment()), keys_of(config)
    return [stage for stage in before if before[stage] != after[stage]]


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"data": {**TINY["data"], "bias": 0.5}}, "prepare"),
        ({"defences": [{"name": "noise", "sigma": 0.1}]}, "federate"),
        ({"federation": {**POINT["federation"], "rounds": 7}}, "federate"),
        ({"analyses": [{"name": "training-updates"}]}, "ask"),
        ({"attacks": [{"name": "knn", "k": 3}]}, "attack"),
        ({"evaluation": {"resamples": 300}}, "evaluate"),
        ({"name": "other", "report": {"title": "other"}, "fast": True}, None),
        ({"federation": {**POINT["federation"], "backend": "threaded"}}, None),
    ],
)
def test_a_setting_changes_the_stages_that_read_it_and_all_after(
    home: Project, settings: dict[str, Any], first: str | None
) -> None:
    stages = list(point_keys.STAGES)
    assert changed(home, experiment(**settings)) == (stages[stages.index(first) :] if first else [])


def test_code_changes_the_stages_that_it_computes(home: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys_of(experiment())
    plain = point_keys.source_digest
    touched = lambda sources: plain(sources) + ("x" if "src/fedprint/attacks" in sources else "")  # noqa: E731
    monkeypatch.setattr(point_keys, "source_digest", touched)
    after = keys_of(experiment())
    assert [stage for stage in before if before[stage] != after[stage]] == ["attack", "analyse", "evaluate"]


def test_source_digests_see_every_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "fedprint"
    (package / "attacks").mkdir(parents=True)
    for name in ("__init__.py", "rng.py", "attacks/a.py"):
        (package / name).write_text(f"# {name}")
    monkeypatch.setattr("fedprint.__file__", str(package / "__init__.py"))
    digest = point_keys.source_digest.__wrapped__
    one = digest(("src/fedprint/attacks", "src/fedprint/rng.py"))
    (package / "attacks" / "a.py").write_text("# changed")
    two = digest(("src/fedprint/attacks", "src/fedprint/rng.py"))
    (package / "attacks" / "b.py").write_text("")
    assert len({one, two, digest(("src/fedprint/attacks", "src/fedprint/rng.py"))}) == 3


def test_points_with_another_attack_share_a_kept_federation(home: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    config = experiment(seeds=[3])
    monkeypatch.setenv(KEEP_UPDATES, "0")  # and restored afterwards
    keep_updates(True)
    first = run_point(config, "random", 3)
    monkeypatch.delenv(KEEP_UPDATES)
    monkeypatch.setattr(federate, "run", lambda *_: pytest.fail("federated again"))
    other = run_point(experiment(seeds=[3], attacks=[{"name": "knn", "k": 3}]), "random", 3)
    assert other.attacks[0].attack == "knn" and other.utility == first.utility
    assert not any(name.startswith("federate-") for name in folders(home.root))


def _kill_in_evaluation() -> None:
    from fedprint.kinds.federation.stages import evaluate

    evaluate.run = lambda job: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    run_point(experiment(), "random", 5)


def _point_of_seed(seed: int) -> str:
    return run_point(experiment(), "random", seed).key


def test_a_killed_point_is_not_finished_and_goes_on_from_its_federation(
    home: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_kill_in_evaluation)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not is_finished(experiment(), "random", 5)
    monkeypatch.setattr(federate, "run", lambda *_: pytest.fail("federated again"))
    point = run_point(experiment(), "random", 5)
    assert read_point(home.root / "work" / "points" / point.key) == point


def test_two_processes_that_want_one_point_compute_it_once(home: Project) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        first, second = pool.map(_point_of_seed, [7, 7], chunksize=1)
    assert first == second
    log = home.root / "work" / "points" / first
    assert log.is_dir() and time.time() - log.stat().st_mtime < 600


def utility(metric: str, value: float, chance: float = 0.1) -> UtilityNumber:
    return UtilityNumber(metric=metric, value=value, lo=value, hi=value, chance=chance, n_questions=10, n_users=5)


def test_utility_is_normalised_by_the_papers_rule(home: Project) -> None:
    assert relative(0.6, utility("accuracy", 0.8), "accuracy") == pytest.approx(0.75)
    assert relative(0.9, utility("accuracy", 0.8), "accuracy") > 1
    error = utility("mae", 1.0, chance=1.5)
    assert relative(1.25, error, "mae") == pytest.approx(0.5)
    assert relative(1.6, error, "mae") == pytest.approx(-0.2)
    with pytest.raises(FedprintError, match="no better than chance"):
        relative(1.0, utility("mae", 1.6, chance=1.5), "mae")
    with pytest.raises(FedprintError, match="in mae has no share of one in accuracy"):
        relative(1.0, utility("accuracy", 1), "mae")
    point = run_point(experiment(), "random", 0)
    assert normalised_utility(point, point) == 1
    stronger = replace(point.chosen, adversary="adaptive", value=0.99)
    both = replace(point, attacks=(*point.attacks, stronger))
    assert both.strongest is stronger and both.attack("naive") is point.chosen
    unchosen = replace(stronger, selected=False)
    assert replace(both, attacks=(*point.attacks, unchosen)).chosen is point.chosen
    with pytest.raises(FedprintError, match="'adaptive' did not attack"):
        point.attack("adaptive")


def _hold_a_worker(root: str, ready: Any, done: Any) -> None:
    from fedprint.kinds.plane.point_pool import start_worker

    start_worker(root, str(Path(root) / "work" / "logs" / "held"))
    ready.set()
    done.wait(60)


def test_cleaning_waits_for_workers_and_keeps_finished_points(home: Project) -> None:
    from fedprint.kinds.cleaning import _doomed_folders
    from fedprint.kinds.plane.point_pool import in_use

    point = run_point(experiment(), "random", 0)
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    process = context.Process(target=_hold_a_worker, args=(str(home.root), ready, done))
    process.start()
    assert ready.wait(60) and in_use(home.root)
    done.set()
    process.join()
    assert not in_use(home.root)
    doomed = {path.name for path in _doomed_folders(home.root, {"plain"})}
    assert any(name.startswith("prepare-") for name in doomed)
    assert point.key not in doomed and ".locks" not in doomed


def _pool_of_one(root: str, pid: Any) -> None:
    from fedprint.kinds.plane.point_pool import _pool

    os.environ["FEDPRINT_ROOT"] = root
    pool = _pool(1, "orphans")
    pid.value = pool.submit(os.getpid).result()
    time.sleep(600)


@pytest.mark.slow
def test_workers_end_with_the_process_that_started_them(home: Project) -> None:
    context = multiprocessing.get_context("spawn")
    pid = context.Value("i", 0)
    process = context.Process(target=_pool_of_one, args=(str(home.root), pid))
    process.start()
    _wait_until(lambda: pid.value != 0)
    process.kill()
    process.join()
    _wait_until(lambda: not _lives(pid.value))


def _wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def _lives(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.is_file() and state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_a_folder_that_is_being_removed_does_not_read_as_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "federate-abc"
    target.mkdir()
    removed: list[str] = []

    def killed(path: Path, ignore_errors: bool = False) -> None:
        removed.append(Path(path).name)
        if not ignore_errors:
            raise KeyboardInterrupt

    monkeypatch.setattr(points.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        points._remove(target)
    assert not target.exists() and (tmp_path / removed[-1]).is_dir()
