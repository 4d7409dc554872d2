"""What a kind of study is, and what a figure is. Imports nothing heavy: Snakemake imports this at every start."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ketscale.config import Config
from ketscale.grid import Run, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing

    from ketscale.analysis.drawing.inputs import Inputs
    from ketscale.analysis.points import Collected


@dataclass(frozen=True)
class Figure:
    """A figure of the report.

    name: of its files. title: text above it. caption: text below it, without the numbers of a study. kinds: it is
    drawn if the config has a study of one of these. draw: returns the drawing and the data that were drawn. needs: what
    some run of these studies must be; None if any run will do.
    """

    name: str
    title: str
    caption: str
    kinds: tuple[str, ...]
    draw: Callable[[Inputs], tuple[Drawing, pd.DataFrame]]
    needs: Callable[[Config, Run], bool] | None = None


class Kind(ABC):
    """A kind of study: what it compares, and how its runs are checked, tabulated and drawn.

    name: used in configs. varies: the column of runs.csv whose values it compares, if it is always the same. table: where
    its rows go; None if it has no rows. history: whether the epochs of its runs are tabulated too. figure: its own figure, if any.
    """

    name: str
    varies: str
    table: ClassVar[Literal["scaling", "quality"] | None] = None
    history: ClassVar[bool] = False
    figure: Figure | None = None

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Why the runs of the study do not allow its comparison, and what to do."""
        yield from ()

    def rows(self, study: Study, collected: Collected) -> Iterable[Mapping[str, Any]]:
        """The study's rows of `table`, one per point, in the study's order."""
        return ()
