"""Our own integrators under test."""

from __future__ import annotations

import torch

from ketscale.bench.dynamics.pulses.case import Array, Call, Case, Parameters
from ketscale.bench.dynamics.pulses.selection import Own
from ketscale.engines.pulses import fidelity, laboratory_frame, row_overlaps, x_gate
from ketscale.engines.pulses.integrators import integrator


class OwnSubject:
    """An integrator by name, with its reversible adjoint."""

    def __init__(self, own: Own) -> None:
        self.steps: int | None = own.steps
        self._integrator = integrator(*own)

    def prepare(self, case: Case) -> Call:
        """See `Subject.prepare`."""
        target = x_gate(case.qubits).T

        def call() -> tuple[float, Array]:
            leaves = Parameters(*(each.detach().clone().requires_grad_() for each in case.parameters))
            lattice, pulses = leaves.device().lattice(case.levels), leaves.pulses()
            frame = laboratory_frame(lattice)
            duration = pulses.duration
            drives = pulses.sample(self._integrator.times(duration))
            final = self._integrator.evolve(lattice, drives, duration, frame.states)
            rows = row_overlaps(frame.amplitudes(final, duration), target)
            infidelity = 1 - fidelity(rows, 2**case.qubits, virtual_z=False)
            gradients = torch.autograd.grad(infidelity, leaves)
            return infidelity.item(), torch.cat(gradients).numpy()

        return call
