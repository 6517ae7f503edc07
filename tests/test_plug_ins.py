"""The example plug-in, as if installed: its own tests, a run with its parts, and its code in cache keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from plugin import PLUGIN, environment, installed_in
from tiny_inversion import SMALL
from tiny_project import TINY, make_project

from fedprint.kinds.inversion.config import acts_on_updates
from fedprint.plugins import code_files, plug_in_digests, plug_in_roots

PLUGGED = {
    **TINY,
    "data": {"name": "stripes"},
    "model": {"name": "softmax"},
    "defences": [{"name": "drop-coordinates", "share": 0.2}],
    "attacks": [{"name": "chance"}, {"name": "sign-votes"}],
    "analyses": [],
}


@pytest.fixture
def installed(tmp_path: Path) -> Mapping[str, str]:
    """The environment of a process that finds the plug-in, with a project of its own."""
    (tmp_path / "project").mkdir()
    return {**installed_in(tmp_path / "site"), "FEDPRINT_ROOT": str(tmp_path / "project")}


def python(code: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env=dict(env), capture_output=True, text=True, check=False)


def test_its_parts_are_registered_and_their_code_is_in_the_keys_of_stages_that_read_them(
    tmp_path: Path, installed: Mapping[str, str]
) -> None:
    make_project(tmp_path / "project").write("plugged", PLUGGED)
    code = (
        "import json, pathlib, os\n"
        "from fedprint.kinds.federation.config import load_experiment\n"
        "from fedprint.kinds.federation.graph import FEDERATION\n"
        "from fedprint.kinds.federation.jobs import jobs_of\n"
        "from fedprint.kinds.registry import kinds\n"
        "from fedprint.kinds.requests import request_for\n"
        "from fedprint.lab.keys import stage_key\n"
        "root = pathlib.Path(os.environ['FEDPRINT_ROOT'])\n"
        "jobs = [jobs_of(load_experiment(request_for(root, 'plugged', assignments=a)))[0] for a in ((), CLEAN)]\n"
        "keys = [{s.name: stage_key(job, s, {}, 'cpu') for s in FEDERATION.stages} for job in jobs]\n"
        "print(json.dumps([[kind.name for kind in kinds()], *keys]))"
    )
    clean = "('defences=[]', 'model={name: mlp}', 'data={name: albums}', 'attacks=[{name: chance}]')"

    def asked() -> tuple[list[str], dict[str, str], dict[str, str]]:
        done = python(code.replace("CLEAN", clean), installed)
        assert done.returncode == 0, done.stderr
        kinds, *keys = json.loads(done.stdout)
        return kinds, *keys

    kinds, before, unplugged = asked()
    assert "survey" in kinds
    changed = tmp_path / "site" / "fedprint_example" / "attack.py"
    changed.write_text(changed.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    _, after, still = asked()
    assert still == unplugged, "an experiment without plug-ins has the keys that it had"
    assert {name for name in before if before[name] != after[name]} >= {"prepare", "federate", "attack"}


INVERSION = """
import sys
from pathlib import Path
import torch
from safetensors.torch import load_file
from tiny_inversion import expose_in, load, settings_at, write_blobs
from fedprint.attacks.inversion.labels import labels_from
from fedprint.kinds.clients.config import SweepSettings
from fedprint.kinds.clients.training import trained
from fedprint.kinds.inversion.attack import observed_victims, reconstruct
from fedprint.kinds.inversion.jobs import images_of

root = Path(sys.argv[1])
write_blobs(root / "data")
experiment = load(root, "plugged")
settings = settings_at(experiment, "dp")
images = images_of(settings.data, 0)
observed = expose_in(root, settings) / "observed"
sent = torch.cat([each.flatten() for each in observed_victims(observed).descents.values()])
reconstruct(settings.attack, observed, None, root / "found", seed=0)
found = load_file(root / "found" / "reconstructed.safetensors")["images"]
method = {"name": "mine", "defence": "dp", "defences": [{"name": "drop-coordinates", "share": 0.5}]}
sweep = {"data": {"name": "blobs"}, "data_seed": 0, "partition": {"name": "iid"}, "clients": 3, "method": method,
         "network": {"name": "softmax"}, "training": {"rounds": 30, "lr": 0.1}, "seed": 0}
