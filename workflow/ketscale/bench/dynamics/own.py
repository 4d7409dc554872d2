"""Our own propagators under test."""

from __future__ import annotations

import torch

from ketscale.bench.dynamics.case import Array, Call, Case
from ketscale.bench.dynamics.selection import OWN
from ketscale.engines.dynamics.factory import propagator
from ketscale.engines.dynamics.propagators import Propagator
from ketscale.engines.dynamics.tasks import Tasks

# Enough for a steady time: one takes up to seconds.
LOOPED = 2


class OwnSubject:
    """One of `selection.OWN`; the published loop is given `LOOPED` tasks."""

    def __init__(self, name: str) -> None:
        self.own = OWN[name]
        self.most = LOOPED if self.own.name.startswith("literal") else None

    def propagator(self, duration: float) -> Propagator:
        """Its propagator for pulses of this duration."""
        name, step, route = self.own
        return propagator(name, step and step * duration, route, strict=False)  # as in training

    def prepare(self, case: Case) -> Call:
        """See `Subject.prepare`."""
        simulator = self.propagator(case.duration)
        controls = torch.from_numpy(case.controls).requires_grad_()
        tasks = Tasks(controls, case.duration, torch.from_numpy(case.rates))
        target = torch.from_numpy(case.system.projector(case.target))[None]

        def call() -> tuple[Array, Array]:
            overlaps = simulator.expval(case.system, tasks, target)[:, 0]
            (gradient,) = torch.autograd.grad(overlaps.sum(), controls)
            return overlaps.detach().numpy(), gradient.numpy()

        return call
