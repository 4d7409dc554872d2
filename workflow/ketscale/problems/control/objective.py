"""The objective of pulses: the overlap of the state that they make with the target state."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.dynamics.propagators import Propagator
from ketscale.engines.dynamics.settings import Creation
from ketscale.engines.dynamics.states import FORMS
from ketscale.engines.dynamics.tasks import Tasks
from ketscale.measure.spans import span, with_backward_span
from ketscale.problems.control.workload import ControlWorkload, Rates


class Objective:
    """The overlaps and losses of pulses for a workload's system and target, by a propagator.

    creation: when its problem creates the environments of tasks.
    """

    def __init__(
        self, workload: ControlWorkload, propagator: Propagator, creation: Creation = "batch"
    ) -> None:
        self.workload, self.propagator, self.creation = workload, propagator, creation
        self.system = workload.system()
        self.projector = self.system.projector(workload.target)[None]
        self._above = np.diag(np.arange(self.system.dimension) >= 2**workload.qubits).astype(complex)[None]

    @property
    def chance(self) -> float:
        """The mean infidelity of a random pure state."""
        return 1 - 1 / self.system.dimension

    def overlaps(self, controls: torch.Tensor, environment: Rates) -> torch.Tensor:
        """Tr(rho sigma) of tasks, real (n,): the state after the controls (n, segments, controls), and the target."""
        return self._expval(controls, environment, self.projector)

    def leakage(self, controls: torch.Tensor, environment: Rates) -> torch.Tensor | None:
        """The population of levels above the qubits' after the controls, (n,); None if there are no such levels."""
        return self._expval(controls, environment, self._above) if self._above.any() else None

    def loss(self, overlaps: torch.Tensor) -> torch.Tensor:
        """1 - F of each overlap, in the workload's form of F."""
        return 1 - FORMS[self.workload.fidelity](overlaps)

    def losses(self, controls: torch.Tensor, environment: Rates) -> torch.Tensor:
        """1 - F of tasks, real (n,)."""
        return self.loss(self.overlaps(controls, environment))

    def _expval(
        self, controls: torch.Tensor, environment: Rates, observable: NDArray[np.complex128]
    ) -> torch.Tensor:
        def forward(*tensors: torch.Tensor) -> torch.Tensor:
            with span("dynamics.forward"):
                tasks = Tasks(tensors[0], self.workload.duration, *tensors[1:])
                return self.propagator.expval(self.system, tasks, observable)

        # A gradient's own derivatives, of any order, count as backward too.
        return with_backward_span("dynamics.backward", forward, controls, *environment)[:, 0]
