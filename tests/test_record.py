"""The recorder: light, append-only, safe against a kill, and read by the audit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprint.errors import FedprintError
from fedprint.record import Recorder
from fedprint.store.recorded.recording import open_recording
from fedprint.store.recorded.truth import read_recorded_truth, truth_findings
from fedprint.store.recorded.validate import findings_of

HEAVY = ("torch", "pandas", "yaml", "pydantic", "scipy", "pyarrow", "rich", "fedprint.types")


def update(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"fc.weight": rng.normal(size=(3, 2)), "fc.bias": rng.normal(size=2), "steps": np.array(seed)}


def record_rounds(recorder: Recorder, rounds: range) -> None:
    for number in rounds:
        for user in range(3):
            recorder.record(number, f"known{user}", update(10 * number + user), 4, user=f"user{user}")
            recorder.record(number, f"anon{user}", update(10 * number + user + 5), 4)


def test_the_audit_reads_what_was_recorded(tmp_path: Path) -> None:
    with Recorder(tmp_path / "r", title='a "title": 😀', sign="global_minus_local") as recorder:
        record_rounds(recorder, range(3))
        recorder.write_truth({f"anon{user}": f"user{user}" for user in range(3)})
    assert findings_of(tmp_path / "r") == ()
    recording = open_recording(tmp_path / "r", tmp_path / "scratch", truth_findings(tmp_path / "r"))
    assert recording.manifest.title == 'a "title": 😀'
    assert recording.shapes == {"fc.weight": (3, 2), "fc.bias": (2,), "steps": ()}
    expected = np.concatenate([np.asarray(part, np.float32).reshape(-1) for part in update(5).values()])
    assert np.array_equal(recording.matrix(rows=np.array([1]))[0], -expected)
    assert recording.index["num_examples"].tolist() == [4] * 18
    assert len(read_recorded_truth(tmp_path / "r", recording.manifest)) == 3


def test_a_list_of_arrays_as_flower_sends_it(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        for number in range(2):
            for user in range(3):
                recorder.record(number, user, list(update(10 * number + user).values()), user=user)
    assert open_recording(tmp_path, tmp_path / "scratch").layers == ("000", "001", "002")


def test_it_needs_nothing_but_numpy(tmp_path: Path) -> None:
    code = f"""
        import sys
        import numpy as np
        from fedprint.record import Recorder
        with Recorder({str(tmp_path)!r}) as recorder:
            recorder.record(0, "a", [np.ones(2)])
            recorder.write_truth({{"a": "b"}})
        print(*(name for name in {HEAVY!r} if name in sys.modules))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.split() == []


def test_a_killed_recorder_leaves_whole_rounds_and_goes_on(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    record_rounds(recorder, range(2))
    recorder.record(2, "known0", update(99), 4, user="user0")
    recorder._lock.close()  # what the kernel does when a process is killed
    whole = open_recording(tmp_path, tmp_path / "scratch").index["round"]
    assert whole.tolist() == [0] * 6 + [1] * 6
    with Recorder(tmp_path) as resumed:
        assert resumed.next_round == 2
        record_rounds(resumed, range(2, 4))
    assert open_recording(tmp_path, tmp_path / "scratch").index["round"].tolist() == sorted([*range(4)] * 6)


@pytest.mark.slow
def test_a_kill_at_any_moment(tmp_path: Path) -> None:
    code = """
        import sys
        from tests.test_record import Recorder, record_rounds
        with Recorder(sys.argv[1]) as recorder:
            for number in range(recorder.next_round, 10**6):
                record_rounds(recorder, range(number, number + 1))
                print(number, flush=True)
    """
    for lines in (3, 2, 4):
        command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) as process:
            assert process.stdout is not None
            for _ in range(lines):
                assert process.stdout.readline()
            process.send_signal(signal.SIGKILL)
        assert findings_of(tmp_path) == ()
        rounds = open_recording(tmp_path, tmp_path / "scratch").index["round"]
        assert rounds.value_counts().eq(6).all() and len(set(rounds)) >= lines - 1


def test_an_exception_drops_the_open_round(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Recorder(tmp_path) as recorder:
        record_rounds(recorder, range(2))
        recorder.record(2, "known0", update(99))
        raise ZeroDivisionError
    assert set(open_recording(tmp_path, tmp_path / "scratch").index["round"]) == {0, 1}


def test_a_folder_has_one_recorder(tmp_path: Path) -> None:
    with Recorder(tmp_path), pytest.raises(FedprintError, match="another process"):
        Recorder(tmp_path)


def test_a_folder_has_one_sign(tmp_path: Path) -> None:
    Recorder(tmp_path).close()
    with pytest.raises(FedprintError, match="sign"):
        Recorder(tmp_path, sign="global_minus_local")


WRONG: dict[str, tuple[Callable[[Recorder], Any], str]] = {
    "whole": (lambda r: r.record(0, "x", update(1)), "round 0 is whole"),
    "round": (lambda r: r.record("3", "x", update(1)), "round is '3'"),  # type: ignore[arg-type]
    "twice": (lambda r: r.record(2, "a", update(3)), "'a' sent in round 2 already"),
    "examples": (lambda r: r.record(2, "x", update(1), -1), "num_examples is -1"),
    "NaN": (lambda r: r.record(2, "x", {**update(1), "fc.bias": [np.nan, 1]}), "'fc.bias' holds NaN"),
    "shape": (lambda r: r.record(2, "x", {**update(1), "fc.bias": [1.0]}), r"'fc.bias' is \(1,\), was \(2,\)"),
    "names": (lambda r: r.record(2, "x", {"other": [1.0]}), "'fc.weight' is missing"),
    "text": (lambda r: r.record(2, "x", {"fc.bias": ["a"]}), "give arrays of numbers"),
    "ragged": (lambda r: r.record(2, "x", [[[1.0], [1.0, 2.0]]]), "is no array"),
    "nothing": (lambda r: r.record(2, "x", []), "holds no array"),
    "no update": (lambda r: r.record(2, "x", 3), "update is a int"),  # type: ignore[arg-type]
    "device": (lambda r: r.record(2, " x", update(1)), "printable"),
    "user": (lambda r: r.record(2, "x", update(1), user="a\nb"), "printable"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_the_value_and_leave_the_recording_whole(tmp_path: Path, name: str) -> None:
    call, message = WRONG[name]
    with Recorder(tmp_path) as recorder:
        record_rounds(recorder, range(2))
        recorder.record(2, "a", update(3))
        with pytest.raises(FedprintError, match=message) as error:
            call(recorder)
        assert "\n" not in str(error.value)
        recorder.record(2, "b", update(4))
    assert open_recording(tmp_path, tmp_path / "scratch").index["device"][12:].tolist() == ["a", "b"]


def test_the_example_of_the_docs_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[1] / "docs" / "recorded-updates.md").read_text()
    monkeypatch.chdir(tmp_path)
    exec(text.partition("```python\n")[2].partition("```")[0], {})
    assert findings_of(tmp_path / "recorded") == ()
    assert len(open_recording(tmp_path / "recorded", tmp_path / "scratch").index) == 144
