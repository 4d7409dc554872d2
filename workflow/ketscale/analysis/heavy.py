"""Libraries that take long to import, on first use, and their types: Snakemake imports the kinds of studies at every start."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import matplotlib as mpl
    import matplotlib.pyplot as plt
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
    from scipy import optimize, special, stats
else:

    class _Library(ModuleType):
        """A module that is imported when something of it is used."""

        def __getattr__(self, name: str) -> Any:
            value = getattr(import_module(self.__name__), name)
            # The next use does not come here.
            setattr(self, name, value)
            return value

    mpl, plt, np, pd = map(_Library, ("matplotlib", "matplotlib.pyplot", "numpy", "pandas"))
    optimize, special, stats = map(_Library, ("scipy.optimize", "scipy.special", "scipy.stats"))
    # These are but the types of arguments and results.
    Axes = Drawing = object

__all__ = ["Axes", "Drawing", "mpl", "np", "optimize", "pd", "plt", "special", "stats"]
