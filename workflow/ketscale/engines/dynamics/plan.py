"""The table that the machine code of an evolution reads: the entries of its generators, and its polynomials."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.dynamics.generators import Generators
from ketscale.engines.dynamics.kernels import BLOCK
from ketscale.engines.dynamics.methods import MOST_EXACT_STEPS

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class EvolutionPlan:
    """A system and its division. degrees, reaches: see `generators.Division`."""

    generators: Generators
    degrees: tuple[int, ...]
    reaches: tuple[float, ...]

    @cached_property
    def forms(self) -> Forms:
        """The entries of G."""
        return Forms(self.generators)

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

    @cached_property
    def multiplications(self) -> int:
        """Multiplications of one step of one task, in the forward pass."""
        return self.degrees[-1] * (len(self.forms.arrays[0]) + self.size)

    @property
    def form_count(self) -> int:
        """Forms, of which there is at least one, be it without terms."""
        return max(1, len(self.forms.terms))

    @cached_property
    def scratch_vectors(self) -> int:
        """Vectors of a worker's scratch memory in the backward pass."""
        own = self.fixed_count + self.control_count + 6 * self.form_count
        return (5 + self.degrees[-1] + BLOCK) * self.size + own

    def arguments(self, dtype: torch.dtype) -> dict[str, Any]:
        """The arguments of `kernels` that are about the system and the division, with floats of this precision."""
        forms, coefficients = self.form_count, self.fixed_count + self.control_count
        rows, columns, form, negative = self.forms.arrays
        signed = form + forms * negative
        terms = [(number, of, value) for number, each in enumerate(self.forms.terms) for of, value in each]
        of_form, of_coefficient = np.array([pair[:2] for pair in terms], dtype=np.int64).reshape(-1, 2).T
        values = np.array([value for *_, value in terms])
        (row_starts, _), (column_starts, by_column), (form_starts, by_form) = (
            _lists(rows, self.size), _lists(columns, self.size), _lists(form, forms)
        )  # fmt: skip
        (term_starts, _), (coefficient_starts, by_coefficient) = (
            _lists(of_form, forms), _lists(of_coefficient, coefficients)
        )  # fmt: skip

        def integers(*lists: Integers) -> torch.Tensor:
            return torch.from_numpy(np.stack(lists, -1))

        def reals(numbers: Any) -> torch.Tensor:
            return torch.tensor(numbers, dtype=dtype, device="cpu")

        return {
            "size": self.size, "fixed_count": self.fixed_count, "control_count": self.control_count,
            "scratch_vectors": self.scratch_vectors, "coefficients": coefficients, "forms": forms,
            "normed_rows": self.generators.normed_rows if self.reaches else 0,
            "reaching": len(self.degrees) - 1, "most_degree": self.degrees[-1],
            "per_reach": 1 / self.reaches[-1] if self.reaches else 0.0,
            "largest_norm": MOST_EXACT_STEPS * self.reaches[-1] if self.reaches else math.inf,
            "degrees": reals(self.degrees), "reaches": reals(self.reaches),
            "inverses": reals([1 / number for number in range(1, self.degrees[-1] + 1)]),
            "term_starts": integers(term_starts), "row_starts": integers(row_starts),
            "column_starts": integers(column_starts), "form_starts": integers(form_starts),
            "coefficient_starts": integers(coefficient_starts),
            "terms": integers(of_coefficient), "term_values": reals(values),
            "chained": integers(of_form[by_coefficient]), "chained_values": reals(values[by_coefficient]),
            "by_row": integers(columns, signed),
            "by_column": integers(rows[by_column], signed[by_column]),
            "by_form": integers(rows[by_form], columns[by_form]),
            "signs": reals(1.0 - 2.0 * negative[by_form]),
        }  # fmt: skip


class Forms:
    """The entries of G as linear forms of the coefficients, equal ones shared, whatever their sign.

    terms: those of each form, (coefficient, value) with coefficients numbered through `fixed` and `controlled`.
    arrays: row, column, form and whether it is negative, of each entry. Coordinates of rows without entries are constant.
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


def _lists(keys: Integers, count: int) -> tuple[Integers, Integers]:
    """The start of the list of each key from 0 to count - 1 and the end of the last, and the places that are in them, in turn."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=count))])
    return starts.astype(np.int64), np.argsort(keys, kind="stable")
