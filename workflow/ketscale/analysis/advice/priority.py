"""Which missing runs to do first on a budget of node-hours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ketscale.analysis.intervals import FEWEST
from ketscale.config import Config
from ketscale.grid import Run
from ketscale.jobs.costs.forecast import Forecast


def choose(
    config: Config, done: Iterable[Run], forecasts: Mapping[Run, Forecast], node_hours: float
) -> list[Run]:
    """The runs to do first, in their order, whose expected costs add up to at most the budget.

    First every point gets the three seeds that an interval needs, or all that it has if they are fewer: points that lack
    the fewest come first, and among these the cheapest. Points are not begun that the budget does not complete. When all
    have three, every point gets one more seed at a time, the cheapest first. Runs of which nothing is known are left out. The
    trials of a search come with the first seeds of their point.

    Args:
        done: runs with a result, or under way. node_hours: the budget.
    """
    have, points = set(done), dict[object, list[Run]]()
    for run in config.runs:
        if config.is_trial(run):
            continue
        points.setdefault(run.without("seed"), []).append(run)

    def hours(*runs: Run) -> float:
        return sum(forecasts[run].node_hours.middle for run in runs)

    completing: list[list[Run]] = []
    further: list[tuple[int, float, Run]] = []  # how many seeds come before, and the cost
    for seeds in points.values():
        finished = sum(run in have for run in seeds)
        lacking = [run for run in seeds if run not in have and run in forecasts]
        needed = max(0, min(FEWEST, len(seeds)) - finished)
        trials = [trial for trial in config.trials_of(seeds[0]) if trial not in have]
        if needed <= len(lacking) and forecasts.keys() >= {*trials}:
            completing.append([*trials, *lacking[:needed]])
            more = enumerate(lacking[needed:], needed + finished)
            further += [(number, hours(run), run) for number, run in more]
    chosen, left = list[Run](), node_hours
    for step in sorted(completing, key=lambda step: (len(step), hours(*step))):
        if hours(*step) <= left:
            chosen += step
            left -= hours(*step)
    if len(chosen) == sum(map(len, completing)):
        for _, cost, run in sorted(further, key=lambda each: each[:2]):
            left -= cost
            if left < 0:
                break
            chosen.append(run)
    return chosen
