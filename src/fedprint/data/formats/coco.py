"""COCO's 80 object categories, and detections in COCO's results format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from fedprint.types import FedprintError

_BY_ID = """
    person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light,
    fire hydrant, -, stop sign, parking meter, bench, bird, cat, dog, horse, sheep,
    cow, elephant, bear, zebra, giraffe, -, backpack, umbrella, -, -,
    handbag, tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove,
    skateboard, surfboard, tennis racket, bottle, -, wine glass, cup, fork, knife, spoon,
    bowl, banana, apple, sandwich, orange, broccoli, carrot, hot dog, pizza, donut,
    cake, chair, couch, potted plant, bed, -, dining table, -, -, toilet,
    -, tv, laptop, mouse, remote, keyboard, cell phone, microwave, oven, toaster,
    sink, refrigerator, -, book, clock, vase, scissors, teddy bear, hair drier, toothbrush
"""

CATEGORIES: Mapping[int, str] = {
    number: name for number, name in enumerate(map(str.strip, _BY_ID.split(",")), start=1) if name != "-"
}
"""COCO's category id (1 to 90, with gaps) -> name."""


def read_detections(path: Path, min_score: float) -> Iterator[tuple[str, str]]:
    """Yield (image id, category name) of the detections with at least ``min_score``.

    The file is a JSON list of ``{"image_id": .., "category_id": .., "score": .., "bbox": [x, y, width, height]}``.
    Raises FedprintError naming an entry of another form.
    """
    try:
        entries = json.loads(path.read_bytes())
    except ValueError as error:
        raise FedprintError(f"{path}: not valid JSON ({error}); write the detector's results again") from error
    if not isinstance(entries, list):
        raise FedprintError(f"{path}: holds {type(entries).__name__}; needs a list of detections (COCO results format)")
    for number, entry in enumerate(entries):
        try:
            image, category, score = str(entry["image_id"]), CATEGORIES[entry["category_id"]], float(entry["score"])
        except (KeyError, TypeError, ValueError) as error:
            needs = "each needs image_id, category_id (COCO's, 1 to 90) and score"
            raise FedprintError(f"{path}: detection {number} cannot be read ({error!r}); {needs}") from error
        if score >= min_score:
            yield image, category
