"""The one runner: each result once, kills without a trace, failures that say where, and nothing that stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import toy_work
from toy_work import Seen, job

from fedprint.lab.cache import Entry
from fedprint.lab.runner import Done, JobFailed, Lab, _Run
from fedprint.lab.workers.pool import LocalPool


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def lab(tmp_path: Path, pool: LocalPool, seen: Seen) -> Iterator[Lab]:
    with Lab(root=tmp_path, pool=pool, jobs=2, watcher=seen) as lab:
        yield lab


def finished(lab: Lab, stage: str) -> list[Path]:
    return sorted(path for path in (lab.cache.folder / stage).glob("[0-9a-f]*"))


# Results --------------------------------------------------------------------------------------------------------------


def test_a_job_ends_with_its_outputs_and_is_known_the_second_time(lab: Lab, seen: Seen) -> None:
    first = lab.one(job(plus=3), title="toy")
    assert first.outputs["last"].read_text() == "even 5" and not first.known
    assert first.keys.keys() == {"number", "pick", "add", "grow", "end"}
    count = len(seen.ran)
    again = lab.one(job(plus=3), title="toy")
    assert again.known and again.outputs == first.outputs
    assert len(seen.ran) == count and seen.ended == {"toy": "known"}


def test_what_two_jobs_share_is_computed_once(lab: Lab) -> None:
    one, other = lab.run([job("a", plus=1, wait=0.2), job("b", plus=2, wait=0.2)], title="toy")
    assert isinstance(one, Done) and isinstance(other, Done)
    assert [done.outputs["total"].read_text() for done in (one, other)] == ["3", "4"]
    assert one.outputs["numbers"] == other.outputs["numbers"]
    assert [len(finished(lab, stage)) for stage in ("number", "pick", "add", "end")] == [1, 1, 2, 2]


def test_a_job_that_finds_a_result_finished_a_moment_later_uses_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lab.one(job(plus=3), title="toy")  # used until the lab is closed
    use, looks = _Run._use, Counter[Path]()

    def late(run: _Run, entry: Entry) -> bool:
        looks[entry.folder] += 1
        return looks[entry.folder] > 2 and use(run, entry)

    monkeypatch.setattr(_Run, "_use", late)
    found: list[Done] = []
    thread = threading.Thread(target=lambda: found.append(lab.one(job(plus=3), title="toy")), daemon=True)
    thread.start()
    thread.join(timeout=30)
    assert [done.outputs for done in found] == [first.outputs] and found[0].known


def test_only_what_is_wanted_and_what_it_needs_is_computed(lab: Lab) -> None:
    done = lab.one(job(), title="toy", want=["add"])
    assert done.outputs.keys() == {"total"}
    assert not finished(lab, "grow") and not finished(lab, "end")


def test_heavy_results_go_after_the_job_unless_they_are_to_be_kept(
    lab: Lab, pool: LocalPool, tmp_path: Path, seen: Seen
) -> None:
    lab.one(job(), title="toy", want=["add"])
    assert not finished(lab, "number") and finished(lab, "add")
    count = len(seen.ran)
    assert lab.one(job(), title="toy", want=["add"]).known, "what was made from it is still there"
    assert len(seen.ran) == count
    with Lab(root=tmp_path / "kept", pool=pool, keep=True) as keeping:
        keeping.one(job(), title="toy", want=["add"])
        assert finished(keeping, "number")


def test_what_depends_on_a_settled_stage_depends_on_its_result_alone(lab: Lab) -> None:
    two, four, five = (lab.one(job(n=n), title="toy") for n in (2, 4, 5))
    assert two.keys["pick"] != four.keys["pick"], "the settings differ"
    assert two.keys["grow"] == four.keys["grow"] != five.keys["grow"], "even, even, odd"


def test_a_job_tells_its_metrics_to_who_watches(lab: Lab, seen: Seen) -> None:
    lab.one(job(), title="toy")
    assert {"metrics": [["total", 1.0, 0]]} in seen.messages


# Failures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [("stated", 2, ["7 is no number: choose another"]),
     ("crash", 1, ["ValueError: a fault of the program", "its output: ", "toy.end.log"]),
     ("undeclared", 2, ["'numbers' is not declared by this stage; it may open choice, total"])],
)  # fmt: skip
def test_a_failure_names_job_stage_reason_and_log(lab: Lab, seen: Seen, end: str, code: int, words: list[str]) -> None:
    with pytest.raises(JobFailed) as failed:
        lab.one(job(end=end), title="a toy")
    assert (failed.value.stage, failed.value.exit_code) == ("end", code)
    message = str(failed.value)
    assert message.startswith("toy: stage end: ") and "\n" not in message
    assert [word for word in words if word not in message] == []
    assert seen.ended == {"toy": message}
    log = lab.root / "work" / "logs" / "a-toy" / "toy.end.log"
    assert ("Traceback" in log.read_text()) == (end == "crash")


def test_the_other_jobs_go_on_and_what_is_finished_is_kept(lab: Lab) -> None:
    bad, good = lab.run([job("bad", end="stated"), job("good", plus=1)], title="toy")
    assert isinstance(bad, JobFailed) and isinstance(good, Done)
    mended = lab.one(job("bad"), title="toy")
    assert mended.keys["add"] != good.keys["add"] and mended.keys["number"] == good.keys["number"]


@pytest.mark.parametrize("how", ["trespass", "elsewhere"])
def test_a_stage_opens_nothing_else_and_writes_nowhere_else(lab: Lab, tmp_path: Path, how: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("kept")
    with pytest.raises(JobFailed, match=r"secret.*not among its inputs and outputs"):
        lab.one(job(end=how, path=str(secret)), title="toy")
    assert secret.read_text() == "kept"


@pytest.mark.parametrize("what", ["work", "data"])
def test_nothing_runs_where_every_stage_could_open_data_or_results(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    code, place = tmp_path / "environment" / "share", tmp_path / what
    code.mkdir(parents=True)
    place.symlink_to(code)
    exposed = replace(job(), data_at=(str(tmp_path / "data"),))
    assert lab.one(exposed, title="toy").outputs
    monkeypatch.setattr(sys, "prefix", str(code.parent))
    with pytest.raises(JobFailed, match=rf"toy: stage pick: .*/{what} lies in .*, which every stage may open: move it"):
        lab.one(replace(exposed, config=toy_work.Toy({"n": 5})), title="toy")


def test_a_lab_says_once_that_only_python_guards(
    tmp_path: Path, toy_path: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalPool(["toy_work", "no_landlock"]) as pool, Lab(root=tmp_path, pool=pool) as lab:
        lab.run([job("a"), job("b", n=3)], title="toy")
    assert capsys.readouterr().err.count("This kernel has no Landlock") == 1


# On files that lie elsewhere ------------------------------------------------------------------------------------------


def elsewhere(root: Path) -> dict[str, Path]:
    (root / "numbers").mkdir(parents=True)
    (root / "numbers" / "n.json").write_text("[2, 0]")
    (root / "choice").write_text("even")
    return {name: root / name for name in ("numbers", "choice", "unused")}


LATE = tuple(toy_work.GRAPH.stage(name) for name in ("add", "end"))


def test_stages_run_on_files_elsewhere_and_on_what_stages_before_them_made(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = lab.run_on(job(plus=3), LATE, elsewhere(tmp_path / "a"), title="again")
    assert made.keys() == {"total", "last"} and made["last"].read_text() == "even 5"
    assert not finished(lab, "add"), "no key says what lay there"
    assert "again 2/2" in capsys.readouterr().err
    assert (tmp_path / "work" / "logs" / "again" / "toy.end.log").is_file()


def test_jobs_of_other_settings_or_on_other_files_do_not_replace_each_others_results(lab: Lab, tmp_path: Path) -> None:
    first, second = elsewhere(tmp_path / "a"), elsewhere(tmp_path / "b")
    ran = [(job(plus=1), first), (job(plus=2), first), (job(plus=1), second), (job(plus=1, seed=1), second)]
    made = [lab.run_on(one, LATE, places, title="again")["last"] for one, places in ran]
    assert [path.read_text() for path in made] == ["even 3", "even 4", "even 3", "even 3"]
    assert len(set(made)) == 4


def test_what_a_lab_made_of_files_elsewhere_stays_until_it_is_closed(lab: Lab, tmp_path: Path, pool: LocalPool) -> None:
    places = elsewhere(tmp_path / "a")
    made = lab.run_on(job(), LATE, places, title="again")

    def repeat() -> None:
        with Lab(root=tmp_path, pool=pool) as other:
            other.run_on(job(wait=0.1), LATE, places, title="again")

    other = threading.Thread(target=repeat)
    other.start()
    other.join(0.5)
    assert other.is_alive() and made["last"].read_text() == "even 2"
    assert lab.run_on(job(), LATE, places, title="again") == made, "its own results it has"
    lab.__exit__()
    other.join(20)
    assert not other.is_alive() and made["last"].read_text() == "even 2"


def test_a_failure_on_files_elsewhere_names_job_stage_reason_and_log(lab: Lab, tmp_path: Path, seen: Seen) -> None:
    with pytest.raises(
        JobFailed, match=r"^toy: stage end: ValueError: a fault of the program \(its output: .*end\.log"
    ):
        lab.run_on(job(end="crash"), LATE, elsewhere(tmp_path / "a"), title="again")
    assert not seen.ended, "it is nobody's run"


# Kills ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [0, 4, 9])
def test_a_killed_stage_goes_on_where_it_was(lab: Lab, line: int) -> None:
    with pytest.raises(JobFailed, match="ended by SIGKILL, perhaps for lack of memory: try fewer --jobs"):
        lab.one(job(die_at=line), title="toy")
    assert not finished(lab, "grow")
    done = lab.one(job(die_at=line), title="toy")
    assert done.outputs["grown"].read_text().split() == [str(i) for i in range(10)]


def test_two_runners_at_once_compute_each_result_once(tmp_path: Path, toy_path: None) -> None:
    seen = [Seen(), Seen()]

    def work(place: int) -> None:
        with LocalPool(["toy_work"]) as pool, Lab(root=tmp_path, pool=pool, watcher=seen[place]) as lab:
            lab.one(job(wait=0.1), title="toy")

    threads = [threading.Thread(target=work, args=(place,)) for place in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.ended.keys() for one in seen] == [{"toy"}, {"toy"}]
    assert len(seen[0].ran) + len(seen[1].ran) == 4, "four stages; the settled one is nobody's"


SLEEPING = """
import sys
from pathlib import Path
from fedprint.lab.workers.pool import LocalPool
from fedprint.lab.runner import Lab
from toy_work import job
class Watcher:
    def watch(self, job, *, computes):
        return self
    def receive(self, message):
        pass
    def done(self, done):
        pass
    def failed(self, error):
        print("failed", flush=True)
