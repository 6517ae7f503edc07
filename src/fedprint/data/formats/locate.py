"""Where data are: in a given folder, or in the one that FEDPRINT_DATA names; if they are missing, how to get them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fedprint.types import FedprintError

VARIABLE = "FEDPRINT_DATA"
"""Environment variable that names the folder of data sets."""

_FORMAT = "describe them as in docs/data-format.md"

REMEDIES: Mapping[str, str] = {
    "mnist_writers": "run `fedprint data fetch mnist_writers` (MNIST and QMNIST through torchvision)",
    **{
        name: f"run `fedprint data fetch {name}` (through torchvision)"
        for name in ("mnist", "fashion_mnist", "cifar10", "cifar100", "svhn")
    },
    "ahcd_writers": f"take the Arabic Handwritten Characters Dataset (El-Sawy, Loey, El-Bakry 2017) and {_FORMAT}",
    "openmoji": f"take OpenMoji (graphics and metadata with designer and date, CC BY-SA 4.0) and {_FORMAT}",
    "blog": "unpack the Blog Authorship Corpus (Schler et al. 2006), <id>.<gender>.<age>.<industry>.<sign>.xml",
    "presidents": f"take the inaugural and state_union corpora of NLTK and {_FORMAT}",
    "pipa": (
        "take People In Photo Albums (Zhang et al. 2015; index: github.com/coallaoh/PIPA_dataset) and place "
        "annotations/index.txt, {train,val,test,leftover}/<photoset_id>_<photo_id>.jpg, authors.csv (photo_id,author) "
        "and detections.json (COCO results), as in docs/official-data.md"
    ),
    "openimages": (
        "take OpenImages (storage.googleapis.com/openimages/web) and place image_ids_and_rotation.csv, "
        "*-annotations-human-imagelabels.csv, class-descriptions.csv and images/<ImageID>.jpg, as in "
        "docs/official-data.md"
    ),
    "yelp": (
        "take the Yelp Open Dataset (business.yelp.com/data/resources/open-dataset) and place "
        "yelp_academic_dataset_review.json, as in docs/official-data.md"
    ),
    "blog_corpus": (
        "unpack the Blog Authorship Corpus (Schler et al. 2006; u.cs.biu.ac.il/~koppel/BlogCorpus.htm), "
        "<id>.<gender>.<age>.<industry>.<sign>.xml, as in docs/official-data.md"
    ),
    "background_text": f"take any public text, such as the brown corpus of NLTK, and {_FORMAT}",
}


def data_root(data_dir: Path | None) -> Path | None:
    """Return ``data_dir``, else the folder named by FEDPRINT_DATA, else None."""
    named = os.environ.get(VARIABLE)
    return data_dir or (Path(named) if named else None)


def located(path: str, data_dir: Path | None = None) -> Path:
    """Return where a named file or folder is: at ``path`` as given if that exists, else inside the data folder."""
    root = data_root(data_dir)
    return Path(path) if Path(path).exists() or root is None else root / path


def remedy_for(name: str) -> str:
    """Return how to get a data set."""
    return REMEDIES.get(name, f"bring it and {_FORMAT}")


def find_folder(name: str, data_dir: Path | None) -> Path:
    """Return ``<data_dir>/<name>``. Raises FedprintError that says how to get the data when it is not there."""
    root = data_root(data_dir)
    if root is not None and (root / name).is_dir():
        return root / name
    where = f"{root / name} does not exist" if root else f"no data folder is set (--data-dir or {VARIABLE})"
    target = f"into {root / name}" if root else f"into {name}/ of that folder"
    raise FedprintError(
        f"data set '{name}': {where}; {remedy_for(name)}, {target}, or point --data-dir / {VARIABLE} at its parent"
    )
