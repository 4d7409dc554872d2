"""The kinds of workloads of control, one for each system and noise. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator
from math import pi
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from ketscale.problems.control.workload import Amplitude, ControlWorkload, Duration, Limit, Range, Rates

if TYPE_CHECKING:
    import torch

    from ketscale.engines.dynamics import System


class QubitSpectrum(ControlWorkload, frozen=True, kw_only=True):
    """The published tasks: a qubit in an environment with spectrum A / (omega^alpha + omega_c^alpha); dimensionless.

    Its three jumps X, Y and Z have equal rates, which turn every pulse's fidelity F0 without noise into
    1/2 + (F0 - 1/2) exp(-4 rate duration). So whatever their noise, tasks with one detuning have one best pulse.
    """

    VARIED: ClassVar[tuple[str, ...]] = ("alpha", "strength", "cutoff", "detuning")
    POSITIVE: ClassVar[tuple[str, ...]] = ("cutoff",)

    alpha: Annotated[Range, Meta(description="Range of the spectrum's exponent; 2 is a Lorentzian")] = (
        0.5,
        2.0,
    )
    strength: Annotated[Range, Meta(description="Range of the spectrum's amplitude A")] = (1e-3, 1e-2)
    cutoff: Annotated[Range, Meta(description="Range of omega_c")] = (100.0, 1000.0)
    detuning: Annotated[Range, Meta(description="Range of the factor of Z in H; published: 0.1")] = (0.1, 0.1)
    duration: Duration = 1.0
    amplitude: Amplitude = 2.0
    limit: Limit = 10.0
    target: Annotated[Literal["x", "hadamard"], Meta(description="x: X|0>; hadamard: H|0>")] = "x"

    def faults(self) -> Iterator[str]:
        """As for all tasks; and no rate is negative."""
        yield from super().faults()
        for name in ("alpha", "strength"):
            if getattr(self, name)[0] < 0:
                yield f"{name}: must be at least 0, and its range begins at {getattr(self, name)[0]:g}"

    def system(self) -> System:
        """See `systems.qubit`."""
        from ketscale.engines.dynamics import qubit

        return qubit()

    def environment(self, values: torch.Tensor) -> Rates:
        """See `noise.noise_rates`."""
        from ketscale.engines.dynamics import noise_rates

        alpha, strength, cutoff, detuning = values.unbind(1)
        return Rates(noise_rates(alpha, strength, cutoff)[:, None].expand(-1, 3), detuning[:, None])


class _Relaxing(ControlWorkload, frozen=True, kw_only=True):
    """Tasks given by relaxation times and detunings, of each qubit; see `noise.relaxation_rates`."""

    VARIED: ClassVar[tuple[str, ...]] = ("t1", "t2", "detuning")
    POSITIVE: ClassVar[tuple[str, ...]] = ("t1", "t2")

    t1: Range
    t2: Range
    detuning: Range

    def faults(self) -> Iterator[str]:
        """As for all tasks; and T2 is at most 2 T1, in every environment."""
        yield from super().faults()
        most = 2 * self.t1[0] * (1 - self.environment_spread) / (1 + self.environment_spread)
        if self.t2[1] > most:
            yield (
                f"t2: reaches {self.t2[1]:g}, but T2 is at most 2 T1, here {most:g} with the shortest t1 (and its "
                "environment_spread); lower t2 or raise t1"
            )

    def environment(self, values: torch.Tensor) -> Rates:
        """The rates of each qubit's two jumps; the detuning is the drift's first term."""
        from ketscale.engines.dynamics import relaxation_rates

        t1, t2, detuning = values.unbind(1)
        return Rates(relaxation_rates(t1, t2), self._parameters(detuning[:, None]))

    def _parameters(self, first: torch.Tensor) -> torch.Tensor:
        """All parameters of the drift, of which the `first` ones (n, ...) are the tasks' own."""
        import torch

        rest = list(self.system().parameters.values())[first.shape[1] :]
        return torch.cat([first, first.new_tensor(rest).expand(len(first), -1)], 1)


