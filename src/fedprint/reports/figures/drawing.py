"""Colours and files of the figures: one style, equal bytes for equal input, inlined SVG that follows the theme."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedprint.reports.figures.chart import chart_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER = "#1d2330", "#667085", "#e2e5ea", "#fefefe"
SERIES = ("#0072b2", "#d55e00", "#4f8a3c", "#a6559d", "#8a6d1a")
"""Priors in reading order; told apart by luminance and marker too."""

PEOPLE = (
    "#332288", "#88ccee", "#44aa99", "#117733", "#999933", "#ddcc77",
    "#cc6677", "#882255", "#aa4499", "#6e7f96", "#e07b39", "#2f6db3",
)  # fmt: skip
"""Users in a scatter plot: Paul Tol's muted scheme and three more; beyond twelve they repeat with another marker."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Seven, prime to the five colours of SERIES and to the eight of planes: where these repeat, markers differ."""

THEMED: Mapping[str, str] = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    PAPER: "--paper",
    **{colour: f"--series-{position}" for position, colour in enumerate(SERIES)},
    "#332288": "--deep",
    "#117733": "--green",
    "#882255": "--wine",
}
"""Colour in the files -> CSS variable in the page, so that dark mode reaches the figures."""

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "fedprint",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.8,
    "savefig.facecolor": PAPER,
    "figure.facecolor": PAPER,
}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A finished figure: ``name`` is its file name without ending.

    Below it stand ``look``, what to look at first, and ``caption``, what is drawn and how. ``chart`` is the same figure
    for Plotly (figures/chart.py), None where it has none.
    """

    name: str
    title: str
    look: str
    caption: str
    svg: bytes
    png: bytes
    chart: str | None = None

    @property
    def inline(self) -> str:
        """Return the SVG as an HTML element in the page's colours and font, without any outside reference."""
        return themed(self.svg.decode(), self.name)


def mark(position: int) -> tuple[str, str]:
    """Return colour and marker of a position in the legend."""
    return SERIES[position % len(SERIES)], MARKERS[position % len(MARKERS)]


def person(position: int) -> tuple[str, str]:
    """Return colour and marker of a user in a scatter plot."""
    return PEOPLE[position % len(PEOPLE)], MARKERS[(position // 4) % len(MARKERS)]


@contextmanager
def style() -> Iterator[None]:
    """Draw in the report's style whatever the user's matplotlibrc says; restores the settings."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def finish(figure: Figure, name: str, title: str, look: str, caption: str) -> Drawing:
    """Write the figure as SVG and PNG (200 dpi) without dates or versions, so equal figures are equal bytes."""
    svg, png = io.BytesIO(), io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    figure.set_layout_engine("none")  # both files have one layout; finding it is half of the work
    figure.savefig(png, format="png", dpi=200, metadata={"Software": None})
    files = {"svg": svg.getvalue(), "png": png.getvalue()}
    return Drawing(name=name, title=title, look=look, caption=caption, chart=chart_of(figure, THEMED), **files)


def percent_axis(axes: Axes, which: str, label: str) -> None:
    """Label the ``x`` or ``y`` axis of fractions in per cent."""
    from matplotlib.ticker import PercentFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axis.set_label_text(f"{label} (%)")


def themed(svg: str, prefix: str) -> str:
    """Return an SVG document as an element for HTML: ids made unique, colours and fonts left to the page."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r' xmlns(:xlink)?="[^"]*"| version="1.1"', "", body)
    body = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", body)
    body = re.sub(r"font-family: [^;\"]*", "font-family: inherit", body)
    body = re.sub(r"(font: (?:[a-z0-9]+ )*[0-9.]+px) '[^;\"]*", r"\1 sans-serif; font-family: inherit", body)
    for colour, variable in THEMED.items():
        body = body.replace(f": {colour}", f": var({variable})")
    return body.replace("xlink:href", "href")
