"""Pulses with carriers: f_k(t) of each drive of a lattice, and penalties where hardware could not make them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from ketscale.engines.pulses.envelopes import Cosine, Segments
from ketscale.engines.pulses.limits import Limits, between, limited
from ketscale.errors import UserError
from ketscale.private_torch import is_mapped
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

    @property
    def divisions(self) -> int:
        """Equal parts of the duration between which the signals may jump: the segments, if there are any."""
        return self.envelope.divisions

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


@dataclass(frozen=True, kw_only=True)
class Bounds(Limits):
    """What hardware can do: `Limits` of envelopes, and those of carriers and lengths; None: no bound.

    frequency: lowest and highest, rad/ns. length: shortest and longest, ns.

    Raises:
        UserError: a bound is not positive, or a lowest one is above the highest; or as for `Limits`.
    """

    frequency: tuple[float, float] | None = None
    length: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("frequency", "length"):
            bounds = getattr(self, name)
            if bounds is not None and not 0 < bounds[0] <= bounds[1]:
                raise UserError(f"{name}: the bounds {bounds} are not positive and in ascending order")

    def penalty(self, pulses: Pulses) -> torch.Tensor:
        """The sum of squares of what is out of the bounds of amplitude, frequency and length, each relative to its bound;
        dimensionless, shape ().
        """
        total = torch.zeros((), dtype=pulses.frequency.dtype, device=pulses.frequency.device)
        for beyond in self._beyond(pulses):
            total = total + beyond.square().sum()
        return total

    @torch.no_grad()
    def exceeded(self, pulses: Pulses) -> float:
        """The largest part of an amplitude, frequency or length that is out of its bounds, relative to the bound."""
        return max((float(beyond.max()) for beyond in self._beyond(pulses)), default=0.0)

    def _beyond(self, pulses: Pulses) -> Iterator[torch.Tensor]:
        if self.amplitude is not None:
            modulus = pulses.envelope.modulus()
            yield (modulus / self._largest(pulses).view(-1, *[1] * (modulus.ndim - 1)) - 1).relu()
        for bounds, values in ((self.frequency, pulses.frequency), (self.length, pulses.length)):
            if bounds is not None:
                yield (values / bounds[1] - 1).relu()
                yield (1 - values / bounds[0]).relu()

    def _largest(self, pulses: Pulses) -> torch.Tensor:
        """The largest amplitude of each drive, or one for all."""
        largest = pulses.frequency.new_tensor(self.amplitudes)
        if len(largest) not in (1, pulses.envelope.drives):
            raise UserError(
                f"amplitude: there are bounds for {len(largest)} drives, and pulses on {pulses.envelope.drives}"
            )
        return largest

    def hold(self, pulses: Pulses) -> Pulses:
        """These pulses mapped smoothly to such as keep all bounds, whatever they are; small ones change little.

        Segments are filtered. Cosine ramps are such a filter's response already, and become as long as it needs.

        Raises:
            UserError: the longest pulse is shorter than slope and bandwidth need, or there are amplitudes for another number
                of drives.
        """
        envelope, ramp = pulses.envelope, self.ramp
        shortest, longest = self.length or (0.0, None)
        shortest = max(shortest, ramp / (envelope.ramp if isinstance(envelope, Cosine) else 1))
        if longest is not None and shortest > longest:
            raise UserError(
                f"length: slope and bandwidth need a pulse of {shortest:.4g} ns, longer than the longest, {longest:.4g}"
            )
        length = between(pulses.length, shortest, longest)
        frequency = pulses.frequency if self.frequency is None else between(pulses.frequency, *self.frequency)
        amplitude = envelope.amplitude
        if isinstance(envelope, Cosine):
            if self.amplitude is not None:
                amplitude = limited(amplitude, self._largest(pulses))
            return Pulses(Cosine(amplitude, envelope.ramp), frequency, pulses.phase, length)
        if self.amplitude is not None:
            amplitude = torch.view_as_real(
                limited(torch.view_as_complex(amplitude), self._largest(pulses)[:, None])
            )
        return Pulses(Segments(amplitude, ramp / length if ramp else None), frequency, pulses.phase, length)