class QubitRelaxation(_Relaxing, frozen=True, kw_only=True):
    """A qubit that relaxes and dephases; times in units of a pulse's duration of 1, rates chosen to be felt."""

    t1: Annotated[Range, Meta(description="Range of T1")] = (20.0, 100.0)
    t2: Annotated[Range, Meta(description="Range of T2, at most 2 T1")] = (10.0, 40.0)
    detuning: Annotated[Range, Meta(description="Range of the factor of Z in H")] = (0.1, 0.1)
    duration: Duration = 1.0
    amplitude: Amplitude = 2.0
    limit: Limit = 10.0
    target: Annotated[Literal["x", "hadamard"], Meta(description="x: X|0>; hadamard: H|0>")] = "x"

    def system(self) -> System:
        """See `systems.qubit`."""
        from ketscale.engines.dynamics import qubit

        return qubit(noise="relaxation")


class Transmon(_Relaxing, frozen=True, kw_only=True):
    """A transmon of three levels, the third of which a pulse must not fill; rad/ns and ns.

    Anharmonicity (-330 MHz) and T1 and T2, around 38 and 50 us, are those of Sheldon et al. (see `systems`).
    """

    t1: Annotated[Range, Meta(description="Range of T1, ns")] = (30e3, 50e3)
    t2: Annotated[Range, Meta(description="Range of T2, ns, at most 2 T1")] = (40e3, 60e3)
    detuning: Annotated[
        Range, Meta(description="Range of the qubit's frequency minus the drive's, rad/ns")
    ] = (
        0.0,
        0.0,
    )
    duration: Duration = 20.0
    amplitude: Amplitude = 0.2
    limit: Limit = 2 * pi * 0.1
    target: Annotated[
        Literal["x", "hadamard"], Meta(description="x: |1>; hadamard: (|0> + |1>) / sqrt(2)")
    ] = "x"

    def system(self) -> System:
        """See `systems.transmon`."""
        from ketscale.engines.dynamics import transmon

        return transmon()


class CoupledQubits(_Relaxing, frozen=True, kw_only=True):
    """Two transmons, as qubits, with a fixed exchange coupling; rad/ns and ns.

    Coupling (3.8 MHz), the qubits' difference (200 MHz), T1 and T2 and a gate of 160 ns are those of Sheldon et al. (see
    `systems`). The drive is resonant with qubit 2.
    """

    qubits: ClassVar[int] = 2

    t1: Annotated[Range, Meta(description="Range of each qubit's T1, ns")] = (30e3, 50e3)
    t2: Annotated[Range, Meta(description="Range of each qubit's T2, ns, at most 2 T1")] = (40e3, 60e3)
    detuning: Annotated[
        Range, Meta(description="Range by which each qubit's frequency is off its usual value, rad/ns")
    ] = (0.0, 0.0)
    duration: Duration = 160.0
    amplitude: Amplitude = 0.2
    limit: Limit = 2 * pi * 0.1
    target: Annotated[
        Literal["bell", "x"], Meta(description="bell: (|00> + |11>) / sqrt(2); x: |10>, X on qubit 1")
    ] = "bell"

    def system(self) -> System:
        """See `systems.coupled_qubits`."""
        from ketscale.engines.dynamics import coupled_qubits

        return coupled_qubits()

    def environment(self, values: torch.Tensor) -> Rates:
        """The rates of the jumps of qubit 1, then of qubit 2."""
        from ketscale.engines.dynamics import relaxation_rates

        t1, t2, off = values.unflatten(1, (self.qubits, -1)).unbind(2)
        usual = values.new_tensor(list(self.system().parameters.values())[: self.qubits])
        return Rates(relaxation_rates(t1, t2).flatten(1), self._parameters(usual + off))


WORKLOADS: dict[str, type[ControlWorkload]] = {
    "qubit-spectrum": QubitSpectrum,
    "qubit-relaxation": QubitRelaxation,
    "transmon": Transmon,
    "coupled-qubits": CoupledQubits,
}
