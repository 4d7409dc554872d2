"""The steady states of open systems, each as the solution of one linear system, which has the derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ketscale.dynamics.evolution import Values, as_systems, evolve
from ketscale.engines.dynamics.plain import generators
from ketscale.engines.dynamics.propagators import Batched, Propagator, as_observables
from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.tasks import Tasks, as_real, check_values, coordinates, kets, matrices
from ketscale.errors import UserError
from ketscale.private_torch import transforms_active

# A singular value is 0 within so many roundings of the largest one, times the number of coordinates.
ROUNDINGS = 10


def steady_state(
    system: System | Sequence[System],
    controls: Any = None,
    *,
    rates: Values = None,
    parameters: Values = None,
    expect: Any = None,
) -> torch.Tensor:
    """The density matrix (d, d) that constant controls and rates do not change, with derivatives of any order.

    It is dense algebra of d^2 coordinates, in fp64, for some tens of levels. Its error is rounding times the largest frequency
    over the smallest rate: 1e-8 if that is 1e9. Each argument may have a batch axis in front, as for `evolve`.

    controls: real (controls,), in the units of `System`; None: 0. rates, parameters, expect: see `evolve`.

    Raises:
        UserError: there is more than one, as without rates or where jumps do not connect all states; or see `evolve`.

    Example:
        >>> from ketscale import dynamics as kd
        >>> rho = kd.steady_state(kd.transmon(levels=2), [0.3, 0.0], rates={"relaxation": 0.1, "dephasing": 0.0})
        >>> round(rho[1, 1].real.item(), 4)  # driven^2 / (rate^2 + 2 driven^2)
        0.4737
    """
    if controls is not None:
        controls = as_real("controls", controls, torch.empty(0, dtype=torch.float64))[..., None, :]
    arguments: dict[str, Any] = {"rates": rates, "parameters": parameters, "method": Steady()}
    rho = evolve(system, controls, 1.0, kind="density", **arguments)
    if expect is None:
        return rho
    observables = as_observables(expect, as_systems(system)[0], rho.real)
    return torch.einsum("...ij,oji->...o", rho, observables).real


@dataclass(frozen=True)
class Steady(Propagator):
    """The steady states of tasks of one segment, whatever their duration and initial states."""

    strict: bool = True

    def state(self, system: System, tasks: Tasks, trajectory: bool = False) -> torch.Tensor:
        """See `Propagator.state`.

        The generator G keeps the trace t, so t G = 0, and (G + t t^T) r = t holds if and only if G r = 0 and t r = 1. It has
        one solution unless there are several such r.
        """
        fixed, controls, _, evolution = Batched().linear(system, tasks)
        generator = generators(fixed, controls, evolution).squeeze(1)
        trace = coordinates(torch.eye(system.dimension, dtype=torch.complex128, device=fixed.device))
        trace = kets(trace) if generator.is_complex() else trace
        # The trace weighs as much as the generator, so that the sum is as well conditioned as it can be.
        scale = generator.detach().abs().amax((-2, -1), keepdim=True) / system.dimension
        matrix = generator + scale * trace[:, None] * trace
        if not transforms_active():
            check_values(tasks)
            values = torch.linalg.svdvals(matrix.detach())
            rounding = ROUNDINGS * len(trace) * torch.finfo(torch.float64).eps
            states = 1 + (values <= rounding * values[:, :1]).sum(1)
            if (states > 1).any():
                member = int(states.argmax())
                raise UserError(
                    f"rates: member {member} has {states[member]} steady states, or rates so small that rounding "
                    "hides which; give rates of jumps that connect all states, or evolve an initial state for long"
                )
        solution = torch.linalg.solve(matrix, scale[..., 0] * trace)
        solution = torch.view_as_real(solution).flatten(1) if solution.is_complex() else solution
        return matrices(solution)
