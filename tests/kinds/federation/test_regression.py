"""One small experiment with ratings: errors in stars, lower is better, from training to the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_project import project_in

from fedprint.data.formats.describe import write_table
from fedprint.data.formats.files import read_json
from fedprint.evaluation.rows import read_measurements
from fedprint.lab.graph import Task
from fedprint.reports.pages.federation import ReportSummary, write_report
from fedprint.reports.pages.terminal import summary_table
from fedprint.rng import numpy_rng

WORDS = ("awful", "bad", "fair", "good", "superb")
"""A review's only telling word; its place is its stars."""

MEALS: dict[str, Any] = {
    "report": {"title": "Tiny meals"},
    "data": {"name": "folder", "path": "meals", "length": 8, "vocabulary": 60},
    "split": {"priors": ["random"]},
    "model": {"name": "stars", "embedding": 8, "hidden": 12},
    "federation": {
        "rounds": 30, "fraction": 0.3, "epochs": 3, "lr": 0.5, "batch_size": 5, "backend": "sequential",
        "central_epochs": 10,
    },
    "attacks": [{"name": "chance"}, {"name": "knn", "k": 3, "layers": ["embedding"]}],
    "selection": {"shadow_rounds": 4},
    "evaluation": {"resamples": 200, "permutations": 199, "round_bins": 3},
}  # fmt: skip


def meals(users: int = 16, reviews: int = 40) -> dict[str, np.ndarray]:
    """Return columns of reviews in which each user has favourite words, half of the users in the background."""
    rng = numpy_rng(0)
    user = np.repeat(np.arange(users), reviews)
    stars = rng.integers(1, 6, size=len(user))
    dish = [f"dish{u % (users // 2)}{rng.integers(3)}" for u in user]
    return {
        "user": user,
        "order": np.tile(np.arange(reviews), users),
        "text": np.array([f"the {d} was {WORDS[s - 1]} today" for d, s in zip(dish, stars, strict=True)], dtype=object),
        "stars": stars.astype(np.float64),
        "group": np.array(["federated" if u < users // 2 else "background" for u in user], dtype=object),
    }


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Task]:
    root = tmp_path_factory.mktemp("meals")
    write_table(root / "data" / "meals", meals(), {"licence": "mine", "scale": [1, 5], "samples": "shareable"})
    with project_in(root) as project, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPRINT_DATA", str(root / "data"))
        yield project.run("meals", MEALS)


def utility(job: Task) -> dict[tuple[str, str], dict[str, Any]]:
    rows = read_measurements(job.at("evaluation") / "rows.jsonl")
    return {(row["training"], row["metric"]): row for row in rows if row["attack"] is None}


def test_every_way_of_training_has_its_error_in_stars(job: Task) -> None:
    rows = utility(job)
    assert {training for training, metric in rows if metric == "mae"} == {
        "federated", "centralised", "median", "chance"
    }  # fmt: skip
    for (_, metric), row in rows.items():
        assert row["unit"] == "stars"
        assert row["direction"] == ("lower is better" if metric == "mae" else "higher is better")
        assert row["lo"] <= row["value"] <= row["hi"]
    with np.load(job.at("utility") / "predictions.npz") as saved:
        truth, guess = saved["labels"], saved["median"]
    assert len(set(guess)) == 1 and guess[0] in (2.0, 3.0, 4.0)
    assert rows["median", "mae"]["value"] == pytest.approx(np.abs(truth - guess).mean())
    uniform = ((truth - 1) ** 2 + (5 - truth) ** 2) / 8
    assert rows["chance", "mae"]["value"] == pytest.approx(uniform.mean())


def test_training_beats_the_median_guess_and_the_gain_is_their_difference(job: Task) -> None:
    rows = utility(job)
    assert {training for training, metric in rows if metric == "mae_gain_over_median"} == {"federated", "centralised"}
    for training in ("federated", "centralised"):
        gain = rows[training, "mae_gain_over_median"]
        assert gain["value"] == pytest.approx(rows["median", "mae"]["value"] - rows[training, "mae"]["value"], abs=1e-6)
        assert gain["chance"] == 0
    assert rows["federated", "mae_gain_over_median"]["lo"] > 0


def test_the_curve_falls_to_the_final_error(job: Task) -> None:
    history = read_json(job.at("utility") / "history.json")["rounds"]
    curve = [entry["utility"] for entry in history if "utility" in entry]
    assert len(curve) == 3 and curve[-1] < curve[0]
    assert curve[-1] == pytest.approx(utility(job)["federated", "mae"]["value"], abs=1e-5)


def test_samples_show_the_rating_before_the_text(job: Task) -> None:
    shown = read_json(job.at("samples") / "samples.json")
    assert shown["kind"] == "texts"
    stars, _, text = shown["texts"][0].partition(": ")
    assert text.split()[-2] == WORDS[int(float(stars)) - 1]


@pytest.fixture(scope="module")
def report(job: Task) -> ReportSummary:
    return write_report(
        experiment="meals",
        title="Tiny meals",
        evaluations=[job.at("evaluation")],
        config_text=job.config.text(),
        out=Path("reports/meals"),
    )


def test_the_page_reads_errors_as_stars_and_never_as_per_cent(job: Task, report: ReportSummary) -> None:
    assert report.utility is not None
    assert (report.utility.metric, report.utility.unit) == ("mae", "stars")
    error = utility(job)["federated", "mae"]["value"]
    page = report.page.read_text(encoding="utf-8").replace("\u00a0", " ")
    assert f"{error:.3f} stars" in page
    assert f"{100 * error:.1f} %" not in page
    assert "mean absolute error (lower is better)" in page
    assert "median guess" in page and "gain over the median guess" in page


def test_the_terminal_tells_errors_from_gains(job: Task, report: ReportSummary) -> None:
    said = str(summary_table(report.page.parent).caption).replace("\u00a0", " ").replace("\\[", "[")
    error, gain = (utility(job)["federated", metric]["value"] for metric in ("mae", "mae_gain_over_median"))
    assert f"utility (mean absolute error (lower is better), random prior): federated {error:.3f} stars" in said
    assert f"utility (gain over the median guess, random prior): federated {gain:.3f} stars" in said
