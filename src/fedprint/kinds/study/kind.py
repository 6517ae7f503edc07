"""The kind of experiment that tunes: the best strength of each strategy under a ceiling on the attack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedprint.data.formats.files import read_json
from fedprint.data.formats.locate import data_root
from fedprint.defences.secure_aggregation import server_view
from fedprint.kinds.base import Costs, Drawn, Findings, OnOneSource, Request
from fedprint.kinds.federation.points import STAGE, log_point, point_head
from fedprint.kinds.federation.tracked import data_use, parameters
from fedprint.kinds.study.config import SEARCH, Study, load_study
from fedprint.kinds.study.points import undefended_jobs
from fedprint.kinds.study.report import publish
from fedprint.kinds.study.search import Tuned, tune
from fedprint.lab.graph import Job
from fedprint.lab.runner import Done, Lab
from fedprint.lab.tracking.runs import DataUse, Point, Run, RunHead, open_run
from fedprint.lab.versions.dvc_yaml import Plot
from fedprint.tuning.result import OperatingPoint
from fedprint.tuning.score import Finished
from fedprint.tuning.worker import StudyPlan

TRIALS, POINTS = "fedprint studies", "fedprint study points"
"""MLflow's experiments: a run per trial, and a run per point behind them."""


class StudyKind(OnOneSource):
    """Strategies that are searched for the highest utility under a ceiling."""

    name = "study"
    mark = "ceiling"
    code = SEARCH

    def load(self, request: Request) -> Study:
        """Return the study of a file."""
        return load_study(request)

    def jobs(self, config: Study) -> Sequence[Job]:
        """Return the jobs that are known before the search: without a defence."""
        return undefended_jobs(config)

    def carry_out(self, config: Study, lab: Lab, out: Path) -> Findings:
        """Search, measure the best afresh and write one page about it; a killed study goes on."""
        tuned = tune(config, lab, partial(log_trial, lab.root, config))
        publish(tuned, out)
        return Findings(
            metrics=dict(_headline(tuned)),
            done=tuned.done,
            data=(data_use(read_json(tuned.done[0].outputs[STAGE] / "details.json")),),
            plots=(_operating_points(tuned),),
            compared=("utility", "ap_update", "ap_linked"),
        )

    def costs(self, config: Study, device: str) -> Costs:
        """Return the largest costs of the points, each strategy's at the middle of its space."""
        from fedprint.kinds.federation.plan import costs_of_points  # late: it brings Lightning, for dry runs alone

        return costs_of_points(config.points, device)

    def head(self, config: Study, job: Job) -> RunHead:
        """Return the head of the MLflow run of a point."""
        return point_head(POINTS, config.config, job)

    def log(self, config: Study, done: Done, run: Run) -> None:
        """Track the results of a point."""
        log_point(config.config, done, run)


def log_trial(root: Path, study: Study, plan: StudyPlan, trial: Finished) -> None:
    """Track a trial; one that is measured again, for a worker that was killed, has the same run."""
    with open_run(root, trial_head(study, plan, trial), computes=False) as run:
        run.log_metrics(_numbers(trial))


def trial_head(study: Study, plan: StudyPlan, trial: Finished) -> RunHead:
    """Return the head of the MLflow run of a trial, with the searched parameters under their own names."""
    key = {"study": study.name, "strategy": plan.strategy.name, "config": plan.name.rpartition(" ")[2]}
    key["trial"] = str(trial.number if trial.retry_of is None else trial.retry_of)
    config = study.searched
    if trial.error is None:
        config = study.defended(plan.strategy, trial.values, study.settings.seeds[0])
    view = {"view": server_view(config.defences)} if trial.error is None else {}
    return RunHead(
        experiment=TRIALS,
        key=key,
        name=f"{study.name} {plan.strategy.name} trial {trial.number}",
        params={**parameters(config), "strategy": plan.strategy.name, **view, **trial.values},
        tags={"state": trial.state, "feasible": trial.feasible, "trial": trial.number, "error": trial.error or ""},
        data=(DataUse(name=config.data.name, digest=config.data.fingerprint(data_root(None))),),
        group=study.name,
        description=study.config.report.title,
    )


def _numbers(trial: Finished) -> list[Point]:
    """Return the numbers of a trial: the AP of the better adversary from one update, and the one under the ceiling."""
    known = {name: value for name, value in trial.details.items() if name.startswith("ap_")}
    ap = {"ap_update": max(known.values(), default=None), "ap_linked": trial.attack_ap}
    numbers = {"utility": trial.utility, **ap, "attack/ceiling": trial.ceiling}
    numbers |= {"attack/excess_over_ceiling": trial.excess, **{f"attack/{name}": ap for name, ap in known.items()}}
    named = {f"utility/{name}": value for name, value in trial.details.items() if not name.startswith("ap_")}
    return [(name, float(value), 0) for name, value in {**numbers, **named}.items() if value is not None]


def _headline(tuned: Tuned) -> Iterator[tuple[str, float]]:
    for point in tuned.operating_points:
        shown = point.confirmation or point
        numbers = {"utility": shown.utility, "ap_update": shown.attack_ap, "ap_linked": shown.linked_ap}
        yield f"{point.strategy}/feasible", float(point.feasible)
        yield from ((f"{point.strategy}/{name}", value) for name, value in numbers.items() if value is not None)


def _operating_points(tuned: Tuned) -> Drawn:
    """Return the operating points with their intervals, of confirmation users where they have any."""
    measured = [point for point in tuned.operating_points if point.utility is not None]
    rows = [_row(point, tuned.study.confirmation is not None) for point in measured]
    title = "Utility, normalised to no defence, by the AP that the ceiling is about"
    plot = Plot(file="operating-points.csv", template="scatter", x="ap", y="utility", title=title)
    return Drawn(plot=plot, rows=rows)


def _row(point: OperatingPoint, declared: bool) -> dict[str, Any]:
    shown = point.confirmation or point
    ends = {f"{name}_{end}": shown.intervals[key][i] for name, key in _ENDS for i, end in enumerate(("lo", "hi"))}
    return {
        "strategy": point.strategy,
        "parameters": ", ".join(f"{name} = {value:g}" for name, value in point.parameters.items()),
        "feasible": "yes" if point.feasible else "no",
        "users": "" if not declared else "confirmation" if point.confirmation else "development",
        "n_users": shown.n_users,
        "n_seeds": len(shown.seeds),
        "updates": shown.updates,
        "ap": shown.linked_ap,
        "utility": shown.utility,
        **ends,
        "chance": shown.linked_chance,
        "ceiling": shown.ceiling,
    }


_ENDS = (("ap", "linked_ap"), ("utility", "utility"))
