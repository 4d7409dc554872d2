"""Pulses with carriers, f_k(t) of each control of a system: their envelopes, and what hardware could make of them.

An envelope is a function of the fraction of the pulse's length that has passed. Its real part multiplies
cos(frequency t + phase), its imaginary part, if it has one, -sin of the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from ketscale.errors import UserError, is_positive
from ketscale.private_torch import is_mapped
from ketscale.shapes import Float

# A segment begins so much of its length early, so that a time that is its beginning up to rounding is in it.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Cosine:
    """A plateau between two cosine ramps; by default ramps alone, amplitude (1 + cos(2 pi (t - tau/2) / tau)) / 2.

    amplitude: the plateau's, rad/ns, real (drives,). ramp: length of each ramp as a fraction of the pulse's, up to 1/2.

    Raises:
        UserError: the ramp is not such a fraction.
    """

    amplitude: torch.Tensor
    ramp: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.ramp <= 0.5:
            raise UserError(f"ramp: {self.ramp} is not above 0 and at most 0.5")

    @property
    def drives(self) -> int:
        """Number of pulses."""
        return len(self.amplitude)

    def at(self, fraction: torch.Tensor) -> torch.Tensor:
        """Values in rad/ns, real (..., drives), 0 outside of 0 to 1. fraction: real (..., drives)."""
        # Time from the nearer end, on a ramp: few operations, since they are most of a sample's time.
        risen = (0.5 - (fraction - 0.5).abs()).clamp(0, self.ramp)
        half = self.amplitude / 2
        return torch.addcmul(half, half, (risen * (torch.pi / self.ramp)).cos(), value=-1)

    @property
    def divisions(self) -> int:
        """Equal parts of the length between which values may jump."""
        return 1

    def modulus(self) -> torch.Tensor:
        """The largest |values| of each drive, (drives,)."""
        return self.amplitude.abs()


@dataclass(frozen=True, eq=False)
class Segments:
    """Constant over each of some segments of equal length.

    amplitude: real and imaginary parts, rad/ns, real (drives, segments, 2).

    Raises:
        UserError: the amplitude has another shape.
    """

    amplitude: torch.Tensor

    def __post_init__(self) -> None:
        if self.amplitude.ndim != 3 or self.amplitude.shape[-1] != 2 or self.amplitude.shape[1] < 1:
            raise UserError(f"amplitude: must be (drives, segments, 2), not {tuple(self.amplitude.shape)}")

    @property
    def drives(self) -> int:
        """Number of pulses."""
        return len(self.amplitude)

    def at(self, fraction: torch.Tensor) -> torch.Tensor:
        """Values in rad/ns, complex (..., drives), 0 outside of 0 to 1. fraction: real (..., drives)."""
        segments = self.amplitude.shape[1]
        index = (fraction.detach() * segments + ROUNDING).floor().long().clamp(0, segments - 1)
        values = torch.view_as_complex(self.amplitude)[torch.arange(self.drives, device=index.device), index]
        return torch.where((fraction >= 0) & (fraction <= 1), values, 0)

    @property
    def divisions(self) -> int:
        """Equal parts of the length between which values may jump."""
        return self.amplitude.shape[1]

    def modulus(self) -> torch.Tensor:
        """|values| of all segments, (drives, segments)."""
        return torch.linalg.vector_norm(self.amplitude, dim=-1)


def segmented(envelope: Cosine, segments: int) -> Segments:
    """The values in the middle of each segment: where the training of piecewise-constant pulses begins."""
    like = envelope.amplitude
    middles = (torch.arange(segments, dtype=like.dtype, device=like.device) + 0.5) / segments
    values = envelope.at(middles[:, None].expand(segments, envelope.drives)).T
    return Segments(torch.stack([values, torch.zeros_like(values)], -1))


# Times the duration of a ramp, the frequency at which |H|^2 of `filtered` is 1/2, where
# H(f) = cos(pi f ramp) / (1 - (2 f ramp)^2); it does not come back to 1/2 above.
HALF_POWER = 0.5944823904664723


@dataclass(frozen=True)
class Limits:
    """Bounds of an envelope that every value of its parameters keeps.

    Its values are mapped to a smaller modulus (`limited`), and each jump between them becomes a ramp of half a cosine
    (`filtered`). The filter's impulse response is not negative and its integral is 1, so that it exceeds no modulus; its
    total variation is pi / ramp, so that the slope is at most amplitude x pi / ramp.

    amplitude: largest modulus, an angular frequency; a number, or one for each drive; None: any.
    slope: largest |d envelope / dt|, angular frequency per time. bandwidth: where the filter's power is half (-3 dB), in
    cycles per time (GHz, if times are in ns).

    Raises:
        UserError: a limit is not positive and finite, or there is a slope and no amplitude.

    Example:
        >>> Limits(amplitude=0.3, bandwidth=0.1).ramp
        5.9448...
    """

    amplitude: float | Sequence[float] | None = None
    slope: float | None = None
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        for name in ("amplitude", "slope", "bandwidth"):
            value = getattr(self, name)
            several = np.ravel(value).tolist() if name == "amplitude" else [value]
            if value is not None and not (several and all(is_positive(each) for each in several)):
                raise UserError(f"{name}: a limit must be positive, not {value}")
        if self.slope is not None and self.amplitude is None:
            raise UserError("slope: is kept only together with a largest amplitude; give one")

    @property
    def amplitudes(self) -> Sequence[float | None]:
        """The largest modulus of each drive, or one for all."""
        return [None] if self.amplitude is None else [float(each) for each in np.ravel(self.amplitude)]

    @property
    def ramp(self) -> float:
        """How long each jump takes, the shortest that keeps bandwidth and slope; 0: no filter."""
        by_bandwidth = HALF_POWER / self.bandwidth if self.bandwidth else 0.0
        largest = max(value or 0.0 for value in self.amplitudes)
        return max(by_bandwidth, math.pi * largest / self.slope if self.slope else 0.0)


def limited(values: torch.Tensor, largest: float | torch.Tensor) -> torch.Tensor:
    """Real or complex values mapped into the modulus `largest`, their phases kept: v / (1 + |v / largest|^4)^(1/4).

    Smooth, one to one, and nearly the identity for small values.
    """
    scaled = values / largest
    size = scaled.real.square() + scaled.imag.square() if values.is_complex() else scaled.square()
    # The square of a large size would overflow.
    above = size.clamp(min=1)
    return values * above.rsqrt() * (above**-2 + (size / above).square()) ** -0.25


def between(values: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Values mapped between two bounds, smoothly and one to one."""
    half = (high - low) / 2
    # Without a choice there is a gradient still, which is 0.
    return low + half + limited(values - (low + half), half) if half else low + 0 * values


