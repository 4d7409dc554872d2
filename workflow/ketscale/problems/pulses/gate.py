"""The problem: pulses that make a gate of a register's columns."""

from __future__ import annotations

from typing import Any

import torch
from torch.func import functional_call

from ketscale.dynamics import Frame, bare_frame, dressed_frame, evolve
from ketscale.engines.dynamics.methods import MOST_STEPS
from ketscale.engines.dynamics.system import System
from ketscale.engines.evolved import Evolved
from ketscale.engines.gates import gate
from ketscale.engines.pulses import Pulses
from ketscale.engines.pulses.chain import device_of, with_operators
from ketscale.engines.pulses.integrators import evolution, step_count
from ketscale.engines.pulses.virtual_z import largest_overlap
from ketscale.engines.randomness import Step
from ketscale.errors import UserError
from ketscale.problems.problem import Problem
from ketscale.problems.pulses.shapes import PulseModel
from ketscale.problems.pulses.workloads import PulseSimulator, PulseWorkload
from ketscale.problems.samplers import All
from ketscale.spans import span, with_backward_span

# The integrator's error is found in so many columns from the first to the last.
_COLUMNS = 4
# What it is compared with: an integrator of order 4 for any couplings, with so short steps, ns.
_REFERENCE, _SHORTEST = "suzuki4", 0.005


