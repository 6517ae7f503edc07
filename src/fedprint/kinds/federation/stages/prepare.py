"""Stage prepare: users are loaded, encoded and split; no later stage opens the source."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from fedprint.data.background import check_background
from fedprint.data.catalogue.summary import contact_sheet, sample_texts
from fedprint.data.dataset import TEXT_TASKS, Dataset
from fedprint.data.formats.files import write_json
from fedprint.data.formats.locate import data_root
from fedprint.data.prepared import meta_of, save_meta, save_users
from fedprint.data.splits import has_albums, split_users, with_albums
from fedprint.lab.graph import Task
from fedprint.rng import seed_for
from fedprint.types import FedprintError


def run(task: Task) -> None:
    """Write prior, private, test and background users, the header, and what may be shown of the data."""
    config = task.config
    dataset = config.data.load(data_root(None), seed_for(task.seed, "data"))
    if task.prior == "chrono" and not dataset.has_time:
        raise FedprintError(
            f"split.priors: chrono needs a column time or order, and {dataset.name} has none; leave it out"
        )
    separate = check_background(dataset)
    users = with_albums(dataset.users, config.split.min_albums)
    if task.prior == "photoset" and not has_albums(users):
        raise FedprintError(
            f"split.priors: photoset needs a column album or session that joins examples, and {dataset.name} has none; "
            "leave it out"
        )
    split = split_users(
        users,
        seed=seed_for(task.seed, "split"),
        prior=task.prior,
        test_fraction=config.split.test_fraction,
        prior_fraction=config.split.prior_fraction,
        max_prior_examples=config.split.max_prior_examples,
        max_private_examples=config.split.max_private_examples,
        test=dataset.test,
    )
    for name, part in (("prior", split.prior), ("private", split.private), ("test", split.test)):
        save_users(task.at(name), part)
    save_users(task.at("background"), dataset.background)
    save_meta(task.at("meta"), meta_of(dataset))
    write_samples(dataset, task.at("samples"))
    write_json(task.at("samples") / "background.json", asdict(separate))


def write_samples(dataset: Dataset, out: Path) -> None:
    """Write a contact sheet or sample sentences where the source says so; else the reason why nothing is shown."""
    out.mkdir(parents=True, exist_ok=True)
    if not dataset.shareable:
        reason = f"The sidecar of {dataset.name} does not say `samples: shareable`; texts and pictures stay private."
        write_json(out / "samples.json", {"kind": "withheld", "reason": reason})
    elif dataset.task in TEXT_TASKS:
        write_json(
            out / "samples.json",
            {"kind": "texts", "texts": [text for texts in sample_texts(dataset).values() for text in texts]},
        )
    else:
        contact_sheet(dataset).save(out / "contact_sheet.png")
        caption = "Each row holds examples of one user."
        write_json(out / "samples.json", {"kind": "images", "file": "contact_sheet.png", "caption": caption})