def filtered(values: torch.Tensor, fraction: torch.Tensor, ramp: torch.Tensor) -> torch.Tensor:
    """An envelope whose jumps are ramps of half a cosine, (..., times), real or complex.

    The values are constant over equal parts of the pulse without half a ramp at each end, and 0 before and after. The filter
    is the convolution with pi / (2 ramp) cos(pi t / ramp), |t| < ramp / 2, which makes (1 + sin(pi t / ramp)) / 2 of a jump.
    So the pulse begins and ends with 0, and is a mean of values, with weights that are not negative.

    values: (..., parts). fraction: of the pulse's length that has passed, real (..., times). ramp: fraction of the length that
        a jump takes, at most 1, real (..., 1).
    """
    parts = values.shape[-1]
    shrunk = (1 - ramp).detach().clamp(min=1e-12)
    # Jumps at one time: no other is on its way.
    window = parts + 1
    if ramp.numel() and not is_mapped(ramp):
        window = int(min(window, (parts * ramp.detach() / shrunk).max().item() + 2))
    zero = values.new_zeros(*values.shape[:-1], 1)
    padded = torch.cat([zero, values, zero], -1)
    jumps = torch.cat([padded.diff(dim=-1), *[zero] * window], -1)
    passed = (fraction.detach() - ramp.detach()) / shrunk * parts
    index = (passed.floor() + 1).clamp(0, parts + 1).long()
    result = padded.gather(-1, index)
    for jump in (index + number for number in range(window)):
        since = (fraction - ramp / 2 - (1 - ramp) * (jump / parts)) / ramp
        result = result + jumps.gather(-1, jump) * ((torch.pi * since.clamp(-0.5, 0.5)).sin() + 1) / 2
    return result


@dataclass(frozen=True, eq=False)
class Pulses:
    """One pulse on each drive: f_k(t) = Re[envelope_k(t / length_k) exp(i (frequency_k t + phase_k))].

    For a real envelope that is envelope cos(frequency t + phase). All pulses begin at t = 0 and are 0 after their length.
    All tensors may be trained.

    frequency: rad/ns, phase: rad, length: ns, positive; real (drives,). `Segments` have one length for all
        drives, of shape (). Their edges are at fractions of it, so that a gradient with respect to the length needs times
        that are fractions of the length too.

    Raises:
        UserError: the shapes do not fit the envelope, or a length is not positive.
    """

    envelope: Cosine | Segments
    frequency: torch.Tensor
    phase: torch.Tensor
    length: torch.Tensor

    def __post_init__(self) -> None:
        each = (self.envelope.drives,)
        common = isinstance(self.envelope, Segments)
        for name, shape in {"frequency": each, "phase": each, "length": () if common else each}.items():
            if tuple(getattr(self, name).shape) != shape:
                raise UserError(f"{name}: must be of shape {shape}, not {tuple(getattr(self, name).shape)}")
        if not is_mapped(self.length) and not (self.length > 0).all():
            raise UserError("length: must be positive")

    @cached_property
    def duration(self) -> torch.Tensor:
        """Time from the start to the end of the longest pulse, ns."""
        return self.length.max()

    def divided(self, parts: int) -> Pulses:
        """The same pulses with each segment in so many, if there are segments."""
        if not isinstance(self.envelope, Segments):
            return self
        amplitude = self.envelope.amplitude.repeat_interleave(parts, 1)
        return replace(self, envelope=replace(self.envelope, amplitude=amplitude))

    def sample(
        self, times: Float[torch.Tensor, "*times"]
    ) -> Float[torch.Tensor, "*times {self.envelope.drives}"]:
        """f at these times in rad/ns, real (..., drives). times: ns, real (...), of the parameters' precision.

        Raises:
            UserError: the times have another precision: in fp32 a carrier's angle would be wrong by 1e-5.
        """
        if times.dtype != self.frequency.dtype:
            raise UserError(
                f"times: must be of {self.frequency.dtype}, as the pulses' parameters are, not {times.dtype}"
            )
        # Drive by drive in memory, so that operations run along time.
        flat = times.flatten()
        shape = (*times.shape, self.envelope.drives)
        angle = torch.addcmul(self.phase[:, None], self.frequency[:, None], flat).T.view(shape)
        fraction = (flat / self.length.expand(self.envelope.drives)[:, None]).T.view(shape)
        envelope = self.envelope.at(fraction)
        if not envelope.is_complex():
            return envelope * angle.cos()
        return envelope.real * angle.cos() - envelope.imag * angle.sin()
