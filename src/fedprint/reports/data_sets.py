"""What ``fedprint data`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.markup import escape
from rich.table import Column, Table

from fedprint.data.catalogue.fetch_images import LOADERS, fetch_images
from fedprint.data.catalogue.fetch_mnist_writers import fetch_mnist_writers
from fedprint.data.catalogue.summary import Summary, contact_sheet, list_datasets, sample_texts
from fedprint.data.catalogue.summary import describe as describe_folder
from fedprint.data.dataset import TEXT_TASKS, Dataset
from fedprint.data.formats.locate import REMEDIES, remedy_for
from fedprint.data.formats.official import LAYOUTS, Survey, list_official
from fedprint.data.sources.albums import Albums
from fedprint.data.sources.registry import SOURCES
from fedprint.errors import did_you_mean
from fedprint.lab.outputs import file_for, folder_for
from fedprint.reports.console import show
from fedprint.rng import seed_for
from fedprint.types import FedprintError

PREVIEWS = ("albums", "mnist_writers", "ahcd_writers", "blog", "presidents")


def list_table(data_dir: Path | None, experiments: Mapping[str, Sequence[str]]) -> Table:
    """Return one line per data set: the embedded one, those found in the folder, and how to get the missing ones.

    ``experiments`` names the ready ones by data set.
    """
    present = {*list_datasets(data_dir), *list_official(data_dir)}
    title = f"Data sets in {data_dir}" if data_dir else "Data sets (no data folder: give --data-dir or FEDPRINT_DATA)"
    table = Table(Column("name", no_wrap=True), "where, or how to get it", "ready experiments", title=title)
    table.add_row("albums", "embedded (generated)", _ready("albums", experiments))
    for name in sorted({*present, *SOURCES, *LOADERS} - {"albums", "folder", "mnist_shards"}):
        where = str(data_dir / name) if name in present and data_dir else f"missing: {remedy_for(name)}"
        table.add_row(name, where, _ready(name, experiments))
    return table


def _ready(name: str, experiments: Mapping[str, Sequence[str]], most: int = 3) -> str:
    known = experiments.get(name, ())
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more or f"none; --set data='{{name: folder, path: {name}}}'"


def describe(name: str, data_dir: Path | None, out: Path | None, samples: bool) -> None:
    """Print users, sizes, columns and licence; save a contact sheet, or print sentences.

    Of official layouts, which are read with the papers' filters, only numbers are printed.
    Samples of data that are not shareable are shown only where ``samples`` asks for them, and stay on this machine.
    """
    if name == "albums":
        dataset = Albums().load(None, seed_for(0, "data"))
        show(_album_table(dataset))
        _save_sheet(dataset, name, out)
        return
    if name in LAYOUTS:
        show(_summary_table(SOURCES[name]().survey(data_dir)))
        return
    show(_summary_table(describe_folder(name, data_dir)))
    _show_samples(name, data_dir, out, samples)


def _album_table(dataset: Dataset) -> Table:
    table = Table("what", "value", title="albums (synthetic, generated)")
    sizes = [len(user.examples["y"]) for user in dataset.users]
    for what, value in {
        "users": str(len(sizes)),
        "background users": str(len(dataset.background)),
        "examples per user": f"{min(sizes)} / {sorted(sizes)[len(sizes) // 2]} / {max(sizes)} (min/median/max)",
        "classes": ", ".join(dataset.class_names),
        "attributes": ", ".join(dataset.users[0].attributes),
        "time": "t (drifting preferences), album (event)",
        "licence": dataset.licence,
    }.items():
        table.add_row(what, value)
    return table


def _summary_table(summary: Summary | Survey) -> Table:
    table = Table("what", "value", title=summary.name)
    for what, value in vars(summary).items():
        shown = ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
        table.add_row(what.replace("_", " "), escape(shown if len(shown) < 300 else f"{shown[:300]} ..."))
    return table


def _show_samples(name: str, data_dir: Path | None, out: Path | None, samples: bool) -> None:
    if name not in PREVIEWS:
        return
    dataset = SOURCES[name]().load(data_dir, 0)
    if not dataset.shareable and not samples:
        print("Samples are withheld: the sidecar does not say `samples: shareable`; --samples shows them here.")
        return
    dataset = replace(dataset, shareable=True)
    if dataset.task in TEXT_TASKS:
        for user, texts in sample_texts(dataset).items():
            print(f"user {user}: {' | '.join(texts)}")
    else:
        _save_sheet(dataset, name, out)


def _save_sheet(dataset: Dataset, name: str, out: Path | None) -> None:
    """Save a contact sheet, by default in the folder work/, which git ignores."""
    target = file_for(out or Path("work") / f"{name}-contact-sheet.png")
    if target.suffix not in (".png", ".jpg"):
        raise FedprintError(f"{target}: the ending says the kind of picture; choose .png or .jpg")
    contact_sheet(dataset).save(target)
    print(f"Contact sheet: {target}")


def fetch(name: str, data_dir: Path | None) -> Path:
    """Build a data set from its public source and return its folder.

    That is mnist_writers, or one of torchvision's image sets without users.
    """
    if name != "mnist_writers" and name not in LOADERS:
        known = ", ".join(("mnist_writers", *LOADERS))
        other = f"{REMEDIES[name]}; fetched" if name in REMEDIES else f"{did_you_mean(name, LOADERS)}fetched"
        raise FedprintError(f"'{name}' cannot be fetched; {other} are {known} (through torchvision)")
    if data_dir is None:
        raise FedprintError("no data folder: give --data-dir or set FEDPRINT_DATA")
    folder_for(data_dir / name)
    table = fetch_mnist_writers(data_dir) if name == "mnist_writers" else fetch_images(name, data_dir)
    print(f"{table.folder}: {len(table)} examples")
    return table.folder
