"""The stages of an inversion experiment: who may open what. This list is the threat model.

accuracy: draw -> train. exposure: draw -> expose -> invert, seek -> trace -> judge, once per adversary.

``invert`` opens what the server observed; the adversary who knows the mechanism opens public/ too, the naive one has no
such input. The candidate images are those of the victims among strangers: ``seek`` opens them, ``invert`` never does.
Only ``judge`` opens truth/.
"""

from __future__ import annotations

from fedprint.kinds.images import draw_stage
from fedprint.kinds.inversion.settings import AccuracySettings, ExposureSettings
from fedprint.lab.graph import Graph, Stage, Work

_STAGES = "fedprint.kinds.inversion.stages"
_HERE = "kinds/inversion/"
_DRAW = draw_stage(f"{_STAGES}:draw", ("data", "seed"), (f"{_HERE}stages.py",))
_CLIENTS = (
    f"{_HERE}stages.py",
    f"{_HERE}settings.py",
    f"{_HERE}config.py",
    "kinds/images.py",
    "kinds/federation/building/federation.py",
    "rng.py",
    "params.py",
    "data/sources/labelled_images.py",
    "data/examples.py",
    "defences",
    "models",
    "federation/client.py",
    "federation/gradient_rounds.py",
)
_ATTACKS = (
    f"{_HERE}stages.py",
    f"{_HERE}attack.py",
    f"{_HERE}victims.py",
    f"{_HERE}config.py",
    "rng.py",
    "params.py",
    "data/examples.py",
    "attacks/inversion",
    "defences",
    "models",
)

ACCURACY = Graph(
    (
        _DRAW,
        Stage(
            name="train",
            run=f"{_STAGES}:train",
            inputs=("images",),
            outputs=("hits", "model"),
            settings=("network", "training", "defences", "seed", "run"),
            code=(*_CLIENTS, f"{_HERE}utility.py"),
        ),
    )
)


def _exposure(known: tuple[str, ...]) -> Graph:
    """Return the stages of an adversary who may open what is ``known`` besides what was observed."""
    return Graph(
        (
            _DRAW,
            Stage(
                name="expose",
                run=f"{_STAGES}:expose",
                inputs=("images",),
                outputs=("observed", "public", "truth", "queries", "candidates"),
                settings=(
                    "network",
                    "defences",
                    "local",
                    "batch",
                    "victims",
                    "seed",
                    "candidates.public",
                    "candidates.pairs",
                    "candidates.lira",
                    "candidates.lira_strangers",
                    "candidates.lira_batches",
                ),
                code=(
                    *_CLIENTS,
                    f"{_HERE}victims.py",
                    "attacks/inversion/simulate.py",
                    "attacks/inversion/victims.py",
                ),
                heavy=True,
            ),
            Stage(
                name="invert",
                run=f"{_STAGES}:invert",
                inputs=("observed", *known),
                outputs=("reconstructed",),
                settings=("attack", "seed"),
                code=_ATTACKS,
                heavy=True,
            ),
            Stage(
                name="seek",
                run=f"{_STAGES}:seek",
                inputs=("observed", *known, "candidates"),
                outputs=("scores",),
                settings=("candidates.shadows", "seed"),
                code=_ATTACKS,
                heavy=True,
            ),
            Stage(
                name="trace",
                run=f"{_STAGES}:trace",
                inputs=("reconstructed", "queries"),
                outputs=("traced",),
                code=(f"{_HERE}stages.py", f"{_HERE}attack.py", f"{_HERE}victims.py"),
                heavy=True,
            ),
            Stage(
                name="judge",
                run=f"{_STAGES}:judge",
                inputs=("observed", "truth", "reconstructed", "scores", "traced"),
                outputs=("outcome",),
                settings=("participants",),
                code=(
                    f"{_HERE}stages.py",
                    f"{_HERE}results/judge.py",
                    f"{_HERE}results/outcome.py",
                    f"{_HERE}attack.py",
                    f"{_HERE}victims.py",
                    "rng.py",
                    "evaluation/inversion/reconstruction.py",
                    "evaluation/inversion/tracing.py",
                ),
            ),
        )
    )


NAIVE = _exposure(())
ADAPTIVE = _exposure(("public",))


ACCURACY_WORK = Work(
    path=f"{__name__}:ACCURACY_WORK", graph=ACCURACY, parse=AccuracySettings.model_validate, wanted=("train",)
)
NAIVE_WORK = Work(path=f"{__name__}:NAIVE_WORK", graph=NAIVE, parse=ExposureSettings.model_validate, wanted=("judge",))
ADAPTIVE_WORK = Work(
    path=f"{__name__}:ADAPTIVE_WORK", graph=ADAPTIVE, parse=ExposureSettings.model_validate, wanted=("judge",)
)
