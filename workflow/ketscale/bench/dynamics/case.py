"""The tasks that a benchmark of dynamics evolves, as arrays that every package can take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.bench.dynamics.selection import Cell
from ketscale.engines.dynamics.noise import noise_rates, relaxation_rates
from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.systems import T1, T2, coupled_qubits, qubit

Array = NDArray[np.float64]

# Returns the overlap of each task with its target, and the gradient of their sum by the controls or None.
Call = Callable[[], tuple[Array, Array | None]]


@dataclass(frozen=True)
class Case:
    """Control tasks from |0...0> in double precision.

    controls: (tasks, segments, controls). rates: (tasks, jumps). target: the name of the system's target.
    """

    system: System
    duration: float
    controls: Array
    rates: Array
    target: str

    def first(self, tasks: int) -> Case:
        """The same with the first tasks only."""
        return replace(self, controls=self.controls[:tasks], rates=self.rates[:tasks])


class Subject(Protocol):
    """A propagator under test.

    most: tasks that one call is given at most; times of more are projected, since it takes one after the other.
    """

    most: int | None

    def prepare(self, case: Case) -> Call:
        """The call that is timed; whatever does not depend on controls and rates is prepared before."""
        ...


@lru_cache(maxsize=8)
def case_of(cell: Cell) -> Case:
    """The tasks of a cell.

    One qubit: the published system and range of environments. Two: coupled transmons, relaxation times from half to twice
    the usual ones. The controls are normal, of a size that turns the state a few times.
    """
    generator = torch.Generator().manual_seed(0)

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(cell.batch, generator=generator, dtype=torch.float64)

    if cell.qubits == 1:
        system, duration, target = qubit(), 1.0, "x"
        rates = noise_rates(uniform(0.5, 2.0), uniform(1e-3, 1e-2), uniform(100.0, 1000.0))[:, None].expand(
            -1, 3
        )
    else:
        system, duration, target = coupled_qubits(), 160.0, "bell"
        factors = uniform(0.5, 2.0)
        rates = torch.cat(
            [relaxation_rates(t1 * factors, t2 * factors) for t1, t2 in zip(T1, T2, strict=True)], 1
        )
    shape = (cell.batch, cell.segments, len(system.controls))
    controls = 2 / duration * torch.randn(shape, generator=generator, dtype=torch.float64)
    return Case(system, duration, controls.numpy(), rates.contiguous().numpy(), target)
