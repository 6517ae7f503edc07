"""The small file in git that names a version of a data set: ``datasets/<name>.yaml``. The data themselves never are.

An experiment's lock holds this file's digest, and so names the data behind its numbers.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from fedprint.data.catalogue.summary import describe
from fedprint.data.dataset import Dataset
from fedprint.data.formats.describe import validate
from fedprint.data.formats.official import LAYOUTS, Survey
from fedprint.data.sources.registry import SOURCES
from fedprint.errors import FedprintError
from fedprint.lab.versions.repository import track

FOLDER = "datasets"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Manifest(BaseModel):
    """What git holds of a data set: no user, no path, no example. ``sha256`` is the fingerprint of its source.

    ``users`` is None where the data have no users.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    sha256: str
    users: int | None
    examples: int
    licence: str
    shareable: bool


def survey(folder: Path) -> Manifest:
    """Return the manifest of a folder: in the format of docs/data-format.md, or in a layout that a source reads.

    The data are read and checked. Raises FedprintError (one line) that says what is wrong with them.
    """
    name = folder.resolve().name
    if (folder / f"{name}.json").is_file():
        return _of_table(folder)
    if name in LAYOUTS and any(folder.glob(LAYOUTS[name])):
        return _of_survey(name, folder.resolve().parent)
    if name in SOURCES and folder.is_dir():
        return of_dataset(SOURCES[name]().load(folder.resolve().parent, 0))
    validate(folder)  # says in one line what is missing
    raise FedprintError(f"{folder}: holds no data set that fedprint can read; see docs/data-format.md")


def of_dataset(dataset: Dataset) -> Manifest:
    """Return the manifest of a loaded data set: its users and background users, and their examples."""
    people = [*dataset.users, *dataset.background]
    return Manifest(
        name=dataset.name,
        sha256=dataset.sha256,
        users=len(people),
        examples=sum(len(user.examples["y"]) for user in people),
        licence=dataset.licence,
        shareable=dataset.shareable,
    )


def _of_table(folder: Path) -> Manifest:
    summary = describe(folder.resolve().name, folder.resolve().parent)
    return Manifest(**{name: getattr(summary, name) for name in Manifest.model_fields})


def _of_survey(name: str, data_dir: Path) -> Manifest:
    counts: Survey = SOURCES[name]().survey(data_dir)
    return Manifest(
        name=name,
        sha256=counts.sha256,
        users=counts.users + counts.background_users,
        examples=counts.examples + counts.background_examples,
        licence=counts.licence,
        shareable=False,
    )


def write_manifest(root: Path, manifest: Manifest) -> Path:
    """Write ``datasets/<name>.yaml`` and return its path; equal manifests give equal bytes."""
    path = root / FOLDER / f"{manifest.name}.yaml"
    path.parent.mkdir(exist_ok=True)
    text = yaml.safe_dump(manifest.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)
    head = "# A version of a data set, written by `fedprint data add`; the data are not in git.\n"
    path.write_text(head + text, encoding="utf-8")
    return path


def read_manifest(root: Path, name: str) -> Manifest:
    """Return the manifest of a data set. Raises FedprintError when there is none or it is broken."""
    path = root / FOLDER / f"{name}.yaml"
    if not path.is_file():
        raise FedprintError(f"{FOLDER}/{name}.yaml does not exist: run `fedprint data add PATH/TO/{name}`")
    try:
        return Manifest.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (ValidationError, yaml.YAMLError) as error:
        raise FedprintError(
            f"{path}: not a valid manifest ({' '.join(str(error).split())[:120]}); run `fedprint data add` again"
        ) from None


def names_these(root: Path, name: str, sha256: str) -> bool:
    """Return whether there is a manifest of this name with this digest."""
    return (root / FOLDER / f"{name}.yaml").is_file() and read_manifest(root, name).sha256 == sha256


def add(root: Path, folder: Path, name: str | None = None, *, cache: bool = False) -> Path:
    """Run ``fedprint data add``: write the manifest of a data set under ``name`` (default: its own); return its path.

    With ``cache`` the data are also copied to ``data/<name>`` and enter DVC's cache. ``dvc push`` uploads them only
    where their sidecar says that they may be shared. Raises FedprintError.
    """
    manifest = survey(folder)
    if name and not _NAME.fullmatch(name):
        raise FedprintError(f"'{name}' is not a valid name for a data set: use letters, digits, '-', '_' and '.'")
    if cache and name not in (None, manifest.name):
        raise FedprintError(f"data in DVC's cache keep the name '{manifest.name}': leave out --name, or --cache")
    if cache:
        keep(root, folder, manifest)
    return write_manifest(root, manifest.model_copy(update={"name": name or manifest.name}))


def add_embedded(root: Path, dataset: Dataset) -> Path:
    """Write the manifest of a generated data set, as the quickstart's configuration makes it."""
    return write_manifest(root, of_dataset(dataset))


def keep(root: Path, folder: Path, manifest: Manifest) -> Path:
    """Copy a data set to ``data/<name>``, add that to DVC's cache, and return the ``.dvc`` file for git."""
    target = root / "data" / manifest.name
    if folder.resolve() != target.resolve():
        incoming = target.with_name(f".{target.name}.incoming")
        shutil.rmtree(incoming, ignore_errors=True)
        # A copy, never a link: DVC makes what it keeps read-only.
        shutil.copytree(folder, incoming)
        shutil.rmtree(target, ignore_errors=True)
        incoming.rename(target)
    return track(root, target, push=manifest.shareable)
