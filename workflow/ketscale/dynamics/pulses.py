"""Pulses ready-made: differentiable functions from few dimensionless parameters to the controls of a system.

    pulse = Drag(segments=40)
    parameters = pulse.start(16, torch.Generator().manual_seed(0))
    controls = pulse(parameters, duration=20.0)                  # (16, 40, 2)

A drive has a complex envelope, whose real and imaginary part are two neighbouring controls (in phase and in quadrature), or
a real one, which is one control.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ketscale.engines.dynamics.tasks import as_complex
from ketscale.engines.pulses.drives import ROUNDING, Limits, filtered, limited
from ketscale.errors import UserError, is_positive
from ketscale.private_torch import is_mapped
from ketscale.shapes import Float

# Standard deviation of the start of what is no amplitude.
NARROW = 0.1


@dataclass(frozen=True, kw_only=True)
class Pulse(ABC):
    """Pulses of one shape on some drives.

    A subclass says how many complex (without quadratures, real) amplitudes a drive has (`amplitudes`), which real parameters
    besides (`others`, with their units: powers of the duration), and the envelope that they make.

    segments: number of segments of the controls. drives: number of envelopes. quadratures: whether they are complex and have two controls each.
    amplitude: what 1 means in an amplitude's parameter, an angular frequency; None: pi / duration, which as a constant turns
        a qubit driven with sigma / 2 by half a turn.
    limits: the hardware's limits, which the controls keep whatever the parameters are; None: none.

    Raises:
        UserError: the amplitude is not positive, or limits are for another number of drives.

    Example:
        >>> class Triangle(Pulse):
        ...     def envelope(self, fraction, amplitude, **others):
        ...         return amplitude * (1 - 2 * (fraction - 0.5).abs())
        >>> Triangle(segments=4, amplitude=0.8, quadratures=False)(torch.ones(1), 20.0).T
        tensor([[0.2000, 0.6000, 0.6000, 0.2000]])
    """

    segments: int
    drives: int = 1
    quadratures: bool = True
    amplitude: float | None = None
    limits: Limits | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.segments, int) or self.segments < 1:
            raise UserError(f"segments: must be a whole number from 1, not {self.segments}")
        if self.amplitude is not None and not is_positive(self.amplitude):
            raise UserError(f"amplitude: must be positive, not {self.amplitude}")
        if self.limits and len(self.limits.amplitudes) not in (1, self.drives):
            raise UserError(
                f"limits: are for {len(self.limits.amplitudes)} drives, and the pulse has {self.drives}"
            )

    @property
    def amplitudes(self) -> int:
        """Number of amplitudes of a drive."""
        return 1

    @property
    def others(self) -> Mapping[str, int]:
        """Real parameters of a drive besides, and the power of the duration that is their unit."""
        return {}

    @property
    def values(self) -> int:
        """Number of values of an envelope before it is filtered, each constant over an equal part."""
        return self.segments

    @abstractmethod
    def envelope(
        self, fraction: torch.Tensor, amplitude: torch.Tensor, **others: torch.Tensor
    ) -> torch.Tensor:
        """The envelopes (..., drives, values).

        fraction: the share of the duration that has passed in the middle of each value's part, (values,). amplitude: complex or real
        (..., drives, amplitudes). others: real (..., drives, 1), in units of the duration's powers.
        """

    @property
    def columns(self) -> int:
        """Number of controls."""
        return self.drives * self._parts

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.drives * (self.amplitudes * self._parts + len(self.others))

    def start(self, starts: int, generator: torch.Generator) -> Float[torch.Tensor, "starts size"]:
        """Random parameters to begin with, fp64."""
        each = self.amplitudes * self._parts
        noise = torch.randn(
            starts, self.drives, self.size // self.drives, generator=generator, dtype=torch.float64
        )
        noise[..., each:] *= NARROW
        return noise.flatten(1)

    def __call__(
        self, parameters: Float[torch.Tensor, "*batch size"] | Any, duration: float | torch.Tensor
    ) -> Float[torch.Tensor, "*batch segments columns"]:
        """The controls, angular frequencies, constant over each of the segments.

        parameters: a tensor; or an array or list, whose controls are in fp64. duration: of the pulse, a number or a tensor
        of the batch's shape.

        Raises:
            UserError: parameters are no floating-point numbers, or of another number; the duration is not positive; or the
                pulse is shorter than its limits allow.
        """
        parameters = _real(parameters)
        duration = torch.as_tensor(duration, dtype=parameters.dtype, device=parameters.device)
        if not is_mapped(duration) and not (duration > 0).all():
            raise UserError(f"duration: must be positive, not {duration}")
        amplitude, others = self._split(parameters)
        values = self.envelope(_middles(self.values, parameters), amplitude, **others)
        values = values * self._unit(duration)[..., None, None]
        if self.limits and self.limits.amplitude is not None:
            values = limited(values, values.real.new_tensor(self.limits.amplitudes)[:, None])
        at = _middles(self.segments, parameters)
        if self.limits and self.limits.ramp:
            ramp = self.limits.ramp / duration
            if not is_mapped(ramp) and (ramp > 1 + ROUNDING).any():
                raise UserError(
                    f"duration: the pulse's limits need at least {self.limits.ramp:.4g}; make it longer, or allow more"
                )
            ramp = ramp[..., None, None].expand(*values.shape[:-1], 1)
            values = filtered(values, at.expand(*values.shape[:-1], self.segments), ramp)
        else:
            values = values[..., (at * self.values).long()]
        values = torch.view_as_real(values.mT) if values.is_complex() else values.mT[..., None]
        return values.flatten(-2)

    def named(
        self, parameters: torch.Tensor | Any, duration: float | torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """The parameters by name in units of time and angular frequency, (..., drives) or (..., drives, numbers)."""
        parameters = _real(parameters)
        duration = torch.as_tensor(duration, dtype=parameters.dtype, device=parameters.device)
        amplitude, others = self._split(parameters)
        amplitude = amplitude * self._unit(duration)[..., None, None]
        scaled = {
            name: values[..., 0] * duration[..., None] ** self.others[name] for name, values in others.items()
        }
        return {"amplitude": amplitude.squeeze(-1) if self.amplitudes == 1 else amplitude, **scaled}

    @property
    def _parts(self) -> int:
        return 2 if self.quadratures else 1

    def _unit(self, duration: torch.Tensor) -> torch.Tensor:
        return torch.pi / duration if self.amplitude is None else torch.full_like(duration, self.amplitude)

    def _split(self, parameters: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        if parameters.shape[-1:] != (self.size,):
            raise UserError(f"parameters: the pulse has {self.size}, and these are {tuple(parameters.shape)}")
        each = parameters.unflatten(-1, (self.drives, -1))
        amplitude, *others = each.split([self.amplitudes * self._parts, *[1] * len(self.others)], -1)
        if self.quadratures:
            amplitude = torch.complex(amplitude[..., 0::2], amplitude[..., 1::2])
        return amplitude, dict(zip(self.others, others, strict=True))


@dataclass(frozen=True, kw_only=True)
class Gaussian(Pulse):
    """A Gaussian whose standard deviation is `width` of the duration, lifted so that it begins and ends with 0.

    Amplitudes are angular frequencies.

    Raises:
        UserError: as for `Pulse`.

    Example:
        >>> Gaussian(segments=4, amplitude=0.4, quadratures=False)(torch.ones(1), 20.0).T
        tensor([[0.0538, 0.3258, 0.3258, 0.0538]])
    """

    width: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_positive(self.width):
            raise UserError(f"width: must be positive, not {self.width}")

    def envelope(
        self, fraction: torch.Tensor, amplitude: torch.Tensor, **others: torch.Tensor
    ) -> torch.Tensor:
        """See `Pulse.envelope`."""
        # With `expm1`, so that a wide Gaussian is a parabola and not a difference of ones.
        edge = math.expm1(-0.125 / self.width**2)
        return amplitude * (self._exponent(fraction).expm1() - edge) / -edge

    def _exponent(self, fraction: torch.Tensor) -> torch.Tensor:
        return -(((fraction - 0.5) / self.width) ** 2) / 2


@dataclass(frozen=True, kw_only=True)
class Drag(Gaussian):
    """A `Gaussian` g(t) with its derivative in quadrature: amplitude (g + i drag dg/dt) exp(i detuning (t - duration / 2)).

    For a transmon of anharmonicity alpha, drag = -1 / alpha cancels leakage in first order (Motzoi et al., Phys. Rev. Lett.
    103, 110501, 2009). drag is a time, and detuning an angular frequency, relative to the frame's.

    Raises:
        UserError: there are no quadratures; or as for `Gaussian`.

    Example:
        >>> pulse = Drag(segments=40)
        >>> controls = pulse(torch.tensor([1.0, 0.0, -0.1, 0.0]), 20.0)
        >>> pulse.named(torch.tensor([1.0, 0.0, -0.1, 0.0]), 20.0)["drag"]
        tensor([-2.])
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.quadratures:
            raise UserError("quadratures: DRAG needs them; leave it out, or use a Gaussian")

    @property
    def others(self) -> Mapping[str, int]:
        """See `Pulse.others`."""
        return {"drag": 1, "detuning": -1}

    def envelope(
        self, fraction: torch.Tensor, amplitude: torch.Tensor, **others: torch.Tensor
    ) -> torch.Tensor:
        """See `Pulse.envelope`."""
        since = fraction - 0.5
        edge = math.expm1(-0.125 / self.width**2)
        slope = since / self.width**2 * self._exponent(fraction).exp() / edge
        carrier = torch.exp(1j * others["detuning"] * since)
        return carrier * (super().envelope(fraction, amplitude) + 1j * others["drag"] * amplitude * slope)


