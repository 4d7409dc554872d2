"""The two descriptions of an environment: a spectrum, or relaxation times, for each qubit. Imports nothing heavy.

They are mixins for workloads. A workload has the ranges as settings, with its own defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from ketscale.engines import quantities

if TYPE_CHECKING:
    import torch

Alpha = Annotated[
    tuple[quantities.Exponent, quantities.Exponent],
    Meta(description="Range of the spectrum's exponent; 2 is a Lorentzian"),
]
Strength = Annotated[
    tuple[quantities.Strength, quantities.Strength], Meta(description="Range of the spectrum's amplitude A")
]
Cutoff = Annotated[tuple[quantities.Cutoff, quantities.Cutoff], Meta(description="Range of omega_c")]
Jumps = Annotated[
    tuple[Literal["x", "y", "z", "relaxation", "dephasing"], ...],
    Meta(
        min_length=1,
        description="Jump operators of each qubit, which all have the spectrum's rate. x, y, z: Pauli matrices (transmon: "
        "a + a^+, i (a^+ - a), 1 - 2n); relaxation: |0><1| (a); dephasing: Z / sqrt(2) (sqrt(2) n), whose rate is that "
        "at which coherence decays",
    ),
]


class NoiseSpectrum:
    """Environments with spectra A / (omega^alpha + omega_c^alpha), from which `noise.noise_rates` computes a rate.

    These are dimensionless, since the units of A depend on alpha: `unit` is the time that they and the rate are in.
    """

    __slots__ = ()
    VARIED: ClassVar[tuple[str, ...]] = ("alpha", "strength", "cutoff", "detuning")

    unit: ClassVar[float]
    jumps: Sequence[str]

    def impossible(self) -> Iterator[str]:
        """No jump is named twice."""
        for name in dict.fromkeys(self.jumps):
            if self.jumps.count(name) > 1:
                yield f"jumps: {name} is named twice; once is enough"

    def rates(self, *noise: torch.Tensor) -> torch.Tensor:
        """See `ControlWorkload.rates`."""
        from ketscale.dynamics import noise_rates

        return (noise_rates(*noise) / self.unit)[..., None].expand(-1, -1, len(self.jumps))


class Relaxation:
    """Environments with relaxation times T1 and T2, whose jumps are relaxation and dephasing."""

    __slots__ = ()
    VARIED: ClassVar[tuple[str, ...]] = ("t1", "t2", "detuning")
    jumps: ClassVar[Sequence[str]] = ("relaxation", "dephasing")

    if TYPE_CHECKING:  # an annotation here would replace the workload's, with its bounds and meaning
        environment_spread: float
    t1: tuple[float, float]
    t2: tuple[float, float]

    def impossible(self) -> Iterator[str]:
        """T2 is at most 2 T1, in every environment."""
        most = 2 * self.t1[0] * (1 - self.environment_spread) / (1 + self.environment_spread)
        if self.t2[1] > most:
            yield (
                f"t2: reaches {self.t2[1]:g}, but T2 is at most 2 T1, here {most:g} with the shortest t1 (and its "
                "environment_spread); lower t2 or raise t1"
            )

    def rates(self, *noise: torch.Tensor) -> torch.Tensor:
        """See `ControlWorkload.rates` and `noise.relaxation_rates`."""
        from ketscale.dynamics import relaxation_rates

        return relaxation_rates(*noise)
