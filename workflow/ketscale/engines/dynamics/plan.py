"""What the machine code of an evolution is written for: the entries of its generators, and its polynomials."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

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

    @cached_property
    def changing(self) -> int:
        """How many these are."""
        return len(self.rows)

    @cached_property
    def scratch_vectors(self) -> int:
        """Vectors of a worker's scratch memory in the backward pass."""
        return (self.degrees[-1] + BLOCK) * self.changing

    @cached_property
    def multiplications(self) -> int:
        """Multiplications of one step of one task, in the forward pass."""
        return self.degrees[-1] * (len(self.forms.entries) + self.changing)


class Forms:
    """The entries of G as linear forms of the coefficients, equal ones shared, whatever their sign.

    terms: those of each form, (coefficient, value) with coefficients numbered through `fixed` and `controlled`.
    arrays: row, column, form and whether it is negative, of each entry. rows: those with entries; other coordinates are
        constant.
    """

    def __init__(self, generators: Generators) -> None:
        coefficients, rows, columns, values = generators.arrays
        starts = np.flatnonzero(np.diff(rows * generators.size + columns, prepend=-1))
        ends = np.append(starts, len(rows))[1:]
        negative = values[starts] < 0
        values = values * np.repeat(np.where(negative, -1.0, 1.0), ends - starts)
        # A form's bytes are those of its terms, so that equal ones are found fast.
        packed = np.stack([coefficients.astype(float), values], 1).tobytes()
        numbers: dict[bytes, int] = {}
        forms = [
            numbers.setdefault(packed[16 * start : 16 * end], len(numbers))
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        self.arrays = rows[starts], columns[starts], np.array(forms, dtype=np.int64), negative
        self.terms = [
            tuple((int(number), float(value)) for number, value in np.frombuffer(each).reshape(-1, 2))
            for each in numbers
        ]
        self.rows: list[int] = np.unique(rows).tolist()

    @cached_property
    def entries(self) -> list[tuple[int, int, int, bool]]:
        """(row, column, form, whether it is negative), by row and column."""
        return list(zip(*(each.tolist() for each in self.arrays), strict=True))
