"""`ketscale bench pulses`: value and gradient of simultaneous X on a chain of fluxoniums, by every simulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal, NamedTuple

import torch

from benchmarks.dynamics import EQUAL, Outcome, at_equal_error, compared, error_of
from benchmarks.options import SECONDS, names, number, numbers, option
from benchmarks.runner import WRONG, Benchmark, Call, Column, Row, Rows, Untimed, by_case, declared
from ketscale import dynamics as kd
from ketscale.engines.pulses import Cosine, Device, Fluxoniums, Pulses, fluxonium_chain, rotations
from ketscale.measure.host import peak_rss_bytes


class OwnIntegrator(NamedTuple):
    """One of our integrators; see `ketscale.dynamics.evolve`."""

    integrator: str
    steps: int
    route: Literal["auto", "torch"] = "auto"


# Midpoint steps in the published number and order, steps whose error is below that of our and of SuperGrad's 5000, and some
# whose error is below that of adaptive integrators.
OWN = {
    "interaction4-150": OwnIntegrator("interaction4", 150),
    "interaction4-400": OwnIntegrator("interaction4", 400),
    "suzuki4-1500": OwnIntegrator("suzuki4", 1500),
    "trotter2-5000": OwnIntegrator("trotter2", 5000),
    "trotter2-5000-torch": OwnIntegrator("trotter2", 5000, "torch"),
}
# Converged, to below 1e-9: of order 4 whatever commutes.
REFERENCE = OwnIntegrator("suzuki4", 4000)
# A peer is one file and one line here: its name, and its module in `peers`, whose `Gate` is made of the name.
PEERS = {
    "supergrad": "supergrad",
    "supergrad-tad": "supergrad",
    "qutip": "qutip",
    "dynamiqs": "dynamiqs",
    "qiskit-dynamics": "qiskit_dynamics",
}
SIMULATORS = (*OWN, *PEERS)
# A simulator that is further from the reference computes something else: several times the error of 5,000 midpoint steps.
LARGEST_ERROR = 5e-4


class PulsesCase(NamedTuple):
    """One size of the chain."""

    problem: str
    qubits: int
    levels: int

    def __str__(self) -> str:
        return f"{self.problem} {self.qubits}q d{self.levels}"


class Parameters(NamedTuple):
    """What the infidelity is differentiated by, with one number a site, and a pair for the couplings.

    The pulses have amplitude and frequency in rad/ns, phase in rad, length in ns. The device has energies and couplings
    in GHz, flux in rad.
    """

    amplitude: Any
    frequency: Any
    phase: Any
    length: Any
    charging: Any
    josephson: Any
    inductive: Any
    flux: Any
    capacitive_coupling: Any
    inductive_coupling: Any

    def device(self) -> Device:
        """The chain with these parameters."""
        circuits = Fluxoniums(self.charging, self.josephson, self.inductive, self.flux)
        pairs = tuple((site, site + 1) for site in range(len(self.charging) - 1))
        return Device(circuits, pairs, self.capacitive_coupling, self.inductive_coupling)

    def pulses(self) -> Pulses:
        """Cosine pulses with these parameters, one a site."""
        return Pulses(Cosine(self.amplitude), self.frequency, self.phase, self.length)


@dataclass(frozen=True, eq=False)
class DrivenChain:
    """Simultaneous X on an open chain: all 2**n computational columns, product basis, laboratory frame, no virtual Z.

    levels: of each circuit. parameters: fp64 tensors.
    """

    levels: int
    parameters: Parameters

    @property
    def qubits(self) -> int:
        """Number of circuits."""
        return len(self.parameters.amplitude)

    @property
    def duration(self) -> float:
        """Length of the longest pulse, ns."""
        return float(self.parameters.length.max())

    @property
    def driven(self) -> tuple[torch.Tensor, ...]:
        """Amplitude, frequency, phase and length of the pulses."""
        return self.parameters[:4]

    def matrices(self) -> tuple[Any, list[Any], list[int]]:
        """The undriven Hamiltonian and the drives of the product basis, and where computational states are in it."""
        system = self.parameters.device().system(self.levels)
        drives = [each.toarray() if hasattr(each, "toarray") else each for each in system.controls.values()]
        return system.hamiltonian(), drives, system.computational.tolist()


@lru_cache(maxsize=8)
def chain_of(case: PulsesCase) -> DrivenChain:
    """The published chain with our spread, and the published start: resonant cosine pulses of 50 ns."""
    device = fluxonium_chain(case.qubits)
    pulses, circuits = rotations(device), device.circuits
    assert isinstance(pulses.envelope, Cosine) and isinstance(circuits, Fluxoniums)
    driven = (pulses.envelope.amplitude, pulses.frequency, pulses.phase, pulses.length)
    result = (circuits.charging, circuits.josephson, circuits.inductive, circuits.flux)
    return DrivenChain(case.levels, Parameters(*driven, *result, device.capacitive, device.inductive))


class Own:
    """One of our integrators, with its reversible adjoint. steps: how many it takes, None for adaptive ones."""

    def __init__(self, own: OwnIntegrator) -> None:
        self.steps: int | None = own.steps
        self._own = own

    def prepare(self, chain: DrivenChain) -> Call:
        """The call that is timed: the infidelity, and its gradient by `Parameters` in their order, flat.

        It begins with the parameters that it differentiates by: all, the pulses' alone, or none.
        """
        target = kd.gate("x", chain.qubits)

        def call() -> Outcome:
            leaves = Parameters(*(each.detach().clone().requires_grad_() for each in chain.parameters))
            system, pulses = leaves.device().system(chain.levels), leaves.pulses()
            frame, dt = kd.bare_frame(system), chain.duration / self._own.steps
            options: Any = {"method": self._own.integrator, "dt": dt, "route": self._own.route}
            final = kd.evolve(system, pulses, kind="unitary", initial=frame.states, **options)
            infidelity = 1 - kd.process_fidelity(final, target, frame.states)
            gradients = torch.autograd.grad(infidelity, leaves)
            return infidelity.item(), torch.cat(gradients).numpy()

        return call


def create(name: str) -> Any:
    """The simulator of this name: with `steps` and `prepare`, as `Own` has them.

    Raises:
        UserError: its package is not installed.
    """
    return Own(OWN[name]) if name in OWN else import_module(f"benchmarks.peers.{PEERS[name]}").Gate(name)


@dataclass(kw_only=True)
class PulsedGates(Benchmark):
    """Times are of the infidelity of all columns, and its gradient."""

    text = "value and gradient of a gate by pulses with every simulator"
    case = PulsesCase
    columns = (
        Column("computes", "computes"),
        # None for adaptive integrators.
        Column("steps", "steps"),
        declared("error"),
        # Ours compute all that others do, or more.
        *EQUAL,
        # Until the first call ended. A simulator's own is that of a command with no other simulator.
        declared("peak_rss_bytes"),
    )

    qubits: tuple[int, ...] = option((4,), numbers(2), "numbers of qubits")
    levels: int = option(2, number(2), "levels of each circuit")
    simulators: tuple[str, ...] = option(SIMULATORS, names(SIMULATORS), "simulators")
    budget: float = option(60, SECONDS, "skip a simulator whose first call takes longer")

    def cases(self) -> Iterator[PulsesCase]:
        for qubits in self.qubits:
            yield PulsesCase("pulses", qubits, self.levels)

    def open(self) -> None:
        """Create the simulators."""
        self.install(create, self.simulators)
        self.reference = f"{REFERENCE.integrator}-{REFERENCE.steps}"

    def subjects(self, case: PulsesCase) -> dict[str, Any]:
        self._expected: Outcome | None = None
        return self.found

    def prepare(self, case: PulsesCase, name: str, row: Row) -> Call:
        simulator = self.installed(name)
        row["steps"] = simulator.steps
        call: Call = simulator.prepare(chain_of(case))
        return call

    def called(self, row: Row) -> None:
        """Add the memory until now."""
        row["peak_rss_bytes"] = peak_rss_bytes()

    def agree(self, case: PulsesCase, name: str, row: Row, result: Outcome) -> None:
        """The reference comes after the first calls, so that it is not what compiles the code that they share."""
        chain = chain_of(case)
        if self._expected is None:
            self._expected = Own(REFERENCE).prepare(chain)()
        by_all = result[1] is not None and len(result[1]) == len(torch.cat(chain.parameters))
        row["computes"] = "value" + (
            "" if result[1] is None else " and gradient" + ("" if by_all else " by pulses")
        )
        error = error_of(result, self._expected)
        if not error <= LARGEST_ERROR:  # NaN fails too
            raise Untimed(WRONG, f"off by {error:.1e} of the norm")
        row["error"] = error

    def finish(self, case: PulsesCase, rows: Any, calls: Any, rate: float | None) -> None:
        """Add what each row is compared with."""
        at_equal_error(rows, tuple(OWN))

    @classmethod
    def summary(cls, rows: Rows) -> list[str]:
        """How many times as long as the fastest of ours with no larger error each other simulator takes, by case."""
        return [line for case, timed in by_case(PulsesCase, rows).items() for line in compared(case, timed)]