@dataclass(frozen=True, kw_only=True)
class Piecewise(Pulse):
    """An amplitude for each of `pieces` equal parts (None: for each segment), an angular frequency, as GRAPE optimises it.

    Raises:
        UserError: there are more pieces than segments, or none; or as for `Pulse`.

    Example:
        >>> Piecewise(segments=4, pieces=2, amplitude=0.5, quadratures=False)(torch.tensor([1.0, -1.0]), 20.0).T
        tensor([[ 0.5000,  0.5000, -0.5000, -0.5000]])
    """

    pieces: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.values, int) and 1 <= self.values <= self.segments):
            raise UserError(f"pieces: {self.pieces} is not from 1 to the {self.segments} segments")

    @property
    def values(self) -> int:
        """See `Pulse.values`."""
        return self.segments if self.pieces is None else self.pieces

    @property
    def amplitudes(self) -> int:
        """See `Pulse.amplitudes`."""
        return self.values

    def envelope(
        self, fraction: torch.Tensor, amplitude: torch.Tensor, **others: torch.Tensor
    ) -> torch.Tensor:
        """See `Pulse.envelope`."""
        return amplitude


@dataclass(frozen=True, kw_only=True)
class Fourier(Pulse):
    """Sines, which begin and end with 0: sum_n amplitude_n sin(pi n t / duration), n = 1 to `terms`.

    Amplitudes are angular frequencies.

    Raises:
        UserError: as for `Pulse`.

    Example:
        >>> Fourier(segments=4, terms=1, amplitude=1.0, quadratures=False)(torch.ones(1), 20.0).T
        tensor([[0.3827, 0.9239, 0.9239, 0.3827]])
    """

    terms: int = 4

    @property
    def amplitudes(self) -> int:
        """See `Pulse.amplitudes`."""
        return self.terms

    def envelope(
        self, fraction: torch.Tensor, amplitude: torch.Tensor, **others: torch.Tensor
    ) -> torch.Tensor:
        """See `Pulse.envelope`."""
        order = torch.arange(1, self.terms + 1, dtype=fraction.dtype, device=fraction.device)
        return amplitude @ (torch.pi * order[:, None] * fraction).sin().to(amplitude.dtype)


def split(pulses: Sequence[Pulse], parameters: torch.Tensor) -> list[tuple[Pulse, torch.Tensor]]:
    """Pulses at the same time, each with its part of the parameters (..., the sum of sizes)."""
    return list(zip(pulses, parameters.split([pulse.size for pulse in pulses], -1), strict=True))


def _real(parameters: Any) -> torch.Tensor:
    """A floating-point tensor as it is; an array or list in fp64."""
    if not isinstance(parameters, torch.Tensor):
        return as_complex(parameters, torch.empty(0, dtype=torch.float64), "parameters").real.clone()
    if not parameters.is_floating_point():
        raise UserError(f"parameters: are {parameters.dtype}; give torch.float64 or torch.float32")
    return parameters


def _middles(count: int, like: torch.Tensor) -> torch.Tensor:
    """The middles of equal parts of 0 to 1."""
    return (torch.arange(count, dtype=like.dtype, device=like.device) + 0.5) / count
