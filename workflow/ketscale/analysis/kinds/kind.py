"""What a kind of study is, and what a figure is. Imports nothing heavy: Snakemake imports this at every start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ketscale.analysis.collected import Collected
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Drawing, pd
from ketscale.analysis.intervals import Estimate
from ketscale.config import Config
from ketscale.grid import Run, Study


@dataclass(frozen=True)
class Figure:
    """A figure of the report.

    name: of its files. title: text above it. caption: text below it, without the numbers of a study. kinds: it is
    drawn if the config has a study of one of these, or of any kind if there are none. draw: returns the drawing and the
    data that were drawn, or None if there is nothing to see. needs: what some run of these studies must be; None if any run will do.
    """

    name: str
    title: str
    caption: str
    kinds: tuple[str, ...]
    draw: Callable[[Inputs], tuple[Drawing, pd.DataFrame] | None]
    needs: Callable[[Config, Run], bool] | None = None


@dataclass(frozen=True)
class Told:
    """A row of a chapter's table: a point, what it is compared with, and the comparison.

    point, beside: in words; `beside` is empty if nothing is compared. effect: in `unit`, None if there is no number. unit: 'times' of
    a ratio, 'points' (hundredths) of a share, else the metric's. verdict: a word of `verdicts`. more: other cells by their headings.
    """

    point: str
    beside: str = ""
    effect: Estimate | None = None
    unit: str = ""
    verdict: str = ""
    more: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """A study's answer: one sentence, a row for each point, and the comparison that leads it.

    text: one finding in at most 25 words and three numbers. verdict: the word that decides. of: what the effect is of,
    such as 'gain of 2 MPI ranks over one core'. effect, unit: as of `Told`. short: the finding in at most twelve words.
    rows: the table. notes: what is folded below it.
    """

    text: str
    verdict: str
    of: str = ""
    effect: Estimate | None = None
    unit: str = ""
    short: str = ""
    rows: tuple[Told, ...] = ()
    notes: tuple[str, ...] = ()


class Kind(ABC):
    """A kind of study: what it compares, and how its runs are checked, tabulated, drawn and answered.

    name: used in configs. title, caption: of its figure, as of `Figure`; without a title it has none. table: where its rows
    go; None if it has no rows. history: whether the epochs of its runs are tabulated too.
    """

    name: str
    title: str = ""
    caption: str = ""
    table: ClassVar[Literal["scaling", "quality"] | None] = None
    history: ClassVar[bool] = False

    @property
    def figure(self) -> Figure | None:
        """Its own figure, if it has one."""
        return Figure(self.name, self.title, self.caption, (self.name,), self.draw) if self.title else None

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Why the runs of the study do not allow its comparison, and what to do."""
        yield from ()

    def rows(self, study: Study, collected: Collected) -> Iterable[Any]:
        """What the study's rows of `table` are taken from, one per point, in the study's order."""
        return ()

    @abstractmethod
    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """What the study's rows say about its question, whatever is missing."""

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
        """Its figure of one study, and the data that were drawn; None if there is nothing to see."""
        return None
