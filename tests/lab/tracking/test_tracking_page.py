"""What MLflow's page shows of runs, in a headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import chromium
import pytest
from chromium import Page
from mlflow_page import mlflow_page, visit
from tiny_tracking import DATA, EXPERIMENT, GROUP, write_plane, write_view

from fedprint.lab.tracking.database import PAGE, create_database, ui_hint

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("chromium")]

MODE = "workflowType=machine_learning"
AXES = ["alpha", "sigma", "utility/federated", "attack/ap_update", "attack/ap_device"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A plane's database, the address of MLflow's page on it, the link of the plane's view, its first run."""
    root: Path = tmp_path_factory.mktemp("plane")
    write_plane(root)
    link = write_view(root)
    experiment = create_database(root).get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    number = experiment.experiment_id
    run = create_database(root).search_runs([number], order_by=["start_time ASC"])[0]
    with mlflow_page(root) as address:
        yield SimpleNamespace(root=root, address=address, link=link, run=run, base=f"{PAGE}/#/experiments/{number}")


@pytest.fixture
def page() -> Iterator[Page]:
    """A browser that has never seen MLflow. It is tall, because MLflow draws only the charts in sight."""
    with chromium.browser(height=1600) as found:
        yield found


def _axes(page: Page) -> list[str]:
    """Return the names of the axes of the parallel-coordinates plot, from left to right (other plots share some)."""
    script = """(() => {
      const named = svg => [...svg.querySelectorAll("text")].filter(e => NAMES.includes(e.textContent.trim()));
      const plot = [...document.querySelectorAll("svg")].find(svg => named(svg).length >= NAMES.length);
      const left = e => e.getBoundingClientRect().x;
      return plot ? named(plot).sort((a, b) => left(a) - left(b)).map(e => e.textContent.trim()) : [];
    })()"""
    wanted = script.replace("NAMES", str(AXES))
    page.wait(f"{wanted}.length >= {len(AXES)}")
    return list(page.run(wanted))[: len(AXES)]


def test_the_link_opens_the_parallel_coordinates_of_all_points(page: Page, made: SimpleNamespace) -> None:
    visit(page, made.address, made.link)
    page.wait_for_text("Parallel Coordinates", "9 matching runs", "attack/ap_update vs. utility/federated")
    assert _axes(page) == AXES
    assert "Traces" in page.text() and "Judges" not in page.text()  # the mode for machine learning


def test_three_clicks_lead_to_the_parallel_coordinates_from_the_experiment(page: Page, made: SimpleNamespace) -> None:
    visit(page, made.address, f"{made.base}/runs")
    page.wait_for_text("alpha 0, sigma 0.1")
    page.click("button", "Views")
    page.click("[role=menu] *", "Plane")
    page.wait_for_text("viewing a shared view")
    page.click("label:has(input[value=CHART])")
    page.wait_for_text("Parallel Coordinates")
    assert _axes(page) == AXES


def test_the_hint_opens_charts_of_the_group_alone(page: Page, made: SimpleNamespace) -> None:
    visit(page, made.address, ui_hint(made.root, EXPERIMENT, GROUP).splitlines()[1])
    page.wait_for_text("9 matching runs", "attack/ap_device", "train")
    visit(page, made.address, ui_hint(made.root, EXPERIMENT, "another group").splitlines()[1])
    page.wait_for_text("0 matching runs")


def test_models_are_listed_with_their_run_metrics_and_data(page: Page, made: SimpleNamespace) -> None:
    visit(page, made.address, f"{made.base}/models?{MODE}")
    page.wait_for_text("global model", "Ready", "alpha 0, sigma 0.1")
    model = made.run.outputs.model_outputs[0].model_id
    visit(page, made.address, f"{made.base}/models/{model}?{MODE}")
    page.wait_for_text("Metrics (3)", "attack/ap_update", "model.name", made.run.info.run_name, "fedprint run")
    page.wait_for_text(f"{DATA.name} (#{DATA.short_digest[:6]}")
    visit(page, made.address, f"{made.base}/models/{model}/artifacts?{MODE}")
    page.wait_for_text("weights.safetensors", "model.json")


def test_a_run_shows_its_data_set_description_source_and_model(page: Page, made: SimpleNamespace) -> None:
    visit(page, made.address, f"{made.base}/runs/{made.run.info.run_id}?{MODE}")
    page.wait_for_text("A point of the plane", "fedprint run albums-plane", "Logged models (1)", "Finished")
    page.click("*", f"{DATA.name} ({DATA.short_digest})")
    page.wait_for_text("1 datasets used", "users: 60", "examples: 4210", f"Digest: {DATA.short_digest}")


def test_a_short_run_shows_charts_of_the_machine(page: Page, made: SimpleNamespace) -> None:
    visit(page, made.address, f"{made.base}/runs/{made.run.info.run_id}/system-metrics?{MODE}")
    page.wait_for_text("cpu_utilization_percentage", "disk_usage_percentage")