class GateProblem(Problem):
    """1 - F of the gate, with F = |sum of overlaps / columns|^2. Columns of the unitary are its samples, in front as any.

    The sums over columns, which ranks share, are the overlaps by row, complex (2**n,), if virtual Z needs them
    (see `engines.pulses.virtual_z`), else their sum (1,). The undriven device is diagonalised once, or in every step if its parameters are trained.
    """

    model: PulseModel
    linear = False

    def __init__(
        self,
        model: PulseModel,
        workload: PulseWorkload,
        simulator: PulseSimulator,
        qubits: int,
        levels: int,
        arguments: dict[str, Any],
    ) -> None:
        super().__init__()
        self.model, self.workload, self.arguments = model, workload, arguments
        self.levels, self.simulator = levels, simulator
        columns = workload.samples(qubits)
        self.sampler = All(columns)
        self.splits = {"validation": columns, "test": columns}
        # Columns of the unitary, as rows; one state is one of them.
        self.rows_of_target: slice | list[int] = slice(None) if workload.target == "unitary" else [0]
        self.register_buffer("columns", torch.arange(2**qubits)[self.rows_of_target], persistent=False)
        self._fixed = not any(parameter.requires_grad for parameter in model.device.parameters())
        with torch.no_grad():
            self._system, self._qubits = model.device().system(levels, model.sites), qubits
            frame = (dressed_frame if workload.frame == "dressed" else bare_frame)(self._system)
        self.register_buffer("states", frame.states, persistent=False)
        self.register_buffer("energies", frame.energies, persistent=False)
        # What is impossible or has no derivatives at the start is the settings' fault; what becomes so later has diverged.
        self.physics()
        step_count(self.model(), simulator.dt)
        target = gate(workload.gate, qubits, workload.pairs).T[self.rows_of_target]
        self.register_buffer("target", target.contiguous(), persistent=False)

    def physics(self) -> tuple[System, Frame]:
        """The device as its pulses drive it, and the frame in which its gate is judged."""
        if self._fixed:
            return self.begin()
        names, parameters = zip(*self.model.device.named_parameters(), strict=True)

        def hamiltonian(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            device = functional_call(self.model.device, dict(zip(names, values, strict=True)), ())
            system: System = device.system(self.levels, self.model.sites)
            return system.operators

        def dressed(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            frame = dressed_frame(with_operators(self._system, tensors))
            return frame.states, frame.energies

        with span("pulses.hamiltonian"):
            tensors = with_backward_span("pulses.hamiltonian", hamiltonian, *parameters)
        system = with_operators(self._system, tensors)
        if self.workload.frame == "laboratory":
            return system, bare_frame(system)
        with span("pulses.eigenstates"):
            return system, Frame(*with_backward_span("pulses.eigenstates", dressed, *tensors))

    def begin(self) -> tuple[System, Frame]:
        """`physics` with the parameters of the device that training begins with."""
        states, operators = self.get_buffer("states"), self._system.operators
        if device_of(self._system) != states.device:
            self._system = with_operators(self._system, (each.to(states.device) for each in operators))
        return self._system, Frame(states, self.get_buffer("energies"))

    def evolved(self, indices: torch.Tensor) -> torch.Tensor:
        """The amplitudes (columns, 2**n) of these columns after the pulses, in the frame.

        They are not numbers where training has left no possible pulses or device: it has diverged.
        """
        try:
            pulses, (system, frame) = self.possible_pulses(), self.physics()
        except (UserError, torch.linalg.LinAlgError):  # no such device, or its states cannot be distinguished
            pulses = None
        if pulses is None:
            nans = torch.nan * sum(parameter.sum() for parameter in self.model.parameters())
            return nans * self.get_buffer("states").new_zeros(len(indices), 2**self._qubits)
        initial = frame.states[:, self.get_buffer("columns")[indices]]
        final = evolve(system, pulses, kind="unitary", initial=initial, **self.method)
        return frame.amplitudes(final, pulses.duration).mT

    @property
    def method(self) -> dict[str, Any]:
        """What the simulator's settings are to `evolve`."""
        return {"dt": self.simulator.dt, "method": self.simulator.device, "route": self.simulator.route}

    def evolution(self) -> Evolved:
        """See `Problem.evolution`; without steps if there are no possible pulses."""
        pulses, simulator = self.possible_pulses(), self.simulator
        steps = None if pulses is None else step_count(pulses, simulator.dt)
        states = self.get_buffer("states")
        return evolution(self._system, simulator.device, simulator.route, steps, states.device)

    def possible_pulses(self) -> Pulses | None:
        """The model's; None if a parameter is not finite, a length not positive, or one that would take too many steps."""
        if not all(parameter.isfinite().all() for parameter in self.model.parameters()):
            return None
        try:
            pulses = self.model()
            step_count(pulses, self.simulator.dt)
        except UserError:
            return None
        return pulses

    def sums(self, indices: torch.Tensor, step: Step) -> torch.Tensor:
        """See `Problem.sums`: the overlaps of these columns."""
        rows = self._rows(self.evolved(indices), indices)
        return rows if self.workload.virtual_z else rows.sum()[None]

    def _rows(self, amplitudes: torch.Tensor, indices: torch.Tensor | slice) -> torch.Tensor:
        """The overlaps of the amplitudes of these columns with their target by row, (2**n,)."""
        return (self.get_buffer("target")[indices].conj() * amplitudes).sum(0)

    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        """The infidelity."""
        return 1 - _fidelity(sums, count, self.workload.virtual_z)

    def penalty(self) -> torch.Tensor | None:
        """The squares of what lengths are out of their bounds, relative to these; None without any."""
        bounds = self.workload.length_bounds
        pulses = self.possible_pulses() if bounds else None
        if bounds is None or pulses is None:
            return None
        above, below = (pulses.length / bounds[1] - 1).relu(), (1 - pulses.length / bounds[0]).relu()
        return above.square().sum() + below.square().sum()

    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        """The amplitudes of these columns, real and imaginary parts, (columns, 2**n * 2)."""
        with torch.no_grad():
            final = self.evolved(indices.to(self.get_buffer("columns").device))
        return torch.view_as_real(final).flatten(1)

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """Loss and infidelity; when full all metrics.

        chance: the mean infidelity of a random unitary, or of a random state.
        """
        amplitudes, (count, dimension) = _complex(outputs), self.get_buffer("target").shape
        rows = self._rows(amplitudes, slice(None))
        infidelity = float(1 - _fidelity(rows, count, self.workload.virtual_z))
        penalty = self.penalty()
        metrics: dict[str, Any] = {
            "loss": infidelity if penalty is None else infidelity + penalty.item(),
            "infidelity": infidelity,
        }
        if not full:
            return metrics
        return {
            **metrics,
            "leakage": 1 - float(amplitudes.abs().square().sum()) / count,
            "chance": 1 - dimension ** (-2 if self.workload.target == "unitary" else -1),
            "simulator_error": self._simulator_error() if split == "test" else None,
        }

    @torch.no_grad()
    def _simulator_error(self) -> float:
        """The largest norm of a column's difference from an exact one, in some columns, under the pulses that training begins with."""
        columns = self.get_buffer("columns")
        picks = torch.linspace(0, len(columns) - 1, min(_COLUMNS, len(columns))).round().long()
        system, frame = self.begin()
        pulses, initial = self.model.default_pulses(), frame.states[:, columns[picks.to(columns.device)]]
        final = evolve(system, pulses, kind="unitary", initial=initial, **self.method)
        # At least four for each of the integrator's own, some of which have a tenth of the reference's error; of very
        # long pulses as many as there may be.
        shortest = max(_SHORTEST, float(pulses.duration) / MOST_STEPS)
        steps = max(step_count(pulses, shortest), 4 * step_count(pulses, self.simulator.dt))
        dt = float(pulses.duration) / steps
        exact = evolve(system, pulses, kind="unitary", initial=initial, method=_REFERENCE, dt=dt)
        return float((final - exact).norm(dim=0).max())

    def predictions(self, split: str, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The `amplitudes` (columns, 2**n), complex, and their `target`."""
        return {"amplitudes": _complex(outputs), "target": self.get_buffer("target")}


def _fidelity(rows: torch.Tensor, columns: int, virtual_z: bool) -> torch.Tensor:
    """|mean_j <u_j|v_j>|^2 from the rows of all columns; with virtual_z the largest over Z rotations after the pulse."""
    return (largest_overlap(rows) if virtual_z else rows.sum(-1).abs().square()) / columns**2


def _complex(outputs: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(outputs.unflatten(1, (-1, 2)).contiguous())
