"""The stages of a federation that is attacked: who may open what. This list is the threat model.

users -> prepare -> federate -> ask -> attack -> analyse -> evaluate, once per prior and seed.

``attack`` opens observed/, what is public and the adversary's own users. ``analyse`` opens questions/ besides, with
private examples where an analysis gives them to the adversary: ``data-space``, and ``membership`` with ``knows:
data``. Neither opens truth/, answers/ or private/. ``ask`` knows everything and attacks nothing; ``collect`` copies.
overhead/ holds times, which differ between equal runs: no stage that measures opens it. Code counts where it
computes: a reader of another stage's files is left out, because a new format changes the files.
"""

from __future__ import annotations

from fedprint.kinds.federation.config import Experiment
from fedprint.lab.graph import Graph, Stage, Work

_STAGES = "fedprint.kinds.federation.stages"
_HERE = "kinds/federation/"

PREPARE = Stage(
    name="prepare",
    run=f"{_STAGES}.prepare:run",
    outputs=("prior", "private", "test", "background", "samples", "meta"),
    settings=("data", "split"),
    code=(f"{_HERE}stages/prepare.py", "rng.py", "data"),
    data=True,
)
CHOOSE = Stage(
    name="choose",
    run=f"{_STAGES}.choose:run",
    outputs=("executor",),
    settings=("data", "split", "model", "federation"),
    code=(f"{_HERE}stages/choose.py", "federation/backends.py", "federation/vectorised.py"),
    data=True,
    files=True,
    settled=True,
)
FEDERATE = Stage(
    name="federate",
    run=f"{_STAGES}.federate:run",
    inputs=("prior", "private", "test", "background", "meta", "executor"),
    outputs=("observed", "public", "truth", "utility", "model", "overhead"),
    settings=("model", "federation", "store", "defences", "threat.defended"),
    code=(
        f"{_HERE}stages/federate.py",
        f"{_HERE}config.py",
        f"{_HERE}building/federation.py",
        f"{_HERE}building/model.py",
        f"{_HERE}building/protection.py",
        f"{_HERE}building/privacy.py",
        f"{_HERE}building/clustering.py",
        "rng.py",
        "params.py",
        "data/clusters.py",
        "data/examples.py",
        "models",
        "accounting",
        "defences",
        "store",
        "federation",
    ),
    files=True,
    resumes=True,
    heavy=True,
    connects=f"{_STAGES}.federate:connect",
)
ASK = Stage(
    name="ask",
    run=f"{_STAGES}.ask:run",
    inputs=("prior", "private", "meta", "observed", "truth"),
    outputs=("questions", "answers"),
    settings=("analyses",),
    code=(
        f"{_HERE}stages/ask.py",
        f"{_HERE}config.py",
        "rng.py",
        "data/examples.py",
        "data/sources/query.py",
        "data/text.py",
        "data/users.py",
        "analyses",
    ),
    files=True,
    heavy=True,
)
_ADVERSARY = (
    f"{_HERE}config.py",
    f"{_HERE}building",
    "rng.py",
    "params.py",
    "ranking.py",
    "data/clusters.py",
    "data/examples.py",
    "data/splits.py",
    "models",
    "accounting",
    "defences",
    "store",
    "federation",
    "attacks",
)
"""Code of every stage in which the adversary works."""
ATTACK = Stage(
    name="attack",
    run=f"{_STAGES}.attack:run",
    inputs=("prior", "background", "meta", "observed", "public"),
    outputs=("attack",),
    settings=("model", "federation", "defences", "threat", "attacks", "selection"),
    code=(f"{_HERE}stages/attack.py", *_ADVERSARY),
    files=True,
    heavy=True,
)
EMBED = Stage(
    name="embed",
    run=f"{_STAGES}.embed:run",
    inputs=("observed",),
    outputs=("embedding",),
    code=(f"{_HERE}stages/embed.py", "attacks/embed.py", "attacks/features.py", "attacks/dense.py", "rng.py"),
)
ANALYSE = Stage(
    name="analyse",
    run=f"{_STAGES}.analyse:run",
    inputs=("prior", "background", "meta", "observed", "public", "questions", "attack"),
    outputs=("analysis",),
    settings=("model", "federation", "defences", "threat", "attacks", "analyses", "selection"),
    code=(
        f"{_HERE}stages/analyse.py",
        *_ADVERSARY,
        "data/sources/query.py",
        "data/text.py",
        "data/users.py",
        "analyses",
    ),
    files=True,
    heavy=True,
)
EVALUATE = Stage(
    name="evaluate",
    run=f"{_STAGES}.evaluate:run",
    inputs=(
        "prior",
        "private",
        "test",
        "samples",
        "meta",
        "observed",
        "truth",
        "answers",
        "utility",
        "attack",
        "analysis",
        "embedding",
    ),
    outputs=("evaluation",),
    settings=None,
    code=(
        f"{_HERE}stages/evaluate.py",
        f"{_HERE}conditions.py",
        f"{_HERE}stages/evaluating/analyses.py",
        f"{_HERE}stages/evaluating/crowds.py",
        f"{_HERE}stages/evaluating/diversity.py",
        f"{_HERE}stages/evaluating/effort.py",
        f"{_HERE}stages/evaluating/linked.py",
        f"{_HERE}stages/evaluating/strengths.py",
        f"{_HERE}stages/attack_scores.py",
        f"{_HERE}config.py",
        f"{_HERE}building/federation.py",
        "rng.py",
        "ranking.py",
        "data/examples.py",
        "data/sources/query.py",
        "data/text.py",
        "data/users.py",
        "models",
        "defences",
        "attacks/embed.py",
        "attacks/features.py",
        "attacks/reidentification/linked.py",
        "evaluation",
        "analyses",
    ),
    files=True,
)
_ATTACKED = (PREPARE, CHOOSE, FEDERATE, ASK, ATTACK)

FEDERATION = Graph((*_ATTACKED, EMBED, ANALYSE, EVALUATE))

COLLECTED = ("truth", "answers", "utility", "attack", "analysis", "overhead")
"""What is kept of a point besides what its users have; of heavy stages it is the light part."""

POINT = Graph(
    (
        *_ATTACKED,
        ANALYSE,
        Stage(
            name="collect",
            run=f"{_STAGES}.collect:run",
            inputs=COLLECTED,
            outputs=("collected",),
            code=(f"{_HERE}stages/collect.py",),
        ),
        Stage(
            name="point",
            run=f"{_STAGES}.point:run",
            inputs=("prior", "private", "test", "samples", "meta", "collected"),
            outputs=("point",),
            settings=None,
            code=(*EVALUATE.code, f"{_HERE}stages/point.py"),
            files=True,
        ),
    )
)
"""A point of the privacy-utility plane: nothing is drawn, and no update is kept. Scores are, so that a point can be
judged anew, by other rules or code, without another federation."""


FEDERATION_WORK = Work(path=f"{__name__}:FEDERATION_WORK", graph=FEDERATION, parse=Experiment.model_validate)
POINT_WORK = Work(
    path=f"{__name__}:POINT_WORK",
    graph=POINT,
    parse=Experiment.model_validate,
    wanted=("point",),
    recorded=("federate",),
)
