"""Pulses with carriers: f_k(t) of each drive of a lattice, and penalties where hardware could not make them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ketscale.engines.pulses.envelopes import Envelope, Segments
from ketscale.errors import UserError
from ketscale.shapes import Float


@dataclass(frozen=True, eq=False)
class Pulses:
    """One pulse on each drive: f_k(t) = Re[envelope_k(t / length_k) exp(i (frequency_k t + phase_k))].

    For a real envelope that is envelope cos(frequency t + phase). All pulses begin at t = 0 and are 0 after their length.
    All tensors may be trained.

    frequency: rad/ns, phase: rad, length: ns, positive; real (drives,). Of segments the length is one for all drives,
        of shape (). Their edges are at fractions of it, so that a gradient by the length needs times that are fractions of
        the length too.

    Raises:
        UserError: the shapes do not fit the envelope, or a length is not positive.
    """

    envelope: Envelope
    frequency: torch.Tensor
    phase: torch.Tensor
    length: torch.Tensor

    def __post_init__(self) -> None:
        each = (self.envelope.drives,)
        common = isinstance(self.envelope, Segments)
        for name, shape in {"frequency": each, "phase": each, "length": () if common else each}.items():
            if tuple(getattr(self, name).shape) != shape:
                raise UserError(f"{name}: must be of shape {shape}, not {tuple(getattr(self, name).shape)}")
        if not (self.length > 0).all():
            raise UserError("length: must be positive")

    @property
    def duration(self) -> torch.Tensor:
        """Time from the start to the end of the longest pulse, ns."""
        return self.length.max()

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


@dataclass(frozen=True)
class Bounds:
    """What hardware can do; None: no bound.

    amplitude: largest modulus of an envelope, rad/ns. frequency: lowest and highest, rad/ns. length: shortest and
    longest, ns.

    Raises:
        UserError: a bound is not positive, or a lowest one is above the highest.
    """

    amplitude: float | None = None
    frequency: tuple[float, float] | None = None
    length: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.amplitude is not None and not self.amplitude > 0:
            raise UserError(f"amplitude: the bound {self.amplitude} is not positive")
        for name in ("frequency", "length"):
            bounds = getattr(self, name)
            if bounds is not None and not 0 < bounds[0] <= bounds[1]:
                raise UserError(f"{name}: the bounds {bounds} are not positive and in ascending order")

    def penalty(self, pulses: Pulses) -> torch.Tensor:
        """The sum of squares of what is out of bounds, each relative to its bound; dimensionless, shape ()."""
        total = torch.zeros((), dtype=pulses.frequency.dtype, device=pulses.frequency.device)
        if self.amplitude is not None:
            total = total + _above(pulses.envelope.modulus(), self.amplitude)
        for bounds, values in ((self.frequency, pulses.frequency), (self.length, pulses.length)):
            if bounds is not None:
                total = total + _above(values, bounds[1]) + _below(values, bounds[0])
        return total


def _above(values: torch.Tensor, bound: float) -> torch.Tensor:
    return (values / bound - 1).relu().square().sum()


def _below(values: torch.Tensor, bound: float) -> torch.Tensor:
    return (1 - values / bound).relu().square().sum()
