"""Every source of users by name. A source is its own configuration and loads itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import Field

from fedprint.data.formats.describe import read_sidecar
from fedprint.data.formats.locate import located
from fedprint.data.sources.albums import Albums
from fedprint.data.sources.blog_corpus import BlogCorpus
from fedprint.data.sources.folder import Folder
from fedprint.data.sources.images import AhcdWriters, MnistWriters
from fedprint.data.sources.openimages import OpenImages
from fedprint.data.sources.openmoji import OpenMoji
from fedprint.data.sources.pipa import Pipa
from fedprint.data.sources.reviews import RateBeer
from fedprint.data.sources.shards import MnistShards
from fedprint.data.sources.texts import Blog, Presidents
from fedprint.data.sources.yelp import Yelp
from fedprint.plugins import names_of, with_plugins

AnySource = Annotated[
    Albums
    | MnistWriters
    | MnistShards
    | AhcdWriters
    | OpenMoji
    | Blog
    | Presidents
    | RateBeer
    | Pipa
    | OpenImages
    | Yelp
    | BlogCorpus
    | Folder,
    Field(discriminator="name"),
]
"""The sources, told apart by ``name``.

Each has ``load(data_dir, seed)``, which returns users and background: equal data, settings and seed give equal bits.
Each has ``fingerprint(data_dir)``, 64 hexadecimal digits that change when the data change.
"""

if not TYPE_CHECKING:
    AnySource = with_plugins(AnySource, "fedprint.sources")

SOURCES: Mapping[str, type[Any]] = {
    name: source for source in get_args(get_args(AnySource)[0]) for name in names_of(source)
}


def label_of(source: Any) -> str:
    """Return the name of the data: that of the source, or of the folder."""
    return Path(source.path).name if isinstance(source, Folder) else str(source.name)


def folder_names(source: Any) -> tuple[str, ...]:
    """Return the names of the folders that a source reads: none for generated people, else by default its own name."""
    if isinstance(source, Folder):
        return tuple(Path(path).name for path in source.reads)
    shared = {"albums": (), "presidents": ("presidents", "background_text"), "mnist_shards": ("mnist_writers",)}
    return shared.get(source.name, (source.name,))


def may_be_shared(source: Any, data_dir: Path | None) -> bool:
    """Return whether the data may leave this machine.

    Generated data may; other data only where their sidecar says ``samples: shareable``.
    """
    if isinstance(source, Albums):
        return True
    folder = located(source.path if isinstance(source, Folder) else source.name, data_dir)
    return (folder / f"{folder.name}.json").is_file() and read_sidecar(folder).shareable
