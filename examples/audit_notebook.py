"""Record an invented federation of ten people with two devices each, audit it, defend it, and audit it again."""

# %%
import tempfile
from pathlib import Path

import numpy as np

import fedprint

here, rng = Path(tempfile.mkdtemp()), np.random.default_rng(0)
direction = rng.normal(size=(10, 400))  # what is particular to each person


# %%
def federation(folder: Path, sigma: float) -> Path:
    """Record eight rounds; every device adds noise of standard deviation ``sigma`` to its update."""
    with fedprint.record.Recorder(folder, title=f"noise {sigma}") as recorder:
        for turn in range(8):
            for person in range(10):
                for device, user in ((f"known-{person}", f"person {person}"), (f"device-{person}", None)):
                    update = {"head": direction[person] + 2 * rng.normal(size=400)}
                    sent = fedprint.protect.noise(update, sigma=sigma)
                    recorder.record(turn, device, sent, num_examples=20, user=user)
        recorder.write_truth({f"device-{person}": f"person {person}" for person in range(10)})
    return folder


# %%
for sigma in (0.0, 20.0):
    report = fedprint.audit(federation(here / f"noise-{sigma}", sigma), out=here / f"report-{sigma}", attacks=["ridge"])
    print(f"noise {sigma:g}: AP {report.ap:.0%}, chance {report.chance:.0%}, {report['risk']}; {report.page}")
