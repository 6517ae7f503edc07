"""``make results``: numbers and pictures of README and docs, written from published experiments alone."""

from __future__ import annotations

from fedprint.lab.project import find_root
from fedprint.reports.results.blocks import documents, rendered
from fedprint.reports.results.costs import COSTS_OF, PLANES, plane_costs
from fedprint.reports.results.picture import PICTURE, recognition
from fedprint.reports.results.published import find_published


def main() -> None:
    """Write the blocks of README and docs, the picture, and the costs of planes anew."""
    root = find_root()
    for path in documents(root):
        path.write_text(rendered(root, path), encoding="utf-8")
    if (quickstart := find_published(root, "quickstart")) is not None:
        (root / PICTURE).write_bytes(recognition(quickstart))
    if planes := [one for name in COSTS_OF if (one := find_published(root, name)) is not None]:
        (root / PLANES).write_text(plane_costs(planes), encoding="utf-8")


if __name__ == "__main__":
    main()
