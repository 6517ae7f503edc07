"""One skeleton for all pages and one way to write them: verdict, main figure, tables, more figures, method, files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.resources import files as package_files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedprint.evaluation.rows import Row, plain_value, write_measurements
from fedprint.reports import wording
from fedprint.reports.claims.verdict import CLAIMS, Verdict, by_claim, count, verdict_csv, verdict_rows
from fedprint.reports.figures.drawing import Drawing
from fedprint.reports.pages.sections import Section
from fedprint.reports.tables.analyses import ResultTable, table_csv
from fedprint.types import FedprintError

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True, kw_only=True)
class Page:
    """A report: what its page shows, in the order of the skeleton, and the files beside it.

    ``template`` fills the skeleton (base.html). ``sentences`` are the verdict; the first of ``drawings`` is the main
    figure. ``sections`` are analyses with figures and tables of their own. ``verdicts`` are on the papers' claims;
    None where the kind of report judges none. ``rows`` are the measurements, None where others write them. ``files``
    maps a name to text, or to content that becomes JSON. ``values`` are what the template needs beside these.
    """

    template: str
    sentences: Sequence[str] = ()
    drawings: Sequence[Drawing] = ()
    tables: Sequence[ResultTable] = ()
    sections: Sequence[Section] = ()
    verdicts: Sequence[Verdict] | None = None
    rows: Sequence[Row] | None = None
    files: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


def described(kind: str, head: Any, config_text: str, **more: Any) -> dict[str, Any]:
    """Return the files that say what a page is about: summary.json, of a ``kind`` that its first key marks, and config.

    ``head`` is a dataclass with a ``name``; ``more`` stands beside its values.
    """
    return {"summary.json": {kind: head.name, **asdict(head), **more}, "config.yaml": config_text}


def write_page(page: Page, out: Path) -> None:
    """Write the folder ``out``: index.html, the measurements, claims.json and .csv, figures/, tables/ and the files.

    The folder appears as a whole or not at all and replaces an older one. Equal input gives equal bytes.
    """
    files = {name: _text(content) for name, content in page.files.items()}
    if page.verdicts is not None:
        files |= {"claims.json": _text(verdict_rows(page.verdicts)), CLAIMS: verdict_csv(page.verdicts)}
    measured = () if page.rows is None else ("measurements.jsonl", "measurements.csv")
    files["index.html"] = _render(page, [*measured, *files])
    sections = page.sections
    with replacing(out) as folder:
        if page.rows is not None:
            write_measurements(folder / "measurements.jsonl", folder / "measurements.csv", page.rows)
        drawings = [*page.drawings, *(drawing for section in sections for drawing in section.drawings)]
        for drawing in drawings:
            _write(folder / "figures" / f"{drawing.name}.svg", drawing.svg)
            _write(folder / "figures" / f"{drawing.name}.png", drawing.png)
        if any(drawing.chart for drawing in drawings):
            _write(folder / "figures" / "plotly.min.js", plotly_script())
        for table in [*page.tables, *(table for section in sections for table in section.tables)]:
            _write(folder / "tables" / f"{table.name}.csv", table_csv(table).encode())
        for name, text in files.items():
            _write(folder / name, text.encode())


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces ``out`` when the block ends, and is removed when the block raises."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        if out.exists():
            shutil.rmtree(out)
        os.replace(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def plotly_script() -> bytes:
    """Return Plotly for browsers, which lies beside the page: no report needs a network."""
    return package_files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()


def read_summary(folder: Path) -> dict[str, Any]:
    """Return the content of a report folder's summary.json; FedprintError when there is none."""
    try:
        return dict(json.loads((folder / "summary.json").read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FedprintError(f"{folder} holds no report; run `fedprint run {folder.name}` first") from error
    except json.JSONDecodeError as error:
        raise FedprintError(f"{folder}/summary.json is damaged ({error.msg}); write the report again") from error


def environment() -> Environment:
    """Return the templates' environment: everything escaped, a missing value is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    env = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
    )
    env.filters.update(
        interval=wording.interval, number=wording.number, with_unit=wording.with_unit, share=_share, times=wording.times
    )
    env.globals.update(
        MISSING=wording.MISSING,
        wording=wording,
        by_claim=by_claim,
        count=count,
        state_classes={"holds": "good", "undecided": "", "fails": "bad", "untested": "muted"},
    )
    env.globals["parts"] = env.get_template("parts.html").module
    return env


def _render(page: Page, files: Sequence[str]) -> str:
    return environment().get_template(f"{page.template}.html").render(
        sentences=page.sentences,
        drawings=page.drawings,
        tables=page.tables,
        sections=page.sections,
        verdicts=page.verdicts,
        files=files,
        config_text=page.files.get("config.yaml"),
        **page.values,
    )  # fmt: skip


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return json.dumps(plain_value(content), indent=1, ensure_ascii=False) + "\n"


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def _share(value: float | None) -> str:
    """Return a fraction as a CSS percentage within 0 and 100."""
    return f"{100 * min(max(value or 0.0, 0.0), 1.0):.2f}%"
