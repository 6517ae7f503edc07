"""Work of milliseconds for the runner: stages that add numbers, wait, fail or are killed, as their settings say."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedprint.errors import FedprintError
from fedprint.lab.graph import Graph, Job, Stage, Task, Work
from fedprint.lab.keys import digest_of
from fedprint.lab.runner import Done


@dataclass(frozen=True)
class Toy:
    """Settings of a toy."""

    values: Mapping[str, Any]

    def section_digest(self, *sections: str) -> str:
        return digest_of({section: self.values.get(section) for section in sections})

    def digest(self) -> str:
        return digest_of(dict(self.values))

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return dict(self.values)


def begin(task: Task) -> None:
    """Say that a stage runs, wait, and end in the way that the settings ask for."""
    task.send({"ran": os.getpid()})
    print(f"pid {os.getpid()}", flush=True)
    time.sleep(task.config.values.get("wait", 0))


def number(task: Task) -> None:
    begin(task)
    task.at("numbers").mkdir()
    (task.at("numbers") / "n.json").write_text(json.dumps([task.config.values["n"], task.seed]))


def pick(task: Task) -> None:
    begin(task)
    task.at("choice").write_text("even" if task.config.values["n"] % 2 == 0 else "odd")


def add(task: Task) -> None:
    begin(task)
    task.send({"metrics": [["total", 1.0, 0]]})
    n, seed = json.loads((task.at("numbers") / "n.json").read_text())
    task.at("total").write_text(str(n + seed + task.config.values.get("plus", 0)))


def grow(task: Task) -> None:
    """Write ten lines, one after another; a killed run goes on behind the last one."""
    begin(task)
    kept = task.scratch / "lines"
    for line in range(len(kept.read_text().split()) if kept.exists() else 0, 10):
        if task.config.values.get("die_at") == line and not (task.scratch / "died").exists():
            (task.scratch / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        with kept.open("a") as file:
            file.write(f"{line}\n")
        task.send({"progress": ["grow", line + 1, 10, ""]})
    task.at("grown").write_text(kept.read_text())


def end(task: Task) -> None:
    begin(task)
    match task.config.values.get("end"):
        case "stated":
            raise FedprintError("7 is no number: choose another")
        case "crash":
            raise ValueError("a fault of the program")
        case "undeclared":
            task.at("numbers")
        case "trespass":
            Path(task.config.values["path"]).read_text()
        case "multiply":
            import torch  # late: no other toy needs it

            ones = torch.ones(8, 8, device=task.device)
            assert (ones @ ones).sum() == 512
        case "elsewhere":
            Path(task.config.values["path"]).write_text("x")
    task.at("last").write_text(f"{task.at('choice').read_text()} {task.at('total').read_text()}")


GRAPH = Graph(
    (
        Stage(name="number", run="toy_work:number", outputs=("numbers",), settings=("n",), code=("errors.py",),
              heavy=True),
        Stage(name="pick", run="toy_work:pick", outputs=("choice",), settings=("n",), settled=True),
        Stage(name="add", run="toy_work:add", inputs=("numbers",), outputs=("total",), settings=("plus",)),
        Stage(name="grow", run="toy_work:grow", inputs=("choice",), outputs=("grown",), settings=("size",),
              resumes=True),
        Stage(name="end", run="toy_work:end", inputs=("choice", "total"), outputs=("last",), settings=("end",)),
    )
)  # fmt: skip
WORK = Work(path="toy_work:WORK", graph=GRAPH, parse=lambda values: Toy(values))


def job(label: str = "toy", *, seed: int = 0, **values: Any) -> Job:
    return Job(work=WORK, config=Toy({"n": 2, **values}), prior="none", seed=seed, data="data", label=label)


@dataclass
class Seen:
    """Watches jobs: who ran which stage how often, and how each job ended."""

    ran: list[int] = field(default_factory=list)
    messages: list[Mapping[str, Any]] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)

    def watch(self, job: Job, *, computes: bool) -> SeenJob:
        return SeenJob(self, job.label)


@dataclass
class SeenJob:
    seen: Seen
    label: str

    def receive(self, message: Mapping[str, Any]) -> None:
        if "ran" in message:
            self.seen.ran.append(message["ran"])
        else:
            self.seen.messages.append(message)

    def failed(self, error: FedprintError) -> None:
        self.seen.ended[self.label] = str(error)

    def done(self, done: Done) -> None:
        self.seen.ended[self.label] = "known" if done.known else "done"


# Calls of a fork server -----------------------------------------------------------------------------------------------


def double(call: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None]) -> Any:
    send({"line": f"doubling {call['n']}"})
    print("written to the log", flush=True)
    return 2 * call["n"]


def refuse(call: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None]) -> None:
    error = FedprintError("not so")
    error.exit_code = call["exit_code"]
    raise error


def crash(call: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None]) -> None:
    raise ZeroDivisionError("a fault")


def die(call: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stay(call: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None]) -> None:
    send({"pid": os.getpid(), "server": os.getppid()})
    time.sleep(600)


def look(call: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None]) -> Any:
    named = {"data": os.environ.get("FEDPRINT_DATA"), "threads": os.environ["OMP_NUM_THREADS"]}
    return {"server": os.getppid(), "folder": os.getcwd(), **named}


def stage(call: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None]) -> Any:
    """Stand for a stage of dvc.yaml."""
    match call["stage"]:
        case "refused":
            raise FedprintError("mend it")
        case "crashed":
            raise ValueError("a fault")
        case "code":
            return 7
    send({"line": json.dumps(call, sort_keys=True)})
    for done in (1, 2, 3):
        send({"progress": ["rounds", done, 3, "fast"]})
    send({"metrics": [["ap", 0.5, 0]]})
    return None
