from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_project import TINY, Project

from fedprint.data.dataset import Dataset
from fedprint.data.prepared import load_users
from fedprint.data.sources.albums import Albums
from fedprint.data.text_columns import decode_captions
from fedprint.kinds.federation.stages import prepare
from fedprint.rng import seed_for
from fedprint.types import Examples, FedprintError


def test_chrono_without_time_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row order is not time: a silent split by it would pass for a chronological one."""
    project.write("timeless", {**TINY, "split": {"priors": ["chrono"]}})
    job = project.task("timeless", prior="chrono")
    load = Albums.load
    monkeypatch.setattr(Albums, "load", lambda *args: replace(load(*args), has_time=False))
    with pytest.raises(FedprintError, match="chrono needs a column time or order"):
        prepare.run(job)
    assert not job.at("prior").exists()


def test_photoset_without_albums_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every example an album of its own it would be the random split under another name."""
    project.write("albumless", {**TINY, "split": {"priors": ["photoset"]}})
    job = project.task("albumless", prior="photoset")
    load = Albums.load
    monkeypatch.setattr(Albums, "load", lambda *args: _each_alone(load(*args)))
    with pytest.raises(FedprintError, match="photoset needs a column album or session"):
        prepare.run(job)
    assert not job.at("prior").exists()


def _each_alone(dataset: Dataset) -> Dataset:
    alone = [replace(u, examples={**u.examples, "album": torch.arange(len(u.examples["y"]))}) for u in dataset.users]
    return replace(dataset, users=tuple(alone))


def test_photoset_keeps_albums_whole_and_captions_beside_them(project: Project) -> None:
    project.write("whole", {**TINY, "split": {"priors": ["photoset"]}})
    job = project.task("whole", prior="photoset")
    prepare.run(job)
    prior, private = (load_users(job.at(name)) for name in ("prior", "private"))
    for a, b in zip(prior, private, strict=True):
        assert set(a.examples["album"].tolist()).isdisjoint(b.examples["album"].tolist())
    everything = Albums.model_validate(TINY["data"]).load(None, seed_for(0, "data")).users[0].examples
    own, told = _captions_by_photo(private[0].examples), _captions_by_photo(everything)
    assert own and own.items() <= told.items()


def _captions_by_photo(examples: Examples) -> dict[bytes, str]:
    photos = [x.numpy().tobytes() for x in examples["x"]]
    return dict(zip(photos, decode_captions(examples["caption"]), strict=True))
