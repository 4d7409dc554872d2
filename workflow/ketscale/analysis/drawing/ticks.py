"""Ticks of logarithmic axes: as many as fit without touching. Durations have their own unit at each tick."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, Locator, MaxNLocator, NullLocator


def _levels(marks: Sequence[float]) -> list[list[float]]:
    """Lists of ticks, densest first: the marks with ticks between them, then fewer and fewer of the marks."""
    parts = [[mark * part for mark in marks for part in many] for many in ((1, 2, 3, 5), (1, 2, 5), (1, 3))]
    return [*(sorted(set(level)) for level in parts), *(list(marks[::step]) for step in (1, 2, 3, 4, 6))]


# Decades below a minute, then minutes and hours.
DURATIONS = _levels((*(10.0**k for k in range(-9, 2)), 60.0, 600.0, 3600.0, 36e3, 36e4, 36e5, 36e6))
DECADES = _levels([10.0**k for k in range(-15, 16)])
# In points (1/72 inch) at the font sizes of `style.theme`: a character, a line, and the gap between two labels.
_CHARACTER, _LINE, _GAP = 5.8, 11.0, 6.0


class LogTicks(Locator):
    """The densest of several lists of ticks whose labels do not touch; at least two ticks wherever possible."""

    def __init__(self, levels: Sequence[Sequence[float]], words: Callable[[float], str]) -> None:
        """levels: lists of ticks, the densest first. words: the label of a tick."""
        self.levels = levels
        self.words = words

    def __call__(self) -> Any:
        """The ticks in view."""
        assert self.axis is not None
        low, high = sorted(self.axis.get_view_interval())
        return self.tick_values(low, high)

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """The ticks between two positive values."""
        on: Any = self.axis  # by matplotlib's types it may have no size
        along = on.axis_name == "x"
        box = on.axes.bbox
        points = (box.width if along else box.height) * 72 / on.axes.get_figure(root=True).dpi
        fewest: list[float] = []
        # If less than a factor of two is in view: round numbers.
        linear = [
            [float(tick) for tick in MaxNLocator(count).tick_values(vmin, vmax) if tick > 0]
            for count in (4, 2)
        ]
        for level in (*self.levels, *linear):
            ticks = [tick for tick in level if vmin * (1 - 1e-9) <= tick <= vmax * (1 + 1e-9)]
            if len(ticks) < 2:
                continue
            label = max(len(self.words(tick)) for tick in ticks) * _CHARACTER if along else _LINE
            if min(np.diff(np.log(ticks))) * points >= (label + _GAP) * math.log(vmax / vmin):
                return ticks
            fewest = fewest or [ticks[0], ticks[-1]]
        return fewest


def show(axis: Any, levels: Sequence[Sequence[float]], words: Callable[[float], str]) -> None:
    """Make the axis logarithmic, with these levels of ticks, labelled by `words`."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogTicks(levels, words))
    axis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))
    axis.set_minor_locator(NullLocator())
