"""``python -m benchmarks.peers pfl W1 7``: seven rounds of W1 by a peer, in the peer's environment."""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks.workloads import WORKLOADS

peer, workload, rounds = sys.argv[1:]
# By its name and not as __main__: Ray finds its functions in the workers.
import_module(f"benchmarks.peers.with_{peer}").run(WORKLOADS[workload], int(rounds))
