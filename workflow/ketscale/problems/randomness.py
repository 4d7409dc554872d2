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


def kept(key: int, samples: torch.Tensor, columns: int, p: float) -> torch.Tensor:
    """True with probability 1 - p (to 2**-17), (len(samples), columns); row i depends on key and samples[i] alone.

    `samples` are int64 ids on any device; the result lies there too.
    """
    rows = _mix(samples * _signed(_GAMMA) + _signed(key))
    # Four numbers of 16 bits from each mixed word: the mixing is most of the work.
    offsets = torch.arange(1, -(-columns // 4) + 1, device=samples.device) * _signed(_GAMMA)
    bits = _mix(rows[:, None] + offsets).view(torch.int16)[:, :columns]
    return bits >= min(round(p * 2**16), 2**16 - 1) - 2**15


def permutation(key: int, count: int) -> torch.Tensor:
    """A random order of 0..count-1, int64 on the CPU, a function of the key alone."""
    generator = torch.Generator().manual_seed(_signed(key & _MASK) & (2**63 - 1))
    return torch.randperm(count, generator=generator)
