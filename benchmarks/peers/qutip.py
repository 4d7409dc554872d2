"""QuTiP in double precision, as its documentation says. It has no gradients: only values are timed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from benchmarks.dynamics import Array, ControlTasks
from benchmarks.peers.on_jax import imported
from benchmarks.pulses import DrivenChain
from benchmarks.runner import Call

# The adaptive integrator's tolerance, for an error below that of 5,000 midpoint steps.
TOLERANCE = 1e-9


class Control:
    """The exponential of each segment's Liouvillian, task by task."""

    most: int | None = 2
    exact = True

    def __init__(self, name: str) -> None:
        self._qutip = imported("qutip")

    def prepare(self, tasks: ControlTasks) -> Call:
        """See `dynamics.Own.prepare`."""
        qutip, system = self._qutip, tasks.system
        drift = sum(system.parameters[name] * qutip.Qobj(each) for name, each in system.drift.items())
        controls = [qutip.liouvillian(qutip.Qobj(each)) for each in system.controls.values()]
        jumps = [qutip.lindblad_dissipator(qutip.Qobj(each)) for each in system.jumps.values()]
        fixed = qutip.liouvillian(drift)
        start = qutip.operator_to_vector(qutip.Qobj(np.diag([1.0] + [0.0] * (system.dimension - 1))))
        target = qutip.Qobj(system.projector(tasks.target))
        tau = tasks.duration / tasks.controls.shape[1]

        def value(amplitudes: Array, rates: Array) -> float:
            noise = fixed + sum(rate * each for rate, each in zip(rates.tolist(), jumps, strict=True))
            state = start
            for row in amplitudes.tolist():
                generator = noise + sum(u * each for u, each in zip(row, controls, strict=True))
                state = (tau * generator).expm() * state
            return float((qutip.vector_to_operator(state) * target).tr().real)

        def call() -> tuple[Array, None]:
            return np.array([value(*each) for each in zip(tasks.controls, tasks.rates, strict=True)]), None

        return call


class Gate:
    """`sesolve`, column by column."""

    steps: int | None = None

    def __init__(self, name: str) -> None:
        self._qutip = imported("qutip")

    def prepare(self, chain: DrivenChain) -> Call:
        """See `pulses.Own.prepare`."""
        qutip, (undriven, drives, places) = self._qutip, chain.matrices()
        pulses = zip(*(each.tolist() for each in chain.driven), strict=True)
        terms = [[qutip.Qobj(drive), _shape(*pulse)] for drive, pulse in zip(drives, pulses, strict=True)]
        total = qutip.QobjEvo([qutip.Qobj(undriven), *terms])
        options = {"atol": TOLERANCE, "rtol": TOLERANCE, "nsteps": 10**6}

        def call() -> tuple[float, None]:
            overlap = 0j
            for start, end in zip(places, reversed(places), strict=True):
                state = qutip.basis(len(undriven), start)
                final = qutip.sesolve(total, state, [0.0, chain.duration], options=options).states[-1]
                overlap += final.full()[end, 0]
            return 1 - abs(overlap / len(places)) ** 2, None

        return call


def _shape(amplitude: float, frequency: float, phase: float, length: float) -> Callable[[float], float]:
    def value(t: float) -> float:
        rising = (1 - math.cos(2 * math.pi * t / length)) / 2
        return amplitude * rising * math.cos(frequency * t + phase) if t <= length else 0.0

    return value
