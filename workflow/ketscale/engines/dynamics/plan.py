"""What the machine code of an evolution is written for: the entries of its generators, and its polynomials."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ketscale.engines.dynamics.generators import Generators
from ketscale.engines.dynamics.settings import MOST_EXACT_STEPS

# States of so many steps of a segment are kept in the backward pass; with more, it recomputes them in blocks.
BLOCK = 32


@dataclass(frozen=True)
class EvolutionPlan:
    """What the code is written for. degrees, reaches: see `evolution.Division`."""

    generators: Generators
    degrees: tuple[int, ...]
    reaches: tuple[float, ...]

    @cached_property
    def forms(self) -> Forms:
        """The entries of G."""
        return Forms(self.generators)

    @property
    def largest_norm(self) -> float:
        """The largest norm of G t over a segment; beyond it the result is not a number."""
        return MOST_EXACT_STEPS * self.reaches[-1]

    @property
    def size(self) -> int:
        """Coordinates of a state."""
        return self.generators.size

    @property
    def fixed_count(self) -> int:
        """Coefficients that hold for all segments."""
        return len(self.generators.fixed)

    @property
    def control_count(self) -> int:
        """Coefficients of a segment."""
        return len(self.generators.controlled)

    @property
    def rows(self) -> list[int]:
        """The coordinates whose values are kept: those that change."""
        return self.forms.rows

    @property
    def changing(self) -> int:
        """How many these are."""
        return len(self.rows)

    @property
    def scratch_vectors(self) -> int:
        """Vectors of a worker's scratch memory in the backward pass."""
        return (self.degrees[-1] + BLOCK) * self.changing

    @property
    def multiplications(self) -> int:
        """Multiplications of one step of one task, in the forward pass."""
        return self.degrees[-1] * (len(self.forms.entries) + self.changing)


class Forms:
    """The entries of G as linear forms of the coefficients, equal ones shared, whatever their sign.

    terms: those of each form, (coefficient, value) with coefficients numbered through `fixed` and `controlled`.
    entries: (row, column, form, whether it is negative). rows: those with entries; other coordinates are constant.
    """

    def __init__(self, generators: Generators) -> None:
        sums: dict[tuple[int, int], list[tuple[int, float]]] = {}
        for number, matrix in enumerate((*generators.fixed, *generators.controlled)):
            for row, column, value in matrix:
                sums.setdefault((row, column), []).append((number, value))
        numbers: dict[tuple[tuple[int, float], ...], int] = {}
        self.entries: list[tuple[int, int, int, bool]] = []
        for (row, column), terms in sorted(sums.items()):
            negative = terms[0][1] < 0
            key = tuple((number, -value if negative else value) for number, value in terms)
            self.entries.append((row, column, numbers.setdefault(key, len(numbers)), negative))
        self.terms = list(numbers)
        self.rows = sorted({row for row, *_ in self.entries})
