"""The Liouvillians of control tasks as matrices, for peers that have none."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.dynamics import ControlTasks


def liouvillians(tasks: ControlTasks) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Matrices of the drift (n, n), of each control and each jump (n, n), and the target's projector (n,), n = d**2.

    They act on the rows of a density matrix, one behind the other; the last gives Tr(rho sigma) as a product.
    """
    system = tasks.system
    unit = np.eye(system.dimension)

    def commutator(matrix: NDArray[Any]) -> NDArray[Any]:
        return -1j * (np.kron(matrix, unit) - np.kron(unit, matrix.T))

    def dissipator(jump: NDArray[Any]) -> NDArray[Any]:
        square = jump.conj().T @ jump / 2
        return np.kron(jump, jump.conj()) - np.kron(square, unit) - np.kron(unit, square.T)

    drift = sum(system.parameters[name] * commutator(each) for name, each in system.drift.items())
    controls, jumps = map(commutator, system.controls.values()), map(dissipator, system.jumps.values())
    target = system.projector(tasks.target).T.ravel()
    return np.asarray(drift), np.stack(list(controls)), np.stack(list(jumps)), target
