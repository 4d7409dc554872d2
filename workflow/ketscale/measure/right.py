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

    known = [[case for case in cases if case >= 0] for cases in samples]
    counts = [len(cases) for cases in known]
    bits = np.packbits([case for cases in known for case in cases] or np.zeros(0, np.uint8)).tobytes()
    single = all(count == 1 for count in counts)
    return Right(bits=base64.b64encode(bits).decode(), samples=len(counts), cases=None if single else counts)


def unpacked(right: Right) -> list[tuple[int, int]]:
    """How many cases of each sample are right, and how many it has.

    Raises:
        ValueError: the bits are not those of so many cases.
    """
    import numpy as np

    total = right.samples if right.cases is None else sum(right.cases)
    try:
        bits = base64.b64decode(right.bits, validate=True)
    except ValueError as error:
        raise ValueError(f"the bits are not base64: {error}") from None
    flat = np.unpackbits(np.frombuffer(bits, np.uint8))
    # Before the list: a wrong number of samples may be one that no memory holds.
    if len(bits) != -(-total // 8) or flat[total:].any() or len(right.cases or flat[:total]) != right.samples:
        raise ValueError(f"the bits are not those of {total} cases of {right.samples} samples")
    counts = right.cases or [1] * total
    ones = np.cumsum([0, *flat[:total]])
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
    """The numbers of `packed_numbers`.

    Raises:
        ValueError: the text is not such, or a number is not finite.
    """
    import numpy as np

    numbers = np.frombuffer(base64.b64decode(text, validate=True), "<f4")
    if not np.isfinite(numbers).all():
        raise ValueError("a number is not finite")
    found: list[float] = numbers.tolist()
    return found
