"""Random numbers as pure functions of (seed, step, sample), the same on every device and for any ranks.

The mixing function is splitmix64 (Steele, Lea, Flood, OOPSLA 2014), in wrapping 64-bit arithmetic.
"""

from __future__ import annotations

import torch

_GAMMA = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_MASK = 2**64 - 1


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def fold(*values: int) -> int:
    """One 64-bit key from several integers, order included."""
    key = 0
    for value in values:
        key = (key + _GAMMA + (value & _MASK)) & _MASK
        key = ((key ^ (key >> 30)) * _FIRST) & _MASK
        key = ((key ^ (key >> 27)) * _SECOND) & _MASK
        key ^= key >> 31
    return key


def _mix(bits: torch.Tensor) -> torch.Tensor:
    # int64 shifts are arithmetic in torch: the masks make them logical.
    bits = (bits ^ ((bits >> 30) & (2**34 - 1))) * _signed(_FIRST)
    bits = (bits ^ ((bits >> 27) & (2**37 - 1))) * _signed(_SECOND)
    return bits ^ ((bits >> 31) & (2**33 - 1))


def uniform(key: int, samples: torch.Tensor, columns: int) -> torch.Tensor:
    """Numbers in [0, 1), float32 (len(samples), columns); row i depends on key and samples[i] alone.

    `samples` are int64 ids on any device; the result lies there too.
    """
    rows = _mix(samples * _signed(_GAMMA) + _signed(key))
    offsets = torch.arange(1, columns + 1, device=samples.device) * _signed(_GAMMA)
    bits = _mix(rows[:, None] + offsets)
    return ((bits >> 40) & (2**24 - 1)).to(torch.float32) * 2.0**-24


def permutation(key: int, count: int) -> torch.Tensor:
    """A random order of 0..count-1, int64 on the CPU, a function of the key alone."""
    generator = torch.Generator().manual_seed(_signed(key & _MASK) & (2**63 - 1))
    return torch.randperm(count, generator=generator)
