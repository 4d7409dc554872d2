"""Which cases of a test a model gets right, packed into a record: one bit a case. Imports nothing heavy."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

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
    counts = [1] * right.samples if right.cases is None else right.cases
    try:
        bits = base64.b64decode(right.bits, validate=True)
    except ValueError as error:
        raise ValueError(f"the bits are not base64: {error}") from None
    text = "".join(f"{byte:08b}" for byte in bits)
    if len(counts) != right.samples or len(bits) != _bytes(sum(counts)) or "1" in text[sum(counts) :]:
        raise ValueError(f"the bits are not those of {sum(counts)} cases of {right.samples} samples")
    return list(zip(_ones(text, counts), counts, strict=True))


def _ones(text: str, counts: list[int]) -> Iterator[int]:
    ends = accumulate(counts, initial=0)
    return (text.count("1", start, end) for start, end in pairwise(ends))


def _bytes(bits: int) -> int:
    return -(-bits // 8)
