"""What the machine code of an evolution is written for: its arguments, entries and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ketscale.engines.dynamics.generators import Generators

ARGUMENTS = (
    "next_group", "next_worker",  # counters, 0 at the start
    "batch", "groups", "segments",
    "tau",  # duration of a segment: the bits of a double
    "steps",  # in a segment; not read where the norm decides
    "fixed", "fixed_stride",  # (tasks, F), with the distance of tasks in floats, here and below
    "controls", "controls_stride",  # (tasks, segments, K)
    "initial", "initial_stride",  # (tasks, size)
    "final",  # (tasks, size)
    "saved",  # states before each segment, (groups, segments, rows, lanes); 0: not wanted
    "cotangent", "cotangent_stride",  # of final
    "to_fixed", "to_controls", "to_initial",  # gradients, (tasks, ...)
    "scratch",  # address, of `Plan.scratch_vectors` for each worker
)  # fmt: skip

# States of so many steps of a segment are kept in the backward pass; with more, it recomputes them in blocks.
BLOCK = 32

# Largest norm of G t over a segment; beyond it the result is not a number.
LARGEST_NORM = 1e4


@dataclass(frozen=True)
class Plan:
    """What the code is written for; `lanes` is the number of floats in a vector.

    degrees, reaches: see `evolution.Division`.
    """

    generators: Generators
    degrees: tuple[int, ...]
    reaches: tuple[float, ...]
    double: bool
    lanes: int

    @cached_property
    def forms(self) -> Forms:
        """The entries of G."""
        return Forms(self.generators)

    @property
    def scratch_vectors(self) -> int:
        """Vectors of a worker's scratch memory in the backward pass."""
        return (self.degrees[-1] + BLOCK) * len(self.forms.rows)

    @property
    def multiplications(self) -> int:
        """Of one step of one task, in the forward pass."""
        return self.degrees[-1] * (len(self.forms.entries) + len(self.forms.rows))


class Forms:
    """The entries of G as linear forms of the coefficients, equal ones shared, whatever their sign.

    terms: of each form, (coefficient, value) with coefficients numbered through `fixed` and `controlled`.
    entries: (row, column, form, whether it is negative). rows: those with entries; other coordinates are constant.
    """

    def __init__(self, generators: Generators) -> None:
        self.fixed = len(generators.fixed)
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
