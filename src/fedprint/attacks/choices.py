"""What the adversaries fix in advance: one adversary for all published numbers (docs/adr/0018).

ADR 7 and LOG.md have the results that it rests on, of albums, mnist_writers and blog until 2026-11-25. Nothing here
may follow from a result on confirmation users (configs/users.yaml): whoever changes a number says in ADR 18 on which
development users, and runs the published planes again. What an attack chooses for itself, on shadow validation, is not
here.
"""

from __future__ import annotations

from typing import Literal

HEADLINE: Literal["adaptive"] = "adaptive"
"""The adversary of headlines, where several attack. The largest AP of all is an upper estimate."""

TRUST = 4
"""A mix's weight is this power of its AP in shadow validation (docs/adr/0007)."""

NUISANCE_ROUNDS, NUISANCE_SETS, NUISANCE_USERS = 2, 40, 100
"""Shadow devices that hold background data alone: from how many global models they train, and how many there are.

Where the background has clusters there is one for each cluster. Otherwise there are at most ``NUISANCE_USERS``, each
with the data of one background user, or, where these users are few, ``NUISANCE_SETS`` with random examples.
"""

LIKELIEST, MODE_ROUNDS, VALIDATION_MODES = 6, 4, 20
"""Users who are trained in each mode, from how many global models, and the number of modes in shadow validation.

On two points of albums-plane as it was until 2026-11-27, of development users (mm-aug 1 and 4; AP 46 and 26 %
without), 6 users from 4 models had 54 and 38 %, 12 from 2 had 49 and 41, 12 from 4 had 53 and 48, and all 24 from 4
had 51 and 46. Six, for the cost: 100 writers draw some 60 modes.
"""

VALIDATED = 256
"""How many priors are cut in halves for shadow validation, at most; all of them where devices have modes.

With 256 users the standard error of a mean AP is at most 3 points. More cost time with the square of their number.
"""

WORSE = 1.0
"""If shadow validation shows a loss above this many standard errors, the models by mode do not answer alone."""

KNOWN_MEANS = 2
"""Into how many means the known updates of a user go, where linked updates are averaged."""

COUNT_SPREAD, NORM_SPREAD = 0.05, 0.02
"""Least standard deviation, from device to device of a user, of the logarithm of a count and of a norm."""
