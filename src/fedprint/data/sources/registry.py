"""Every source of users by name. A source is its own configuration and loads itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import Field

from fedprint.data.dataset import Dataset
from fedprint.data.formats.describe import read_sidecar
from fedprint.data.formats.locate import data_root
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


class Source(Protocol):
    """What a pipeline needs of a source."""

    @property
    def name(self) -> str:
        """Return the source's key in :data:`SOURCES`."""

    def fingerprint(self, data_dir: Path | None = None) -> str:
        """Return 64 hexadecimal digits that change when the data change."""

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Return users and background; equal data, settings and seed give equal bits. Raises FedprintError."""


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
"""For configurations: the union that ``name`` tells apart."""

SOURCES: Mapping[str, type[Any]] = {
    "albums": Albums,
    "mnist_writers": MnistWriters,
    "mnist_shards": MnistShards,
    "ahcd_writers": AhcdWriters,
    "openmoji": OpenMoji,
    "blog": Blog,
    "presidents": Presidents,
    "ratebeer": RateBeer,
    "pipa": Pipa,
    "openimages": OpenImages,
    "yelp": Yelp,
    "blog_corpus": BlogCorpus,
    "folder": Folder,
}


def label_of(source: Any) -> str:
    """Return what to call the data: the name of the source, or of the folder that somebody brought."""
    return Path(source.path).name if isinstance(source, Folder) else str(source.name)


def may_be_shared(source: Any, data_dir: Path | None) -> bool:
    """Return whether the data, by their own declaration, may leave this machine.

    Invented people may; others where the sidecar says ``samples: shareable``. Without a sidecar they may not.
    """
    if isinstance(source, Albums):
        return True
    root = data_root(data_dir)
    name = source.path if isinstance(source, Folder) else source.name
    folder = Path(name) if Path(name).is_dir() or root is None else root / name
    return (folder / f"{folder.name}.json").is_file() and read_sidecar(folder).shareable