hits, _ = trained(SweepSettings.model_validate(sweep), images, "sequential")
print(float((sent == 0).double().mean()), tuple(found.shape), settings.attack.labels, float(hits.mean()))
"""


@pytest.mark.slow
def test_inversions_and_client_sweeps_take_its_model_and_its_defence(
    tmp_path: Path, installed: Mapping[str, str]
) -> None:
    attack = {"network": {"name": "softmax"}, "attack": {"name": "gradient-matching", "evaluations": 20}}
    mechanism = {"defence": "dp", "defences": [{"name": "drop-coordinates", "share": "$strength"}], "strengths": [0.5]}
    values = {**SMALL, "attacks": [attack], "mechanisms": [{"defence": "none"}, mechanism]}
    project = make_project(tmp_path / "project")
    project.write("plugged", values)
    env = {"FEDPRINT_DATA": str(project.root / "data")}
    helpers = os.pathsep.join([installed["PYTHONPATH"], str(Path(__file__).parent / "helpers")])
    command = [sys.executable, "-c", INVERSION, str(project.root)]
    done = subprocess.run(
        command, env={**installed, **env, "PYTHONPATH": helpers}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    zeros, rest = done.stdout.split(" ", 1)
    shape, labels, hits = rest.rsplit(" ", 2)
    assert 0.4 < float(zeros) < 0.6, "half of the coordinates never left"
    assert shape == "(4, 1, 1, 8, 8)" and labels == "sign", "inputs of a plug-in's last layer may be negative"
    assert float(hits) > 0.6, "three classes"
    lacking = {**installed, **env, "PYTHONPATH": helpers.partition(os.pathsep)[2]}
    without = subprocess.run(command, env=lacking, capture_output=True, text=True, check=False)
    assert without.returncode != 0 and "drop-coordinates" in without.stderr


def test_a_defence_on_data_has_no_place_in_a_mechanism() -> None:
    from fedprint.defences.on_data import RandAug
    from fedprint.defences.on_update import Sign

    assert acts_on_updates(Sign) and not acts_on_updates(RandAug)


def test_a_broken_plug_in_is_named_in_one_line(tmp_path: Path, installed: Mapping[str, str]) -> None:
    (tmp_path / "site" / "fedprint_example" / "attack.py").write_text("raise RuntimeError('no luck')\n")
    make_project(tmp_path / "project").write("plugged", PLUGGED)
    command = [sys.executable, "-m", "fedprint", "run", "plugged", "--dry-run"]
    done = subprocess.run(command, env=dict(installed), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'sign-votes'" in done.stderr and "no luck" in done.stderr and len(done.stderr.splitlines()) == 1


def test_parts_of_a_configuration_name_the_modules_that_define_them() -> None:
    from fedprint.attacks.reidentification.ridge import Ridge

    assert plug_in_roots([Ridge(), {"a": (1, "b")}]) == set()
    assert plug_in_digests([Ridge()], "fedprint.kinds.x:run") == []
    assert [root for root, _ in plug_in_digests([], "json.decoder:run")] == ["json"]
    assert any(path.name == "decoder.py" for path in code_files("json"))
    assert code_files("no_such_module_anywhere") == []


@pytest.mark.slow
def test_it_keeps_the_contracts(tmp_path: Path, installed: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(PLUGIN / "tests")]
    done = subprocess.run(command, env=dict(installed), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.slow
def test_a_run_uses_its_data_model_defence_attack_and_kind(tmp_path: Path, installed: Mapping[str, str]) -> None:
    project = make_project(tmp_path / "project")
    project.write("plugged", PLUGGED)
    project.write("survey", {"data": {"name": "stripes"}, "survey": [0.5], "report": {"title": "How many"}})
    for name in ("survey", "plugged"):
        command = [sys.executable, "-m", "fedprint", "run", name]
        done = subprocess.run(
            command, cwd=project.root, env=dict(installed), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((project.root / "reports/survey/summary.json").read_text())["table"][0]["examples"] == 40
    lines = (project.root / "reports/plugged/measurements.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["linkage"] == "update" and row["metric"] == "ap"]
    aps = {row["attack"]: row["value"] for row in rows if row["attack"] in ("chance", "sign-votes")}
    assert {row["defence"] for row in rows} == {"drop-coordinates"}
    assert aps["sign-votes"] > 2 * aps["chance"], aps


def test_this_process_finds_what_is_installed_beside_it(tmp_path: Path) -> None:
    """Without the plug-in its names are unknown, so the other tests show what its entry points add."""
    done = python("from fedprint.plugins import installed_roots; print(installed_roots())", environment(tmp_path))
    assert "fedprint_example" not in done.stdout
