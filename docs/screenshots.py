"""Make the screenshots of the docs (``make docs-screenshots``); needs Chromium, the numbers are made up."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent / "tests" / folder) for folder in ("helpers", "reports", "records")]

from chromium import Page, browser  # noqa: E402
from mlflow_page import mlflow_page, visit  # noqa: E402
from recorded_folder import write_recording  # noqa: E402
from report_cases import write_evaluations  # noqa: E402
from tiny_tracking import EXPERIMENT, write_plane, write_view  # noqa: E402

import fedprint  # noqa: E402
from fedprint.lab.tracking.database import PAGE, create_database  # noqa: E402
from fedprint.reports.pages.federation import write_report  # noqa: E402

SIZE = 1280, 860
COLOURS = 256
PATIENCE_S = 600
"""MLflow's page takes seconds, and on a busy machine minutes."""


def main() -> None:
    """Write the images and say which."""
    with tempfile.TemporaryDirectory() as folder, browser(*SIZE, PATIENCE_S) as page:
        root = Path(folder)
        for taken in (_report(root / "report", page), _audit(root / "audit", page), _mlflow(root / "mlflow", page)):
            for name in taken:
                print(name, flush=True)


def _report(root: Path, page: Page) -> Iterator[str]:
    """Take a picture of an experiment's report; yield what was written."""
    write_report(
        evaluations=write_evaluations(root / "evaluation", ("random", "chrono", "iid")),
        out=root / "report",
        experiment="demo",
        title="An experiment (made-up numbers)",
        config_text="",
    )
    page.open((root / "report" / "index.html").as_uri())
    page.wait_for_text("An experiment")
    yield _save(page, "report")


def _audit(root: Path, page: Page) -> Iterator[str]:
    """Take a picture of an audit's page; yield what was written."""
    folder = write_recording(root / "recorded", title="An audit (invented people)")
    fedprint.audit(folder, out=root / "report")
    page.open((root / "report" / "index.html").as_uri())
    page.wait_for_text("An audit")
    yield _save(page, "audit")


def _mlflow(root: Path, page: Page) -> Iterator[str]:
    """Take the pictures of MLflow's pages; yield what was written."""
    root.mkdir()
    write_plane(root)
    link = write_view(root)
    with mlflow_page(root) as address:
        for name in _shown(root, link, address, page):
            yield _save(page, f"mlflow-{name}")


def _save(page: Page, name: str) -> str:
    file = DOCS / "images" / f"{name}.png"
    page.wait_until_drawn()
    page.screenshot(file)
    _shrink(file)
    return f"{file.relative_to(DOCS.parent)}  {file.stat().st_size // 1000} kB"


def _shown(root: Path, link: str, address: str, page: Page) -> Iterator[str]:
    """Bring each page on the screen and yield its name."""
    client = create_database(root)
    number = client.get_experiment_by_name(EXPERIMENT).experiment_id
    run = client.search_runs([number], order_by=["start_time ASC"])[0]
    base, mode = f"{PAGE}/#/experiments/{number}", "workflowType=machine_learning"
    visit(page, address, f"{base}/runs?{mode}")
    page.wait_for_text("alpha 0, sigma 0.1", "albums (")
    page.click("button", "Views")
    page.wait_for_text("Plane")
    yield "views"
    visit(page, address, link)
    page.wait_for_text("Parallel Coordinates", "vs. utility/federated")
    page.wait("document.querySelectorAll('.js-plotly-plot .point, .scatterlayer').length")
    yield "parallel"
    visit(page, address, f"{base}/models/{run.outputs.model_outputs[0].model_id}?{mode}")
    page.wait_for_text("Metrics (3)", "attack/ap_device")
    yield "model"
    visit(page, address, f"{base}/runs/{run.info.run_id}?{mode}")
    page.wait_for_text("Logged models (1)", "Datasets", "A point of the plane")
    yield "run"


def _shrink(file: Path) -> None:
    """Keep few colours: a page has no more."""
    from PIL import Image

    with Image.open(file) as image:
        image.convert("RGB").quantize(COLOURS).save(file, optimize=True)


if __name__ == "__main__":
    main()
