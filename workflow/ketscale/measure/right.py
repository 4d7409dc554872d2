"""What a record keeps of each sample of a test: which cases are right, one bit a case, or how much it moves an error.

Imports nothing heavy.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from typing import Any

from ketscale.measure.form import Right


def packed(samples: Iterable[Iterable[int]]) -> Right:
    """The cases of each sample, in the order of the split: 1 if it is right, 0 if wrong, -1 if there is no such case."""
    known = [[case for case in cases if case >= 0] for cases in samples]
    counts = [len(cases) for cases in known]
    text = "".join(str(case) for cases in known for case in cases)
    bits = int(text.ljust(_bytes(len(text)) * 8, "0") or "0", 2).to_bytes(_bytes(len(text)), "big")
    single = all(count == 1 for count in counts)
    return Right(bits=base64.b64encode(bits).decode(), samples=len(counts), cases=None if single else counts)


def unpacked(right: Right) -> list[tuple[int, int]]:
    """How many cases of each sample are right, and how many it has.

    Raises:
        ValueError: the bits are not those of so many cases.
    """
    total = right.samples if right.cases is None else sum(right.cases)
    try:
        bits = base64.b64decode(right.bits, validate=True)
    except ValueError as error:
        raise ValueError(f"the bits are not base64: {error}") from None
    text = "".join(f"{byte:08b}" for byte in bits)
    # Before the list: a wrong number of samples may be one that no memory holds.
    if len(bits) != _bytes(total) or "1" in text[total:] or right.samples != len(right.cases or text[:total]):
        raise ValueError(f"the bits are not those of {total} cases of {right.samples} samples")
    counts = right.cases or [1] * total
    return list(zip(_ones(text, counts), counts, strict=True))


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
    return base64.b64encode(b"".join(struct.pack("<f", number) for number in numbers)).decode()


def unpacked_numbers(text: str) -> list[float]:
    """The numbers of `packed_numbers`.

    Raises:
        ValueError: the text is not such, or a number is not finite.
    """
    try:
        numbers = [number for (number,) in struct.iter_unpack("<f", base64.b64decode(text, validate=True))]
    except (ValueError, struct.error) as error:
        raise ValueError(f"the numbers are not base64: {error}") from None
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a number is not finite")
    return numbers


def _ones(text: str, counts: list[int]) -> Iterator[int]:
    ends = accumulate(counts, initial=0)
    return (text.count("1", start, end) for start, end in pairwise(ends))


def _bytes(bits: int) -> int:
    return -(-bits // 8)
