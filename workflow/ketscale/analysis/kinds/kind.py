"""What a kind of study is, and what a figure is. Imports nothing heavy: Snakemake imports this at every start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from ketscale.analysis.comparison import Collected
from ketscale.analysis.drawing.style import Inputs
from ketscale.analysis.heavy import Drawing, pd
from ketscale.analysis.points import Row
from ketscale.config import Config
from ketscale.grid import Study

# The drawing and the data that are drawn; None if there is nothing to see.
Draw = Callable[[Inputs], "tuple[Drawing, pd.DataFrame] | None"]


@dataclass(frozen=True)
class Figure:
    """A figure of the report.

    name: of its files. title: text above it. caption: text below it, without the numbers of a study. draw: draws it.
    kinds: of the studies that it shows, if there may be several. studies: those that it shows.
    """

    name: str
    title: str
    caption: str
    draw: Draw
    kinds: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of study.

    name: used in configs. table: of its rows. rows: of a study, a mapping for each point, with the columns of the table.
    faults: why the runs of a study do not allow its comparison, and what to do. lead: the row that answers the study's
    question, of those with an effect. notes: what a reader should know besides. fits: rows of fits.csv, for a kind of
    another table. figure: its own; its files have the name of the study.
    """

    name: str
    table: Literal["speed", "quality", "fits"]
    rows: Callable[[Study, Collected], Iterable[Row]]
    faults: Callable[[Study, Config], Iterator[str]]
    lead: Callable[[list[Row]], Row]
    notes: Callable[[list[Row], Study, Collected], Iterable[str]] = lambda rows, study, collected: ()
    fits: Callable[[Study, Collected], Iterable[Row]] = lambda study, collected: ()
    figure: Figure | None = None
