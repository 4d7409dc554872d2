"""Columns of a register that trained pulses drive, which ranks share: what evolves, in which frame, and for how long."""

from __future__ import annotations

from typing import Any

import torch
from torch.func import functional_call

from ketscale.engines.pulses import Lattice, Pulses, dressed_frame, evolve, laboratory_frame
from ketscale.engines.pulses.frame import Frame
from ketscale.engines.pulses.integrators import step_count
from ketscale.engines.pulses.settings import PulseSimulator
from ketscale.errors import UserError
from ketscale.measure.spans import span, with_backward_span
from ketscale.problems.problem import Problem
from ketscale.problems.pulses.shapes import PulseModel
from ketscale.problems.pulses.workload import PulseWorkload
from ketscale.problems.samplers import All

# Buffers with the lattice and the frame that training begins with.
BEGIN = ("energies", "couplings", "drives", "states", "rates")


class DrivenColumns(Problem):
    """The part of a problem that evolves; a subclass says what is wanted of the columns.

    The undriven device is diagonalised once, or in every step if its parameters are trained.
    """

    model: PulseModel

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
        self.levels = levels
        self.simulator = simulator
        columns = workload.samples(qubits)
        self.sampler = All(columns)
        self.splits = {"validation": columns, "test": columns}
        # Columns of the unitary, as rows; one state is one of them.
        self.wanted: slice | list[int] = slice(None) if workload.target == "unitary" else [workload.initial]
        self.register_buffer("columns", torch.arange(2**qubits)[self.wanted], persistent=False)
        self._fixed = not any(parameter.requires_grad for parameter in model.device.parameters())
        with torch.no_grad():
            lattice, frame = self._diagonalised()
        self._pairs, self._sites, self._qubits = lattice.pairs, model.sites, qubits
        for name, tensor in zip(BEGIN, (*lattice.tensors, frame.states, frame.energies), strict=True):
            self.register_buffer(name, tensor, persistent=False)
        # What is impossible or has no derivatives at the start is the settings' fault; what becomes so later has diverged.
        self.physics()
        self.model()

    def _diagonalised(self) -> tuple[Lattice, Frame]:
        lattice = self.model.device().lattice(self.levels, self.model.sites)
        return lattice, (dressed_frame if self.workload.frame == "dressed" else laboratory_frame)(lattice)

    def physics(self) -> tuple[Lattice, Frame]:
        """The device as its pulses drive it, and the frame in which its gate is judged."""
        if self._fixed:
            return self.begin()
        names, parameters = zip(*self.model.device.named_parameters(), strict=True)

        def hamiltonian(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            device = functional_call(self.model.device, dict(zip(names, values, strict=True)), ())
            return device.lattice(self.levels, self.model.sites).tensors

        def dressed(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found = dressed_frame(self._lattice(*tensors))
            return found.states, found.energies

        with span("pulses.hamiltonian"):
            tensors = with_backward_span("pulses.hamiltonian", hamiltonian, *parameters)
        lattice = self._lattice(*tensors)
        if self.workload.frame == "laboratory":
            return lattice, laboratory_frame(lattice)
        with span("pulses.eigenstates"):
            return lattice, Frame(*with_backward_span("pulses.eigenstates", dressed, *tensors))

    def begin(self) -> tuple[Lattice, Frame]:
        """`physics` with the parameters of the device that training begins with."""
        *tensors, states, energies = (self.get_buffer(name) for name in BEGIN)
        return self._lattice(*tensors), Frame(states, energies)

    def _lattice(self, *tensors: torch.Tensor) -> Lattice:
        energies, couplings, drives = tensors
        return Lattice(self.levels, self._qubits, energies, self._pairs, couplings, self._sites, drives)

    def evolved(self, indices: torch.Tensor) -> torch.Tensor:
        """The amplitudes (columns, 2**n) of these columns after the pulses, in the frame.

        They are not numbers where training has left no possible pulses or device: it has diverged.
        """
        pulses, physics = self.possible_pulses(), self.possible_physics()
        if pulses is None or physics is None:
            lost = torch.nan * sum(parameter.sum() for parameter in self.model.parameters())
            return lost * self.get_buffer("states").new_zeros(len(indices), 2**self._qubits)
        lattice, frame = physics
        initial = frame.states[self.get_buffer("columns")[indices]]
        return frame.amplitudes(evolve(lattice, pulses, initial, **self.method), pulses.duration)

    @property
    def method(self) -> dict[str, Any]:
        """What the simulator's settings are to `evolve` and `error_estimate`."""
        return {"dt": self.simulator.dt, "method": self.simulator.device, "route": self.simulator.route}

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

    def possible_physics(self) -> tuple[Lattice, Frame] | None:
        """`physics`; None if there is no such device, or its states cannot be told apart, unlike at the start."""
        try:
            return self.physics()
        except (UserError, torch.linalg.LinAlgError):
            return None
