"""General packages under test, with adaptive integrators, in double precision.

They are given the matrices of a lattice, so that they differentiate by the pulses alone. The time is counted in pulse
lengths, as the length is one of the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ketscale.bench.dynamics.peers import imported
from ketscale.bench.dynamics.pulses.case import Array, Call, Case

# Of adaptive integrators, for an error below that of 5,000 midpoint steps.
TOLERANCE = 1e-9
OF_PULSES = ("amplitude", "frequency", "phase", "length")


class Qutip:
    """QuTiP: `sesolve`, column by column. It has no gradients: only values are timed."""

    steps: int | None = None

    def __init__(self) -> None:
        self._qutip = imported("qutip")

    def prepare(self, case: Case) -> Call:
        """See `Subject.prepare`."""
        qutip, (undriven, drives, places) = self._qutip, _matrices(case)
        pulses = zip(*(getattr(case.parameters, name).tolist() for name in OF_PULSES), strict=True)
        terms = [[qutip.Qobj(drive), _shape(*pulse)] for drive, pulse in zip(drives, pulses, strict=True)]
        total = qutip.QobjEvo([qutip.Qobj(undriven), *terms])
        options = {"atol": TOLERANCE, "rtol": TOLERANCE, "nsteps": 10**6}

        def call() -> tuple[float, None]:
            overlap = 0j
            for start, end in zip(places, reversed(places), strict=True):
                state = qutip.basis(len(undriven), start)
                final = qutip.sesolve(total, state, [0.0, case.duration], options=options).states[-1]
                overlap += final.full()[end, 0]
            return 1 - abs(overlap / len(places)) ** 2, None

        return call


class Dynamiqs:
    """dynamiqs: one compiled `sesolve` of all columns by Tsit5, differentiated by JAX."""

    steps: int | None = None

    def __init__(self) -> None:
        self._dynamiqs = imported("dynamiqs")

    def prepare(self, case: Case) -> Call:
        """See `Subject.prepare`."""
        dq, (undriven, drives, places) = self._dynamiqs, _matrices(case)
        dq.set_precision("double")
        jnp = imported("jax.numpy")
        states = [dq.asqarray(np.eye(len(undriven), dtype=complex)[:, [place]]) for place in places]

        def infidelity(pulses: Any) -> Any:
            duration = pulses[3].max()
            hamiltonian = dq.constant(duration * dq.asqarray(undriven))
            for number, drive in enumerate(drives):
                amplitude = _amplitude(jnp, pulses[:, number], duration)
                hamiltonian = hamiltonian + dq.modulated(amplitude, dq.asqarray(drive))
            result = dq.sesolve(
                hamiltonian,
                dq.stack(states),
                np.array([0.0, 1.0]),
                method=dq.method.Tsit5(rtol=TOLERANCE, atol=TOLERANCE, max_steps=10**6),
                progress_meter=False,
            )
            final = result.final_state.to_jax()[:, :, 0]
            overlap = final[jnp.arange(len(places)), jnp.asarray(places[::-1])].mean()
            return 1 - jnp.abs(overlap) ** 2

        return _jax_call(case, infidelity)


class QiskitDynamics:
    """Qiskit Dynamics: one compiled solution for the matrix of all columns by JAX's integrator, with its adjoint."""

    steps: int | None = None

    def __init__(self) -> None:
        self._solver = imported("qiskit_dynamics")

    def prepare(self, case: Case) -> Call:
        """See `Subject.prepare`."""
        jax, (undriven, drives, places) = imported("jax"), _matrices(case)
        jax.config.update("jax_enable_x64", True)
        jnp, dynamics = jax.numpy, self._solver
        solver = dynamics.Solver(hamiltonian_operators=np.array([undriven, *drives]), array_library="jax")
        columns = jnp.eye(len(undriven), dtype=complex)[:, jnp.asarray(places)]

        def infidelity(pulses: Any) -> Any:
            duration = pulses[3].max()
            shapes = [_amplitude(jnp, pulses[:, number], duration) for number in range(len(drives))]
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

        return _jax_call(case, infidelity)


def _matrices(case: Case) -> tuple[Array, list[Array], list[int]]:
    """The undriven Hamiltonian and the drives of the product basis, and where computational states are in it."""
    lattice = case.lattice()
    drives = [
        lattice.embedded(drive, (site,)).numpy()
        for drive, site in zip(lattice.drives, lattice.drive_sites, strict=True)
    ]
    return lattice.undriven().numpy(), drives, lattice.computational.tolist()


def _shape(amplitude: float, frequency: float, phase: float, length: float) -> Callable[[float], float]:
    def value(t: float) -> float:
        rising = (1 - math.cos(2 * math.pi * t / length)) / 2
        return amplitude * rising * math.cos(frequency * t + phase) if t <= length else 0.0

    return value


def _amplitude(jnp: Any, pulse: Any, duration: Any) -> Callable[[Any], Any]:
    """A pulse times the duration, as a function of the part of it that has passed."""
    amplitude, frequency, phase, length = pulse

    def value(part: Any) -> Any:
        t = part * duration
        rising = (1 - jnp.cos(2 * jnp.pi * t / length)) / 2
        return jnp.where(t <= length, duration * amplitude * rising * jnp.cos(frequency * t + phase), 0.0)

    return value


def _jax_call(case: Case, infidelity: Callable[[Any], Any]) -> Call:
    jax = imported("jax")
    compiled = jax.jit(jax.value_and_grad(infidelity))
    pulses = jax.numpy.asarray(np.stack([getattr(case.parameters, name).numpy() for name in OF_PULSES]))

    def call() -> tuple[float, Array]:
        value, gradient = compiled(pulses)
        return float(value), np.asarray(gradient).flatten()

    return call
