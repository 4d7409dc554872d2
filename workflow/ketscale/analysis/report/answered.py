"""What the page says of each study: its question, its answer, and the figure that shows it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ketscale.analysis.kinds import Figure, kinds
from ketscale.analysis.report.cells import shown
from ketscale.config import Config

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Answered:
    """A study on the page. effect: the comparison that leads the answer, in words; empty if there is none.

    figure: the name of the figure of its kind, empty if it has none. first: whether the figure is below this answer, not
    below that of an earlier study. rows: the table that has its rows, empty if none has.
    """

    study: str
    kind: str
    question: str
    answer: str
    effect: str
    verdict: str
    figure: str
    first: bool
    rows: str


def studies(answers: pd.DataFrame, figures: Sequence[Figure], config: Config) -> list[Answered]:
    """The config's studies in the order of their kinds, with their rows of answers.csv."""
    known, given = kinds(config.families), {row["study"]: row for row in answers.to_dict("records")}
    names, found = {figure.name for figure in figures}, list[Answered]()
    order = list(known)
    for study in sorted(config.studies, key=lambda study: order.index(study.kind)):
        kind, row = known[study.kind], given.get(study.name, {})
        figure = kind.figure.name if kind.figure and kind.figure.name in names else ""
        answered = Answered(
            study.name,
            study.kind,
            study.question,
            _text(row, "answer") or "There is no answer yet.",
            _effect(row),
            _text(row, "verdict"),
            figure,
            figure not in {earlier.figure for earlier in found},
            kind.table or "",
        )
        found.append(answered)
    return found


def _text(row: Mapping[Any, Any], name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else ""


def _effect(row: Mapping[Any, Any]) -> str:
    """For example 'speedup of 2 MPI ranks: 1.54 (95 % interval 1.2 to 1.9, n = 3)'."""
    effect, low, high, seeds = (float(row.get(name, math.nan)) for name in ("effect", "low", "high", "n"))
    if math.isnan(effect):
        return ""
    of = _text(row, "of") or "effect"
    about = [] if math.isnan(low) else [f"95 % interval {shown(low)} to {shown(high)}"]
    about += [f"n = {seeds:.0f}"] if seeds > 0 else []
    return f"{of}: {shown(effect)}" + (f" ({', '.join(about)})" if about else "")
