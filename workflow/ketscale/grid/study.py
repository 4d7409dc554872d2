"""Studies: named subsets of the grid, expanded to their runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketscale.errors import UserError
from ketscale.grid.run import Run, layout
from ketscale.grid.size import SizeAxis, encode

# More than any machine trains. Each takes time and memory before the first one starts.
MOST_RUNS = 100_000


@dataclass(frozen=True)
class Study:
    """A named subset of the grid that asks one question. Studies may share runs."""

    name: str
    kind: str
    question: str
    runs: tuple[Run, ...]


def expand(
    points: Sequence[Mapping[str, Any]], sizes: Callable[[str], Sequence[SizeAxis]]
) -> tuple[Run, ...]:
    """Every combination of the values of each point, once, in the given order.

    Args:
        points: values or lists by the axis names of configs (the layout as `backend`, the sizes by name).
        sizes: the size axes of a workload's family.

    Raises:
        UserError: there are more than `MOST_RUNS` of them.
    """
    if (
        runs := sum(math.prod(len(listed(value)) for value in point.values()) for point in points)
    ) > MOST_RUNS:
        raise UserError(
            f"its lists multiply to {runs:,} runs, but a study may have {MOST_RUNS:,}; shorten them, or divide it among "
            "several configs"
        )
    return tuple(dict.fromkeys(run for point in points for run in _combinations(point, sizes)))


def _combinations(point: Mapping[str, Any], sizes: Callable[[str], Sequence[SizeAxis]]) -> Iterator[Run]:
    for combination in itertools.product(*map(listed, point.values())):
        chosen = dict(zip(point, combination, strict=True))
        size = encode(sizes(chosen["workload"]), chosen)
        yield Run.of({**chosen, **layout(chosen["backend"]), "size": size})


def listed(value: Any) -> Sequence[Any]:
    """The values of an axis, which is given as one value or as a list."""
    return value if isinstance(value, list | tuple) else [value]


def schedule(studies: Iterable[Study], timed: Callable[[Run], bool]) -> tuple[Run, ...]:
    """Every run of every study once, in the order in which they start.

    Untimed runs come first, since they share the machine and fill it best together. Timed runs follow seed by seed,
    so that the two runs of a ratio are close in time.
    """
    unique = dict.fromkeys(run for study in studies for run in study.runs)
    return tuple(sorted(unique, key=lambda run: (timed(run), run.seed)))
