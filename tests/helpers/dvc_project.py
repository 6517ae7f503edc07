"""A project under git and DVC whose stages are stubs: what DVC does with it needs no model and no data."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from fedprint.lab.graph import Graph, Stage
from fedprint.lab.versions.dvc_yaml import Pipeline, Plot, check_configuration, dvc_yaml, lock_data, params_yaml

PROJECT = Path(__file__).parents[2]
CONFIGS = ("configs/defaults.yaml", "configs/experiments/quickstart.yaml")
CONFIG = {"data": {"users": 4}, "federation": {"rounds": 3}, "attacks": ["knn"], "report": {"title": "Albums"}}

GRAPH = Graph(
    (
        Stage(name="prepare", run="stub:prepare", outputs=("private", "background"), settings=("data",), data=True,
              code=("data.py",)),
        Stage(name="federate", run="stub:federate", inputs=("private",), outputs=("observed", "truth", "overhead"),
              settings=("federation.rounds",), code=("loop.py",), heavy=True),
        Stage(name="attack", run="stub:attack", inputs=("background", "observed"), outputs=("attack",),
              settings=("attacks",), code=("attack.py",)),
        Stage(name="evaluate", run="stub:evaluate", inputs=("attack", "truth"), outputs=("evaluation",), settings=None),
    )
)  # fmt: skip
PIPELINE = Pipeline(
    experiment="quickstart",
    data=("albums",),
    graph=GRAPH,
    configs=CONFIGS,
    reported=("evaluation",),
    unversioned=("overhead",),
    report_code=("pages.py",),
    plots=(
        Plot(file="ap.csv", template="bar_horizontal", x="ap", y="attacker", title="AP by attacker"),
        Plot(file="utility", template="simple", x="round", y="utility", title="Utility by round"),
    ),
    client="python client.py",
)

CLIENT = '''
"""Stages that write what they were given; each also appends its name to the file that STUB_LOG names."""
import json, os, shutil, sys, time
from pathlib import Path
import yaml

stage, experiment, *rest = sys.argv[1:]
item = "-".join(rest)
here = Path("experiments") / experiment
with open(os.environ.get("STUB_LOG", os.devnull), "a") as log:
    log.write(f"{stage}@{item}\\n" if item else f"{stage}\\n")

def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value, sort_keys=True) + "\\n")

config = yaml.safe_load((here / "config.yaml").read_text())
params = yaml.safe_load(Path("params.yaml").read_text())
if stage == "configuration":
    from fedprint.lab.versions.dvc_yaml import check_configuration
    from fedprint.types import FedprintError
    try:
        check_configuration(Path.cwd(), experiment, CONFIGS, f"fedprint config {experiment} --write")
    except FedprintError as error:
        sys.exit(str(error))
if stage == "prepare":
    write(here / item / "private" / "x.json", [item, config["data"]])
    write(here / item / "background" / "x.json", item)
if stage == "federate":
    write(here / item / "observed" / "x.bin", item * 100 * config["federation"]["rounds"])
    write(here / item / "truth" / "x.json", item)
    write(here / item / "overhead" / "x.json", time.time())
if stage == "attack":
    write(here / item / "attack" / "x.json", [item, config["attacks"]])
if stage == "evaluate":
    write(here / "evaluation" / item / "x.json", [item, config])
if stage == "report":
    items = {f"{prior}-{seed}" for prior in params["priors"] for seed in params["seeds"]}
    for folder in (here / "evaluation").iterdir():
        if folder.name not in items:
            shutil.rmtree(folder)
    seen = {path.parent.name: json.loads(path.read_text()) for path in sorted((here / "evaluation").glob("*/x.json"))}
    rounds = config["federation"]["rounds"]
    write(Path("reports") / experiment / "index.html", seen)
    write(here / "metrics.json", {"ap": 0.1 * rounds, "items": len(seen)})
    write(here / "measurements.jsonl", {"ap": 0.1 * rounds})
    write(here / "plots" / "ap.csv", f"attacker,ap\\nknn,{0.1 * rounds}\\nchance,0.1\\n")
    for each in seen:
        lines = "".join(f"{t},{t}\\n" for t in range(rounds))
        write(here / "plots" / "utility" / f"{each}.csv", "round,utility\\n" + lines)
'''


def build(root: Path) -> Path:
    """Write the project and commit it in git; nothing has run."""
    for name in (".dvc/config", ".dvcignore", ".gitignore"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, root / name)
    (root / ".dvc" / ".gitignore").write_text("/config.local\n/tmp\n/cache\n")
    files = {
        **dict.fromkeys(CONFIGS, "{}\n"),
        **{f"src/fedprint/{name}.py": "1\n" for name in ("data", "loop", "attack", "pages")},
        "datasets/albums.yaml": yaml.safe_dump({"name": "albums", "sha256": "0" * 64}),
        "experiments/quickstart/config.yaml": yaml.safe_dump(CONFIG),
        "client.py": CLIENT.replace("CONFIGS", repr(CONFIGS)),
        "pyproject.toml": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "dvc.yaml").write_text(dvc_yaml(PIPELINE))
    (root / "params.yaml").write_text(params_yaml(root, CONFIGS, ["random", "chrono"], [0]))
    lock_data(root, PIPELINE)
    git(root, "init", "-q")
    commit(root, "nothing has run")
    return root


def work(root: Path) -> None:
    """Make all outputs without DVC, as the runner does."""
    params = yaml.safe_load((root / "params.yaml").read_text())
    items = [(str(prior), str(seed)) for prior in params["priors"] for seed in params["seeds"]]
    # Never write into what is there: it is the very file in DVC's cache.
    for folder in (*(root / "experiments" / "quickstart").glob("*/"), root / "reports" / "quickstart"):
        shutil.rmtree(folder, ignore_errors=True)
    (root / "experiments" / "quickstart" / "configured").unlink(missing_ok=True)
    check_configuration(root, "quickstart", CONFIGS, "nothing")
    for stage in GRAPH.stages:
        for item in items:
            _client(root, stage.name, *item)
    _client(root, "report")


def set_rounds(root: Path, rounds: int) -> None:
    """Change the resolved configuration."""
    changed = {**CONFIG, "federation": {"rounds": rounds}}
    (root / "experiments" / "quickstart" / "config.yaml").write_text(yaml.safe_dump(changed))


def _client(root: Path, stage: str, *item: str) -> None:
    subprocess.run([sys.executable, "client.py", stage, "quickstart", *item], cwd=root, check=True)


def git(root: Path, *words: str) -> str:
    """Run git and return what it prints."""
    who = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
    command = ["git", *who, *words]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout


def commit(root: Path, message: str) -> None:
    """Commit everything that git does not ignore."""
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", message)


def dvc(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run DVC; stages find this interpreter as python."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", "dvc", *words]
    return subprocess.run(
        command, cwd=root, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
