"""What ``fedprint data`` prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedprint.data.catalogue.fetch_images import LOADERS, fetch_images
from fedprint.data.catalogue.fetch_mnist_writers import fetch_mnist_writers
from fedprint.data.catalogue.summary import Summary, contact_sheet, list_datasets, sample_texts
from fedprint.data.catalogue.summary import describe as describe_folder
from fedprint.data.dataset import TEXT_TASKS, Dataset
from fedprint.data.formats.official import LAYOUTS, Survey, list_official
from fedprint.data.sources.albums import Albums
from fedprint.data.sources.registry import SOURCES
from fedprint.rng import seed_for
from fedprint.types import FedprintError

PREVIEWS = ("albums", "mnist_writers", "ahcd_writers", "blog", "presidents")


def list_table(data_dir: Path | None) -> Table:
    """Return one line per data set: the embedded one, those found in the folder, and known ones that are missing."""
    present = {*list_datasets(data_dir), *list_official(data_dir)}
    table = Table("name", "where", "ready experiment", title="Data sets")
    table.add_row("albums", "embedded (generated)", "quickstart")
    for name in sorted({*present, *SOURCES} - {"albums", "folder", "mnist_shards"}):
        where = str(data_dir / name) if name in present and data_dir else "missing: --data-dir or FEDPRINT_DATA"
        table.add_row(name, where, name.replace("_", "-") if name in SOURCES else "use the source `folder`")
    return table


def describe(name: str, data_dir: Path | None, out: Path | None, samples: bool) -> None:
    """Print users, sizes, columns and licence; save a contact sheet, or print sentences.

    Of official layouts, which are read with the papers' filters, only numbers are printed.
    Samples of data that are not shareable are shown only where ``samples`` asks for them, and stay on this machine.
    """
    console = Console()
    if name == "albums":
        dataset = Albums().load(None, seed_for(0, "data"))
        console.print(_album_table(dataset))
        target = out or Path("albums-contact-sheet.png")
        contact_sheet(dataset).save(target)
        console.print(f"Contact sheet: {target}")
        return
    if name in LAYOUTS:
        console.print(_summary_table(SOURCES[name]().survey(data_dir)))
        return
    console.print(_summary_table(describe_folder(name, data_dir)))
    _show_samples(name, data_dir, out, console, samples)


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
        table.add_row(what.replace("_", " "), shown if len(shown) < 300 else f"{shown[:300]} ...")
    return table


def _show_samples(name: str, data_dir: Path | None, out: Path | None, console: Console, samples: bool) -> None:
    if name not in PREVIEWS:
        return
    dataset = SOURCES[name]().load(data_dir, 0)
    if not dataset.shareable and not samples:
        console.print("Samples are withheld: the sidecar does not say `samples: shareable`; --samples shows them here.")
        return
    dataset = replace(dataset, shareable=True)
    if dataset.task in TEXT_TASKS:
        for user, texts in sample_texts(dataset).items():
            console.print(f"user {user}: {' | '.join(texts)}", markup=False)
    else:
        target = out or Path(f"{name}-contact-sheet.png")
        contact_sheet(dataset).save(target)
        console.print(f"Contact sheet: {target}")


def fetch(name: str, data_dir: Path | None) -> Path:
    """Build a data set from its public source and return its folder.

    That is mnist_writers, or one of torchvision's image sets without users.
    """
    if name != "mnist_writers" and name not in LOADERS:
        known = ", ".join(("mnist_writers", *LOADERS))
        raise FedprintError(f"'{name}' cannot be fetched; choose one of {known} (through torchvision)")
    if data_dir is None:
        raise FedprintError("no data folder: give --data-dir or set FEDPRINT_DATA")
    table = fetch_mnist_writers(data_dir) if name == "mnist_writers" else fetch_images(name, data_dir)
    print(f"{table.folder}: {len(table)} examples")
    return table.folder
