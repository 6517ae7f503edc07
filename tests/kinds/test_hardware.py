from __future__ import annotations

import re
from pathlib import Path

import pytest
from tiny_project import CHECKOUT, TINY, Project

from fedprint.errors import FedprintError
from fedprint.kinds.audit.config import audit_of
from fedprint.kinds.federation.config import load_experiment
from fedprint.kinds.hardware import Hardware, hardware_for, read_settings
from fedprint.kinds.laboratory import lab_in
from fedprint.kinds.registry import kind_of
from fedprint.kinds.requests import request_for
from fedprint.kinds.versioned import is_shipped
from fedprint.lab.workers.pool import ServerPool


@pytest.mark.parametrize(
    ("hardware", "there", "used"),
    [
        (Hardware(), 0, 0),
        (Hardware(), 4, 4),
        (Hardware(devices=2), 4, 2),
        (Hardware(devices=2), 1, 1),
        (Hardware(accelerator="cpu"), 4, 0),
        (Hardware(accelerator="gpu"), 4, 4),
        (Hardware(accelerator="gpu", devices=3), 4, 3),
    ],
)
def test_how_many_gpus_are_used(hardware: Hardware, there: int, used: int) -> None:
    assert hardware.gpus(there) == used


@pytest.mark.parametrize(("devices", "there"), [(None, 0), (1, 0), (3, 2)])
def test_gpus_that_are_not_there_are_an_error_with_the_remedy(devices: int | None, there: int) -> None:
    asked = f"accelerator: gpu, devices: {devices or 1}: there are {there} GPUs to use"
    with pytest.raises(FedprintError, match=rf"{asked}.*CUDA_VISIBLE_DEVICES, or use accelerator: auto or cpu"):
        Hardware(accelerator="gpu", devices=devices).gpus(there)


def test_assignments_override_files_and_files_the_shared_defaults(project: Project) -> None:
    project.write("mine", {**TINY, "accelerator": "gpu", "fast": {"devices": 2}})
    path = project.root / "configs" / "experiments" / "mine.yaml"
    defaults = project.root / "configs" / "defaults.yaml"
    defaults.write_text(defaults.read_text(encoding="utf-8") + "\naccelerator: cpu\n", encoding="utf-8")
    assert hardware_for(project.root, []) == (Hardware(accelerator="cpu"), ())
    assert hardware_for(project.root, [], path)[0] == Hardware(accelerator="gpu")
    assert hardware_for(project.root, [], path, fast=True)[0] == Hardware(accelerator="gpu", devices=2)
    others = hardware_for(project.root, ["accelerator=auto", "seeds=[1]"], path)
    assert others == (Hardware(), ("seeds=[1]",))


@pytest.mark.parametrize(
    ("assigned", "message"),
    [
        (["accelerator=tpu"], "--set accelerator=tpu: accelerator: Input should be 'auto', 'cpu' or 'gpu' (got 'tpu')"),
        (["devices=0"], "--set devices=0: devices: Input should be greater than or equal to 1 (got 0)"),
        (["accelerator=cpu", "devices=1"], "leave it out with accelerator: cpu (--jobs limits processes)"),
    ],
)
def test_wrong_hardware_is_one_line(project: Project, assigned: list[str], message: str) -> None:
    project.write("mine", TINY)
    with pytest.raises(FedprintError, match=re.escape(message)):
        request_for(project.root, "mine", assignments=assigned)


def test_hardware_changes_neither_name_nor_digest_nor_whether_a_run_is_published(project: Project) -> None:
    project.write("tiny", TINY)
    plain, there = (request_for(project.root, "tiny", assignments=a) for a in ([], ["accelerator=cpu"]))
    assert (plain.hardware, there.hardware) == (Hardware(), Hardware(accelerator="cpu"))
    assert there.name == plain.name == "tiny"
    assert load_experiment(there).digest() == load_experiment(plain).digest()
    assert is_shipped(there) == is_shipped(plain)
    project.write("tiny", {**TINY, "accelerator": "cpu"})
    written = request_for(project.root, "tiny")
    assert written.hardware == there.hardware
    assert load_experiment(written).digest() == load_experiment(plain).digest()


def test_an_audit_of_an_experiment_is_called_as_without_hardware() -> None:
    audits = [audit_of(CHECKOUT, "client-dp-100", assignments=a) for a in ([], ["accelerator=cpu"])]
    assert audits[0].name == audits[1].name
    assert audits[1].hardware == Hardware(accelerator="cpu")


@pytest.mark.parametrize("name", ["paper-tables", "mnist-writers-plane"])
def test_files_that_build_on_others_leave_the_hardware_of_these_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_hardware(path: Path) -> dict[str, object]:
        return {**read_yaml(path), "accelerator": "gpu"}

    from fedprint.kinds.hardware import read_yaml

    monkeypatch.setattr("fedprint.kinds.hardware.read_yaml", with_hardware)
    request = request_for(CHECKOUT, name, assignments=["accelerator=cpu"])
    assert request.hardware.accelerator == "cpu"
    kind_of(request.values).load(request)
    assert "accelerator" not in read_settings(request.path)


def test_a_lab_on_the_cpu_uses_no_gpu_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedprint.kinds.laboratory.gpu_count", lambda: 2)
    pool = ServerPool(tmp_path / "nowhere")
    found = {
        asked: lab_in(tmp_path, pool, tracker=None, hardware=Hardware(accelerator=asked))
        for asked in ("auto", "cpu", "gpu")
    }
    assert {asked: (lab.device, lab.gpus.count) for asked, lab in found.items()} == {
        "auto": ("cuda", 2),
        "cpu": ("cpu", 0),
        "gpu": ("cuda", 2),
    }
