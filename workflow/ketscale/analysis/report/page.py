"""Renders the page of one results folder, or of several that are kept apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

from ketscale.analysis import verdicts
from ketscale.analysis.report import cells, provenance
from ketscale.analysis.report.cells import Room
from ketscale.analysis.report.folder import Folder

if TYPE_CHECKING:
    from ketscale.analysis.analysed import Analysed

PAGE = "page.html.j2"
# What figures, and rows beyond the first ones of each table, may take of a page, which stays below 5 MB with them. Others
# are only in their files, to which the page leads.
FIGURES_BYTES, ROWS_BYTES = 2_800_000, 1_200_000


def rendered(
    analysed: Sequence[Analysed],
    folders: Sequence[str] = ("",),
    keys: Sequence[str] = ("",),
    records: bool = True,
) -> bytes:
    """The page of some results folders.

    Args:
        analysed: what the records of each folder say.
        folders: each folder as seen from the page, with '/' at its end; empty if the page is in it.
        keys: the name of each folder on the page; empty for a single one.
        records: whether the records are where the page can lead to them.
    """
    figures, rows = Room(FIGURES_BYTES), Room(ROWS_BYTES)
    shown = [
        Folder.of(each, key, folder, records, figures, rows)
        for each, key, folder in zip(analysed, keys, folders, strict=True)
    ]
    said = {word for folder in shown for word in folder.verdicts}
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["slug"] = slug
    environment.filters["said"] = cells.said
    titles = {each.config.title for each in analysed}
    text = environment.get_template(PAGE).render(
        title=titles.pop() if len(titles) == 1 else f"Results of {len(shown)} folders",
        folders=shown,
        provenance=provenance,
        several=len(shown) > 1,
        meanings={word: meaning for word, meaning in verdicts.MEANINGS.items() if word in said},
        made_from=" ".join(each.sources.digest for each in analysed),
    )
    return text.encode()


def slug(text: str) -> str:
    """A text as an id of the page."""
    return re.sub(r"\W+", "-", text).strip("-")
