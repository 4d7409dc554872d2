"""The table that the machine code of an evolution reads: the entries of its generators, and its polynomials."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.dynamics.generators import Generators
from ketscale.engines.dynamics.kernels import BLOCK
from ketscale.engines.dynamics.methods import MOST_EXACT_STEPS

Integers = NDArray[np.int64]


def table(
    generators: Generators, degrees: tuple[int, ...], reaches: tuple[float, ...], dtype: torch.dtype
) -> dict[str, Any]:
    """The arguments of `kernels` that are about a system and its division, with floats of this precision.

    degrees, reaches: see `generators.Division`.
    """
    size, (of_forms, (rows, columns, form, negative)) = generators.size, _forms(generators)
    fixed_count, control_count = len(generators.fixed), len(generators.controlled)
    # There is at least one form, be it without terms.
    forms, coefficients = max(1, len(of_forms)), fixed_count + control_count
    signed = form + forms * negative
    terms = [(number, of, value) for number, each in enumerate(of_forms) for of, value in each]
    of_form, of_coefficient = np.array([pair[:2] for pair in terms], dtype=np.int64).reshape(-1, 2).T
    values = np.array([value for *_, value in terms])
    (row_starts, _), (column_starts, by_column), (form_starts, by_form) = (
        _lists(rows, size), _lists(columns, size), _lists(form, forms)
    )  # fmt: skip
    (term_starts, _), (coefficient_starts, by_coefficient) = (
        _lists(of_form, forms), _lists(of_coefficient, coefficients)
    )  # fmt: skip

    def integers(*lists: Integers) -> torch.Tensor:
        return torch.from_numpy(np.stack(lists, -1))

    def reals(numbers: Any) -> torch.Tensor:
        return torch.tensor(numbers, dtype=dtype, device="cpu")

    return {
        "size": size, "fixed_count": fixed_count, "control_count": control_count,
        # What a worker needs in the backward pass.
        "scratch_vectors": (5 + degrees[-1] + BLOCK) * size + coefficients + 6 * forms,
        "coefficients": coefficients, "forms": forms,
        "normed_rows": generators.normed_rows if reaches else 0,
        "reaching": len(degrees) - 1, "most_degree": degrees[-1],
        "per_reach": 1 / reaches[-1] if reaches else 0.0,
        "largest_norm": MOST_EXACT_STEPS * reaches[-1] if reaches else math.inf,
        "degrees": reals(degrees), "reaches": reals(reaches),
        "inverses": reals([1 / number for number in range(1, degrees[-1] + 1)]),
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


def _forms(generators: Generators) -> tuple[list[tuple[tuple[int, float], ...]], tuple[NDArray[Any], ...]]:
    """The entries of G as linear forms of the coefficients, equal ones shared, whatever their sign.

    First the terms of each form, (coefficient, value) with coefficients numbered through `fixed` and `controlled`; then row,
    column, form and whether it is negative, of each entry. Coordinates of rows without entries are constant.
    """
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
    terms = [
        tuple((int(number), float(value)) for number, value in np.frombuffer(each).reshape(-1, 2))
        for each in numbers
    ]
    return terms, (rows[starts], columns[starts], np.array(forms, dtype=np.int64), negative)


def _lists(keys: Integers, count: int) -> tuple[Integers, Integers]:
    """The start of the list of each key from 0 to count - 1 and the end of the last, and the places that are in them, in turn."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=count))])
    return starts.astype(np.int64), np.argsort(keys, kind="stable")
