"""Views that MLflow's page lists under "Views": the runs of a group, and the charts that compare them.

A view is a tag of its experiment, in the form in which the page itself saves one (MLflow 3.17): the state of the page
as JSON, deflated, in base64. ``tests/lab/tracking/test_tracking_page.py`` opens one in a browser.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprint.lab.tracking.database import (
    GROUP_TAG,
    PAGE,
    create_database,
    database_lock,
    experiment_id,
    page_link,
    server,
)

VIEW_TAG = "mlflow.sharedViewState."
MOST_RUNS = 200
CHART_HEIGHT = 400
"""In pixels."""


@dataclass(frozen=True, kw_only=True)
class View:
    """The runs of a group side by side: a parallel-coordinates plot of ``params`` and ``metrics``, and a scatter plot.

    ``name`` is what the page lists; ``scatter`` are the metrics on its axes.
    """

    experiment: str
    group: str
    name: str
    params: Sequence[str]
    metrics: Sequence[str]
    scatter: tuple[str, str] | None = None

    @property
    def key(self) -> str:
        """What the view is called in links: equal for the same group and name."""
        return "fedprint" + hashlib.sha256(f"{self.group} {self.name}".encode()).hexdigest()[:12]


def save_view(root: Path, view: View) -> str:
    """Save the view in its experiment, replacing one of the same group and name, and return the link that opens it."""
    client = create_database(root)
    now = time.time_ns() // 1_000_000
    state = base64.b64encode(zlib.compress(json.dumps(_state(view)).encode())).decode()
    saved = {"name": view.name, "createdAt": now, "updatedAt": now, "state": f"deflate;{state}"}
    with database_lock(root):
        number = experiment_id(client, root, view.experiment)
        client.set_experiment_tag(number, f"{VIEW_TAG}{view.key}", json.dumps(saved))
    return page_link(number, server() or PAGE, viewStateShareKey=view.key)


def _state(view: View) -> Mapping[str, Any]:
    section = f"{view.key}-section"
    columns = [f"params.`{name}`" for name in view.params] + [f"metrics.`{name}`" for name in view.metrics]
    charts = [_chart(view, "PARALLEL", section, selectedParams=[*view.params], selectedMetrics=[*view.metrics])]
    if view.scatter:
        x, y = ({"key": metric, "type": "METRIC"} for metric in view.scatter)
        charts.append(_chart(view, "SCATTER", section, xaxis=x, yaxis=y))
    return {
        "searchFilter": f"tags.`{GROUP_TAG}` = '{view.group}'",
        "orderByKey": "attributes.start_time",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [*columns, "attributes.`Dataset`", "attributes.`Models`"],
        "runsHiddenMode": "SHOWALL",
        "compareRunCharts": charts,
        "compareRunSections": [_section(section, view.name)],
        "isAccordionReordered": True,
        "hideEmptyCharts": True,
    }


def _section(uuid: str, name: str) -> Mapping[str, Any]:
    """Return a section with one wide chart below the other, which the page leaves before its own sections."""
    look = {"display": True, "columns": 1, "cardHeight": CHART_HEIGHT}
    return {"uuid": uuid, "name": name, "isReordered": True, "deleted": False, "isGenerated": False, **look}


def _chart(view: View, kind: str, section: str, **settings: Any) -> dict[str, Any]:
    common = {"type": kind, "runsCountToCompare": MOST_RUNS, "metricSectionId": section, "deleted": False}
    return {"uuid": f"{view.key}-{kind.lower()}", "isGenerated": False, "showAllRuns": False, **common, **settings}
