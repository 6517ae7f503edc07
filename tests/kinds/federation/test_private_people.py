"""Private data whose ids, names, words and pictures are unmistakable: none of them leaves the stages' results.

Class names and the words of the vocabulary are no data of a user: they come from the sidecar and from public text. The
page may show class names; the model's description holds both.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_project import TINY, Project, project_in

from fedprint.data.formats.describe import write_table
from fedprint.data.formats.files import read_json
from fedprint.kinds.federation.kind import write_page
from fedprint.lab.tracking.database import create_database
from fedprint.reports.numbers.people import numbered, numbers_of, write_shown

IDS = [731900 + 7 * user for user in range(16)]
USERS = 8
EXHIBITS = [{"name": name} for name in ("class-bias", "recognisable", "raw-features", "distances")]
WORDS = [f"secretword{letter}" for letter in "abcdefg"]
EVIL = "<b>label</b>"


def _posts(folder: Path, samples: str = "private") -> dict[str, Any]:
    rng = np.random.default_rng(0)
    texts = [
        f"<i>own{user}</i> {' '.join(rng.choice(WORDS, 6))}. {' '.join(rng.choice(WORDS, 6))}."
        for user in range(len(IDS))
        for _ in range(12)
    ]
    columns = {
        "text": np.array(texts, dtype=object),
        "user": np.repeat(IDS, 12),
        "time": np.tile(np.arange(12), len(IDS)),
        "group": np.repeat(np.array(["federated"] * USERS + ["background"] * 8, dtype=object), 12),
    }
    names = [f"Name{user} <script>Surname</script>" for user in range(len(IDS))]
    write_table(folder, columns, {"licence": "mine", "user_names": names, "samples": samples})
    profile = {"name": "profile", "devices": 8, "rounds": 2, "labels": [4], "top": 0.3}
    return {
        **TINY,
        "report": {"title": "Private posts"},
        "data": {"name": "folder", "path": str(folder), "background_users": 8},
        "model": {"name": "lm", "embedding": 8, "hidden": 8},
        "attacks": [{"name": "chance"}, {"name": "ridge", "most_blocks": 1}],
        "analyses": [*EXHIBITS, profile],
    }


def _faces(folder: Path, samples: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    user, labels = np.repeat(IDS[:USERS], 24), np.tile(np.arange(3), 8 * USERS)
    own = rng.integers(0, 120, (USERS, 12, 12)).repeat(24, axis=0)
    images = (own + rng.integers(0, 80, own.shape) + 20 * labels[:, None, None]).astype(np.uint8)
    header = {"licence": "mine", "class_names": [EVIL, "b", "c"], "samples": samples}
    write_table(folder, {"images": images, "labels": labels, "user": user}, header)
    data = {"name": "folder", "path": str(folder)}
    return {**TINY, "report": {"title": "Faces"}, "data": data, "analyses": EXHIBITS}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, subprocess.CompletedProcess[str]]]:
    """The command on private posts, with MLflow, and what it printed."""
    with project_in(tmp_path_factory.mktemp("private")) as project:
        project.write("posts", _posts(project.root / "data" / "posts"))
        create_database(project.root)
        command = [sys.executable, "-m", "fedprint", "run", "posts", "--jobs", "1"]
        env = {**os.environ, "FEDPRINT_ROOT": str(project.root)}
        yield project, subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_nothing_of_private_users_is_printed_logged_tracked_or_reported(
    ran: tuple[Project, subprocess.CompletedProcess[str]],
) -> None:
    project, run = ran
    assert run.returncode == 0, run.stderr
    secrets = [*map(str, IDS), "Surname", *WORDS, "own3"]
    shown = {"stdout": run.stdout, "stderr": run.stderr, "mlflow.db": _whole(project.root / "mlflow.db")}
    places = [project.root / name for name in ("work/logs", "mlruns", "reports")]
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    shown |= {str(path.relative_to(project.root)): _text(path) for path in files if path.name != "model.json"}
    assert {path.name for path in files} >= {"exhibits.json", "details.json", "index.html", "random-0.attack.log"}
    found = {secret: [name for name, text in shown.items() if secret in text] for secret in secrets}
    assert {secret: names for secret, names in found.items() if names} == {}


def test_the_cache_has_what_the_page_must_not_show(ran: tuple[Project, subprocess.CompletedProcess[str]]) -> None:
    """Without this the test above could look for what is nowhere."""
    results = [_text(path) for path in (ran[0].root / "work" / "cache" / "evaluate").rglob("*.json")]
    assert any(str(IDS[3]) in text for text in results) and any(WORDS[0] in text for text in results)


@pytest.mark.parametrize("samples", ["private", "shareable"])
def test_pages_of_faces_have_numbers_unless_the_data_may_be_shared(project: Project, samples: str) -> None:
    task = project.run("faces", _faces(project.root / "data" / "faces", samples))
    write_page(task.config, [task.at("evaluation")], project.root / "page")
    pages = {path: _text(path) for path in (project.root / "page").rglob("*") if path.suffix != ".js"}
    named = [path.name for path, text in pages.items() if any(str(user) in text for user in IDS)]
    page = pages[project.root / "page" / "index.html"]
    assert bool(named) == ("data:image/png" in page) == (samples == "shareable")
    assert ("user 8" in page) == (samples == "private")
    assert EVIL not in page and "&lt;b&gt;label&lt;/b&gt;" in page


def test_users_have_the_same_numbers_in_all_files(project: Project, tmp_path: Path) -> None:
    task = project.run("faces", _faces(project.root / "data" / "faces", "private"))
    write_shown(task.at("evaluation"), tmp_path / "shown")
    before, after = (read_json(folder / "details.json") for folder in (task.at("evaluation"), tmp_path / "shown"))
    numbers = {str(user): str(place) for place, user in enumerate(IDS[:USERS], start=1)}
    assert after["utility_by_user"] == {numbers[user]: value for user, value in before["utility_by_user"].items()}
    chances = {numbers[user]: ap for user, ap in before["ap_by_user"]["naive"]["chance"].items()}
    assert after["ap_by_user"]["naive"]["chance"] == chances
    with np.load(task.at("evaluation") / "tsne.npz") as old, np.load(tmp_path / "shown" / "tsne.npz") as new:
        assert [numbers[str(user)] for user in old["user"]] == [str(user) for user in new["user"]]
        assert (old["xy"] == new["xy"]).all()


def test_numbers_go_by_ids_and_only_where_ids_stand() -> None:
    values = {"by_user": {"12": 0.5, "7": 1.0}, "rows": [{"user_id": 12, "n": 7}, {"user": 9}], "bins": {"12": 3}}
    numbers = numbers_of([values])
    assert numbers == {7: 1, 9: 2, 12: 3}
    assert numbered(values, numbers) == {
        "by_user": {"3": 0.5, "1": 1.0}, "rows": [{"user_id": 3, "n": 7}, {"user": 2}], "bins": {"12": 3},
    }  # fmt: skip


def _text(path: Path) -> str:
    return path.read_bytes().decode("latin-1") if path.is_file() and path.name != "plotly.min.js" else ""


def _whole(database: Path) -> str:
    with sqlite3.connect(database) as connection:
        return "\n".join(connection.iterdump())
