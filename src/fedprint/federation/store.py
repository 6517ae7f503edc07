"""The update store: what the server sees of every round, on disk, apart from the truth.

``StoreWriter`` fills ``observed/`` and ``truth/`` round by round and survives a kill; ``UpdateStore`` reads
``observed/`` alone; ``read_truth`` is for the evaluation. In ``observed/``: ``layout.json``; ``layers/``, a raw array
per layer (row ``round * cohort + slot``); ``scales.f32`` (rows, layers), float16 only; ``global.f32`` (rounds + 1, d);
``journal.jsonl``, where a round exists once its line does; ``index.parquet`` and ``complete.json``, written last.
"""

from fedprint.federation.store_index import read_truth
from fedprint.federation.store_layout import StoreLayout, store_bytes
from fedprint.federation.store_reader import UpdateStore
from fedprint.federation.store_writer import StoreWriter

__all__ = ["StoreLayout", "StoreWriter", "UpdateStore", "read_truth", "store_bytes"]
