"""Renders report.html from the tables and figures of a results folder."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from ketscale.analysis import catalogue
from ketscale.analysis.drawing.inputs import read_table
from ketscale.analysis.kinds import Figure
from ketscale.analysis.report import answered, cells, provenance
from ketscale.analysis.report.columns import groups
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.files import clear, write_atomic

if TYPE_CHECKING:
    import pandas as pd

PAGE = "page.html.j2"
LARGEST_BYTES = 5_000_000
# The tables that the page shows; the others are only files.
SHOWN = ("claims", "scaling", "laws", "quality", "parity", "runs", "completeness")
# The section of each figure that is below no answer.
TIME = ("strategies", "spans")


@dataclass(frozen=True)
class Picture:
    """A figure of the page: its SVG as a data URI."""

    name: str
    title: str
    caption: str
    uri: str


def build(config: Config, results: Path) -> None:
    """Write report.html from the CSV files in tables/ and the SVG files in figures/ of the results folder.

    Raises:
        UserError: a table or figure is missing, or the page would exceed 5 MB.
    """
    data, out = _rendered(config, results).encode(), results / "report.html"
    if len(data) > LARGEST_BYTES:
        raise UserError(
            f"{out}: {len(data) / 1e6:.1f} MB, more than 5 MB; split the study into several configs"
        )
    clear(results)
    write_atomic(out, data)


def _rendered(config: Config, results: Path) -> str:
    read = {name: read_table(results / "tables" / f"{name}.csv") for name in catalogue.TABLES}
    # What was measured comes first; otherwise in the ledger's order.
    decided = read["claims"]["verdict"].map({verdict: at for at, verdict in enumerate(cells.VERDICTS)})
    read["claims"] = read["claims"].loc[decided.sort_values(kind="stable").index]
    drawn = catalogue.figures_of(config)
    studies = answered.studies(read["answers"], drawn, config)
    pictures = {figure.name: _picture(figure, results / "figures") for figure in drawn}
    below = {study.figure for study in studies}
    shown = groups(config)
    text, digest = provenance.config_text(config)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(PAGE).render(
        title=config.title,
        results=config.results,
        studies=studies,
        pictures=pictures,
        time=[pictures[name] for name in pictures if name in TIME],
        trained=[pictures[name] for name in pictures if name not in below and name not in TIME],
        tables={name: cells.of(name, shown.get(name, ()), read) for name in SHOWN},
        verdicts=_counts(read["claims"]["verdict"]),
        **_state(read["completeness"]),
        provenance=provenance.of(read["runs"]),
        packages=provenance.packages(read["runs"]),
        bibtex=provenance.bibtex(read["runs"]),
        commit=provenance.commit(read["runs"]),
        config_text=text,
        config_hash=digest,
    )


def _picture(figure: Figure, folder: Path) -> Picture:
    try:
        data = (folder / f"{figure.name}.svg").read_bytes()
    except FileNotFoundError:
        raise UserError(f"{folder / figure.name}.svg: no such figure; run `ketscale figures` first") from None
    uri = f"data:image/svg+xml;base64,{base64.b64encode(data).decode()}"
    return Picture(figure.name, figure.title, figure.caption, uri)


def _counts(values: Iterable[str]) -> list[tuple[str, int]]:
    """Each value and how often it occurs, in order of the values."""
    listed = list(values)
    return [(value, listed.count(value)) for value in sorted(set(listed))]


def _state(completeness: pd.DataFrame) -> Mapping[str, Any]:
    """The number of runs in each state, the runs that are not completed, and the warnings."""
    runs = completeness[completeness["run"] != "*"]
    return {
        "counts": _counts(runs["state"]),
        "absent": runs[runs["state"] != "completed"][["run", "state", "why"]].fillna("").to_dict("records"),
        "warnings": completeness[completeness["run"] == "*"]["why"].tolist(),
    }
