"""The allocator of worker processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fedprint.lab.workers import allocator
from fedprint.lab.workers.allocator import keep_freed_memory

STEPS = """
import resource, sys
from fedprint.lab.workers.allocator import keep_freed_memory
import torch
if sys.argv[1] == "kept" and not keep_freed_memory():
    sys.exit(3)
for _ in range(20):
    step = [torch.ones(2_500_000) for _ in range(4)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step = [torch.ones(2_500_000) for _ in range(4)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

GIVEN_BACK = """
import sys
from pathlib import Path
from fedprint.lab.workers.allocator import keep_freed_memory, return_freed_memory
import torch

def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

if not keep_freed_memory():
    sys.exit(3)
freed = [torch.ones(2_500_000) for _ in range(20)]
last = torch.ones(2_500_000)
del freed
kept = held()
assert return_freed_memory()
print(kept - held())
"""


def faults(how: str) -> int:
    # What glibc does by itself depends on where its heap happens to lie; so it is told to map every large block anew.
    mapped = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    done = subprocess.run([sys.executable, "-c", STEPS, how], capture_output=True, text=True, env=mapped)
    if done.returncode == 3:
        pytest.skip("this system's allocator has no such setting")
    return int(done.stdout)


def test_what_a_step_frees_the_next_one_gets_without_asking_the_kernel() -> None:
    assert faults("kept") < 1000 < faults("given back"), "40 MB are 9,766 pages, twenty times"


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_systems_without_it_go_on(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: None) -> None:
        raise error

    monkeypatch.setattr(allocator.ctypes, "CDLL", missing)
    assert keep_freed_memory() is False


def test_what_is_free_goes_back_when_it_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", GIVEN_BACK], capture_output=True, text=True)
    if done.returncode == 3:
        pytest.skip("this system's allocator has no such setting")
    assert int(done.stdout) > 150e6, "20 blocks of 10 MB were freed"
