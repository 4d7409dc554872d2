"""A figure that a notebook shows as the value of a cell, whether or not it has loaded pyplot."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure


class Shown(Figure):
    """Notebooks show a plain figure only after pyplot was loaded, and figures of pyplot twice."""

    def _repr_png_(self) -> bytes:
        made = BytesIO()
        self.savefig(made, format="png")
        return made.getvalue()
