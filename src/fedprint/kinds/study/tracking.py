"""What a study tells MLflow: one flat run per trial, tagged by study and strategy, and one for the report."""

from __future__ import annotations

from pathlib import Path

from fedprint.defences.secure_aggregation import server_view
from fedprint.kinds.study.config import Study
from fedprint.tracking.runs import Point, log_report, tracked_run
from fedprint.tuning.result import OperatingPoint
from fedprint.tuning.score import Finished
from fedprint.tuning.worker import StudyPlan

EXPERIMENT = "fedprint studies"


def log_trial(root: Path, study: Study, plan: StudyPlan, trial: Finished) -> None:
    """Log a trial in one batch; one that is measured again, for a worker that was killed, has the same run."""
    key = {"study": study.name, "strategy": plan.strategy.name, "config": plan.name.rpartition(" ")[2]}
    key["trial"] = str(trial.number if trial.retry_of is None else trial.retry_of)
    tags = {"state": trial.state, "feasible": trial.feasible, "trial": trial.number, "error": trial.error or ""}
    name = f"{study.name} {plan.strategy.name} trial {trial.number}"
    params = {"strategy": plan.strategy.name, "defended": study.config.threat.defended, **trial.values}
    if trial.error is None:
        seed = study.settings.seeds[0]
        params["view"] = server_view(study.defended(plan.strategy, trial.values, seed).defences)
    with tracked_run(root, EXPERIMENT, key, name, params, tags) as run:
        run.log_metrics(_points(trial))


def log_study(root: Path, study: Study, folder: Path, found: tuple[OperatingPoint, ...]) -> None:
    """Log the study's report and the headline of every operating point."""
    points = [
        (f"{kind}/{point.strategy}", float(value), 0)
        for point in found
        for kind, value in (("utility", point.utility), ("attack", point.attack_ap))
        if value is not None
    ]
    log_report(
        root, f"study {study.label}", {"study": study.label, "config": study.config.digest()}, folder, points=points
    )


def _points(trial: Finished) -> list[Point]:
    numbers = {"utility/normalised": trial.utility, "attack/ap": trial.attack_ap, "attack/ceiling": trial.ceiling}
    numbers["privacy/excess_over_ceiling"] = trial.excess
    named = {f"attack/{key}" if key.startswith("ap_") else f"utility/{key}": v for key, v in trial.details.items()}
    return [(name, float(value), 0) for name, value in {**numbers, **named}.items() if value is not None]
