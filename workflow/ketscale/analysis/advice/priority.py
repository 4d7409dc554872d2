"""Which missing runs to do first on a budget of node-hours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ketscale.analysis.intervals import FEWEST
from ketscale.config import Config
from ketscale.grid import Run


class Step(NamedTuple):
    """Runs of a point that are chosen together. further: its seeds beyond three, each of which is
    worth something by itself."""

    runs: list[Run]
    further: bool

    @property
    def point(self) -> object:
        """What its runs share but for the trials of a search."""
        return self.runs[-1].without("seed")


def steps(config: Config, have: Iterable[Run], hours: Mapping[Run, float]) -> list[Step]:
    """The missing runs of known cost in the order in which a budget pays for them.

    The first step of a point gives it the three seeds that an interval needs, or all that it has, and the second the rest.
    What completes a point with the fewest runs comes first, and of these the cheapest. A point that cannot have its three
    seeds, since runs of it are of unknown cost, is left out. The trials of a search come with the first step of their point.

    Args:
        have: runs with a result, or under way. hours: the node-hours of the others, as far as they are known.
    """
    have, points = set(have), dict[object, list[Run]]()
    for run in config.runs:
        if not config.is_trial(run):
            points.setdefault(run.without("seed"), []).append(run)
    found: list[tuple[int, float, Step]] = []
    for seeds in points.values():
        lacking = [run for run in seeds if run not in have]
        known = [run for run in lacking if run in hours]
        trials = [run for run in config.trials_of(seeds[0]) if run not in have]
        needed = max(0, min(FEWEST, len(seeds)) - (len(seeds) - len(lacking)))
        if needed > len(known) or not hours.keys() >= {*trials}:
            continue
        number, cost = 0, 0.0
        # All that is spent on the point counts, so that its first step comes before its second.
        for part, further in ((known[:needed], False), (known[needed:], not trials)):
            if part:
                step = Step([*trials, *part], further)
                number, cost = number + len(step.runs), cost + sum(hours[run] for run in step.runs)
                found.append((number, cost, step))
                trials = []
    return [step for _, _, step in sorted(found, key=lambda each: each[:2])]


def choose(ordered: Iterable[Step], hours: Mapping[Run, float], node_hours: float) -> list[Run]:
    """The runs of these steps to do first, whose costs add up to at most the budget.

    No step is begun that the budget does not complete, but what is left at the end pays for single further seeds.
    """
    chosen, left = list[Run](), node_hours
    short, single = set[object](), list[Run]()
    for step in ordered:
        cost = sum(hours[run] for run in step.runs)
        if step.point in short:
            continue
        if cost <= left:
            chosen += step.runs
            left -= cost
        elif step.further:
            single += step.runs
        else:
            short.add(step.point)
    for run in sorted(single, key=lambda run: hours[run]):
        if hours[run] <= left:
            chosen.append(run)
            left -= hours[run]
    return chosen