with LocalPool(["toy_work"]) as pool, Lab(root=Path(sys.argv[1]), pool=pool, jobs=2, watcher=Watcher()) as lab:
    for i in range(4):
        lab.one(job(str(i), n=i), title="first", want=["number"])
    lab.run([job(str(i), n=i, wait=600) for i in range(4)], title="toy")
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_or_a_kill_of_the_runner_ends_its_stages(tmp_path: Path, toy_path: None, how: signal.Signals) -> None:
    command = [sys.executable, "-c", SLEEPING, str(tmp_path)]
    runner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed_ctrl_c)
    logs = tmp_path / "work" / "logs" / "toy"
    wait_until(lambda: len(pids(logs)) == 2)
    stages = pids(logs)
    assert all(map(is_alive, stages))
    runner.send_signal(how)
    said, errors = runner.communicate(timeout=20)
    wait_until(lambda: not any(map(is_alive, stages)))
    assert b"failed" not in said, "who is stopped has not failed"
    assert b"KeyboardInterrupt" in errors or how is signal.SIGKILL
    assert pids(logs) == stages, "no other job began"


def heed_ctrl_c() -> None:
    """A test suite in the background of a shell ignores Ctrl-C, and so would the runner."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def pids(logs: Path) -> list[int]:
    texts = [path.read_text().split() for path in sorted(logs.glob("*.log"))]
    return [int(words[1]) for words in texts if len(words) == 2]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def test_the_toy_graph_has_every_kind_of_stage() -> None:
    stages = toy_work.GRAPH.stages
    assert all(any(getattr(stage, kind) for stage in stages) for kind in ("heavy", "settled", "resumes"))
