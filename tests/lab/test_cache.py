"""Entries of the cache: complete or not there, in use or free to go."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedprint.errors import FedprintError
from fedprint.lab.cache import Cache, Entry


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache.of(tmp_path)


def made(cache: Cache, key: str, text: str = "x") -> Entry:
    entry = cache.entry("attack", key)
    with cache.making(entry):
        entry.begin(resume=False)
        (entry.partial / "scores").write_text(text)
        entry.complete()
    return entry


def test_an_entry_has_its_name_when_it_is_complete_and_not_before(cache: Cache) -> None:
    entry = cache.entry("attack", "abc")
    entry.begin(resume=False)
    (entry.partial / "scores").write_text("x")
    (entry.scratch / "half").write_text("y")
    assert not entry.finished and not (entry.folder / "scores").exists()
    entry.complete()
    assert entry.finished and [path.name for path in entry.folder.iterdir()] == ["scores"]
    assert entry.folder == cache.folder / "attack" / "abc"


@pytest.mark.parametrize("resume", [True, False])
def test_what_a_killed_stage_left_is_found_again_only_by_one_that_resumes(cache: Cache, resume: bool) -> None:
    entry = cache.entry("federate", "abc")
    entry.begin(resume=resume)
    (entry.scratch / "journal").write_text("round 1")
    entry.begin(resume=resume)
    assert (entry.scratch / "journal").exists() == resume


def test_a_removed_entry_is_gone_with_what_grew_beside_it(cache: Cache) -> None:
    entry = made(cache, "abc")
    entry.begin(resume=False)
    assert cache.drop(entry)
    assert not entry.finished and not entry.partial.exists()
    assert cache.drop(entry), "nothing to drop is no failure"


def test_an_entry_in_use_is_not_dropped(cache: Cache) -> None:
    entry = made(cache, "abc")
    with cache.using(entry), cache.using(entry):
        assert not cache.drop(entry) and entry.finished
    with cache.making(entry):
        assert not cache.drop(entry)
    assert cache.drop(entry) and not entry.finished


def test_who_makes_an_entry_waits_for_who_uses_it(cache: Cache) -> None:
    entry, order = made(cache, "abc"), []

    def make() -> None:
        with cache.making(entry):
            order.append("made")

    with cache.using(entry):
        thread = threading.Thread(target=make)
        thread.start()
        thread.join(0.2)
        order.append("used")
    thread.join()
    assert order == ["used", "made"]


HOLDING = """
import sys
from pathlib import Path
from fedprint.lab.cache import Cache
cache = Cache.of(Path(sys.argv[1]))
with cache.making(cache.entry("attack", "abc")):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_ends_with_its_process_however_that_ends(cache: Cache, tmp_path: Path) -> None:
    entry = made(cache, "abc")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    assert not cache.drop(entry)
    with pytest.raises(FedprintError, match="a run is using the cache: wait for it, or stop it"):
        cache.unneeded([])
    holder.kill()
    holder.wait()
    assert cache.drop(entry)


def test_unneeded_are_all_entries_but_those_to_keep_finished_or_not(cache: Cache) -> None:
    kept, old = made(cache, "kept"), made(cache, "old")
    half = cache.entry("federate", "half")
    half.begin(resume=True)
    assert cache.unneeded([kept.folder]) == [old, half]
    assert cache.unneeded([kept.folder, old.folder, half.folder]) == []


def test_an_empty_project_has_nothing_to_drop(cache: Cache) -> None:
    assert cache.unneeded([]) == []
