"""Which missing runs to do first on a budget of node-hours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ketscale.analysis.intervals import FEWEST
from ketscale.config import Config
from ketscale.grid import Run


class Step(NamedTuple):
    """Runs of a point that are chosen together: so many of its seeds in all, and trials of a search.

    further: its seeds beyond three, each of which is worth something by itself.
    """

    seeds: list[Run]
    needed: int
    trials: list[Run]
    further: bool

    @property
    def point(self) -> object:
        """What its runs share but for the trials."""
        return self.seeds[0].without("seed")


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
        # All that is spent on the point counts, so that its first step comes before its second.
        least, spent = sorted(hours[run] for run in known), sum(hours[run] for run in trials)
        if needed:
            found.append(
                (len(trials) + needed, spent + sum(least[:needed]), Step(known, needed, trials, False))
            )
        if needed < len(known):
            rest = Step(known, len(known), [] if needed else trials, bool(needed) or not trials)
            found.append((len(trials) + len(known), spent + sum(least), rest))
    return [step for _, _, step in sorted(found, key=lambda each: each[:2])]


def choose(
    ordered: Iterable[Step],
    process: Callable[[Run], object],
    cost: Callable[[Sequence[Run]], float],
    node_hours: float,
) -> list[Run]:
    """The runs of these steps to do first, which cost at most the budget.

    No step is begun that the budget does not complete, but what is left at the end pays for as many further seeds as it can.

    Args:
        process: what is equal for the runs that one process trains. cost: the node-hours of some runs of one process.
    """
    chosen, left = _Chosen(process, cost), node_hours
    short, single = set[object](), list[Run]()
    for step in ordered:
        if step.point in short:
            continue
        seeds = [run for run in step.seeds if run not in chosen.runs]
        of_trials, of_seeds = chosen.least(step.trials), chosen.least(seeds)
        number = step.needed - (len(step.seeds) - len(seeds))
        more = of_trials.added[-1] + of_seeds.added[number]
        if more <= left:
            chosen.take([*step.trials, *of_seeds.runs(number)])
            left -= more
        elif step.further:
            single += seeds
        else:
            short.add(step.point)
    of_single = chosen.least(single)
    chosen.take(of_single.runs(int(np.flatnonzero(of_single.added <= left)[-1])))
    return [*chosen.runs]


class _Least(NamedTuple):
    """The least that each number of some runs adds to the cost of what is chosen.

    added: by the number of runs. parts: the runs of each process in their order, and how many of them are among each number
    of runs of this process and of those before it.
    """

    added: NDArray[np.float64]
    parts: list[tuple[list[Run], NDArray[np.intp]]]

    def runs(self, number: int) -> list[Run]:
        """So many runs that add the least."""
        found: list[Run] = []
        for runs, which in reversed(self.parts):
            found = [*runs[: which[number]], *found]
            number -= int(which[number])
        return found


class _Chosen:
    """Runs that are chosen, with those that share their processes."""

    def __init__(self, process: Callable[[Run], object], cost: Callable[[Sequence[Run]], float]) -> None:
        self._process, self._cost = process, cost
        self.runs: dict[Run, None] = {}
        self._taken: dict[object, list[Run]] = {}

    def take(self, runs: Iterable[Run]) -> None:
        """Choose more."""
        for run in runs:
            self.runs[run] = None
            self._taken.setdefault(self._process(run), []).append(run)

    def least(self, runs: Iterable[Run]) -> _Least:
        """The least that each number of these runs would add: every division of it among the processes is compared."""
        parts: dict[object, list[Run]] = {}
        for run in runs:
            parts.setdefault(self._process(run), []).append(run)
        # The largest process comes first and wins a tie: the more runs share one, the less each of them costs.
        parts = dict(sorted(parts.items(), key=lambda one: -len(one[1]) - len(self._taken.get(one[0], ()))))
        added, found = np.zeros(1), []
        for process, of in parts.items():
            taken, more = self._taken.get(process, []), sorted(of, key=lambda run: self._cost([run]))
            wider = np.full(len(added) + len(more), np.inf)
            which = np.zeros(len(wider), dtype=np.intp)
            before = self._cost(taken)
            for number in range(len(more) + 1):
                cost = added + (self._cost([*taken, *more[:number]]) - before)
                place = slice(number, number + len(added))
                better = cost < wider[place]
                wider[place][better], which[place][better] = cost[better], number
            added = wider
            found.append((more, which))
        return _Least(added, found)
