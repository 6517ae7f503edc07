"""Accuracy by the number of clients: federations, rows, the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from clients_trespass import CHEATING
from rich.console import Console
from tiny_inversion import write_blobs
from tiny_project import CHECKOUT, project_in

from fedprint.data.sources.labelled_images import LabelledSet
from fedprint.defences.schedules import Step
from fedprint.errors import FedprintError
from fedprint.evaluation.rows import Row, read_measurements
from fedprint.kinds.clients import stages
from fedprint.kinds.clients.config import ClientsConfig, ClientsExperiment, Method, SweepSettings
from fedprint.kinds.clients.graph import CLIENTS, TRAIN
from fedprint.kinds.clients.kind import ClientsKind
from fedprint.kinds.clients.page import head_of
from fedprint.kinds.clients.rows import Hits, rows_of
from fedprint.kinds.clients.training import trained
from fedprint.kinds.images import read_hits, read_losses, read_model
from fedprint.kinds.registry import kind_of
from fedprint.kinds.requests import request_for
from fedprint.lab.graph import Task
from fedprint.lab.runner import JobFailed, Lab
from fedprint.lab.workers.pool import LocalPool
from fedprint.reports.claims.clients import judge_clients
from fedprint.reports.numbers.clients import final
from fedprint.reports.pages.clients import write_clients
from fedprint.reports.pages.terminal import summary_table
from fedprint.rng import torch_rng

NAME = "spn-clients"


def images(train: int = 240, test: int = 80) -> LabelledSet:
    """Return four classes that differ by the bright quarter of the image."""
    rng = torch_rng(0)

    def draw(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.arange(n) % 4
        x = 0.2 * torch.rand(n, 1, 8, 8, generator=rng)
        for i, label in enumerate(y.tolist()):
            x[i, :, 4 * (label // 2) : 4 * (label // 2) + 4, 4 * (label % 2) : 4 * (label % 2) + 4] += 0.7
        return x, y

    (x, y), (test_x, test_y) = draw(train), draw(test)
    return LabelledSet(x=x, y=y, test_x=test_x, test_y=test_y, class_names=("a", "b", "c", "d"))


def load(*assignments: str, fast: bool = False) -> ClientsExperiment:
    request = request_for(CHECKOUT, NAME, fast=fast, assignments=assignments, name="sweep")
    return ClientsExperiment.of(request, ClientsConfig)


def hits_of(settings: SweepSettings, images: LabelledSet) -> Hits:
    return trained(settings, images, "sequential")[0]


def cell(
    method: dict[str, Any], clients: int = 4, rounds: int = 4, partition: str = "iid", seed: int = 0
) -> SweepSettings:
    return SweepSettings.model_validate(
        {
            "data": {"name": "made-up"},
            "data_seed": 0,
            "partition": {"name": partition},
            "clients": clients,
            "network": {"name": "mlp", "hidden": 16},
            "training": {"rounds": rounds, "batch_size": 10, "lr": 0.01},
            "method": method,
            "seed": seed,
        }
    )


SHIPPED = load()
METHODS = {method.name: method.model_dump() for method in SHIPPED.config.methods}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_and_repeats_itself(name: str) -> None:
    found = hits_of(cell(METHODS[name], rounds=12), images())
    assert found.shape == (80,) and found.min() >= 0 and found.max() <= 1
    assert found.mean() > 0.5, "chance is a quarter"
    assert np.array_equal(found, hits_of(cell(METHODS[name], rounds=12), images()))


def test_methods_clients_partitions_and_seeds_all_change_the_result() -> None:
    def mean(**changed: Any) -> float:
        values = {"method": METHODS["fedavg"], "rounds": 1, **changed}
        return float(hits_of(cell(**values), images(120, 400)).mean())

    found = [
        mean(),
        mean(method=METHODS["standalone"]),
        mean(method=METHODS["ppdl-0.05"]),
        mean(clients=20),
        mean(partition="dirichlet", clients=20),
        mean(seed=1),
    ]
    assert len(set(found)) == len(found)


def test_together_beats_alone_where_clients_have_little() -> None:
    scarce = images(80, 200)
    alone, together = (
        hits_of(cell(METHODS[name], clients=20, rounds=10, partition="dirichlet"), scarce).mean()
        for name in ("standalone", "fedavg")
    )
    assert together > alone + 0.05


def test_noise_is_on_gradients_and_on_nothing_else() -> None:
    noised, masked = (Method.model_validate(METHODS[name]) for name in ("dp-0.1", "ppdl-0.3"))
    assert noised.noise == 0.1 and noised.on_updates == ()
    assert masked.noise == 0 and [d.name for d in masked.on_updates] == ["top-k"]
    assert cell(METHODS["dp-0.1"]).training.local(noised.noise).noise == 0.1
    with pytest.raises(ValueError, match="one number for all clients, got"):
        Method.model_validate({"name": "mixed", "defence": "dp", "defences": [{"name": "noise", "sigma": [0, 0.1]}]})


def test_the_learning_rate_follows_its_schedule_together_and_alone() -> None:
    later = {"name": "step", "at": [3], "factors": [0.01]}
    for name in ("fedavg", "standalone"):
        plain = cell(METHODS[name], clients=20, rounds=3, partition="dirichlet")
        scheduled = plain.training.model_copy(update={"lr_schedule": Step.model_validate(later)})
        held, stepped = (
            plain.model_copy(update={"training": scheduled.model_copy(update={"rounds": rounds})}) for rounds in (3, 4)
        )
        few = images(80, 400)
        hits = hits_of(plain, few)
        assert np.array_equal(hits, hits_of(held, few)), "before the step nothing changes"
        longer = plain.model_copy(update={"training": plain.training.model_copy(update={"rounds": 4})})
        moved = abs(hits_of(longer, few) - hits).mean()
        assert abs(hits_of(stepped, few) - hits).mean() < moved, "a hundredth of the rate moves little"


def test_the_stages_draw_train_and_keep_what_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def load_images(_: Any, __: Any, seed: int) -> LabelledSet:
        seeds.append(seed)
        return images()

    one = cell(METHODS["fedavg"], rounds=2, seed=3)
    monkeypatch.setattr(type(one.data), "load", load_images)
    task = task_of(one, tmp_path)
    for stage in CLIENTS.stages:
        stage.function()(task)
    assert seeds == [0] and one.data_seed == 0, "the images are those of the data seed"
    drawn = stages.read_images(task.at("images"))
    levels = (255 * images().x).round() / 255
    assert torch.equal(drawn.x, levels) and torch.equal(drawn.test_y, images().test_y)
    heard: list[tuple[int, float]] = []
    hits, params = trained(one, drawn, "sequential", lambda t, loss: heard.append((t, loss)))
    assert read_losses(task.at("hits")) == [("train/loss", loss, t) for t, loss in heard] and len(heard) == 2
    assert read_hits(task.at("hits")).tolist() == [round(float(share), 6) for share in hits]
    assert params is not None and set(read_model(task.at("model"))) == set(params)


def task_of(settings: SweepSettings, folder: Path) -> Task:
    places = {name: folder / name for stage in CLIENTS.stages for name in stage.outputs}
    return Task(config=settings, prior="none", seed=0, paths=places, scratch=folder, item="none-0", key="test")


@pytest.mark.parametrize("name", ["fedavg", "spn", "standalone"])
def test_a_configured_executor_trains_and_agrees_with_the_reference(name: str) -> None:
    one, few = cell(METHODS[name], rounds=3), images(80, 200)
    reference, other = (trained(one, few, backend) for backend in ("sequential", "vectorised:2"))
    if reference[1] is not None and other[1] is not None:
        for key, tensor in reference[1].items():
            torch.testing.assert_close(other[1][key], tensor, rtol=1e-3, atol=1e-4)
    assert abs(reference[0] - other[0]).mean() < 0.02


def test_an_executor_left_open_is_chosen_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load("training.backend=vectorised:4").federations[0].training.backend == "vectorised:4"
    one = cell(METHODS["fedavg"])
    left_open = one.model_copy(update={"training": one.training.model_copy(update={"backend": "auto"})})
    monkeypatch.setattr(type(one.data), "load", lambda *_: images())
    task = task_of(left_open, tmp_path)
    stages.choose(task)
    assert stages.read_json(task.at("executor") / "executor.json")["backend"] != "auto"
    with pytest.raises(FedprintError, match="backend"):
        load("training.backend=fast")


@pytest.mark.parametrize("folder", ["models", "federation", "defences"])
def test_the_code_of_a_federation_is_what_trains_it(folder: str) -> None:
    assert folder in TRAIN.code
    assert all((CHECKOUT / "src" / "fedprint" / each).exists() for stage in CLIENTS.stages for each in stage.code)


def test_the_shipped_file_covers_the_issue() -> None:
    assert kind_of(request_for(CHECKOUT, NAME).values).name == "clients"
    assert SHIPPED.config.clients == (8, 20, 50, 100)
    assert list(METHODS) == ["standalone", "fedavg", "spn", "ppdl-0.3", "ppdl-0.05", "dp-0.1"]
    assert [partition.name for partition in SHIPPED.config.partitions] == ["iid", "dirichlet"]
    fast = load(fast=True)
    assert SHIPPED.config.seeds == (0, 1, 2), "fewer decide nothing"
    assert len(SHIPPED.federations) == 3 * 48 and len(fast.federations) == 24
    assert fast.config.training.rounds < SHIPPED.config.training.rounds
    one = SHIPPED.federations[0]
    renamed = one.model_copy(update={"method": one.method.model_copy(update={"name": "by-itself"})})
    sections = TRAIN.settings or ()
    assert renamed.section_digest(*sections) == one.section_digest(*sections), "names say nothing about numbers"
    assert SHIPPED.federations[1].section_digest(*sections) != one.section_digest(*sections)


def test_a_method_says_which_defence_of_the_papers_it_is() -> None:
    with pytest.raises(ValueError, match=r"'x': defence none with defences \['top-k'\]; name them \(dp, ppdl_0.05, "):
        Method.model_validate({"name": "x", "defences": [{"name": "top-k", "share": 0.3}]})
    with pytest.raises(ValueError, match=r"'x': defence dp with defences \[\]; name them"):
        Method.model_validate({"name": "x", "defence": "dp"})
    with pytest.raises(ValueError, match=r"Input should be 'none', 'dp', 'ppdl_0\.05', 'ppdl_0\.3' or 'spn'"):
        Method.model_validate({"name": "x", "defence": "noise", "defences": [{"name": "noise", "sigma": 0.1}]})


def test_settings_that_make_no_sense_are_one_line() -> None:
    with pytest.raises(FedprintError, match="clients that train alone send nothing; leave defences out"):
        load("methods.3.alone=true")
    with pytest.raises(FedprintError, match="entries must differ"):
        load("clients=[8, 8]")


def found_for(
    experiment: ClientsExperiment, shares: dict[str, float], n: int = 300, apart: float = 0.02
) -> list[Hits | FedprintError]:
    """Return hits of which every method gets its share right, the same images first; seeds lie ``apart``."""

    def hits(one: SweepSettings) -> Hits:
        right = round(n * (shares[one.method.name] + apart * one.seed))
        return np.array([1.0] * right + [0.0] * (n - right))

    return [hits(one) for one in experiment.federations]


SHARES = {"standalone": 0.3, "fedavg": 0.4, "spn": 0.4, "ppdl-0.3": 0.4, "ppdl-0.05": 0.35, "dp-0.1": 0.25}


def test_rows_and_page_come_from_the_hits_and_name_what_diverged(tmp_path: Path) -> None:
    experiment = load("network={name: dlnet}", "seeds=[0]")
    federations, found = experiment.federations, found_for(experiment, SHARES)
    found[-1] = FedprintError("training diverged in round 3; lower federation.lr")
    rows = rows_of(experiment, found, classes=4)
    accuracies = [row for row in rows if row["metric"] == "accuracy"]
    assert len(accuracies) == 47 and {row["training"] for row in accuracies} == {"standalone", "mean"}
    spn = next(row for row in accuracies if (row["method"], row["clients"], row["partition"]) == ("spn", 8, "iid"))
    assert spn["value"] == pytest.approx(0.4) and spn["lo"] < 0.35 < 0.45 < spn["hi"] and spn["chance"] == 0.25
    names = {row["method"]: row["defence"] for row in accuracies}
    assert names == {"standalone": "none", "fedavg": "none", "spn": "spn", "ppdl-0.3": "ppdl_0.3",
                     "ppdl-0.05": "ppdl_0.05", "dp-0.1": "dp"}  # fmt: skip
    head = head_of(experiment, {federations[-1].label: str(found[-1])})
    stepped = load("training.lr_schedule={name: step, at: [9], factors: [0.5]}")
    assert "momentum at 0.01 (step: at [9], factors [0.5]), aggregation" in head_of(stepped, {}).training
    write_clients(head=head, rows=rows, config_text=experiment.text(), out=tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text()
    assert "dp-0.1, 100 clients, dirichlet, seed 0" in page and "training diverged in round 3" in page
    assert "With the iid partition accuracy changes, in points, by +10.0 [" in page
    assert "] from standalone to fedavg (100 clients), " in page and "no number at 100 (diverged)" in page
    assert "published spn" in page and "69.0" in page, "spn's accuracy of DLNet on CIFAR-10 at alpha2 = .1"
    plain = load("seeds=[0]")
    write_clients(head=head_of(plain, {}), rows=rows, config_text=plain.text(), out=tmp_path / "plain")
    assert "published spn" not in (tmp_path / "plain" / "index.html").read_text(), "another network is not comparable"
    assert len(read_measurements(tmp_path / "report" / "measurements.jsonl")) == len(rows)
    assert yaml.safe_load((tmp_path / "report" / "config.yaml").read_text())["clients"] == [8, 20, 50, 100]
    assert {path.name for path in (tmp_path / "report" / "figures").iterdir()} == {
        "accuracy-by-clients.svg",
        "accuracy-by-clients.png",
        "plotly.min.js",
    }
    out = Console(width=200, record=True, file=StringIO())
    out.print(summary_table(tmp_path / "report"))
    text = out.export_text()
    assert "30 % [25, 36]" in text and "40 % [34, 46]" in text and "training diverged in round 3" in text
    assert "verdicts on the papers' claims, one per claim and partition, " in " ".join(text.split())


def test_differences_are_paired_over_the_test_images() -> None:
    experiment = load("clients=[8, 20]", "partitions=[{name: iid}]", "seeds=[0]")
    found = found_for(experiment, SHARES)
    rows = rows_of(experiment, found, classes=4)
    gain = row_of(rows, "accuracy_difference", "fedavg", "standalone")
    accuracy = next(row for row in rows if (row["method"], row["clients"]) == ("fedavg", 8))
    assert gain["value"] == pytest.approx(0.1) and gain["chance"] == 0 and gain["n_questions"] == 300
    assert gain["hi"] - gain["lo"] < 0.75 * (accuracy["hi"] - accuracy["lo"]), "the same images: narrower"
    assert row_of(rows, "accuracy_difference", "spn", "dp-0.1")["value"] == pytest.approx(0.15)
    grown = row_of(rows, "accuracy_gain_difference", "fedavg", "standalone", clients=20)
    assert grown["value"] == pytest.approx(0.0) and grown["versus_clients"] == 8
    with_more = [
        np.array([1.0] * 150 + [0.0] * 150) if (cell.method.name, cell.clients) == ("fedavg", 20) else hits
        for cell, hits in zip(experiment.federations, found, strict=True)
    ]
    rows = rows_of(experiment, with_more, classes=4)
    grown = row_of(rows, "accuracy_gain_difference", "fedavg", "standalone", clients=20)
    assert grown["value"] == pytest.approx(0.1) and grown["lo"] > 0


def row_of(rows: list[Row], metric: str, method: str, versus: str, clients: int = 8) -> Row:
    place = (metric, method, versus, clients)
    keys = ("metric", "method", "versus_method", "clients")
    (found,) = [row for row in rows if tuple(row.get(key) for key in keys) == place]
    return found


def test_seeds_share_their_images_and_widen_the_interval(tmp_path: Path) -> None:
    several = load("clients=[8]", "partitions=[{name: iid}]", "seeds=[0, 1, 5]")
    assert {(cell.data_seed, cell.seed) for cell in several.federations} == {(0, 0), (0, 1), (0, 5)}
    found = found_for(several, SHARES)
    rows = rows_of(several, found, classes=4)
    fedavg = {r["seed"]: r for r in rows if (r["metric"], r["method"]) == ("accuracy", "fedavg")}
    assert list(fedavg) == [0, 1, 5, "all"] and fedavg["all"]["n_seeds"] == 3
    assert fedavg["all"]["value"] == pytest.approx(0.44)
    widths = {seed: row["hi"] - row["lo"] for seed, row in fedavg.items()}
    assert widths["all"] > 1.05 * max(widths[seed] for seed in (0, 1, 5)), "seeds lie 10 points apart"
    found[1] = FedprintError("diverged")  # fedavg of the first seed
    left = rows_of(several, found, classes=4)
    pooled = [r for r in left if (r["metric"], r["method"], r["seed"]) == ("accuracy", "fedavg", "all")]
    assert pooled[0]["n_seeds"] == 2
    write_clients(head=head_of(several, {}), rows=rows, config_text=several.text(), out=tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text()
    assert "intervals over 300 test images and 3 seeds" in page
    assert "44.0" in page and "accuracy changes, in points, by +10.0 [" in page


def judged(shares: dict[str, float], *assignments: str, n: int = 1000) -> dict[tuple[str, str], str]:
    experiment = load("seeds=[0, 1, 2]", *assignments)
    rows = final(rows_of(experiment, found_for(experiment, shares, n, 0.0), classes=4))
    return {(v.claim, v.member): v.state for v in judge_clients(head_of(experiment, {}), rows)}


def test_claims_are_judged_on_paired_differences() -> None:
    found = judged(SHARES)
    assert found["fedavg-over-standalone", "iid"] == "holds" and found["collapse", "dirichlet"] == "holds"
    assert found["gain-grows", "iid"] == found["spn-over-fedavg", "iid"] == "undecided", "they are equal"
    assert found["spn-over-ppdl", "iid"] == "undecided", "no more accurate than PPDL-0.3, more than PPDL-0.05"
    assert found["spn-over-dp", "iid"] == "holds"
    assert found["fail-at-100", "iid"] == "fails", "PPDL-0.3 is above chance"
    assert found["par-at-100", "dirichlet"] == "holds" and found["par-at-100", "iid"] == "untested"
    apart = judged({**SHARES, "spn": 0.39, "ppdl-0.3": 0.25}, "clients=[8, 100]", n=4000)
    assert apart["spn-over-fedavg", "iid"] == "fails" and apart["par-at-100", "dirichlet"] == "fails"
    assert apart["fail-at-100", "iid"] == "holds", "both are at chance"
    assert judged(SHARES, "seeds=[0, 1]")["fedavg-over-standalone", "iid"] == "undecided", "two seeds decide nothing"
    few = judged(SHARES, "clients=[8]")
    assert few["fail-at-100", "iid"] == few["gain-grows", "iid"] == few["par-at-100", "dirichlet"] == "untested"


def test_methods_that_diverged_in_every_seed_failed_to_train() -> None:
    experiment = load("seeds=[0, 1, 2]", "clients=[100]")
    found = [
        FedprintError("diverged") if one.method.name in ("ppdl-0.3", "dp-0.1") else hits
        for one, hits in zip(experiment.federations, found_for(experiment, SHARES), strict=True)
    ]
    rows = final(rows_of(experiment, found, classes=4))
    (verdict,) = [
        v for v in judge_clients(head_of(experiment, {}), rows) if (v.claim, v.member) == ("fail-at-100", "iid")
    ]
    assert (verdict.state, verdict.n_seeds, verdict.numbers) == ("holds", 3, "ppdl-0.3 diverged, dp-0.1 diverged")


def test_a_dry_run_measures_a_little(data_dir: Path) -> None:
    costs = ClientsKind().costs(load(fast=True), "cpu")
    assert costs.jobs == 24 and costs.seconds > 1 and costs.memory > 2**29 and costs.details["rounds"] == "10"


TINY_SWEEP: Mapping[str, Any] = {
    "report": {"title": "Tiny sweep"},
    "data": {"name": "blobs", "train": 60, "test": 40},
    "partitions": [{"name": "iid"}],
    "clients": [2],
    "network": {"name": "mlp", "hidden": 8},
    "training": {"rounds": 2, "batch_size": 10, "lr": 0.01},
    "methods": [{"name": "standalone", "alone": True}, {"name": "fedavg"}],
}


def test_a_sweep_runs_in_the_lab_and_names_what_diverged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_blobs(tmp_path / "data")
    monkeypatch.setenv("FEDPRINT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    wild = {"name": "ppdl-0.3", "defence": "dp", "defences": [{"name": "noise", "sigma": 1e12}]}
    (tmp_path / "project").mkdir()
    with project_in(tmp_path / "project") as project:
        # Adam's steps are short, however large the noise is; and only four layers multiply it beyond float32
        deep = {"name": "cnn", "channels": [2, 2], "hidden": 4}
        plain = {**TINY_SWEEP["training"], "optimiser": "sgd"}
        changed = {"network": deep, "training": plain, "methods": [*TINY_SWEEP["methods"], wild]}
        project.write("sweep", {**TINY_SWEEP, **changed})
        kind = ClientsKind()
        config = kind.load(request_for(project.root, "sweep"))
        with (
            LocalPool(["fedprint.kinds.preload", "clients_trespass"]) as pool,
            Lab(root=project.root, pool=pool) as lab,
        ):
            findings = kind.carry_out(config, lab, project.root / "reports" / "sweep")
            cheating = replace(kind.jobs(config)[0], work=CHEATING)
            with pytest.raises(JobFailed, match=r"stage train: .*blobs\.npz, which is not among its inputs"):
                lab.one(cheating, title="sweep")
    assert len(findings.done) == 2 and not findings.failures, "what diverges is a result"
    page = (project.root / "reports" / "sweep" / "index.html").read_text()
    assert "ppdl-0.3, 2 clients, iid, seed 0" in page and "training diverged" in page
    assert {"accuracy_iid_fedavg", "accuracy_iid_fedavg_lo"} <= set(findings.metrics)
