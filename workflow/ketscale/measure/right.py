"""What a record keeps of each sample of a test: which cases are right, one bit a case, or how much it moves an error.

Imports nothing heavy.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from ketscale.measure.form import Right


def packed(samples: Iterable[Iterable[int]]) -> Right:
    """The cases of each sample, in the order of the split: 1 if it is right, 0 if wrong, -1 if there is no such case."""
    import numpy as np

    rows = [[case for case in cases if case >= 0] for cases in samples]
    counts = [len(cases) for cases in rows]
    bits = np.packbits([case for cases in rows for case in cases] or np.zeros(0, np.uint8)).tobytes()
    single = all(count == 1 for count in counts)
    return Right(bits=base64.b64encode(bits).decode(), samples=len(counts), cases=None if single else counts)


def unpacked(right: Right) -> list[tuple[int, int]]:
    """How many cases of each sample are right, and how many it has."""
    import numpy as np

    counts = [1] * right.samples if right.cases is None else right.cases
    bits = np.frombuffer(base64.b64decode(right.bits), np.uint8)
    ones = np.cumsum([0, *np.unpackbits(bits, count=sum(counts))])
    return list(zip(np.diff(ones[np.cumsum([0, *counts])]).tolist(), counts, strict=True))


def influence_on_rmse(truth: Any, predicted: Any) -> Any:
    """How much each of n samples moves the logarithm of the RMSE, the mean over columns, see `Problem.influence`.

    truth, predicted: (n, columns), of NumPy or of torch, as is the result (n,); None if a column has no error.
    """
    squared = (predicted - truth) ** 2
    roots = squared.mean(0) ** 0.5
    if not bool((roots > 0).all()):
        return None
    return ((squared - roots**2) / (2 * roots)).mean(1) / roots.mean()


def packed_numbers(numbers: Iterable[float]) -> str:
    """Numbers in single precision, little-endian and in Base64."""
    import numpy as np

    return base64.b64encode(np.array(list(numbers), "<f4").tobytes()).decode()


def unpacked_numbers(text: str) -> list[float]:
    """The numbers of `packed_numbers`."""
    import numpy as np

    numbers: list[float] = np.frombuffer(base64.b64decode(text), "<f4").tolist()
    return numbers
