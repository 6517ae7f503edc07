"""Audit the updates of a program that is not ours, add noise, and audit again; run it in the root of a clone."""

# %% A federation that knows nothing of fedprint keeps what its server received
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import fedprint

folder = Path(tempfile.mkdtemp()) / "recorded"
subprocess.run([sys.executable, "examples/foreign_federation.py", folder], check=True)
manifest = ("format: npz", "updates: updates", "index: index.csv", "truth: truth.csv")
(folder / "manifest.yaml").write_text("\n".join(manifest))

# %% The verdict, and the same once every device has added noise of standard deviation sigma to its update
for sigma in (0.0, 0.5):
    for file in (folder / "updates").iterdir():
        np.savez(file, **fedprint.protect.noise(dict(np.load(file)), sigma=sigma))
    report = fedprint.audit(folder, out=folder.with_name(f"verdict-{sigma}"), attacks=["ridge"])
    print(f"noise {sigma:g}: AP {report.ap:.0%}, chance {report.chance:.0%}, {report['risk']}; {report.page}")
