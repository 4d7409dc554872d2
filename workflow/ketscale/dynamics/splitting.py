"""Closed chains by the integrators of `engines.pulses`, which never make a matrix of the whole system."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from ketscale.engines.dynamics.evolution import substeps
from ketscale.engines.dynamics.propagators import check_route, check_step
from ketscale.engines.dynamics.settings import Route
from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.tasks import Tasks, as_complex, check_tasks, check_values, usual_parameters
from ketscale.engines.pulses.integrators import integrator
from ketscale.engines.pulses.lattice import Chain
from ketscale.errors import UserError
from ketscale.private_torch import transforms_active


@dataclass(frozen=True)
class Split:
    """Evolves the kets of closed chains, one task after the other, by an integrator of `engines.pulses`.

    method: its name. dt: its longest step; see `engines.dynamics.propagators.Batched` on the rest.

    Raises:
        UserError: there is no step, or no such route.
    """

    method: str
    dt: float | None = None
    route: Route = "auto"

    def __post_init__(self) -> None:
        check_step(self.method, self.dt)
        check_route(self.route)

    def columns(self, system: System, tasks: Tasks, trajectory: bool = False) -> torch.Tensor:
        """See `Batched.columns`.

        Raises:
            UserError: see `Chain`; or the numbers are not in fp64, or so large that states are not finite.
        """
        check_tasks(system, tasks, strict=True, columns=True)
        check_values(tasks)
        together = 1 if trajectory else tasks.controls.shape[1]
        per = substeps(tasks.segment, self.dt or 0.0)
        steps = integrator(self.method, per * together, self.route)
        stages, chain = steps.times(1.0).shape[1], Chain(system, f"method: {self.method}")
        controls, (count, segments, _) = tasks.controls, tasks.controls.shape
        parameters = usual_parameters(system, controls) if tasks.parameters is None else tasks.parameters
        initial = as_complex(np.eye(system.dimension), controls) if tasks.initial is None else tasks.initial
        length = torch.as_tensor(tasks.duration, dtype=controls.dtype, device=controls.device)
        parameters, length = parameters.expand(count, -1), length.expand(count) * (together / segments)
        lattices = [chain.lattice(each) for each in parameters]
        states = [initial.mT.expand(count, -1, -1)]
        if not count:
            empty = torch.stack(states * (1 + segments), 1).mT
            return empty if trajectory else empty[:, -1]
        for part in chain.amplitudes(controls, parameters).split(together, 1):
            sampled = part.repeat_interleave(per, 1)[:, :, None].expand(-1, -1, stages, -1)
            states.append(steps.evolve(lattices, sampled, length, states[-1]))
        if not transforms_active() and not math.isfinite(torch.view_as_real(states[-1].detach()).sum()):
            raise UserError(
                f"controls or parameters: too large for {self.method} in a segment of {tasks.segment:.4g}; use smaller ones, or a "
                "rotating frame"
            )
        return (torch.stack(states, 1) if trajectory else states[-1]).mT
