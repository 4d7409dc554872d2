"""What a waveform generator can play, held by construction: a largest modulus, and a filter that rounds every jump."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ketscale.errors import UserError, is_positive
from ketscale.private_torch import is_mapped

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
            given = getattr(self, name)
            several = np.ravel(given).tolist() if name == "amplitude" else [given]
            if given is not None and not (several and all(is_positive(each) for each in several)):
                raise UserError(f"{name}: a limit must be positive, not {given}")
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


def between(values: torch.Tensor, low: float, high: float | None) -> torch.Tensor:
    """Positive values mapped between two bounds, smoothly and one to one; high None: there is none above."""
    if high is None:
        return values if low == 0 else low * (1 + (values / low) ** 4) ** 0.25
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
    nothing = values.new_zeros(*values.shape[:-1], 1)
    padded = torch.cat([nothing, values, nothing], -1)
    jumps = torch.cat([padded.diff(dim=-1), *[nothing] * window], -1)
    passed = (fraction.detach() - ramp.detach()) / shrunk * parts
    done = (passed.floor() + 1).clamp(0, parts + 1).long()
    made = padded.gather(-1, done)
    for jump in (done + number for number in range(window)):
        since = (fraction - ramp / 2 - (1 - ramp) * (jump / parts)) / ramp
        made = made + jumps.gather(-1, jump) * ((torch.pi * since.clamp(-0.5, 0.5)).sin() + 1) / 2
    return made
