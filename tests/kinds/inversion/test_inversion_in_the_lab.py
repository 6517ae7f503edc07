"""Inversion experiments run by the runner: what a search can open, and a whole experiment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from inversion_trespass import ADAPTIVE_SNOOPING, CHEATING, HIDDEN, MECHANISM, NAIVE_SNOOPING
from tiny_inversion import SMALL, load, settings_at, where
from tiny_project import project_in

from fedprint.evaluation.rows import read_measurements
from fedprint.kinds.images import image_job
from fedprint.kinds.inversion.kind import InversionKind
from fedprint.lab.graph import Work
from fedprint.lab.runner import Done, JobFailed, Lab
from fedprint.lab.workers.pool import LocalPool

FEW = {
    **SMALL,
    "attacks": [{**SMALL["attacks"][0], "attack": {"name": "gradient-matching", "evaluations": 5}, "batches": [1]}],
    "mechanisms": [
        SMALL["mechanisms"][0],
        {"defence": "dp", "defences": [{"name": "noise", "sigma": "$strength"}], "strengths": [0.5, 0.1]},
    ],
    "training": {"clients": 2, "rounds": 2, "batch_size": 8},
}


@pytest.fixture(scope="module")
def lab(blobs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with project_in(tmp_path_factory.mktemp("lab")) as project, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        patch.setenv("FEDPRINT_DATA", str(blobs))
        project.write("few", FEW)
        with (
            LocalPool(["fedprint.kinds.preload", "inversion_trespass"]) as pool,
            Lab(root=project.root, pool=pool, jobs=2) as lab,
        ):
            yield lab


def inverted(lab: Lab, work: Work) -> Done:
    settings = settings_at(load(lab.root, "few"), "dp")
    return lab.one(image_job(work, settings, settings.data, 0, "dp"), title="few", want=["expose", "invert"])


def test_a_search_opens_what_was_observed_and_who_knows_the_mechanism_that_too(lab: Lab) -> None:
    for work, knows in ((NAIVE_SNOOPING, False), (ADAPTIVE_SNOOPING, True)):
        done = inverted(lab, work)
        said = json.loads((done.outputs["reconstructed"] / "found.json").read_text())
        assert (said.pop(f"{MECHANISM} by open") == "opened") is knows
        said.pop(f"{MECHANISM} by safetensors")
        assert said.keys() == {f"{name} by {how}" for name in HIDDEN for how in ("open", "safetensors")}
        assert not [what for what, answer in said.items() if answer == "opened"]
        assert (done.outputs["truth"] / "images.safetensors").is_file(), "it was there to be opened"


def test_a_search_that_opens_the_truth_fails_and_says_so(lab: Lab) -> None:
    with pytest.raises(JobFailed, match=r"dp: stage invert: .*truth/images\.safetensors") as failed:
        inverted(lab, CHEATING)
    assert failed.value.exit_code == 1 and "is not among its inputs and outputs" in failed.value.reason


def test_an_experiment_runs_keeps_little_and_is_known_again(lab: Lab) -> None:
    kind, config, out = InversionKind(), load(lab.root, "few"), lab.root / "reports" / "few"
    findings = kind.carry_out(config, lab, out)
    assert [done.job.label for done in findings.done] == [job.label for job in kind.jobs(config)]
    assert not findings.failures and findings.data[0].counts == {"train": 60, "test": 40, "classes": 3}
    rows = read_measurements(out / "measurements.jsonl")
    (score,) = where(rows, metric="cap_reconstruction", defence="dp", selected=True)
    assert findings.metrics["cap_reconstruction_dp"] == score["value"]
    assert not any(done.known for done in findings.done)
    again = kind.carry_out(config, lab, lab.root / "reports" / "again")
    assert all(done.known for done in again.done)
    one, other = ((lab.root / "reports" / name / "measurements.jsonl").read_bytes() for name in ("few", "again"))
    assert one == other
    kept = [path.parent.name for path in lab.cache.folder.glob("*/*") if not path.name.startswith(".")]
    assert {"draw", "train", "judge"} <= set(kept) and not {"seek", "trace"} & set(kept)
    assert kept.count("expose") <= 1, "of those that the tests before asked for; adversaries at work together share one"
