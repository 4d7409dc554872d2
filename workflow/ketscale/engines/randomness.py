"""Random numbers as pure functions of (seed, stream, step, sample), the same on every device and any ranks.

Each use of random numbers has a `RandomStream` of its own. The stream's key for a seed and a step, together with the ids of
the samples, determines the numbers: `uniform(NOISE.key(seed, step), indices, 3)`. The mixing function is splitmix64
(Steele, Lea and Flood, OOPSLA 2014) in wrapping 64-bit arithmetic.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple, TypeAlias, overload

import torch

GAMMA = 0x9E3779B97F4A7C15
FIRST = 0xBF58476D1CE4E5B9
SECOND = 0x94D049BB133111EB
_MASK = 2**64 - 1

_registered: dict[int, str] = {}


class RandomStream:
    """A use of random numbers, defined once for the whole program as a module's constant.

    Its number is a hash of its name, so a new stream changes no other stream's numbers.

    Raises:
        ValueError: a stream of this name exists already.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = number_of(name)
        if self.number in _registered:
            raise ValueError(f"there is a random stream {_registered[self.number]!r}: choose another name")
        _registered[self.number] = name

    @overload
    def key(self, seed: int, step: int, *parts: int) -> int: ...
    @overload
    def key(self, seed: int, step: DeviceStep, *parts: int) -> torch.Tensor: ...
    def key(self, seed: int, step: Step, *parts: int) -> Key:
        """The 64-bit key of a step (or an epoch) for a run's seed; `parts` distinguish uses of the stream."""
        if isinstance(step, DeviceStep):
            return step.key(self.number, seed, *parts)
        return _folded(_start(self.number, seed), step, *parts)

    def start(self, seed: int) -> int:
        """What all keys of a run's seed begin with, signed; compiled code continues it (`masks.folded`)."""
        return signed(_start(self.number, seed))


class DeviceStep:
    """The number of a step that is captured once and replayed, as a CUDA graph is.

    A graph would repeat the random numbers of its capture. So keys are numbers in the device's memory, which the
    graph reads, and `set` renews them before the next replay.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._step = 0
        self._keys: dict[tuple[int, ...], torch.Tensor] = {}
        # Compiled code reads the step here.
        self.cell = array("q", [0])

    def __int__(self) -> int:
        return self._step

    def set(self, step: int) -> None:
        """Go to a step."""
        self._step = self.cell[0] = step
        for parts, key in self._keys.items():
            key.fill_(self._folded(parts))

    def key(self, *parts: int) -> torch.Tensor:
        """The key of stream, seed and parts at this step; the same tensor in every step."""
        if parts not in self._keys:
            self._keys[parts] = torch.tensor(self._folded(parts), device=self._device)
        return self._keys[parts]

    def _folded(self, parts: tuple[int, ...]) -> int:
        stream, seed, *rest = parts
        return signed(fold(stream, seed, self._step, *rest))


Step: TypeAlias = int | DeviceStep
# A number of 64 bits, or one in a device's memory; or int64 (samples,), one for each sample.
Key: TypeAlias = int | torch.Tensor


class Draws(NamedTuple):
    """What random numbers are drawn for: a run's seed (an int) and step, and int64 ids of samples (n,).

    Several runs at once have, under torch.func.vmap, each member's seed, int64 () on the CPU; in `engines.vjp` a list
    of seeds, and samples (runs, n).

    calls: numbers what draws for the same samples, so that each has numbers of its own.
    """

    seed: Any
    step: Step
    samples: torch.Tensor
    calls: Iterator[int]


_current: Draws | None = None


class keyed:  # noqa: N801, it is called as a function
    """Inside the block, dropouts and shots are drawn for these samples (int64 ids) at this step; see `DrawnFor`."""

    # A generator's context manager takes five times as long.
    __slots__ = ("_own", "_previous")

    def __init__(self, seed: Any, step: Step, samples: torch.Tensor) -> None:
        self._own = Draws(seed, step, samples, count())

    def __enter__(self) -> None:
        global _current
        self._previous, _current = _current, self._own

    def __exit__(self, *error: object) -> None:
        global _current
        _current = self._previous


def current() -> Draws | None:
    """What random numbers are drawn for here; None outside `keyed`."""
    return _current


def each(keys: Sequence[Key], samples: torch.Tensor) -> torch.Tensor:
    """A key for each sample (n,); the keys have equally many samples each, in turn."""
    own = torch.tensor([signed(int(key)) for key in keys], device=samples.device)
    return own.repeat_interleave(len(samples) // len(keys))


def number_of(name: str) -> int:
    """The first 64 bits of a name's SHA-256."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])


def signed(value: int) -> int:
    """The signed 64-bit integer with the lowest 64 bits of `value`."""
    value &= _MASK
    return value - 2**64 if value >= 2**63 else value


def fold(*values: int) -> int:
    """One 64-bit key from several integers, whose order matters."""
    return _folded(0, *values)


def _folded(key: int, *values: int) -> int:
    """`fold` continued: `key` is what it made of the integers before."""
    for value in values:
        key = (key + GAMMA + (value & _MASK)) & _MASK
        key = ((key ^ (key >> 30)) * FIRST) & _MASK
        key = ((key ^ (key >> 27)) * SECOND) & _MASK
        key ^= key >> 31
    return key


# What all steps of a run share.
_start = lru_cache(maxsize=256)(fold)


def _mix(bits: torch.Tensor) -> torch.Tensor:
    # int64 shifts are arithmetic in torch: the masks make them logical.
    bits = (bits ^ ((bits >> 30) & (2**34 - 1))) * signed(FIRST)
    bits = (bits ^ ((bits >> 27) & (2**37 - 1))) * signed(SECOND)
    return bits ^ ((bits >> 31) & (2**33 - 1))


def _words(key: Key, samples: torch.Tensor, count: int) -> torch.Tensor:
    """Random int64 words (len(samples), count); row i depends only on key and samples[i]."""
    rows = _mix(samples * signed(GAMMA) + (signed(key) if isinstance(key, int) else key))
    return _mix(rows[:, None] + torch.arange(1, count + 1, device=samples.device) * signed(GAMMA))


def keep_mask(key: Key, samples: torch.Tensor, columns: int, p: float) -> torch.Tensor:
    """True with probability 1 - p (within 2**-17), bool (len(samples), columns); row i depends on samples[i] only.

    samples: int64 ids on any device, which is the result's too.
    """
    # Four 16-bit numbers from each mixed word, since the mixing is most of the work.
    bits = _words(key, samples, -(-columns // 4)).view(torch.int16)[:, :columns]
    return bits >= least(p)


def least(p: float) -> int:
    """The least 16-bit number, signed, that `kept` keeps."""
    return min(round(p * 2**16), 2**16 - 1) - 2**15


def uniform(key: Key, samples: torch.Tensor, columns: int) -> torch.Tensor:
    """Uniform numbers in [0, 1), float64 (len(samples), columns); row i depends only on key and samples[i].

    samples: int64 ids on any device, which is the result's too.
    """
    return ((_words(key, samples, columns) >> 11) & (2**53 - 1)).double() * 2.0**-53


def permutation(key: int, count: int) -> torch.Tensor:
    """A random order of 0..count-1, int64 on the CPU; it uses the key's low 32 bits, as torch's generator does."""
    generator = torch.Generator().manual_seed(key & (2**32 - 1))
    return torch.randperm(count, generator=generator)
