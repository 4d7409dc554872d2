"""Renders the page of one results folder, or of several that are kept apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2

from ketscale.analysis import stamp
from ketscale.analysis.report import cells, merged
from ketscale.analysis.report.chapter import Chapter, counts
from ketscale.analysis.report.columns import groups
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.files import clear, write_atomic

PAGE = "page.html.j2"
LARGEST_BYTES = 5_000_000
# The tables that the page shows; the others are only files.
SHOWN = ("claims", "scaling", "laws", "quality", "parity", "runs", "completeness")


def build(config: Config, results: Path) -> None:
    """Write report.html from the CSV files in tables/ and the SVG files in figures/ of the results folder.

    Raises:
        UserError: a table or figure is missing, or the page would exceed 5 MB.
    """
    _write(
        [Chapter.of(config, results)],
        config.title,
        results / "report.html",
        "split the study into several configs",
    )
    clear(results)


def merge(folders: Sequence[Path], out: Path) -> None:
    """Write one page of several results folders, each with its own answers, figures and rows.

    Raises:
        UserError: a folder has no config, a table or figure is missing, two folders have the same name on the page, or
            the page would exceed 5 MB a folder.
    """
    chapters = merged.chapters(folders, out.parent)
    _write(chapters, merged.title(chapters), out, "merge fewer folders")


def _write(chapters: Sequence[Chapter], title: str, out: Path, advice: str) -> None:
    data = _rendered(chapters, title).encode()
    if len(data) > LARGEST_BYTES * len(chapters):
        raise UserError(f"{out}: {len(data) / 1e6:.1f} MB, more than 5 MB a folder; {advice}")
    write_atomic(out, stamp.sealed(data))


def _rendered(chapters: Sequence[Chapter], title: str) -> str:
    tables = chapters[0].tables if len(chapters) == 1 else merged.tables(chapters)
    # What was measured comes first; otherwise in the ledger's order.
    decided = tables["claims"]["verdict"].map({verdict: at for at, verdict in enumerate(cells.VERDICTS)})
    tables = {**tables, "claims": tables["claims"].loc[decided.sort_values(kind="stable").index]}
    shown = groups([chapter.config for chapter in chapters])
    places = {chapter.key: chapter.place for chapter in chapters} | {"": chapters[0].place}
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(PAGE).render(
        title=title,
        chapters=chapters,
        several=len(chapters) > 1,
        tables={name: cells.of(name, shown.get(name, ()), tables, places) for name in SHOWN},
        verdicts=counts(tables["claims"]["verdict"]),
    )
