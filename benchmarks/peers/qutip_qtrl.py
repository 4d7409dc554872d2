"""GRAPE of qutip-qtrl: the error and the gradient that its optimisers ask for, pulse by pulse."""

from __future__ import annotations

import numpy as np

from benchmarks.dynamics import Outcome
from benchmarks.gates import GateTasks
from benchmarks.peers.on_jax import imported
from benchmarks.runner import Call


class Gates:
    """Its dynamics of unitaries, whose gradient is exact (by eigenvectors, its default)."""

    def __init__(self, name: str) -> None:
        self._control, self._qutip = imported("qutip_qtrl.pulseoptim"), imported("qutip")

    def prepare(self, tasks: GateTasks) -> Call:
        """See `gates.Own.prepare`."""
        qobj, d = self._qutip.Qobj, len(tasks.drift)
        dynamics = self._control.create_pulse_optimizer(
            qobj(tasks.drift),
            list(map(qobj, tasks.operators)),
            qobj(np.eye(d)),
            qobj(tasks.target),
            num_tslots=tasks.controls.shape[1],
            evo_time=tasks.tau * tasks.controls.shape[1],
            dyn_type="UNIT",
            init_pulse_type="ZERO",
        ).dynamics
        dynamics.initialize_controls(tasks.controls[0])

        def infidelity(amplitudes: np.ndarray) -> tuple[float, np.ndarray]:
            dynamics.update_ctrl_amps(amplitudes)
            dynamics.flag_system_changed()  # or what is known of equal amplitudes is kept
            # Its error is 1 - |Tr(T^+ U)| / D.
            overlap = 1 - dynamics.fid_computer.get_fid_err()
            gradient = dynamics.fid_computer.get_fid_err_gradient()
            return 1 - overlap**2, 2 * overlap * gradient

        def call() -> Outcome:
            values = [infidelity(each) for each in tasks.controls]
            return np.array([value for value, _ in values]), np.stack([gradient for _, gradient in values])

        return call
