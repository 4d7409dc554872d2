"""Renders the page of one results folder, or of several that are kept apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2

from ketscale.analysis import stamp
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.report import cells, merged
from ketscale.analysis.report.chapter import Chapter, counts
from ketscale.analysis.report.columns import groups
from ketscale.config import Config
from ketscale.files import write_atomic

PAGE = "page.html.j2"
# The tables that the page shows; the others are only files.
SHOWN = ("claims", "scaling", "laws", "quality", "parity", "runs", "completeness")


def build(config: Config, results: Path) -> None:
    """Write tables, figures and report.html of the records below `results`, and their stamp.

    Raises:
        UserError: a run is missing, stale or refused, and the config is not `partial`.
    """
    analysed = Analysed.of(config, results)
    page = _rendered([Chapter.of(analysed)], config.title).encode()
    stamp.write(results, {**analysed.files(), stamp.PAGE: page}, analysed.sources, analysed.complete)


def merge(folders: Sequence[Path], out: Path) -> None:
    """Write one page of several results folders, each with its own answers, figures and rows.

    Raises:
        UserError: a folder has no config, a run is missing, stale or refused, or two folders have the same name on the
            page.
    """
    chapters = merged.chapters(folders, out.parent)
    write_atomic(out, _rendered(chapters, merged.title(chapters)).encode())


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
