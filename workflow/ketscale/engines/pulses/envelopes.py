"""The slow shapes of pulses, as functions of the fraction of the pulse's length that has passed.

An envelope's real part multiplies cos(frequency t + phase), its imaginary part, if it has one, -sin of the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ketscale.engines.pulses.limits import filtered
from ketscale.errors import UserError
from ketscale.private_torch import is_mapped

# A segment begins so much of its length early, so that a time that is its beginning up to rounding is in it.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Cosine:
    """A plateau between two cosine ramps; by default ramps alone, amplitude (1 + cos(2 pi (t - tau/2) / tau)) / 2.

    amplitude: of the plateau, rad/ns, real (drives,). ramp: length of each ramp as a fraction of the pulse's, up to 1/2.

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
    """Constant over each of some segments of equal length, or filtered so that each jump is a ramp of half a cosine.

    amplitude: real and imaginary parts, rad/ns, real (drives, segments, 2). ramp: None, or the fraction of the pulse's
    length that a jump takes, real (): see `limits.filtered`.

    Raises:
        UserError: the amplitude has another shape, or a ramp is longer than the pulse.
    """

    amplitude: torch.Tensor
    ramp: torch.Tensor | None = None

    def __post_init__(self) -> None:
        if self.ramp is not None and not is_mapped(self.ramp) and self.ramp > 1 + ROUNDING:
            raise UserError(f"length: the pulse is shorter than a jump takes, by a factor of {self.ramp:.4g}")
        if self.amplitude.ndim != 3 or self.amplitude.shape[-1] != 2 or self.amplitude.shape[1] < 1:
            raise UserError(f"amplitude: must be (drives, segments, 2), not {tuple(self.amplitude.shape)}")

    @property
    def drives(self) -> int:
        """Number of pulses."""
        return len(self.amplitude)

    def at(self, fraction: torch.Tensor) -> torch.Tensor:
        """Values in rad/ns, complex (..., drives), 0 outside of 0 to 1. fraction: real (..., drives)."""
        segments = self.amplitude.shape[1]
        if self.ramp is not None:
            values = torch.view_as_complex(self.amplitude)
            flat = fraction.reshape(-1, self.drives).T
            return filtered(values, flat, self.ramp.expand(self.drives, 1)).T.view(fraction.shape)
        index = (fraction.detach() * segments + ROUNDING).floor().long().clamp(0, segments - 1)
        values = torch.view_as_complex(self.amplitude)[torch.arange(self.drives, device=index.device), index]
        return torch.where((fraction >= 0) & (fraction <= 1), values, 0)

    @property
    def divisions(self) -> int:
        """Equal parts of the length between which values may jump."""
        return self.amplitude.shape[1]

    def modulus(self) -> torch.Tensor:
        """|values| of all segments, (drives, segments); those of ramps are not larger."""
        return torch.linalg.vector_norm(self.amplitude, dim=-1)


def segmented(envelope: Cosine, segments: int) -> Segments:
    """The values in the middle of each segment: where the training of piecewise-constant pulses begins."""
    like = envelope.amplitude
    middles = (torch.arange(segments, dtype=like.dtype, device=like.device) + 0.5) / segments
    values = envelope.at(middles[:, None].expand(segments, envelope.drives)).T
    return Segments(torch.stack([values, torch.zeros_like(values)], -1))
