"""``fedprint budget``: the design questions of a private federation, answered offline."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from fedprint.accounting.accountants import Accountant, accountants_for, epsilon_of
from fedprint.accounting.design import TUNING, rounds_for, sampled_gaussian, sigma_for
from fedprint.accounting.events import SampledGaussian, Sampling, repeated
from fedprint.reports.figures import drawing
from fedprint.reports.wording import MISSING
from fedprint.types import FedprintError

if TYPE_CHECKING:
    from rich.table import Table

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is planned: ``cohort`` of ``clients`` in each of ``rounds``, and the noise ``sigma`` or an ``epsilon``."""

    clients: int
    cohort: int
    rounds: int
    delta: float
    epsilon: float | None = None
    sigma: float | None = None
    sampling: Sampling = "poisson"

    def event(self, sigma: float) -> SampledGaussian:
        """Return one round under noise ``sigma``."""
        return sampled_gaussian(self.sampling, self.cohort / self.clients, sigma)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What each accountant says; ``absent`` are those whose package is not installed.

    ``epsilon`` is that of the planned rounds at ``sigma``. For a question with an epsilon alone ``sigmas`` is the noise
    that keeps the planned rounds within it; for one with both ``allowed`` is how many rounds that noise pays for.
    """

    question: Question
    sigma: float
    epsilon: Mapping[str, float]
    sigmas: Mapping[str, float]
    allowed: Mapping[str, int]
    absent: tuple[str, ...]


def sampling_named(name: str) -> Sampling:
    """Return the kind of sampling; an unknown name is a FedprintError."""
    for kind in get_args(Sampling):
        if kind == name:
            sampling: Sampling = kind
            return sampling
    raise FedprintError(f"--sampling {name}: choose one of {', '.join(get_args(Sampling))}")


def answer(question: Question) -> Answer:
    """Ask every accountant that has a theorem for this kind of sampling.

    Without a ``sigma`` the first accountant chooses it. Raises FedprintError for a question that makes no sense.
    """
    _check(question)
    able, absent = accountants_for(question.sampling)
    if not able:
        raise FedprintError(f"{question.sampling} sampling needs {', '.join(absent)} of dp-accounting; install it")
    target = question.epsilon
    sigmas = {} if target is None or question.sigma is not None else _sigmas(able, question, target)
    sigma = question.sigma or next(iter(sigmas.values()))
    event, whole = question.event(sigma), repeated(question.event(sigma), question.rounds)
    return Answer(
        question=question,
        sigma=sigma,
        epsilon=_each(able, lambda a: epsilon_of(a, whole, question.delta)),
        sigmas=sigmas,
        allowed={} if target is None or sigmas else _each(able, lambda a: rounds_for(a, event, target, question.delta)),
        absent=absent,
    )


def _each(able: tuple[Accountant, ...], ask: Callable[[Accountant], T]) -> dict[str, T]:
    return {accountant.name: ask(accountant) for accountant in able}


def _sigmas(able: tuple[Accountant, ...], question: Question, target: float) -> dict[str, float]:
    """Return the noise that each accountant needs; those that need too much for any are left out.

    A loose accountant has no answer for a small epsilon. Raises FedprintError where none has.
    """
    found, refused = {}, None
    for accountant in able:
        try:
            found[accountant.name] = sigma_for(accountant, question.event, question.rounds, target, question.delta)
        except FedprintError as error:
            refused = error
    if refused is not None and not found:
        raise refused
    return found


def _check(question: Question) -> None:
    if question.sigma is None and question.epsilon is None:
        raise FedprintError(
            "give --epsilon for the noise it needs, --sigma for the epsilon it gives, or both for rounds"
        )
    if not 1 <= question.cohort <= question.clients:
        raise FedprintError(
            f"--cohort {question.cohort} of --clients {question.clients}; choose 1 to {question.clients}"
        )
    for name, value in (("rounds", question.rounds), ("epsilon", question.epsilon), ("sigma", question.sigma)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise FedprintError(f"--{name} {value} is not possible; choose more than 0")
    if not 0 < question.delta < 1:
        raise FedprintError(f"--delta {question.delta} is no probability; choose far below 1 / clients")


LARGE = 10.0
"""An epsilon above this is weak or no protection (Ponomareva et al. 2023, How to DP-fy ML: tier 3)."""


def cautions(clients: int, delta: float, epsilon: float) -> list[str]:
    """Return in words what a delta or an epsilon too large to protect anyone means; empty for none."""
    said = []
    if delta >= 1 / clients:
        said.append(
            f"delta {delta:g} is not below 1 / clients ({1 / clients:g}): publishing the data of one client in "
            f"{1 / delta:g} whole would satisfy it; choose far below."
        )
    if epsilon > LARGE:
        said.append(
            f"epsilon {epsilon:.4g} protects nobody in practice: the released models may change the odds that a client "
            f"took part by a factor of e^{epsilon:.4g}; add noise, or take fewer rounds or a smaller share of clients."
        )
    return said


def as_json(result: Answer) -> str:
    """Return the answer as JSON; null is an infinite epsilon."""
    question = result.question
    values = {
        "sigma": result.sigma,
        "sigma_for_epsilon": result.sigmas,
        "rounds_for_sigma": result.allowed,
        "clients": question.clients,
        "cohort": question.cohort,
        "rounds": question.rounds,
        "delta": question.delta,
        "sampling": question.sampling,
        "adjacency": question.event(result.sigma).adjacency,
        "not_covered": [TUNING],
        "not_installed": list(result.absent),
        "cautions": cautions_of(result),
    }
    return dumped(result.epsilon, values)


def cautions_of(result: Answer) -> list[str]:
    """Return the cautions about an answer, by its smallest epsilon, which is the tightest bound."""
    return cautions(result.question.clients, result.question.delta, min(result.epsilon.values()))


def dumped(epsilon: Mapping[str, float], values: Mapping[str, object]) -> str:
    """Return the epsilons by accountant, null where infinite, and then all other values."""
    finite = {name: value if math.isfinite(value) else None for name, value in epsilon.items()}
    return json.dumps({"epsilon": finite, **values}, indent=1, allow_nan=False)


def table(result: Answer) -> Table:
    """Return all accountants side by side, with what the numbers are numbers of."""
    question, event = result.question, result.question.event(result.sigma)
    columns = {f"epsilon at sigma {result.sigma:g}": {name: f"{e:.3f}" for name, e in result.epsilon.items()}}
    if result.sigmas:
        columns[f"sigma for epsilon {question.epsilon:g}"] = {name: f"{s:.4f}" for name, s in result.sigmas.items()}
    if result.allowed:
        columns[f"rounds for sigma {result.sigma:g}"] = {name: str(t) for name, t in result.allowed.items()}
    return side_by_side(
        title=f"{question.cohort} of {question.clients} clients in each of {question.rounds} rounds, delta "
        f"{question.delta:g}, {question.sampling} sampling, {event.adjacency}",
        note=f"sigma is the noise on the sum over the clipping norm; not covered: {TUNING}",
        columns=columns,
    )


def side_by_side(title: str, note: str, columns: Mapping[str, Mapping[str, str]]) -> Table:
    """Return a line per accountant; ``columns`` maps a heading to what each accountant says, the first to all."""
    from rich.table import Table

    out = Table("accountant", *columns, title=title, caption=note)
    for name in next(iter(columns.values())):
        out.add_row(name, *(column.get(name, MISSING) for column in columns.values()))
    return out


def check_plot(path: Path) -> None:
    """Raise FedprintError for a file whose ending is no kind of figure."""
    if path.suffix not in (".png", ".svg"):
        raise FedprintError(f"--plot {path}: the file's ending says its kind; choose .png or .svg")


def write_plot(result: Answer, path: Path) -> None:
    """Write the figure; the ending of ``path``, .png or .svg, says how."""
    check_plot(path)
    figure = draw(result)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(figure.png if path.suffix == ".png" else figure.svg)


def draw(result: Answer, points: int = 12) -> drawing.Drawing:
    """Draw epsilon by rounds for every accountant, to twice the planned rounds, at ``points`` numbers of rounds.

    Where sigmas were asked for, they stand in a second panel.
    """
    from matplotlib.figure import Figure

    with drawing.style():
        width = 9.2 if result.sigmas else 6.4
        figure = Figure(figsize=(width, 4.0), layout="constrained")
        panels: Any = figure.subplots(1, 2 if result.sigmas else 1, squeeze=False)[0]
        _draw_rounds(panels[0], result, points)
        look = "Look at where a curve crosses the dashed line: after so many rounds the budget is spent."
        caption = "What a number of rounds costs by each accountant; dotted: the planned rounds, dashed: the budget."
        if result.sigmas:
            _draw_sigmas(panels[1], result)
            caption += " Right: the least noise that keeps the planned rounds within the budget."
        return drawing.finish(figure, "budget", "Privacy budget", look, caption)


def _draw_rounds(axes: Any, result: Answer, points: int) -> None:
    question = result.question
    most = 2 * question.rounds
    at = sorted({max(1, round(most * i / points)) for i in range(1, points + 1)} | {1, question.rounds})
    for position, accountant in enumerate(accountants_for(question.sampling)[0]):
        costs = [epsilon_of(accountant, repeated(question.event(result.sigma), t), question.delta) for t in at]
        colour, marker = drawing.mark(position)
        axes.plot(at, costs, label=accountant.name, color=colour, marker=marker, markersize=3)
    if question.epsilon is not None:
        axes.axhline(question.epsilon, color=drawing.MUTED, linewidth=1, linestyle="--")
    axes.axvline(question.rounds, color=drawing.MUTED, linewidth=1, linestyle=":")
    axes.set(xlabel="rounds", ylabel=f"epsilon at delta {question.delta:g}", ylim=(0, None), xlim=(0, most))
    axes.set_title(f"{question.cohort} of {question.clients} clients, sigma {result.sigma:g}, {question.sampling}")
    axes.legend(title="accountant")


def _draw_sigmas(axes: Any, result: Answer) -> None:
    question = result.question
    for position, sigma in enumerate(result.sigmas.values()):
        colour, marker = drawing.mark(position)
        axes.plot(sigma, position, color=colour, marker=marker, linestyle="")
        axes.annotate(f"{sigma:.4f}", (sigma, position), xytext=(0, 7), textcoords="offset points", ha="center")
    axes.set_yticks(range(len(result.sigmas)), list(result.sigmas))
    axes.set(xlabel="sigma (noise on the sum over the clipping norm)", ylim=(len(result.sigmas) - 0.5, -0.7))
    axes.margins(x=0.2)
    axes.set_title(f"sigma for epsilon {question.epsilon:g} after {question.rounds} rounds")
