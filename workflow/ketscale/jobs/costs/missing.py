"""What the missing runs of a config cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from ketscale.config import Config
from ketscale.grid import Run
from ketscale.jobs import choice
from ketscale.jobs.costs.forecast import Costs, Forecast
from ketscale.jobs.costs.law import Interval, total
from ketscale.measure.form import Record
from ketscale.words import counted, rounded


def forecasts(costs: Costs, config: Config, runs: Sequence[Run], root: Path) -> dict[Run, Forecast]:
    """The forecasts of all runs of which anything is known.

    root: the folder that the config's results folder is in.
    """
    found: dict[Run, Forecast] = {}
    alike: dict[object, Forecast | None] = {}
    with threadpool_limits(1):
        for run in runs:
            settings = choice.resolved(config.settings(run), root / config.results)
            # Runs that differ in their seeds cost the same.
            key = run.without("seed"), settings.choice
            if key not in alike:
                alike[key] = costs.forecast(settings)
            if one := alike[key]:
                found[run] = replace(one, run=run)
    return found


@dataclass(frozen=True)
class Remainder:
    """What some runs will take, as far as records tell.

    known: those that have a forecast; the others count as zero.
    """

    runs: int
    known: int
    node_hours: Interval

    def __str__(self) -> str:
        if not self.known:
            return f"{counted(self.runs, 'run')}, of which no record tells what they take"
        middle, low, high = map(rounded, astuple(self.node_hours))
        some = f"{self.known} of " * (self.known < self.runs) + counted(self.runs, "run")
        return f"about {middle} node-hours ({low} to {high}) for {some}"


def remainder(
    config: Config, runs: Sequence[Run], root: Path, known: Mapping[Path, Record] | None = None
) -> Remainder:
    """What these runs of a config take. known: records that have been read, by their paths."""
    told = Costs.of(root / config.results, known=known) if runs else None
    found = forecasts(told, config, runs, root).values() if told else ()
    return Remainder(len(runs), len(found), total(one.node_hours for one in found))
