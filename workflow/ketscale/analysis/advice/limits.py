"""Lines for `limits` in a cluster's site file: time and memory that runs ask for, by what they are expected to cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from ketscale.grid import Run
from ketscale.jobs.costs.forecast import Forecast

# On top of the upper ends of the intervals, of which 5 % are exceeded. A retry asks for more, but starts again later.
_MORE_TIME, _MORE_MEMORY = 1.5, 1.25
_MEGABYTES = 100


def lines(forecasts: Iterable[Forecast], sizes: Callable[[Run], Mapping[str, int]]) -> list[str]:
    """A line of YAML for each model's size with a simulator, backend, batch and protocol; the layouts share it.

    sizes: gives a run's sizes by name.
    """
    alike: dict[tuple[tuple[str, object], ...], list[Forecast]] = {}
    for one in forecasts:
        axes = ("workload", "model", "simulator", "backend", "protocol", "batch")
        key = (*((axis, getattr(one.run, axis)) for axis in axes), *sizes(one.run).items())
        alike.setdefault(key, []).append(one)
    written = []
    for key, of in alike.items():
        minutes = max(1, math.ceil(_MORE_TIME * max(one.wall_s.high for one in of) / 60))
        memory = _MORE_MEMORY * max(one.memory_bytes.high for one in of) / 1e6
        megabytes = _MEGABYTES * math.ceil(memory / _MEGABYTES)
        named = ", ".join(f"{name}: {value}" for name, value in key)
        written.append(f"  - {{{named}, minutes: {minutes}, memory_mb: {megabytes}}}")
    return written
