from __future__ import annotations

from dataclasses import replace

import pytest
from tiny_project import TINY, Project

from fedprint.data.albums import Albums
from fedprint.pipeline.stages import prepare
from fedprint.types import FedprintError


def test_chrono_without_time_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row order is not time: a silent split by it would pass for a chronological one."""
    project.write("timeless", {**TINY, "split": {"priors": ["chrono"]}})
    job = project.job("timeless", prior="chrono")
    load = Albums.load
    monkeypatch.setattr(Albums, "load", lambda *args: replace(load(*args), has_time=False))
    with pytest.raises(FedprintError, match="chrono needs a column time or order"):
        prepare.run(job)
    assert not job.paths.prepared.exists()
