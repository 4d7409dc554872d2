"""Qiskit Dynamics in double precision on JAX, compiled and differentiated by it."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.dynamics import ControlTasks
from benchmarks.peers.on_jax import amplitude_of, differentiated, imported
from benchmarks.pulses import DrivenChain
from benchmarks.runner import Call

# The adaptive integrator's tolerance, for an error below that of 5,000 midpoint steps.
TOLERANCE = 1e-9


class Control:
    """A vectorised Lindblad solver, mapped over tasks, exact for constant segments."""

    most: int | None = None
    exact = True

    def __init__(self, name: str) -> None:
        self._dynamics = imported("qiskit_dynamics")

    def prepare(self, tasks: ControlTasks) -> Call:
        """See `dynamics.Own.prepare`."""
        jax, system, dynamics = imported("jax"), tasks.system, self._dynamics
        jax.config.update("jax_enable_x64", True)
        jnp, tau = jax.numpy, tasks.duration / tasks.controls.shape[1]
        solver = dynamics.Solver(
            static_hamiltonian=sum(system.parameters[name] * each for name, each in system.drift.items()),
            hamiltonian_operators=np.array(list(system.controls.values())),
            dissipator_operators=np.array(list(system.jumps.values())),
            array_library="jax",
            vectorized=True,
        )
        start = jnp.zeros(system.dimension**2, dtype=complex).at[0].set(1)
        # Columns are stacked: Tr(rho sigma) is the product with the transpose's columns.
        target = jnp.asarray(system.projector(tasks.target).T.flatten(order="F"))

        def value(controls: Any, rates: Any) -> Any:
            signals = [dynamics.DiscreteSignal(tau, controls[:, k]) for k in range(controls.shape[1])]
            noise = [dynamics.Signal(rates[k]) for k in range(rates.shape[0])]
            result = solver.solve(
                t_span=[0.0, tasks.duration],
                y0=start,
                signals=(signals, noise),
                convert_results=False,
                method="jax_expm",
                max_dt=tau,
            )
            return (result.y[-1] @ target).real

        return differentiated(jax.vmap(value), tasks.controls, tasks.rates)


class Gate:
    """One solution for the matrix of all columns by JAX's integrator, with its adjoint; by the pulses alone."""

    steps: int | None = None

    def __init__(self, name: str) -> None:
        self._dynamics = imported("qiskit_dynamics")

    def prepare(self, chain: DrivenChain) -> Call:
        """See `pulses.Own.prepare`. The time is counted in pulse lengths, as the length is one of the parameters."""
        jax, (undriven, drives, places), dynamics = imported("jax"), chain.matrices(), self._dynamics
        jax.config.update("jax_enable_x64", True)
        jnp = jax.numpy
        solver = dynamics.Solver(hamiltonian_operators=np.array([undriven, *drives]), array_library="jax")
        columns = jnp.eye(len(undriven), dtype=complex)[:, jnp.asarray(places)]

        def infidelity(pulses: Any) -> Any:
            duration = pulses[3].max()
            shapes = [amplitude_of(pulses[:, number], duration) for number in range(len(drives))]
            result = solver.solve(
                t_span=[0.0, 1.0],
                y0=columns,
                signals=[dynamics.Signal(duration), *(dynamics.Signal(shape) for shape in shapes)],
                convert_results=False,
                method="jax_odeint",
                atol=TOLERANCE,
                rtol=TOLERANCE,
            )
            overlap = result.y[-1][jnp.asarray(places[::-1]), jnp.arange(len(places))].mean()
            return 1 - jnp.abs(overlap) ** 2

        return differentiated(infidelity, np.stack([each.numpy() for each in chain.driven]))
