"""Record a federation in plain PyTorch (fedavg_by_hand.py), so that ``fedprint audit`` can judge it.

Run: ``python examples/record_updates.py recorded`` (seconds), then ``fedprint audit recorded``. In your own federation
you need two lines: ``Recorder(folder)``, and ``record`` for each update that the server receives.
"""

from __future__ import annotations

import secrets
import sys

import torch
from fedavg_by_hand import albums, fedavg

from fedprint.record import Recorder
from fedprint.types import LocalTraining

ROUNDS = 10


def main(folder: str) -> None:
    """Train and record; the private devices are anonymous, and the adversary's devices are the prior."""
    torch.set_num_threads(1)
    private, prior, _, model = albums()
    devices, training = {**private, **prior}, LocalTraining(epochs=1, batch_size=8, lr=0.3)
    user = {name: name.rpartition("-")[0] for name in devices}  # user-3 of user-3-prior
    # A server knows devices by names that say nothing of their users.
    pseudonym = {name: secrets.token_hex(8) for name in devices}

    with Recorder(folder, title="Albums, plain PyTorch") as recorder:
        for t, (sent, _) in enumerate(fedavg(model, devices, ROUNDS, len(devices), training, seed=0)):
            for name, update in sent.items():
                known = user[name] if name in prior else None
                recorder.record(t, pseudonym[name], update, len(devices[name]["y"]), known)
        # Where you know the answers, as in a simulation: only the evaluation reads them.
        recorder.write_truth({pseudonym[name]: user[name] for name in private})
    print(f"{ROUNDS * len(devices)} updates recorded in {folder}; next: fedprint audit {folder}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/record_updates.py FOLDER")
    main(sys.argv[1])
